"""ACP ↔ canonical: parts, messages, questions and answers. Streams are in `writer` and `reader`."""

import re
from base64 import b64decode, b64encode
from binascii import Error as BinasciiError
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic_core import to_json

from adapters._body import parse_json, validate
from adapters.acp import wire as w
from canonical import (
    AnnotationPart,
    DataPart,
    FaultCode,
    FaultError,
    FilePart,
    Invocation,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from canonical.event import InterruptRaised
from canonical.message import Role
from canonical.value import Json, JsonObject

__all__ = (
    "View",
    "decode_answer",
    "decode_base64",
    "decode_message",
    "decode_part",
    "decode_question",
    "decode_role",
    "encode_answer",
    "encode_input",
    "encode_message",
    "encode_part",
    "encode_question",
    "encode_role",
    "encode_time",
    "message_extra",
    "own_fields",
    "resource_url",
    "trajectory",
    "unwrapped",
    "wrapped",
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SCHEMA: Final = "application/schema+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything but the records that an encoding depends on."""

    run_id: str
    session_id: str
    agent: str
    """The name under which the agent is advertised."""
    base_url: str = ""


def encode_time(at: int) -> str:
    """With `Z`: the TypeScript client refuses `+00:00`."""
    return (_EPOCH + timedelta(microseconds=at)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def encode_role(role: Role, name: str | None, agent: str) -> str:
    if role == "user":
        return "user"
    return "agent/" + re.sub(r"[^a-zA-Z0-9_\-]", "-", name or agent)


def decode_role(role: str, agent: str | None) -> tuple[Role, str | None]:
    if role == "user":
        return "user", None
    name = role.partition("/")[2] or None
    return "agent", None if name == agent else name


def resource_url(base_url: str, resource_id: str) -> str:
    return f"{base_url}/acp/resources/{resource_id}"


def own_fields(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an ACP peer said that canonical has no word for."""
    return extra.get("acp") or {}


# Parts


def wrapped(value: Json) -> JsonObject:
    """A tool's input or output as the object that a trajectory wants."""
    return value if isinstance(value, dict) else {"value": value}


def unwrapped(value: JsonObject) -> Json:
    if set(value) == {"value"} and not isinstance(value["value"], dict):
        return value["value"]
    return value


def trajectory(
    message: str | None = None,
    *,
    tool: str | None = None,
    input: JsonObject | None = None,
    output: JsonObject | None = None,
) -> w.MessagePart:
    """A part without content that tells of the work."""
    return w.MessagePart(
        metadata=w.Trajectory(message=message, tool_name=tool, tool_input=input, tool_output=output),
    )


def encode_part(part: Part, view: View) -> w.MessagePart:
    match part:
        case TextPart() | RefusalPart():
            made = w.MessagePart(content_type=part.media_type or "text/plain", content=part.text)
        case DataPart():
            made = w.MessagePart(
                content_type=part.media_type or "application/json", content=to_json(part.data).decode()
            )
        case FilePart():
            made = _encode_file(part, view)
        case ReasoningPart():
            made = trajectory(part.text)
        case ToolCallPart():
            made = trajectory(tool=part.name, input=_arguments(part.arguments))
        case ToolResultPart():
            output = {"error": part.output} if part.error else wrapped(part.output)
            made = trajectory(tool=part.call_id, output=output)
        case AnnotationPart():
            made = w.MessagePart(
                metadata=w.Citation(
                    start_index=part.start,
                    end_index=part.end,
                    url=part.url,
                    title=part.title,
                    description=part.description,
                )
            )
    return _with_extra(made, part.extra)


def _with_extra(made: w.MessagePart, extra: Mapping[str, Any]) -> w.MessagePart:
    own = own_fields(extra)
    if not own:
        return made
    kept = {key: value for key, value in own.items() if key not in w.MessagePart.model_fields}
    if made.metadata is None and isinstance(own.get("metadata"), dict):
        kept["metadata"] = own["metadata"]
    return made.model_copy(update=kept)


def _encode_file(part: FilePart, view: View) -> w.MessagePart:
    media_type = part.media_type or "application/octet-stream"
    if part.inline is not None:
        if own_fields(part.extra).get("content_encoding") == "plain":
            return w.MessagePart(name=part.name, content_type=media_type, content=part.inline.decode(errors="replace"))
        content = b64encode(part.inline).decode()
        return w.MessagePart(name=part.name, content_type=media_type, content=content, content_encoding="base64")
    url = part.url
    if url is None and part.blob is not None:
        url = resource_url(view.base_url, part.blob)
    return w.MessagePart(name=part.name, content_type=media_type, content_url=url)


def _arguments(text: str) -> JsonObject:
    try:
        return wrapped(parse_json(text.encode()))
    except (FaultError, UnicodeEncodeError):  # incomplete, as a model may write it
        return {"arguments": text}


def _is_json(media_type: str) -> bool:
    bare = media_type.partition(";")[0].strip().lower()
    return bare == "application/json" or bare.endswith("+json")


def decode_part(part: w.MessagePart, index: int = 0) -> list[Part]:
    """What one wire part says: its content, and what its metadata tells. `index` names tool calls, which have no id."""
    found: list[Part] = []
    extra = _part_extra(part)
    if part.content_url is not None:
        found.append(FilePart(name=part.name, media_type=part.content_type, url=part.content_url, extra=extra))
    elif part.content is not None:
        found.append(_decode_content(part, part.content, extra))
    match part.metadata:
        case w.Citation() as cited:
            found.append(
                AnnotationPart(
                    start=cited.start_index,
                    end=cited.end_index,
                    url=cited.url,
                    title=cited.title,
                    description=cited.description,
                    extra={} if found else extra,
                )
            )
        case w.Trajectory() as step:
            found.extend(_decode_trajectory(step, f"call-{index}", {} if found else extra))
        case _:
            pass
    if not found and extra:  # metadata of a kind that is unknown here, without content
        found.append(TextPart(text="", extra=extra))
    return found


def _part_extra(part: w.MessagePart) -> dict[str, Any]:
    own: dict[str, Any] = dict(part.model_extra or {})
    if isinstance(part.metadata, dict):
        own["metadata"] = part.metadata
    return {"acp": own} if own else {}


def _decode_content(part: w.MessagePart, content: str, extra: dict[str, Any]) -> Part:
    if part.content_encoding == "base64":
        data = decode_base64(content)
        return FilePart(name=part.name, media_type=part.content_type, inline=data, size=len(data), extra=extra)
    if part.name is not None:  # a file whose bytes are readable; the mark lets it leave again as it came
        data = content.encode()
        marked = {"acp": {**own_fields(extra), "content_encoding": "plain"}}
        return FilePart(name=part.name, media_type=part.content_type, inline=data, size=len(data), extra=marked)
    if _is_json(part.content_type):
        try:
            data = parse_json(content.encode())
        except FaultError:  # it says JSON and is not: what it holds is text still
            return TextPart(text=content, media_type=part.content_type, extra=extra)
        return DataPart(data=data, media_type=_unless(part.content_type, "application/json"), extra=extra)
    return TextPart(text=content, media_type=_unless(part.content_type, "text/plain"), extra=extra)


def _unless(media_type: str, default: str) -> str | None:
    return None if media_type == default else media_type


def decode_base64(content: str) -> bytes:
    try:
        return b64decode(content, validate=True)
    except (BinasciiError, ValueError) as error:
        raise FaultError(FaultCode.INVALID, "The content of a part is not base64.") from error


def _decode_trajectory(step: w.Trajectory, call_id: str, extra: dict[str, Any]) -> list[Part]:
    found: list[Part] = []
    if step.message is not None:
        found.append(ReasoningPart(text=step.message, extra=extra))
    if step.tool_name is not None:
        arguments = "" if step.tool_input is None else to_json(unwrapped(step.tool_input)).decode()
        found.append(ToolCallPart(call_id=call_id, name=step.tool_name, arguments=arguments))
    if step.tool_output is not None:
        found.append(ToolResultPart(call_id=call_id, output=unwrapped(step.tool_output)))
    return found


# Messages


def encode_message(message: Message, view: View, at: int | None = None) -> w.Message:
    """A whole message; `at` = when it was said."""
    names = {part.call_id: part.name for part in message.parts if isinstance(part, ToolCallPart)}
    parts = [encode_part(part, view) for part in message.parts]
    for part, made in zip(message.parts, parts, strict=True):
        if isinstance(part, ToolResultPart) and isinstance(made.metadata, w.Trajectory):
            made.metadata.tool_name = names.get(part.call_id)
    time = None if at is None else encode_time(at)
    made = w.Message(
        role=encode_role(message.role, message.name, view.agent), parts=parts, created_at=time, completed_at=time
    )
    return made.model_copy(update=message_extra(message.extra))


def message_extra(extra: Mapping[str, Any]) -> dict[str, Any]:
    own = own_fields(extra)
    return {key: value for key, value in own.items() if key not in w.Message.model_fields and key != "url"}


def decode_message(message: w.Message, *, agent: str | None = None) -> Message:
    """`agent` = whose name in a role is no news."""
    role, name = decode_role(message.role, agent)
    parts = tuple(found for index, part in enumerate(message.parts) for found in decode_part(part, index))
    extra = {"acp": dict(message.model_extra)} if message.model_extra else {}
    return Message(role=role, name=name, parts=parts, extra=extra)


# Questions and answers


def encode_question(event: InterruptRaised, view: View, at: int) -> JsonObject:
    """`await_request`: the SDK's clients know a message and nothing else, so data and schema are parts of it."""
    parts = list(event.message.parts)
    if event.value is not None and not any(isinstance(part, DataPart) for part in parts):
        parts.append(DataPart(data=event.value))
    if event.answer_schema is not None:
        parts.append(DataPart(data=event.answer_schema, media_type=_SCHEMA))
    message = event.message.model_copy(update={"role": "agent", "parts": tuple(parts)})
    return {"type": "message", "message": encode_message(message, view, at).model_dump()}


def decode_question(await_request: JsonObject | None, *, agent: str | None = None) -> InterruptRaised:
    request = await_request or {}
    if not isinstance(request.get("message"), dict):
        said = Message.of("The agent awaits an answer.")
        return InterruptRaised(message=said, value=request or None)
    message = decode_message(validate(w.Message, request["message"]), agent=agent)
    schema: JsonObject | None = None
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, DataPart) and part.media_type == _SCHEMA and isinstance(part.data, dict):
            schema = part.data
        else:
            parts.append(part)
    data = [part.data for part in parts if isinstance(part, DataPart)]
    question = message.model_copy(update={"role": "agent", "parts": tuple(parts)})
    return InterruptRaised(message=question, value=data[0] if len(data) == 1 else None, answer_schema=schema)


def encode_answer(call: Invocation, view: View) -> JsonObject:
    """`await_resume`. It is one message, whatever the answer was made of."""
    parts = [part for message in call.messages for part in message.parts]
    if not parts:
        parts = [
            TextPart(text=answer.value) if isinstance(answer.value, str) else DataPart(data=answer.value)
            for answer in call.answers
        ]
    message = encode_message(Message(role="user", parts=tuple(parts)), view)
    return {"type": "message", "message": message.model_dump(exclude={"created_at", "completed_at"})}


def decode_answer(await_resume: JsonObject) -> tuple[Json, Message]:
    """The answer as a value (JSON where the caller sent JSON, else the text), and as the caller said it. The OpenAPI
    allows any object: one that holds no message is the value itself."""
    if await_resume.get("type") == "message" or isinstance(await_resume.get("message"), dict):
        message = decode_message(validate(w.Message, await_resume.get("message")))
        message = message.model_copy(update={"role": "user", "name": None})
        data = [part.data for part in message.parts if isinstance(part, DataPart)]
        return data[0] if len(data) == 1 and not message.text else message.text, message
    value: Json = await_resume
    return value, Message(role="user", parts=(DataPart(data=value),))


def encode_input(call: Invocation, view: View) -> list[w.Message]:
    """The input of a run. What was said before goes along only where the hub gave it: an agent that remembers gets
    none."""
    made: list[w.Message] = []
    for message in (*call.history, *call.said):
        role: Role = "agent" if message.role == "agent" else "user"
        made.append(encode_message(message.model_copy(update={"role": role}), view))
    return made
