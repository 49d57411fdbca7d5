"""Questions of agents, shown to callers as calls of a tool that the caller has declared, or else as text.

Clients of this API execute every call, and answer one of an unknown tool with an error. Claude Code 2.1.332 does so
even for calls that it would not know how to execute.
"""

import json
from typing import Final

from babelgate.adapters.anthropic.codec.names import encode_call_id
from babelgate.adapters.kit.json import parse_text
from babelgate.canonical import Interrupt, ToolCallPart
from babelgate.canonical.event import InterruptRaised
from babelgate.canonical.json import as_object
from babelgate.canonical.value import JsonObject

ASK: Final = "ask_caller"
"""Name of the tool by whose calls the gateway shows an agent's questions to callers that declare it."""

Question = InterruptRaised | Interrupt


def called_part(question: Question) -> ToolCallPart | None:
    """Return the tool call of a question that asks the caller to execute one of its tools, or None for any other
    question."""
    parts = (part for part in question.message.parts if isinstance(part, ToolCallPart) and part.side == "caller")
    return next(parts, None)


def question_text(question: Question) -> str:
    """Return the text of a question that is shown as text: its message, or else its data as JSON."""
    if question.message.text or question.value is None:
        return question.message.text or "The agent waits for your answer."
    return json.dumps(question.value, ensure_ascii=False)


def encode_question(task_id: str, question: InterruptRaised) -> JsonObject:
    """Return a question as a `tool_use` block: a call of the caller's own tool, or of `ask_caller`."""
    call_id = encode_call_id(task_id, question.interrupt_id or "")
    part = called_part(question)
    if part is None:
        return _tool_use(call_id, ASK, _arguments(question))
    arguments = parse_text(part.arguments or "{}")
    # The API requires an object. Another value of arguments is the text that the model wrote.
    if not isinstance(arguments, dict):
        arguments = {"arguments": part.arguments}
    return _tool_use(call_id, part.name, as_object(arguments))


def _tool_use(call_id: str, name: str, arguments: JsonObject) -> JsonObject:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments, "caller": {"type": "direct"}}


def _arguments(question: InterruptRaised) -> JsonObject:
    arguments: JsonObject = {"question": question.message.text}
    if question.ask != "input":
        arguments["kind"] = question.ask
    if question.answer_schema is not None:
        arguments["schema"] = question.answer_schema
    if question.value is not None:
        arguments["value"] = question.value
    return arguments
