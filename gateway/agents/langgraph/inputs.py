"""What a call is to a graph: the input that its schema asks for, the answers to its questions, its configuration."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from uuid import UUID

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.types import Command, Send
from pydantic import ValidationError

from babelgate.adapters.langchain import request
from babelgate.adapters.langchain.codec.caller_tools import encode_input as encode_tools
from babelgate.adapters.langchain.codec.interrupts import BREAKPOINT, encode_answer
from babelgate.adapters.langchain.codec.message import encode_message
from babelgate.adapters.langchain.codec.state import assistant_id
from babelgate.adapters.langchain.request import callers_configurable, with_tools
from babelgate.canonical import DataPart, FaultCode, FaultError, Invocation, Message
from babelgate.canonical.event import InterruptAnswered
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject, is_uuid

_CLASSES: Final[Mapping[str, type[BaseMessage]]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
    "function": FunctionMessage,
}
_HEX: Final = frozenset("0123456789abcdef")


def to_base_message(message: Message) -> BaseMessage:
    """Raises invalid."""
    wire = encode_message(message)
    try:
        return _CLASSES[wire["type"]].model_validate({name: each for name, each in wire.items() if name != "type"})
    except ValidationError as error:
        raise FaultError(FaultCode.INVALID, f"A message with role {message.role} lacks required fields.") from error


class InputSchema(request.InputSchema):
    """What a graph takes, by the JSON Schema of its input."""

    def __init__(self, schema: JsonObject) -> None:
        super().__init__(schema)
        self.is_object = bool(self.members) or self.schema.get("type") == "object"
        self.has_messages = "messages" in self.members
        """An agent behind a URL without a schema may take them; a graph in this process has its schema."""

    def input(self, call: Invocation, history: Sequence[Message] = ()) -> Json | dict[str, Any]:
        """None lets the graph go on from where it is. `history` = what was said before, to a graph that did not hear
        it.

        Raises:
            FaultError: invalid, if there is no place for what the caller said.
        """
        if not call.messages and call.data is None:
            return None
        if not self.is_object:
            return call.text if call.data is None else call.data
        if call.data is not None and not isinstance(call.data, dict):
            if call.messages or self.text is None or not isinstance(call.data, str):
                return call.data  # the graph says in its own words that it takes none of this
            return {self.text: call.data}
        given: dict[str, Any] = dict(call.data or {})
        given |= encode_tools(call.config, self.members, given)
        if self.has_messages:
            return self._with_messages(given, (*history, *call.messages))
        return self._with_text(given, call)

    def _with_messages(self, given: dict[str, Any], messages: Sequence[Message]) -> dict[str, Any]:
        if not messages:
            return given
        if as_object(self.members["messages"].get("items")).get("type") == "string":
            return {**given, "messages": [message.text for message in messages]}
        return {**given, "messages": [to_base_message(message) for message in messages]}

    def _with_text(self, given: dict[str, Any], call: Invocation) -> dict[str, Any]:
        if not call.messages:
            return given
        parts = [part.data for message in call.messages for part in message.parts if isinstance(part, DataPart)]
        for data in parts:
            if isinstance(data, dict):
                given = {**data, **given}
        text = call.messages[-1].text
        if text and self.text is not None and self.text not in given:
            return {**given, self.text: text}
        if given:
            return given
        wanted = ", ".join(self.members)
        raise FaultError(FaultCode.INVALID, f"This graph takes no text: send data with the fields {wanted}.")


# Answers


def command_of(call: Invocation) -> JsonObject:
    """What a caller wants done to the state (`update`) and where the graph is to go (`goto`), beside an input or an
    answer. `resume` = the answer to a question that no run has raised."""
    given = as_object(call.config.get("command"))
    made = {name: value for name, value in given.items() if name in ("update", "goto") and value}
    if call.cause != "answer" and given.get("resume") is not None:
        made["resume"] = given["resume"]
    goto: Any = made.get("goto")
    if goto:
        made["goto"] = [_target(each) for each in cast("list[Any]", goto if isinstance(goto, list) else [goto])]
    return made


def _target(value: Any) -> Any:
    """The name of a node, or `{node, input}`: the node with an input of its own."""
    there = as_object(value)
    if isinstance(value, str):
        return value
    if isinstance(there.get("node"), str):
        return Send(there["node"], there.get("input"))
    raise FaultError(FaultCode.INVALID, "command.goto must be a node name, or an object with node and input.")


def resume_command(
    answers: Sequence[InterruptAnswered], command: Mapping[str, Any], asked: Mapping[str, JsonObject] | None = None
) -> Any:
    """What lets a paused graph go on; declined questions are answered with None. `command` = what the caller wants done
    beside, `asked` = by question: what is kept of it."""
    values: dict[str, Json] = {}
    for each in answers:
        values[_own_id(each.interrupt_id)] = encode_answer((asked or {}).get(each.interrupt_id, {}), each)
    if all(name.startswith(BREAKPOINT) for name in values):
        return _command(command) if command else None
    values = {name: value for name, value in values.items() if not name.startswith(BREAKPOINT)}
    only = next(iter(values.values())) if len(values) == 1 else None
    if len(values) == 1 and only is not None and not _is_map(only):
        # By its id it would not be found any more if the state was changed since: that makes another checkpoint.
        return _command({**command, "resume": only})
    return _command({**command, "resume": values})


def _command(members: Mapping[str, Any]) -> Any:
    return Command(**members)


def _own_id(interrupt_id: str) -> str:
    """The graph's id of a question; the hub adds a number where one is asked again."""
    return interrupt_id if interrupt_id.startswith(BREAKPOINT) else interrupt_id.partition("-")[0]


def _is_map(value: Json) -> bool:
    """Whether LangGraph would take an answer for answers by id."""
    return isinstance(value, dict) and all(len(name) == 32 and _HEX.issuperset(name) for name in value)


# Configuration


def configuration(call: Invocation, checkpoint: str | None) -> JsonObject:
    # As langgraph-api 0.16.7 does: a header that is let through stands above what the caller says otherwise.
    configurable = configurable_of(call) | callers_configurable(dict(call.input.headers))
    configurable |= {"thread_id": call.thread_id, "checkpoint_ns": "", "graph_id": call.agent}
    configurable["langgraph_auth_user_id"] = call.owner
    named = call.input.assistant or ""
    configurable["assistant_id"] = named if is_uuid(named) else assistant_id(call.agent)
    if checkpoint is not None:
        configurable["checkpoint_id"] = checkpoint
    made: JsonObject = {"configurable": configurable}
    if call.run_id:
        # LangGraph, too, knows by it that it takes up a run that was cut off.
        told = {"run_id": call.run_id, "run_attempt": call.attempt, "graph_id": call.agent}
        # As langgraph-api 0.16.7 does: the caller's own of the run stand above those of the configuration.
        made["metadata"] = {**as_object(call.config.get("metadata")), **call.metadata, **told}
        made["run_id"] = UUID(call.run_id)
        configurable["run_id"] = call.run_id
    limit: Any = call.config.get("recursion_limit")
    tags: Any = call.config.get("tags")
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        made["recursion_limit"] = limit
    if _is_names(tags):
        made["tags"] = tags
    return made


def configurable_of(call: Invocation) -> JsonObject:
    """What the caller may say of it: `configurable` and `context` each may be read under the other's name."""
    theirs = as_object(call.config.get("configurable")) or as_object(call.config.get("context"))
    return with_tools(call.config, callers_configurable(theirs))


def options(call: Invocation, context: frozenset[str]) -> JsonObject:
    """The other arguments of a run. `context` = the members of the graph's context; a caller may give them as part of
    the configuration, too."""
    made: JsonObject = {}
    if given := as_object(call.config.get("context")):
        made["context"] = given
    elif context:
        theirs = as_object(call.config.get("configurable"))
        made["context"] = {name: value for name, value in theirs.items() if name in context}
    if call.config.get("durability") in ("sync", "async", "exit"):
        made["durability"] = call.config["durability"]
    for name in ("interrupt_before", "interrupt_after"):
        nodes: Any = call.config.get(name)
        if nodes == "*" or (_is_names(nodes) and nodes):
            made[name] = nodes
    return made


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in cast("list[object]", value))


def removal(message_id: str) -> BaseMessage:
    return RemoveMessage(id=message_id)
