"""Questions of agents: calls of a tool that the caller has declared, or else text.

Agent frameworks answer a call of a tool that they do not know with an error text, which the agent would take for the
person's answer (seen with LangGraph's ToolNode, Pydantic AI and Vercel's AI SDK, 2026-11).
"""

import json
from collections.abc import Iterator
from typing import Any, Final, cast

from babelgate.adapters.openai.codec.call_id import encode_call_id
from babelgate.adapters.openai.codec.model import call_kind, encode_call, object_in, own_of
from babelgate.canonical import Feature, Interrupt, ToolCallPart
from babelgate.canonical.event import InterruptRaised, RunCreated
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import JsonObject

ASK: Final = "ask_caller"
"""Tool that is called for a question, if the caller declares it and the agent calls no other tool of its caller."""
QUESTIONS_HEADER: Final = "Babelgate-Questions"
"""Request header of callers that take calls of `ask_caller` without declaring it. A model server must not see that
tool, so a client that does not know what its server is sends this header instead."""
CALLS: Final = "calls"
_TOOLS: Final = ("tools", "functions")
_AS_TEXT: Final = "a question as text has none"
_ASKS: Final = "asks"
"""Member of a run's own data: how its caller is asked."""
_WORDS: Final = "words"


def has_ask_tool(config: JsonObject) -> bool:
    """Return whether a request's `tools`, or deprecated `functions`, declare `ask_caller`."""
    return any(_is_ask(tool) for member in _TOOLS for tool in _tools_in(config, member))


def without_ask(config: JsonObject) -> JsonObject:
    """Return the configuration without the tool `ask_caller`, which the gateway itself calls."""
    config = dict(config)
    for member in _TOOLS:
        tools = _tools_in(config, member)
        others = [tool for tool in tools if not _is_ask(tool)]
        if len(others) < len(tools):
            config[member] = others
            if not others:
                del config[member]
    return config


def own_of_questions(*, in_words: bool) -> JsonObject:
    """Return what a run stores, so that whoever reads it later shows its questions as its caller saw them."""
    return {_ASKS: _WORDS} if in_words else {}


def is_asked_in_words(created: RunCreated | None) -> bool:
    """Return whether a run's questions are shown as text: its request came by this API and did not declare
    `ask_caller`. Questions of runs that other protocols started are calls, so that a reader has an id to answer."""
    return created is not None and object_in(dict(created.extra), "openai").get(_ASKS) == _WORDS


def _is_ask(tool: Any) -> bool:
    if not isinstance(tool, dict):
        return False
    declared = cast("JsonObject", tool)
    return ASK in (declared.get("name"), object_in(declared, "function").get("name"))


def _tools_in(config: JsonObject, member: str) -> list[Any]:
    found = config.get(member)
    return cast("list[Any]", found) if isinstance(found, list) else []


def called_part(asked: InterruptRaised | Interrupt) -> ToolCallPart | None:
    """The call, where the question is one."""
    parts = (part for part in asked.message.parts if isinstance(part, ToolCallPart) and part.side == "caller")
    return next(parts, None)


def question_text(asked: InterruptRaised | Interrupt) -> str:
    """Return the text that shows a question: its words, or else its data as JSON."""
    if asked.message.text or asked.value is None:
        return asked.message.text or "The agent waits for your answer."
    return json.dumps(asked.value, ensure_ascii=False)


def question_losses(asked: InterruptRaised) -> Iterator[Feature]:
    """What a call does not say of it."""
    if asked.ask == "auth":
        yield Feature.AUTH_REQUEST
    if asked.answer_schema is not None:
        yield Feature.ANSWER_SCHEMA
    if called_part(asked) is None:
        yield Feature.QUESTION


def text_losses(asked: InterruptRaised) -> Iterator[Loss]:
    """Return the losses of a question that is shown as text."""
    if asked.value is not None and asked.message.text:
        yield Loss(feature=Feature.QUESTION.value, how="the data beside the words of a question")
    if asked.ask == "auth":
        yield Loss(feature=Feature.AUTH_REQUEST.value, how=_AS_TEXT)
    if asked.answer_schema is not None:
        yield Loss(feature=Feature.ANSWER_SCHEMA.value, how=_AS_TEXT)


def encode_question(task_id: str, asked: InterruptRaised) -> JsonObject:
    """SPEC/chat/chat_completion_message_function_tool_call.py, or …_custom_tool_call.py."""
    call_id = encode_call_id(task_id, asked.interrupt_id or "")
    part = called_part(asked)
    if part is None:
        return _function(call_id, ASK, _arguments(asked))
    return encode_call(call_id, part)


def encode_question_item(task_id: str, asked: InterruptRaised) -> JsonObject:
    """SPEC/responses/response_function_tool_call.py, response_custom_tool_call.py, or McpApprovalRequest of
    response_output_item.py, where the question is one that a model on another server asked in this form."""
    call_id = encode_call_id(task_id, asked.interrupt_id or "")
    item_id = call_id.removeprefix("call_")
    part = called_part(asked)
    kind = "function" if part is None else call_kind(part)
    # What a server of this API has told beside it, with its own id of the item.
    theirs: JsonObject = {} if part is None else own_of(part).get("told", {})
    if part is not None and kind == "mcp_approval_request":
        label = str(part.extra["openai"].get("server_label") or "")
        told: JsonObject = {"type": kind, "id": call_id, "server_label": label, "name": part.name}
        return {**theirs, **told, "arguments": part.arguments}
    if part is not None and kind == "custom":
        own = {"type": "custom_tool_call", "id": f"ctc_{item_id}", **theirs, "call_id": call_id}
        return {**own, "name": part.name, "input": part.arguments}
    name, arguments = (ASK, _arguments(asked)) if part is None else (part.name, part.arguments or "{}")
    own = {"type": "function_call", "id": f"fc_{item_id}", **theirs, "call_id": call_id}
    return {**own, "name": name, "arguments": arguments}


def _function(call_id: str, name: str, arguments: str) -> JsonObject:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _arguments(asked: InterruptRaised) -> str:
    told: JsonObject = {"question": asked.message.text}
    if asked.ask != "input":
        told["kind"] = asked.ask
    if asked.answer_schema is not None:
        told["schema"] = asked.answer_schema
    if asked.value is not None:
        told["value"] = asked.value
    return json.dumps(told, ensure_ascii=False)
