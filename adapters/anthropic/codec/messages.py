"""Messages of requests → canonical messages, and the split of a conversation into history and new messages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from babelgate.adapters.anthropic import wire as w
from babelgate.adapters.anthropic.codec.blocks import decode_content, refuse, result_content, text_of
from babelgate.adapters.anthropic.codec.names import PROTOCOL, decode_task_id
from babelgate.adapters.kit.json import ABSENT, is_text_schema, parse_text
from babelgate.canonical import DataPart, Message, Part, TextPart, ToolCallPart, ToolResultPart
from babelgate.canonical.message import Role
from babelgate.canonical.value import Json, JsonObject

_ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "agent", "system": "system"}
_ATTRIBUTION: Final = "x-anthropic-billing-header:"
"""Start of the first system block of Claude Code 2.1.332, which only a server of Anthropic reads."""


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """Result of a tool call by which the gateway showed a question. `task_id` is the task that asked."""

    call_id: str
    task_id: str
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages of a request, split into history and new messages."""

    before: Sequence[w.Message]
    """History: all messages before `new_messages`. It ends with the assistant's last message, unless that is to be
    continued."""
    new_messages: Sequence[w.Message]
    """Messages after the history, to which the agent is to respond, without `answers`."""
    answers: Sequence[CallAnswer]
    """Answers to questions that the gateway showed as tool calls."""

    @classmethod
    def of(cls, body: w.MessageCreate) -> "Conversation":
        """Split the messages of a request, with its system prompt as the first one. Raises invalid for a malformed
        message.

        If they end with a message of the assistant that calls no tool, it counts as new: the agent is to continue it.
        """
        if len(body.messages) == 1 and body.system is None and isinstance(body.messages[0].content, str):
            return cls((), body.messages, ())
        messages = [*_system(body), *body.messages]
        last = max((number for number, each in enumerate(messages) if each.role == "assistant"), default=-1)
        if last == len(messages) - 1 and not _has_calls(messages[last]):
            last = max((number for number, each in enumerate(messages) if each.role == "user"), default=-1)
        answers: list[CallAnswer] = []
        news: list[w.Message] = []
        for each in messages[last + 1 :]:
            others, results = _split_answers(each)
            answers += results
            if others is not None:
                news.append(others)
        if len({answer.task_id for answer in answers}) > 1:
            refuse("messages", "These are results of tool calls of several runs: send those of one run.")
        if len({answer.call_id for answer in answers}) < len(answers):
            refuse("messages", "A tool call has two results.")
        return cls(messages[: last + 1], news, answers)


def _system(body: w.MessageCreate) -> list[w.Message]:
    if body.system is None:
        return []
    if isinstance(body.system, str):
        return [w.Message(role="system", content=body.system)] if body.system else []
    blocks = [block for block in body.system if not (block.text or "").startswith(_ATTRIBUTION)]
    return [w.Message(role="system", content=blocks)] if blocks else []


def _has_calls(message: w.Message) -> bool:
    return not isinstance(message.content, str) and any(block.type == "tool_use" for block in message.content)


def _split_answers(message: w.Message) -> tuple[w.Message | None, list[CallAnswer]]:
    """Return a new message without the answers to questions, or None if nothing else is in it, and these answers."""
    if message.role != "user" or isinstance(message.content, str):
        return message, []
    answers: list[CallAnswer] = []
    others: list[w.Block] = []
    for block in message.content:
        call_id = block.tool_use_id
        task_id = decode_task_id(call_id) if block.type == "tool_result" and call_id is not None else None
        if call_id is None or task_id is None:
            others.append(block)
        else:
            text = text_of(result_content(block))
            answers.append(CallAnswer(call_id, task_id, text, block.is_error is True))
    if not answers:
        return message, []
    return (message.model_copy(update={"content": others}) if others else None), answers


def decode_answer(text: str, schema: JsonObject | None) -> tuple[Json, Message]:
    """Return the value of an answer for the agent, and a message that shows it to readers of other protocols.

    The value is the text of the result. If the question has a schema and the text is a JSON object or array, the value
    is that JSON.
    """
    if schema is not None and not is_text_schema(schema) and text.lstrip()[:1] in ("{", "["):
        value = parse_text(text)
        if value is not ABSENT:
            return value, Message(role="user", parts=(DataPart(data=value),))
    return text, Message.of(text, "user")


def decode_messages(messages: Sequence[w.Message]) -> tuple[Message, ...]:
    """Return messages of a request as canonical messages. Results of tools become separate messages. Raises invalid
    for a malformed message, and unsupported for content that the gateway cannot pass to the agent."""
    return tuple(each for number, message in enumerate(messages) for each in _decode(message, f"messages.{number}"))


def _decode(message: w.Message, where: str) -> Iterator[Message]:
    role = _ROLES[message.role]
    parts: list[Part] = []
    is_tool = False
    for part in decode_content(message.content, f"{where}.content"):
        if isinstance(part, ToolResultPart) != is_tool and parts:
            yield _message("tool" if is_tool else role, parts)
            parts = []
        is_tool = isinstance(part, ToolResultPart)
        parts.append(part)
    if parts or message.role == "user":
        yield _message("tool" if is_tool else role, parts)


def _message(role: Role, parts: Sequence[Part]) -> Message:
    return Message(role=role, parts=tuple(parts))


# Messages of callers, for the digest of a conversation and for the server of an agent


def is_text(message: Message) -> bool:
    """Return True if a message consists of text only."""
    return all(isinstance(part, TextPart) for part in message.parts)


def own_members(part: Part) -> JsonObject:
    """Return the members in a part's `extra` that only this protocol has."""
    return dict(part.extra.get(PROTOCOL) or {})


def has_caller_call(message: Message) -> bool:
    """Return True if a message calls a tool of the caller."""
    return any(isinstance(part, ToolCallPart) and part.side == "caller" for part in message.parts)
