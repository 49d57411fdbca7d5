"""Questions of agents, shown to callers as calls of a tool that the caller has declared, or else as text.

Agent frameworks answer a call of an unknown tool with an error text. The agent would take that text for the person's
answer (seen with LangGraph's ToolNode, Pydantic AI and Vercel's AI SDK, 2026-11).
"""

import json
from collections.abc import Iterator
from typing import Any, Final, cast

from babelgate.adapters.openai.codec.call_id import encode_call_id
from babelgate.adapters.openai.codec.model import call_kind, encode_call, object_in, openai_extra
from babelgate.canonical import Feature, Interrupt, ToolCallPart
from babelgate.canonical.event import InterruptRaised, RunCreated
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import JsonObject

ASK: Final = "ask_caller"
"""Name of the tool by whose calls the gateway shows an agent's questions. Only callers that declare this tool, or send
`QUESTIONS_HEADER`, get such calls."""
QUESTIONS_HEADER: Final = "Babelgate-Questions"
"""Request header of clients that accept calls of `ask_caller` without declaring this tool. The gateway's own client
sends the header to every server, because a model on an ordinary server must not see the tool."""
CALLS: Final = "calls"
_TOOLS: Final = ("tools", "functions")
_AS_TEXT: Final = "a text question has none"
_ASKS: Final = "asks"
"""Key in the `extra` of a run's input: how the caller sees questions of the run."""
_WORDS: Final = "words"


def has_ask_tool(config: JsonObject) -> bool:
    """Return True if a request's `tools`, or deprecated `functions`, declare `ask_caller`."""
    return any(_is_ask(tool) for member in _TOOLS for tool in _tools_in(config, member))


def without_ask(config: JsonObject) -> JsonObject:
    """Return the configuration without the tool `ask_caller`. The gateway itself calls this tool, so the agent must not
    see it."""
    config = dict(config)
    for member in _TOOLS:
        tools = _tools_in(config, member)
        others = [tool for tool in tools if not _is_ask(tool)]
        if len(others) < len(tools):
            config[member] = others
            if not others:
                del config[member]
    return config


def questions_extra(*, in_words: bool) -> JsonObject:
    """Return members for the `extra` of a run's input that record how its caller sees questions: as text if `in_words`,
    else as tool calls. Later readers of the run see them the same way."""
    return {_ASKS: _WORDS} if in_words else {}


def has_text_questions(created: RunCreated | None) -> bool:
    """Return True if the caller of a run sees its questions as text. `created` is the event that created the run.

    That is so if the caller used this API and did not declare `ask_caller`. Questions of runs from other protocols are
    shown as calls, whose id a reader needs for the answer.
    """
    return created is not None and object_in(dict(created.extra), "openai").get(_ASKS) == _WORDS


def _is_ask(tool: Any) -> bool:
    if not isinstance(tool, dict):
        return False
    declared = cast("JsonObject", tool)
    return ASK in (declared.get("name"), object_in(declared, "function").get("name"))


def _tools_in(config: JsonObject, member: str) -> list[Any]:
    tools = config.get(member)
    return cast("list[Any]", tools) if isinstance(tools, list) else []


def called_part(question: InterruptRaised | Interrupt) -> ToolCallPart | None:
    """Return the tool call in a question that asks the caller to run one of its tools. Return None for any other
    question."""
    parts = (part for part in question.message.parts if isinstance(part, ToolCallPart) and part.side == "caller")
    return next(parts, None)


def question_text(question: InterruptRaised | Interrupt) -> str:
    """Return the text of a question that is shown as text: its message, or else its data as JSON."""
    if question.message.text or question.value is None:
        return question.message.text or "The agent waits for your answer."
    return json.dumps(question.value, ensure_ascii=False)


def question_losses(question: InterruptRaised) -> Iterator[Feature]:
    """Yield the features of a question that are lost if it is shown as a tool call."""
    if question.ask == "auth":
        yield Feature.AUTH_REQUEST
    if question.answer_schema is not None:
        yield Feature.ANSWER_SCHEMA
    if called_part(question) is None:
        yield Feature.QUESTION


def text_losses(question: InterruptRaised) -> Iterator[Loss]:
    """Yield the losses of a question if it is shown as text."""
    if question.value is not None and question.message.text:
        yield Loss(feature=Feature.QUESTION.value, how="the data of a question, except its text")
    if question.ask == "auth":
        yield Loss(feature=Feature.AUTH_REQUEST.value, how=_AS_TEXT)
    if question.answer_schema is not None:
        yield Loss(feature=Feature.ANSWER_SCHEMA.value, how=_AS_TEXT)


def encode_question(task_id: str, question: InterruptRaised) -> JsonObject:
    """Return a question as a tool call of a chat completion: a call of the caller's own tool, or of `ask_caller`.

    See SPEC/chat/chat_completion_message_function_tool_call.py and …_custom_tool_call.py.
    """
    call_id = encode_call_id(task_id, question.interrupt_id or "")
    part = called_part(question)
    if part is None:
        return _function(call_id, ASK, _arguments(question))
    return encode_call(call_id, part)


def encode_question_item(task_id: str, question: InterruptRaised) -> JsonObject:
    """Return a question as an output item of a response.

    A question that a model on another server asked as a call keeps that form:
    SPEC/responses/response_function_tool_call.py, response_custom_tool_call.py, or McpApprovalRequest of
    response_output_item.py. Any other question becomes a call of `ask_caller`.
    """
    call_id = encode_call_id(task_id, question.interrupt_id or "")
    item_id = call_id.removeprefix("call_")
    part = called_part(question)
    kind = "function" if part is None else call_kind(part)
    # Further members that a server of this API sent with the call, such as its own id of the item.
    upstream: JsonObject = {} if part is None else openai_extra(part).get("told", {})
    if part is not None and kind == "mcp_approval_request":
        label = str(part.extra["openai"].get("server_label") or "")
        members: JsonObject = {"type": kind, "id": call_id, "server_label": label, "name": part.name}
        return {**upstream, **members, "arguments": part.arguments}
    if part is not None and kind == "custom":
        members = {"type": "custom_tool_call", "id": f"ctc_{item_id}", **upstream, "call_id": call_id}
        return {**members, "name": part.name, "input": part.arguments}
    name, arguments = (ASK, _arguments(question)) if part is None else (part.name, part.arguments or "{}")
    members = {"type": "function_call", "id": f"fc_{item_id}", **upstream, "call_id": call_id}
    return {**members, "name": name, "arguments": arguments}


def _function(call_id: str, name: str, arguments: str) -> JsonObject:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _arguments(question: InterruptRaised) -> str:
    arguments: JsonObject = {"question": question.message.text}
    if question.ask != "input":
        arguments["kind"] = question.ask
    if question.answer_schema is not None:
        arguments["schema"] = question.answer_schema
    if question.value is not None:
        arguments["value"] = question.value
    return json.dumps(arguments, ensure_ascii=False)
