"""Request bodies for upstream servers, in either dialect."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from babelgate.adapters.kit.extension import URI
from babelgate.adapters.langchain.codec.caller_tools import encode_declared, encode_tool_message
from babelgate.adapters.langchain.codec.caller_tools import encode_input as encode_tools
from babelgate.adapters.langchain.codec.interrupts import BREAKPOINT, encode_answer
from babelgate.adapters.langchain.codec.message import encode_agent_protocol_message, encode_message
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
    # The README's list has no `messages`, and that of OpenAPI 0.1.6 has no other mode for messages.
    "readme": ("values", "updates", "messages-tuple", "custom"),
    "readme-debug": ("values", "updates", "messages-tuple", "custom", "debug"),
    "openapi": ("values", "updates", "messages", "custom"),
}
"""Stream modes to request from a server, by a key that names the server's layout and capabilities.

`langgraph-basic` is for servers without the modes `tasks` and `checkpoints`. `readme-debug` is for a Babelgate: `debug`
of other servers repeats the whole state, and contains nothing that the reader needs.
"""
FEWER_MODES: Final = ("langgraph-basic", "langgraph-early", "langgraph-least")
"""Keys of `MODES` to try in turn on a server that refuses those of `langgraph`. @langchain/langgraph-api before 1.0
accepts `langgraph-basic`, handwritten servers often fewer."""

_TEXT_MEMBERS: Final = ("input", "question", "query", "prompt", "message", "text", "task", "topic", "user_input")
"""Common names of the input member in which a graph takes the caller's text, the most likely first."""
_HEX: Final = frozenset("0123456789abcdef")
_RESERVED_MEMBERS: Final = frozenset(
    {"thread_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map", "run_id", "graph_id"}
)
"""Members of `configurable` that callers cannot set, because LangGraph uses them for ids."""
_PASSED_OPTIONS: Final = ("interrupt_before", "interrupt_after", "durability")
"""Members of a run's configuration that become top-level members of the request, unchanged."""


class InputSchema:
    """Input that an agent takes, according to its JSON Schema. An agent without a schema takes messages."""

    def __init__(self, schema: Mapping[str, Any] | None = None) -> None:
        root = dict(schema or {})
        self.schema = resolved = _resolve_reference(root, root)
        self.members: Mapping[str, JsonObject] = {
            name: _resolve_reference(as_object(member), root)
            for name, member in as_object(resolved.get("properties")).items()
        }
        self.has_messages = not self.members or "messages" in self.members
        required: Any = resolved.get("required") or ()
        texts = [name for name, member in self.members.items() if _takes_text(member)]
        required_texts = [name for name in texts if name in required]
        known_texts = [name for name in _TEXT_MEMBERS if name in texts]
        self.text: str | None = next((names[0] for names in (required_texts, texts) if len(names) == 1), None)
        self.text = self.text or (known_texts[0] if known_texts else None)
        """Name of the member that takes the caller's text, or None. It is the only string member, or else the first of
        `_TEXT_MEMBERS` that exists."""


def _resolve_reference(schema: JsonObject, root: JsonObject) -> JsonObject:
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        definition = as_object(root.get("$defs")).get(reference.removeprefix("#/$defs/"))
        return definition if isinstance(definition, dict) else schema  # pyright: ignore[reportUnknownVariableType]
    return schema


def _takes_text(schema: JsonObject) -> bool:
    if "enum" in schema or "const" in schema:
        return False
    choices: Any = schema.get("anyOf") or [schema]
    options = [as_object(choice) for choice in choices] if isinstance(choices, list) else []  # pyright: ignore[reportUnknownVariableType]
    return any(choice.get("type") == "string" and "enum" not in choice for choice in options)


# Inputs


def encode_input(call: Invocation, schema: InputSchema, history: Sequence[Message] = ()) -> Json:
    """Return the input of a LangGraph run: an object with the caller's data, messages and tools, under the members that
    the graph's schema has for them.

    `history` are the messages of the conversation that the server does not have. Returns None for a run without an
    input. An empty object starts the graph from its beginning (langgraph-api 0.16.7).

    Raises invalid if the agent has no member for the caller's text.
    """
    if not call.messages and call.data is None and not history:
        return None
    run_input = _encode_input(call, schema, history)
    if isinstance(run_input, dict):
        return {**encode_tools(call.config, schema.members, run_input), **run_input}
    return run_input


def _encode_input(call: Invocation, schema: InputSchema, history: Sequence[Message]) -> Json:
    messages = (*history, *call.messages)
    if call.data is not None and not isinstance(call.data, dict):
        if not messages:
            return {schema.text: call.data} if isinstance(call.data, str) and schema.text is not None else call.data
        return {"messages": [encode_message(message) for message in messages], "input": call.data}
    members: JsonObject = dict(call.data or {})
    if not messages:
        return members
    if not schema.has_messages:
        return _with_text(members, call, schema)
    items = as_object(as_object(schema.members.get("messages")).get("items"))
    if items.get("type") == "string":
        return {**members, "messages": [message.text for message in messages]}
    return {**members, "messages": [encode_message(message) for message in messages]}


def _with_text(members: JsonObject, call: Invocation, schema: InputSchema) -> JsonObject:
    """Return the input for a graph that takes no messages: `members`, the caller's data parts, and the text in the
    member that takes it. Raises invalid if no member takes the text and there is no data."""
    for message in call.messages:
        for part in message.parts:
            if isinstance(part, DataPart) and isinstance(part.data, dict):
                members = {**part.data, **members}
    text = call.messages[-1].text if call.messages else ""
    if text and schema.text is not None and schema.text not in members:
        return {**members, schema.text: text}
    if text and not members:
        names = ", ".join(schema.members)
        raise FaultError(FaultCode.INVALID, f"The agent takes no text: send data with the fields {names}.")
    return members


# Answers


def encode_answers(call: Invocation, past: Sequence[Record]) -> JsonObject:
    """Return the members of a request that resumes a paused run, from the caller's answers and the records of the run
    (`past`).

    They are `command` with the values, an empty `input` after a breakpoint, or tool messages if the graph had ended on
    tool calls. A declined question is answered with null.
    """
    raised = {r.event.interrupt_id: r.event for r in past if isinstance(r.event, InterruptRaised)}
    values: dict[str, Json] = {}
    values_without_id: list[Json] = []
    results: list[JsonObject] = []
    for answer in call.answers:
        question = raised.get(answer.interrupt_id)
        interrupt = as_object({} if question is None else question.extra.get("langchain"))
        if interrupt.get("ended"):
            results.append(encode_tool_message(interrupt, answer))
            continue
        if interrupt.get("breakpoint") or answer.interrupt_id.startswith(BREAKPOINT):
            continue
        wire_id = interrupt.get("id") if question is not None else answer.interrupt_id
        value = encode_answer(interrupt, answer)
        if isinstance(wire_id, str):
            values[wire_id] = value
        else:
            values_without_id.append(value)
    if results:
        return {"input": {"messages": results}}
    if values_without_id:
        return {"command": {"resume": values_without_id[0]}}
    if not values:
        return {"input": None}
    only = next(iter(values.values())) if len(values) == 1 else None
    # An answer by id would not find its question if the state was changed since, because that creates another
    # checkpoint.
    is_bare = only is not None and not _is_map(only)
    return {"command": {"resume": only if is_bare else values}}


def _is_map(value: Json) -> bool:
    """Return True if langgraph 1.2.22 would read the value as answers by interrupt id. It does so for an object whose
    names all look like such ids (`pregel/_loop.py`, is_xxh3_128_hexdigest)."""
    return isinstance(value, dict) and (not value or all(_is_id(name) for name in value))


def _is_id(name: str) -> bool:
    return len(name.replace("-", "")) == 32 and _HEX.issuperset(name.replace("-", ""))


# Runs


def encode_run(
    call: Invocation,
    run_input: JsonObject,
    *,
    dialect: Dialect,
    agent: str,
    modes: Sequence[str],
    thread_id: str | None = None,
    checkpoint: str | None = None,
    extension: JsonObject | None = None,
) -> JsonObject:
    """Return the JSON body that creates a run.

    - `run_input`: members with the run's input or its answers.
    - `thread_id`: thread of the run, if the path does not contain it.
    - `checkpoint`: id of the checkpoint from which to continue. None: the newest one.
    - `extension`: part of the request for the Babelgate extension. None: not active.
    """
    body: JsonObject = {
        "assistant_id" if dialect == "langgraph" else "agent_id": agent,
        **run_input,
        **_encode_config(call.config),
        "metadata": {**_metadata(call), **({} if extension is None else {URI: extension})},
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
    """Return True if encoding a message in LangChain's form and decoding it again changes its role, parts or
    metadata."""
    (decoded,) = decode_messages([encode_message(message)])
    return (decoded.role, decoded.parts, decoded.metadata) != (message.role, message.parts, message.metadata)


def encode_messages(call: Invocation, history: Sequence[Message] = ()) -> JsonObject:
    """Return the members of an Agent Protocol request that hold the run's input: `messages`, and `input` with the data.
    A member without content is left out.

    `history` are the messages of the conversation that the server does not have.
    """
    messages = [encode_agent_protocol_message(message) for message in (*history, *call.messages)]
    members: JsonObject = {"messages": messages} if messages else {}
    return members if call.data is None else {**members, "input": call.data}


def _metadata(call: Invocation) -> JsonObject:
    """Return the metadata of the run for the server: the caller's, and this run's id as `gateway_run`. The client finds
    the run by this id if the response with the server's id is lost."""
    return {**{k: v for k, v in call.metadata.items() if k != "babelgate"}, "gateway_run": call.run_id}


def _encode_config(config: JsonObject) -> JsonObject:
    """Return the members of the request with the caller's configuration of the run. If the caller set a `context`,
    `configurable` is merged into it: langgraph-api 0.16.7 refuses requests that have both (400)."""
    options: JsonObject = {name: config[name] for name in _PASSED_OPTIONS if config.get(name)}
    configurable = with_tools(config, callers_configurable(as_object(config.get("configurable"))))
    context = as_object(config.get("context"))
    wire_config: JsonObject = {name: config[name] for name in ("tags", "recursion_limit") if config.get(name)}
    if context:
        options["context"] = {**configurable, **context}
    elif configurable:
        wire_config["configurable"] = configurable
    return {**options, "config": wire_config} if wire_config else options


def with_tools(config: JsonObject, configurable: JsonObject) -> JsonObject:
    """Return the caller's `configurable` with the caller's tools in the members `tools` and `tool_choice`, for graphs
    that read them there."""
    tools = encode_declared(config)
    choice = {"tool_choice": config["tool_choice"]} if config.get("tool_choice") is not None else {}
    return {"tools": tools, **choice, **configurable} if tools else configurable


def callers_configurable(configurable: JsonObject) -> JsonObject:
    """Return the members of `configurable` that callers may set. Left out are ids that the gateway sets, and names that
    LangGraph reserves: `__pregel_…`, and `langgraph_auth_user` of langgraph-api 0.16.7."""
    return {
        name: value
        for name, value in configurable.items()
        if name not in _RESERVED_MEMBERS and not name.startswith(("__", "langgraph_auth"))
    }


def encode_command(call: Invocation) -> JsonObject:
    """Return the caller's command for a graph: changes of the state (`update`) and the next nodes (`goto`).

    `resume` is included only if the run does not answer open questions of the hub: it then answers a question that the
    graph will ask during this run.
    """
    command = as_object(call.config.get("command"))
    members = {name: command[name] for name in ("update", "goto") if command.get(name)}
    has_answer = call.cause != "answer" and command.get("resume") is not None
    return {**members, "resume": command["resume"]} if has_answer else members


# States


def encode_update(call: Invocation, removed_ids: Sequence[str], as_node: str | None) -> JsonObject:
    """Return the JSON body of a caller's change of a thread's state. It counts as the output of the node `as_node`; the
    server chooses the node if it is None."""
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
