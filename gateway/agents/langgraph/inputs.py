"""Conversion of an invocation into a graph's arguments: the input, the answers to its questions, and the
configuration."""

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
    """Return a message in LangChain's form. Raises invalid if it lacks required fields."""
    wire = encode_message(message)
    try:
        return _CLASSES[wire["type"]].model_validate({name: each for name, each in wire.items() if name != "type"})
    except ValidationError as error:
        raise FaultError(FaultCode.INVALID, f"A message with role {message.role} lacks required fields.") from error


class GraphInputSchema(request.InputSchema):
    """JSON Schema of a graph's input, which decides how the caller's messages and data are passed to the graph."""

    def __init__(self, schema: JsonObject) -> None:
        super().__init__(schema)
        self.is_object = bool(self.members) or self.schema.get("type") == "object"
        self.has_messages = "messages" in self.members
        """True if the schema has a member `messages`. Without it, a graph in this process gets no messages. An agent
        behind a URL may accept messages even without a schema."""

    def input(self, call: Invocation, history: Sequence[Message] = ()) -> Json | dict[str, Any]:
        """Return the input of the graph for the caller's messages and data. Return None, which continues the graph from
        its checkpoint, if there are none.

        `history` has the earlier messages, if the graph has not received them.

        Raises:
            FaultError: invalid, if the schema has no member for the caller's text.
        """
        if not call.messages and call.data is None:
            return None
        if not self.is_object:
            return call.text if call.data is None else call.data
        if call.data is not None and not isinstance(call.data, dict):
            if call.messages or self.text is None or not isinstance(call.data, str):
                return call.data  # the graph rejects it with its own error
            return {self.text: call.data}
        members: dict[str, Any] = dict(call.data or {})
        members |= encode_tools(call.config, self.members, members)
        if self.has_messages:
            return self._with_messages(members, (*history, *call.messages))
        return self._with_text(members, call)

    def _with_messages(self, members: dict[str, Any], messages: Sequence[Message]) -> dict[str, Any]:
        """Return the members of the input and `messages`, as strings if the schema requires strings, otherwise as
        message objects."""
        if not messages:
            return members
        if as_object(self.members["messages"].get("items")).get("type") == "string":
            return {**members, "messages": [message.text for message in messages]}
        return {**members, "messages": [to_base_message(message) for message in messages]}

    def _with_text(self, members: dict[str, Any], call: Invocation) -> dict[str, Any]:
        """Return the input of a graph without messages: `members`, the members of the messages' data parts, and the
        text of the last message.

        Raises invalid if nothing of the caller's input fits the schema.
        """
        if not call.messages:
            return members
        parts = [part.data for message in call.messages for part in message.parts if isinstance(part, DataPart)]
        for data in parts:
            if isinstance(data, dict):
                members = {**data, **members}
        text = call.messages[-1].text
        if text and self.text is not None and self.text not in members:
            return {**members, self.text: text}
        if members:
            return members
        wanted = ", ".join(self.members)
        raise FaultError(FaultCode.INVALID, f"This graph takes no text: send data with the fields {wanted}.")


# Answers


def command_of(call: Invocation) -> JsonObject:
    """Return the members of the caller's LangGraph `Command`, which accompanies an input or an answer.

    `update` changes the state, and `goto` names the next nodes. `resume` answers a question of the graph that is not in
    the log.
    """
    sent = as_object(call.config.get("command"))
    command = {name: value for name, value in sent.items() if name in ("update", "goto") and value}
    if call.cause != "answer" and sent.get("resume") is not None:
        command["resume"] = sent["resume"]
    goto: Any = command.get("goto")
    if goto:
        command["goto"] = [_target(each) for each in cast("list[Any]", goto if isinstance(goto, list) else [goto])]
    return command


def _target(value: Any) -> Any:
    """Return a target of `goto`: the name of a node, or a `Send` for `{node, input}`. Raises invalid for any other
    value."""
    target = as_object(value)
    if isinstance(value, str):
        return value
    if isinstance(target.get("node"), str):
        return Send(target["node"], target.get("input"))
    raise FaultError(FaultCode.INVALID, "command.goto must be a node name, or an object with node and input.")


def resume_command(
    answers: Sequence[InterruptAnswered], command: Mapping[str, Any], questions: Mapping[str, JsonObject] | None = None
) -> Any:
    """Return the LangGraph command that continues a paused graph. Declined questions are answered with None.

    `command` has the members of the caller's command. `questions` has the stored LangChain data of the questions, by
    id.
    """
    values: dict[str, Json] = {}
    for each in answers:
        values[_own_id(each.interrupt_id)] = encode_answer((questions or {}).get(each.interrupt_id, {}), each)
    if all(name.startswith(BREAKPOINT) for name in values):
        return _command(command) if command else None
    values = {name: value for name, value in values.items() if not name.startswith(BREAKPOINT)}
    only = next(iter(values.values())) if len(values) == 1 else None
    if len(values) == 1 and only is not None and not _is_map(only):
        # Sent without its id: a state change since then creates another checkpoint, in which the id is unknown.
        return _command({**command, "resume": only})
    return _command({**command, "resume": values})


def _command(members: Mapping[str, Any]) -> Any:
    return Command(**members)


def _own_id(interrupt_id: str) -> str:
    """Return the id that the graph has given a question. If the graph asked it twice, the hub has appended `-2`, for
    example."""
    return interrupt_id if interrupt_id.startswith(BREAKPOINT) else interrupt_id.partition("-")[0]


def _is_map(value: Json) -> bool:
    """Return True if LangGraph would take this answer for a dict of answers by question id: all its keys are 32 hex
    digits."""
    return isinstance(value, dict) and all(len(name) == 32 and _HEX.issuperset(name) for name in value)


# Configuration


def configuration(call: Invocation, checkpoint: str | None) -> JsonObject:
    """Return the `RunnableConfig` of a call. `checkpoint` is the id of the checkpoint to start from; None starts from
    the newest one."""
    # As in langgraph-api 0.16.7, a forwarded header overrides the caller's configuration.
    configurable = configurable_of(call) | callers_configurable(dict(call.input.headers))
    configurable |= {"thread_id": call.thread_id, "checkpoint_ns": "", "graph_id": call.agent}
    configurable["langgraph_auth_user_id"] = call.owner
    assistant = call.input.assistant or ""
    configurable["assistant_id"] = assistant if is_uuid(assistant) else assistant_id(call.agent)
    if checkpoint is not None:
        configurable["checkpoint_id"] = checkpoint
    config: JsonObject = {"configurable": configurable}
    if call.run_id:
        # By the attempt, LangGraph recognizes the continuation of an interrupted run.
        run_metadata = {"run_id": call.run_id, "run_attempt": call.attempt, "graph_id": call.agent}
        # As in langgraph-api 0.16.7, the metadata of the run overrides that of the configuration.
        config["metadata"] = {**as_object(call.config.get("metadata")), **call.metadata, **run_metadata}
        config["run_id"] = UUID(call.run_id)
        configurable["run_id"] = call.run_id
    limit: Any = call.config.get("recursion_limit")
    tags: Any = call.config.get("tags")
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        config["recursion_limit"] = limit
    if _is_names(tags):
        config["tags"] = tags
    return config


def configurable_of(call: Invocation) -> JsonObject:
    """Return the `configurable` of the caller's configuration, or its `context` if `configurable` is empty, with the
    caller's tools."""
    from_caller = as_object(call.config.get("configurable")) or as_object(call.config.get("context"))
    return with_tools(call.config, callers_configurable(from_caller))


def options(call: Invocation, context: frozenset[str]) -> JsonObject:
    """Return the keyword arguments for the run of a graph, in addition to its input and its `RunnableConfig`.

    They are `context`, `durability`, `interrupt_before` and `interrupt_after`, from the caller's configuration.

    `context` names the members of the graph's context schema. A caller who sends no context may send these members in
    `configurable`.
    """
    arguments: JsonObject = {}
    if sent_context := as_object(call.config.get("context")):
        arguments["context"] = sent_context
    elif context:
        configurable = as_object(call.config.get("configurable"))
        arguments["context"] = {name: value for name, value in configurable.items() if name in context}
    if call.config.get("durability") in ("sync", "async", "exit"):
        arguments["durability"] = call.config["durability"]
    for name in ("interrupt_before", "interrupt_after"):
        nodes: Any = call.config.get(name)
        if nodes == "*" or (_is_names(nodes) and nodes):
            arguments[name] = nodes
    return arguments


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in cast("list[object]", value))


def removal(message_id: str) -> BaseMessage:
    """Return the LangChain message that removes the message with this id from the state."""
    return RemoveMessage(id=message_id)
