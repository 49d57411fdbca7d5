"""Conversion of UI messages of the AI SDK to canonical messages, tools and answers, and back."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from babelgate.adapters.kit.client.consent import is_yes
from babelgate.adapters.kit.json import ABSENT, json_text, parse_text
from babelgate.adapters.vercel_ui import wire as w
from babelgate.canonical import (
    DataPart,
    FaultCode,
    FaultError,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import InterruptRaised, RunCreated
from babelgate.canonical.json import as_object
from babelgate.canonical.thread import Interrupt
from babelgate.canonical.value import Extra, Json, JsonObject

PROTOCOL: Final = "vercel-ui"
ASK: Final = "ask_caller"
"""Name of a tool that a page may declare in its requests. The gateway then sends a question as a call of this tool, and
the result of the call is the answer."""
APPROVE: Final = "approve"
"""Tool name in the call that shows an approval, if the agent's question names no tool."""

_ASKS: Final = "asks"
_TYPED: Final = "typed"
_ID: Final = "id"
_NO: Final = frozenset({"no", "n", "false", "reject", "deny", "decline", "cancel"})
"""Words, in lower case, that refuse an approval which the user answers with a text message."""
_TOOL: Final = "tool-"
_DATA: Final = "data-"


# Members that the gateway stores with a run or a message


def run_extra(*, asks: bool, typed: bool = False) -> Extra:
    """Return flags of a run for `RunInput.extra`, under the key `vercel-ui`; empty if neither is set. `asks` is True if
    the page declares `ask_caller`, and `typed` if the user answered a question with a text message."""
    members: JsonObject = {**({_ASKS: True} if asks else {}), **({_TYPED: True} if typed else {})}
    return {PROTOCOL: members} if members else {}


def can_ask(created: RunCreated) -> bool:
    """Return True if the request that created a run declared the tool `ask_caller`, as `run_extra` has stored it."""
    return bool(as_object(created.extra.get(PROTOCOL)).get(_ASKS))


def is_new_reply(created: RunCreated) -> bool:
    """Return True if a later run of a task begins a new assistant message, because a user message precedes it. The
    result is False for the first run of a task, which always begins one."""
    return created.cause == "follow_up" or bool(as_object(created.extra.get(PROTOCOL)).get(_TYPED))


def ui_id(message: Message) -> str:
    """Return the id that the page gave to a user message. For a message that came by another protocol, return the
    gateway's `message_id`."""
    page_id = as_object(message.extra.get(PROTOCOL)).get(_ID)
    return page_id if isinstance(page_id, str) else message.message_id or ""


# Messages


def request_messages(body: w.ChatRequest) -> list[w.UIMessage]:
    """Return the `messages` of a request and its single `message`, or its `prompt` as a user message. Raises invalid if
    there is none, or if all have the form of AI SDK 4."""
    messages = list(body.messages or ())
    if body.message is not None:
        messages.append(body.message)
    if not messages and body.prompt is not None:
        messages.append(w.UIMessage(role="user", parts=[{"type": "text", "text": body.prompt}]))
    if not messages:
        raise invalid("messages", "The request has no message.")
    if all(message.parts is None for message in messages):
        raise invalid("messages", "Messages of AI SDK 4 are not served: the page needs version 5, 6 or 7.")
    return messages


def invalid(field: str, words: str) -> FaultError:
    """Return the fault `invalid` for a member of the request, for example `messages.0.parts.1.url`. `words` says what
    is wrong with it."""
    return FaultError(FaultCode.INVALID, f"{field}: {words}", errors=[{"field": field, "description": words}])


def decode_message(message: w.UIMessage, where: str = "message") -> Message:
    """Return a user or system message in canonical form, with the page's id in `extra`. `where` is its path in the
    request, for error texts. Raises invalid."""
    parts = tuple(_decode_part(part, f"{where}.parts.{number}") for number, part in enumerate(message.all_parts))
    extra: Extra = {PROTOCOL: {_ID: message.id}} if message.id else {}
    role = "system" if message.role == "system" else "user"
    shown_parts = tuple(part for part in parts if part is not None)
    return Message(role=role, parts=shown_parts, metadata=as_object(message.metadata), extra=extra)


def decode_history(messages: Sequence[w.UIMessage]) -> Iterator[Message]:
    """Yield the canonical messages of a conversation that the gateway has not stored. Each result of a tool becomes a
    separate message of the role `tool`, after the message with the call. Raises invalid."""
    for number, message in enumerate(messages):
        if message.role != "assistant":
            yield decode_message(message, f"messages.{number}")
            continue
        parts: list[Part] = []
        for place, part in enumerate(message.all_parts):
            name = tool_name(part)
            if name is None:
                decoded = _decode_part(part, f"messages.{number}.parts.{place}")
                parts += [] if decoded is None else [decoded]
                continue
            call_id = _text(part, "toolCallId")
            arguments = json_text(part.get("input"))
            side = "agent" if part.get("providerExecuted") is True else "caller"
            call = ToolCallPart(call_id=call_id, name=name, arguments=arguments, side=side)
            yield Message(parts=(*parts, call))
            parts = []
            if part.get("state") in ("output-available", "output-error"):
                is_error = part["state"] == "output-error"
                output = part.get("errorText") if is_error else part.get("output")
                result = ToolResultPart(call_id=call_id, output=output, error=is_error)
                yield Message(role="tool", parts=(result,))
        if parts:
            yield Message(parts=tuple(parts))


def _decode_part(part: JsonObject, where: str) -> Part | None:
    """Return a part of a `UIMessage` in canonical form, or None for a type without one, such as `step-start`. `where`
    is its path in the request. Raises invalid."""
    match part.get("type"):
        case "text":
            return TextPart(text=_text(part, "text", where))
        case "reasoning":
            return ReasoningPart(text=_text(part, "text", where))
        case "file":
            name: object = part.get("filename")
            media_type: object = part.get("mediaType")
            return FilePart(
                name=name if isinstance(name, str) else None,
                media_type=media_type if isinstance(media_type, str) else None,
                url=_text(part, "url", where),
            )
        case str() as kind if kind.startswith(_DATA):
            return DataPart(data=part.get("data"), extra={PROTOCOL: {"name": kind.removeprefix(_DATA)}})
        case str():
            return None
        case _:
            raise invalid(f"{where}.type", "Input should be a valid string")


def _text(part: JsonObject, name: str, where: str = "") -> str:
    value: object = part.get(name)
    if isinstance(value, str):
        return value
    if where:
        raise invalid(f"{where}.{name}", "Input should be a valid string")
    return ""


def tool_name(part: JsonObject) -> str | None:
    """Return the tool's name in a part of the type `tool-<name>` or `dynamic-tool`, or None for a part of another
    type."""
    kind: object = part.get("type")
    if kind == "dynamic-tool":
        return _text(part, "toolName")
    return kind.removeprefix(_TOOL) if isinstance(kind, str) and kind.startswith(_TOOL) else None


# Tools and configuration


def tools_of(body: w.ChatRequest) -> list[JsonObject]:
    """Return the tools that the page declares, except `ask_caller`, each as `{"type": "function", "function": …}`.

    An object of tools by name, as assistant-ui's `AssistantChatTransport` sends it, is converted. The items of a list
    are returned unchanged.
    """
    tools: list[JsonObject] = []
    for name, tool in _declarations(body):
        if name == ASK:
            continue
        if isinstance(body.tools, list):
            tools.append(tool)
            continue
        function: JsonObject = {"name": name}
        if isinstance(description := tool.get("description"), str):
            function["description"] = description
        schema = tool.get("parameters") or tool.get("inputSchema")
        if isinstance(schema, dict):
            function["parameters"] = schema
        tools.append({"type": "function", "function": function})
    return tools


def has_ask_tool(body: w.ChatRequest) -> bool:
    """Return True if a request declares the tool `ask_caller`."""
    return any(name == ASK for name, _ in _declarations(body))


def _declarations(body: w.ChatRequest) -> Iterator[tuple[str, JsonObject]]:
    """Yield the name and the declaration of each tool in `tools` of a request, which is an object by name or a list."""
    if isinstance(body.tools, dict):
        yield from ((name, as_object(tool)) for name, tool in body.tools.items())
    for tool in body.tools if isinstance(body.tools, list) else ():
        declared = as_object(tool)
        name = declared.get("name") or as_object(declared.get("function")).get("name")
        if isinstance(name, str):
            yield name, declared


def config_of(body: w.ChatRequest) -> JsonObject:
    """Return the configuration of a run: the declared `tools`, and all top-level members that the app has added to the
    request."""
    config: JsonObject = dict(body.model_extra or {})
    if tools := tools_of(body):
        config["tools"] = tools
    return config


# Questions and answers


def called_part(question: InterruptRaised | Interrupt) -> ToolCallPart | None:
    """Return the call of a page's tool that a question contains, or None for a question that is not such a call."""
    parts = (part for part in question.message.parts if isinstance(part, ToolCallPart) and part.side == "caller")
    return next(parts, None)


def question_text(question: InterruptRaised | Interrupt) -> str:
    """Return the text that shows a question: the text of its message, or else its value as JSON, or else a fixed
    sentence."""
    if question.message.text or question.value is None:
        return question.message.text or "The agent waits for your answer."
    return json_text(question.value)


def question_members(question: InterruptRaised) -> JsonObject:
    """Return the members of a question besides its text: `kind` (unless it is `input`), and the `schema` and the
    `value` if it has them."""
    members: JsonObject = {}
    if question.ask != "input":
        members["kind"] = question.ask
    if question.answer_schema is not None:
        members["schema"] = question.answer_schema
    if question.value is not None:
        members["value"] = question.value
    return members


def approved_tool(question: InterruptRaised) -> tuple[str, Json]:
    """Return the tool name and the input of the call that shows an approval: those of the call that the question
    contains or describes. If it has none, the name is `approve` and the input is the question."""
    part = called_part(question)
    if part is not None:
        return part.name, arguments_of(part)
    value = as_object(question.value)
    name: object = value.get("name")
    if isinstance(name, str) and name:
        for member in ("args", "arguments", "input"):
            if isinstance(value.get(member), dict):
                return name, value[member]
    return APPROVE, {"question": question.message.text, **question_members(question)}


def arguments_of(part: ToolCallPart) -> Json:
    """Return the arguments of a tool call as a JSON value: `{}` if there are none, and the text itself if it is not
    JSON."""
    value = parse_text(part.arguments) if part.arguments else {}
    return part.arguments if value is ABSENT else value


@dataclass(frozen=True, slots=True)
class Decisions:
    """Answer values of one approval: `yes` approves, and `no` refuses."""

    yes: Json
    no: Json = None
    """Value that refuses. None means that a refusal declines the question without a value."""


def decisions_of(schema: JsonObject | None) -> Decisions | None:
    """Return the values that approve and refuse under the answer schema of an approval, for example True and False.
    Return None if the schema needs more than a yes or a no, such as two required fields."""
    if not schema:
        return Decisions(yes=True)
    if schema.get("type") == "boolean":
        return Decisions(yes=True, no=False)
    words: object = schema.get("enum")
    if isinstance(words, list) and len(cast("list[Any]", words)) == 2:
        yes, no = sorted(cast("list[Json]", words), key=is_yes, reverse=True)
        return Decisions(yes, no) if is_yes(yes) and not is_yes(no) and no is not None else None
    properties, required = as_object(schema.get("properties")), schema.get("required")
    names = cast("list[Any]", required) if isinstance(required, list) else list(properties)
    if len(names) == 1 and isinstance(names[0], str):
        inner = decisions_of(as_object(properties.get(names[0])))
        if inner is not None and inner.no is not None:
            return Decisions({names[0]: inner.yes}, {names[0]: inner.no})
    return None


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """Answer to one question, from a tool part or a text message of the page. `reason` is the user's comment, or the
    error text of a tool."""

    question_id: str
    value: Json
    is_declined: bool = False
    reason: str = ""


def decode_answers(message: w.UIMessage, questions: Mapping[str, Interrupt]) -> list[PartAnswer]:
    """Return the answers in an assistant message that the page has completed and sent back. Only tool parts for
    `questions` are read: the open questions, by id."""
    answers: list[PartAnswer] = []
    for part in message.all_parts:
        if tool_name(part) is None or part.get("state") not in w.TOOL_ENDS:
            continue
        approval = as_object(part.get("approval"))
        question_id = _text(approval, "id") or _text(part, "toolCallId")
        question = questions.get(question_id)
        if question is not None:
            answers.append(_decode_answer(part, approval, question))
    return answers


def _decode_answer(part: JsonObject, approval: JsonObject, question: Interrupt) -> PartAnswer:
    question_id = question.interrupt_id
    match part.get("state"):
        case "output-available":
            return PartAnswer(question_id, part.get("output"))
        case "output-error":
            return PartAnswer(question_id, None, is_declined=True, reason=_text(part, "errorText"))
        case _:
            decisions = decisions_of(question.answer_schema) or Decisions(yes=True)
            reason = _text(approval, "reason")
            if approval.get("approved") is True:
                return PartAnswer(question_id, decisions.yes, reason=reason)
            return PartAnswer(question_id, decisions.no, is_declined=decisions.no is None, reason=reason)


def decode_words(text: str, question: Interrupt) -> PartAnswer:
    """Return the user's text as the answer to a question. For an approval, a word that means yes or no becomes the
    value of that decision."""
    decisions = decisions_of(question.answer_schema) if question.ask == "approval" else None
    if decisions is not None and is_yes(text):
        return PartAnswer(question.interrupt_id, decisions.yes)
    if decisions is not None and text.strip().rstrip(".!").lower() in _NO:
        return PartAnswer(question.interrupt_id, decisions.no, is_declined=decisions.no is None)
    return PartAnswer(question.interrupt_id, text)


def tool_ids(message: w.UIMessage) -> Iterator[str]:
    """Yield the question id of each tool part that the page has answered, in the last step of an assistant message.
    Calls of the agent's own tools are left out."""
    parts = message.all_parts
    last = max((number for number, part in enumerate(parts) if part.get("type") == "step-start"), default=0)
    for part in parts[last:]:
        if (
            tool_name(part) is not None
            and part.get("state") in w.TOOL_ENDS
            and part.get("providerExecuted") is not True
        ):
            yield _text(as_object(part.get("approval")), "id") or _text(part, "toolCallId")


def answer_message(answer: PartAnswer) -> Message:
    """Return a user message that shows an answer, for the log and for agents that read messages. It has the reason, the
    answered text, or the answered value as data."""
    if answer.reason or answer.is_declined:
        return Message.of(answer.reason or "Declined.", "user")
    if isinstance(answer.value, str):
        return Message.of(answer.value, "user")
    return Message(role="user", parts=(DataPart(data=answer.value),))


def can_answer_in_words(question: Interrupt, *, asks: bool, sdk: int) -> bool:
    """Return True if a text message of the user is the answer to a question, and not a new input. `asks` is True if the
    page shows questions as calls of `ask_caller`, and `sdk` is the major version of its SDK."""
    if called_part(question) is not None:
        return False
    if question.takes_text:
        return True
    if question.ask == "approval" and sdk >= 6 and decisions_of(question.answer_schema) is not None:
        return False
    schema = question.answer_schema
    return not asks or schema is None or schema.get("type") in (None, "string")


def encode_user_message(message: Message, file_url: Callable[[FilePart], str]) -> JsonObject:
    """Return a user or system message as a `UIMessage` for the page. `file_url` returns the URL of a file."""
    parts: list[JsonObject] = []
    for part in message.parts:
        match part:
            case TextPart():
                parts.append({"type": "text", "text": part.text})
            case FilePart():
                file: JsonObject = {"type": "file", "mediaType": part.media_type or "application/octet-stream"}
                name: JsonObject = {} if part.name is None else {"filename": part.name}
                parts.append({**file, **name, "url": file_url(part)})
            case DataPart():
                kind = as_object(part.extra.get(PROTOCOL)).get("name") or "part"
                parts.append({"type": f"{_DATA}{kind}", "data": part.data})
            case _:
                pass
    role = "system" if message.role == "system" else "user"
    members: JsonObject = {"id": ui_id(message), "role": role, "parts": parts}
    return {**members, "metadata": message.metadata} if message.metadata else members
