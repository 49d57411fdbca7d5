"""What is asked of another server: bodies of its calls, in either dialect."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from babelgate.adapters.kit.extension import URI
from babelgate.adapters.langchain.codec.caller_tools import encode_declared, encode_tool_message
from babelgate.adapters.langchain.codec.caller_tools import encode_input as encode_tools
from babelgate.adapters.langchain.codec.interrupts import BREAKPOINT, encode_answer
from babelgate.adapters.langchain.codec.message import encode_message, encode_said
from babelgate.adapters.langchain.codec.state import decode_messages
from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.canonical import DataPart, FaultCode, FaultError, Invocation, Message, Record
from babelgate.canonical.event import InterruptRaised
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "langgraph": ("values", "updates", "messages-tuple", "custom", "tasks", "checkpoints"),
    "langgraph-basic": ("values", "updates", "messages-tuple", "custom"),
    "langgraph-early": ("values", "updates", "messages"),
    "langgraph-least": ("values",),
    # The README's list has no `messages`, that of OpenAPI 0.1.6 nothing else for it.
    "readme": ("values", "updates", "messages-tuple", "custom"),
    "readme-debug": ("values", "updates", "messages-tuple", "custom", "debug"),
    "openapi": ("values", "updates", "messages", "custom"),
}
"""What is asked for, by the form of the server; `basic` = where tasks and checkpoints are not known, `debug` = of a
gateway like this one. Others say nothing in `debug` that is read here, and the whole state again and again."""
FEWER_MODES: Final = ("langgraph-basic", "langgraph-early", "langgraph-least")
"""Forms to try in turn on a server that refuses the modes of `langgraph`. @langchain/langgraph-api before 1.0 takes
those of `basic`, handwritten servers often fewer."""

_TEXT_MEMBERS: Final = ("input", "question", "query", "prompt", "message", "text", "task", "topic", "user_input")
"""Names under which graphs take a text, the likeliest first."""
_HEX: Final = frozenset("0123456789abcdef")
_NOT_CALLERS: Final = frozenset({"thread_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map", "run_id", "graph_id"})
_PASSED: Final = ("interrupt_before", "interrupt_after", "durability")


class InputSchema:
    """What an agent takes, by the JSON Schema of its input. Without one it takes messages."""

    def __init__(self, schema: Mapping[str, Any] | None = None) -> None:
        root = dict(schema or {})
        self.schema = resolved = _resolve_reference(root, root)
        self.members: Mapping[str, JsonObject] = {
            name: _resolve_reference(as_object(each), root)
            for name, each in as_object(resolved.get("properties")).items()
        }
        self.has_messages = not self.members or "messages" in self.members
        required: Any = resolved.get("required") or ()
        texts = [name for name, each in self.members.items() if _takes_text(each)]
        must = [name for name in texts if name in required]
        named = [name for name in _TEXT_MEMBERS if name in texts]
        self.text: str | None = next((found[0] for found in (must, texts) if len(found) == 1), None)
        """The member for the text of a caller that says nothing else."""
        self.text = self.text or (named[0] if named else None)


def _resolve_reference(schema: JsonObject, root: JsonObject) -> JsonObject:
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        found = as_object(root.get("$defs")).get(reference.removeprefix("#/$defs/"))
        return found if isinstance(found, dict) else schema  # pyright: ignore[reportUnknownVariableType]
    return schema


def _takes_text(schema: JsonObject) -> bool:
    if "enum" in schema or "const" in schema:
        return False
    choices: Any = schema.get("anyOf") or [schema]
    found = [as_object(choice) for choice in choices] if isinstance(choices, list) else []  # pyright: ignore[reportUnknownVariableType]
    return any(choice.get("type") == "string" and "enum" not in choice for choice in found)


# Inputs


def encode_input(call: Invocation, shape: InputSchema, history: Sequence[Message] = ()) -> Json:
    """LangGraph's: messages are a member of it. `history` = what was said before, to a server that did not hear it.

    Return None for a run without an input. An empty object starts the graph from its beginning (langgraph-api 0.16.7).

    Raises:
        FaultError: invalid, if the agent has no place for what the caller said.
    """
    if not call.messages and call.data is None and not history:
        return None
    made = _encode_input(call, shape, history)
    if isinstance(made, dict):
        return {**encode_tools(call.config, shape.members, made), **made}
    return made


def _encode_input(call: Invocation, shape: InputSchema, history: Sequence[Message]) -> Json:
    messages = (*history, *call.messages)
    if call.data is not None and not isinstance(call.data, dict):
        if not messages:
            return {shape.text: call.data} if isinstance(call.data, str) and shape.text is not None else call.data
        return {"messages": [encode_message(message) for message in messages], "input": call.data}
    given: JsonObject = dict(call.data or {})
    if not messages:
        return given
    if not shape.has_messages:
        return _with_text(given, call, shape)
    items = as_object(as_object(shape.members.get("messages")).get("items"))
    if items.get("type") == "string":
        return {**given, "messages": [message.text for message in messages]}
    return {**given, "messages": [encode_message(message) for message in messages]}


def _with_text(given: JsonObject, call: Invocation, shape: InputSchema) -> JsonObject:
    for message in call.messages:
        for part in message.parts:
            if isinstance(part, DataPart) and isinstance(part.data, dict):
                given = {**part.data, **given}
    text = call.messages[-1].text if call.messages else ""
    if text and shape.text is not None and shape.text not in given:
        return {**given, shape.text: text}
    if text and not given:
        wanted = ", ".join(shape.members)
        raise FaultError(FaultCode.INVALID, f"The agent takes no text: send data with the fields {wanted}.")
    return given


# Answers


def encode_answers(call: Invocation, past: Sequence[Record]) -> JsonObject:
    """What lets a paused run go on: `command`, or an empty `input` where nobody asked. A declined question is answered
    with null."""
    raised = {r.event.interrupt_id: r.event for r in past if isinstance(r.event, InterruptRaised)}
    values: dict[str, Json] = {}
    nameless: list[Json] = []
    results: list[JsonObject] = []
    for answer in call.answers:
        question = raised.get(answer.interrupt_id)
        own = as_object({} if question is None else question.extra.get("langchain"))
        if own.get("ended"):
            results.append(encode_tool_message(own, answer))
            continue
        if own.get("breakpoint") or answer.interrupt_id.startswith(BREAKPOINT):
            continue
        wire_id = own.get("id") if question is not None else answer.interrupt_id
        value = encode_answer(own, answer)
        if isinstance(wire_id, str):
            values[wire_id] = value
        else:
            nameless.append(value)
    if results:
        return {"input": {"messages": results}}
    if nameless:
        return {"command": {"resume": nameless[0]}}
    if not values:
        return {"input": None}
    only = next(iter(values.values())) if len(values) == 1 else None
    # By its id an answer would not be found any more where the state was changed since: that makes another checkpoint.
    bare = only is not None and not _is_map(only)
    return {"command": {"resume": only if bare else values}}


def _is_map(value: Json) -> bool:
    """Whether it would be taken for answers by id: langgraph 1.2.22 does if all names look like ids of interrupts
    (`pregel/_loop.py`, is_xxh3_128_hexdigest)."""
    return isinstance(value, dict) and (not value or all(_is_id(name) for name in value))


def _is_id(name: str) -> bool:
    return len(name.replace("-", "")) == 32 and _HEX.issuperset(name.replace("-", ""))


# Runs


def encode_run(
    call: Invocation,
    asked: JsonObject,
    *,
    dialect: Dialect,
    agent: str,
    modes: Sequence[str],
    thread_id: str | None = None,
    checkpoint: str | None = None,
    told: JsonObject | None = None,
) -> JsonObject:
    """The body that creates a run. `asked` = its input or its answers; `thread_id` = where it is no part of the
    path; `told` = what is said by the extension, None = it is not activated."""
    body: JsonObject = {
        "assistant_id" if dialect == "langgraph" else "agent_id": agent,
        **asked,
        **_encode_config(call.config),
        "metadata": {**_metadata(call), **({} if told is None else {URI: told})},
        "stream_mode": list(modes),
        "stream_subgraphs": True,
        "stream_resumable": True,
        "multitask_strategy": "enqueue",
        "on_disconnect": "continue",
    }
    if thread_id is not None:
        body["thread_id"] = thread_id
    if checkpoint is not None:
        body["checkpoint_id"] = checkpoint
    return body


def is_lossy(message: Message) -> bool:
    """Whether the other side would read something else than what is said."""
    (read,) = decode_messages([encode_message(message)])
    return (read.role, read.parts, read.metadata) != (message.role, message.parts, message.metadata)


def encode_messages(call: Invocation, history: Sequence[Message] = ()) -> JsonObject:
    """The Agent Protocol's: messages stand beside the input. A run without an input has neither."""
    messages = [encode_said(message) for message in (*history, *call.messages)]
    made: JsonObject = {"messages": messages} if messages else {}
    return made if call.data is None else {**made, "input": call.data}


def _metadata(call: Invocation) -> JsonObject:
    """The caller's, and the run's own id: by it the run is found where the answer that tells its id was lost."""
    return {**{k: v for k, v in call.metadata.items() if k != "babelgate"}, "gateway_run": call.run_id}


def _encode_config(given: JsonObject) -> JsonObject:
    """What the caller wants of the run itself. langgraph-api 0.16.7 takes one of configurable and context, answers 400
    to both, and makes it the other."""
    made: JsonObject = {name: given[name] for name in _PASSED if given.get(name)}
    configurable = with_tools(given, callers_configurable(as_object(given.get("configurable"))))
    context = as_object(given.get("context"))
    config: JsonObject = {name: given[name] for name in ("tags", "recursion_limit") if given.get(name)}
    if context:
        made["context"] = {**configurable, **context}
    elif configurable:
        config["configurable"] = configurable
    return {**made, "config": config} if config else made


def with_tools(config: JsonObject, configurable: JsonObject) -> JsonObject:
    """What a caller configures, and the tools that it declares, for graphs that look for them there."""
    declared = encode_declared(config)
    choice = {"tool_choice": config["tool_choice"]} if config.get("tool_choice") is not None else {}
    return {"tools": declared, **choice, **configurable} if declared else configurable


def callers_configurable(theirs: JsonObject) -> JsonObject:
    """What callers may not say is what the gateway says itself, and what LangGraph keeps for its own use: `__pregel_…`,
    and `langgraph_auth_user` of langgraph-api 0.16.7."""
    return {
        name: value
        for name, value in theirs.items()
        if name not in _NOT_CALLERS and not name.startswith(("__", "langgraph_auth"))
    }


def encode_command(call: Invocation) -> JsonObject:
    """Return the members of a caller's command: changes of the state (`update`) and the next nodes (`goto`).

    `resume` is among them only if it answers a question that no run has raised.
    """
    given = as_object(call.config.get("command"))
    made = {name: given[name] for name in ("update", "goto") if given.get(name)}
    has_answer = call.cause != "answer" and given.get("resume") is not None
    return {**made, "resume": given["resume"]} if has_answer else made


# States


def encode_update(call: Invocation, removed_ids: Sequence[str], as_node: str | None) -> JsonObject:
    values = dict(as_object(call.data))
    if call.messages or removed_ids:
        removed = [{"type": "remove", "id": message_id, "content": ""} for message_id in removed_ids]
        values["messages"] = [*removed, *(encode_message(message) for message in call.messages)]
    body: JsonObject = {"values": values}
    if as_node is not None:
        body["as_node"] = as_node
    if call.input.checkpoint is not None:
        body["checkpoint_id"] = call.input.checkpoint
    return body
