"""ACP ↔ canonical: messages, questions and answers. Their parts are in `parts`, streams in `write` and `read`."""

import re
from collections.abc import Sequence
from typing import Any, Final, cast

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.parts import View, decode_part, encode_parts, extra_of, own_of
from babelgate.adapters.kit.extension import named_question
from babelgate.adapters.kit.json import validate
from babelgate.adapters.kit.time import encode_time
from babelgate.canonical import DataPart, Invocation, Message, Part, TextPart
from babelgate.canonical.event import InterruptRaised
from babelgate.canonical.message import Role
from babelgate.canonical.value import Extra, Json, JsonObject

_SCHEMA: Final = "application/schema+json"
_TIMES: Final[tuple[str, ...]] = ("created_at", "completed_at")
_REQUEST: Final = "acp.request"
_MESSAGE: Final = "acp.message"
"""The key in `extra` of a message, its start and its end: known members of the wire message that canonical has no word
for. Beside `acp`, which holds the unknown ones."""

OF_RUN: Final = "run"
"""The name of a `Native` event without data: its `extra` holds members of a peer's run that nobody here knows."""


def encode_role(role: Role, name: str | None, agent: str) -> str:
    if role == "user":
        return "user"
    # components.schemas.Message.role: `^(user|agent(\/[a-zA-Z0-9_\-]+)?)$`.
    return "agent/" + re.sub(r"[^a-zA-Z0-9_\-]", "-", name or agent)


def decode_role(role: str, agent: str | None) -> tuple[Role, str | None]:
    if role == "user":
        return "user", None
    name = role.partition("/")[2] or None
    return "agent", None if name == agent else name


# Messages


def encode_message(message: Message, view: View, at: int | None = None) -> w.Message:
    """A whole message; `at` = when it was said, unless it tells that itself."""
    made = w.Message(role=encode_role(message.role, message.name, view.agent), parts=encode_parts(message.parts, view))
    members = message_members(message.extra, metadata=message.metadata)
    if at is not None:
        time = encode_time(at)  # with `Z`: the TypeScript client refuses `+00:00`
        members = {"created_at": time, "completed_at": time, **members}
    return made.model_copy(update=members)


def message_members(extra: Extra, **own: JsonObject) -> dict[str, Any]:
    """What a message of an ACP peer says beside its parts: unknown members, and its times. `own` = what else is said of
    it, which ACP has no place for."""
    theirs = extra_of(extra)
    unknown = {key: value for key, value in theirs.items() if key not in w.Message.model_fields and key != "url"}
    told = {name: value for name, value in own.items() if value}
    return {**unknown, **(extra.get(_MESSAGE) or {}), **({w.OWN: told} if told else {})}


def own_member(message: w.Message, name: str) -> JsonObject:
    """What another gateway says beside a message."""
    told = own_of(message).get(name)
    return cast("JsonObject", told) if isinstance(told, dict) else {}


def message_extra(message: w.Message, *times: str) -> dict[str, Any]:
    """`extra` from which `message_members` are read; `times` = which of them are known."""
    unknown = {name: value for name, value in (message.model_extra or {}).items() if name != w.OWN}
    extra: dict[str, Any] = {"acp": unknown} if unknown else {}
    said = {name: _utc(getattr(message, name)) for name in times if name in message.model_fields_set}
    if said:
        extra[_MESSAGE] = said
    return extra


def _utc(time: str | None) -> str | None:
    # The TypeScript client of SDK 1.0.3 (zod, `datetime()`) takes no offset but Z.
    return time.replace("+00:00", "Z") if time is not None else None


def decode_message(message: w.Message, *, agent: str | None = None) -> Message:
    """`agent` = whose name in a role is no news. Raises invalid."""
    role, name = decode_role(message.role, agent)
    parts = tuple(found for index, part in enumerate(message.parts) for found in decode_part(part, index))
    extra = message_extra(message, *_TIMES)
    if message.role == "agent":  # nobody's name, where a message of ours has one
        extra[_MESSAGE] = {**(extra.get(_MESSAGE) or {}), "role": message.role}
    return Message(role=role, name=name, parts=parts, metadata=own_member(message, "metadata"), extra=extra)


def dump_given(message: w.Message) -> JsonObject:
    """Without times that nobody gave: the other side has a clock."""
    return message.model_dump(exclude={name for name in _TIMES if name not in message.model_fields_set})


# Requests


def request_extra(request: w.RunCreateRequest) -> Extra:
    """What the caller said of the run that canonical has no word for: unknown members, and the name of the agent in the
    caller's own words."""
    extra: dict[str, Any] = {"acp": dict(request.model_extra)} if request.model_extra else {}
    return {**extra, _REQUEST: {"agent_name": request.agent_name}}


def request_metadata(request: w.RunCreateRequest) -> JsonObject:
    """ACP has none, but callers send it all the same: agents of other protocols have a place for it."""
    metadata = (request.model_extra or {}).get("metadata")
    return cast("JsonObject", metadata) if isinstance(metadata, dict) else {}


def agent_called(extra: Extra) -> str | None:
    """By the caller of a run, if that spoke ACP."""
    request: JsonObject = extra.get(_REQUEST) or {}
    return request.get("agent_name")


# Questions and answers


def encode_question(event: InterruptRaised, view: View, at: int) -> JsonObject:
    """`await_request`: the SDK's clients know a message and nothing else, so data and schema are parts of it."""
    parts = list(event.message.parts)
    if event.value is not None and not any(isinstance(part, DataPart) for part in parts):
        parts.append(DataPart(data=event.value))
    if event.answer_schema is not None:
        parts.append(DataPart(data=event.answer_schema, media_type=_SCHEMA))
    message = event.message.replace(role="agent", parts=tuple(parts))
    return {**extra_of(event.extra), "type": "message", "message": encode_message(message, view, at).model_dump()}


def encode_questions(open: Sequence[tuple[InterruptRaised, int]], view: View) -> JsonObject:
    """A run has a single `await_request` (components.schemas.Run): it is that of the oldest, and beside its message
    stands what ACP has no place for, that there are others, and that one asks for credentials. `int` = when it was
    asked."""
    asked = [encode_question(event, view, at) for event, at in open]
    if len(open) == 1 and open[0][0].ask == "input":
        return asked[0]
    told: list[JsonObject] = [
        {"id": event.interrupt_id, "ask": event.ask, "message": each["message"]}
        for (event, _), each in zip(open, asked, strict=True)
    ]
    return {**asked[0], w.OWN: {"questions": told}}


def decode_questions(await_request: JsonObject | None, *, agent: str | None = None) -> list[InterruptRaised]:
    """All that are told. Raises invalid."""
    own = (await_request or {}).get(w.OWN)
    listed = cast("JsonObject", own).get("questions") if isinstance(own, dict) else None
    found: list[InterruptRaised] = []
    for each in cast("list[Any]", listed) if isinstance(listed, list) else []:
        told = cast("JsonObject", each) if isinstance(each, dict) else {}
        id, ask = told.get("id"), told.get("ask")
        if isinstance(id, str) and isinstance(told.get("message"), dict):
            asked = decode_question({"message": told["message"]}, agent=agent)
            kind = ask if ask in ("approval", "auth") else "input"
            found.append(named_question(asked.replace(interrupt_id=id, ask=kind)))
    return found or [decode_question(await_request, agent=agent)]


def decode_question(await_request: JsonObject | None, *, agent: str | None = None) -> InterruptRaised:
    """Raises invalid."""
    request = await_request or {}
    # components.schemas.AwaitRequest: any object; only the SDK's own servers always put a message in it.
    if not isinstance(request.get("message"), dict):
        said = Message.of("The agent awaits an answer.")
        return InterruptRaised(message=said, value=request or None)
    told = validate(w.Message, request["message"])
    message = decode_message(told, agent=agent)
    schema: JsonObject | None = None
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, DataPart) and part.media_type == _SCHEMA and isinstance(part.data, dict):
            schema = part.data
        else:
            parts.append(part)
    data = [part.data for part in parts if isinstance(part, DataPart)]
    # Whatever role it is asked in (the SDK's default is `user`), it is the agent that asks.
    own: JsonObject = {**message.extra, _MESSAGE: {**(message.extra.get(_MESSAGE) or {}), "role": told.role}}
    question = message.replace(role="agent", parts=tuple(parts), extra=own)
    more = {name: value for name, value in request.items() if name not in ("type", "message", w.OWN)}
    return InterruptRaised(
        message=question,
        value=data[0] if len(data) == 1 else None,
        answer_schema=schema,
        extra={"acp": more} if more else {},
    )


def encode_answer(call: Invocation, view: View, answers: Sequence[JsonObject] = ()) -> JsonObject:
    """`await_resume`. It is one message, whatever the answer was made of. `answers` = to questions of a gateway like
    this one, each by its id."""
    parts = [part for message in call.messages for part in message.parts]
    if not parts:
        parts = [
            TextPart(text=answer.value) if isinstance(answer.value, str) else DataPart(data=answer.value)
            for answer in call.answers
        ]
    message = encode_message(Message(role="user", parts=tuple(parts)), view)
    # SDK 1.0.3 (MessageAwaitResume) refuses any other type, with 403.
    made: JsonObject = {"type": "message", "message": dump_given(message)}
    return {**made, w.OWN: {"answers": list(answers)}} if answers else made


def decode_answer(await_resume: JsonObject) -> tuple[Json, Message]:
    """The answer as a value (JSON where the caller sent JSON, else the text), and as the caller said it. The OpenAPI
    allows any object: one that holds no message is the value itself. Raises invalid."""
    if await_resume.get("type") == "message" or isinstance(await_resume.get("message"), dict):
        message = decode_message(validate(w.Message, await_resume.get("message")))
        message = message.replace(role="user", name=None)
        data = [part.data for part in message.parts if isinstance(part, DataPart)]
        return data[0] if len(data) == 1 and not message.text else message.text, message
    value: Json = await_resume
    return value, Message(role="user", parts=(DataPart(data=value),))


def encode_input(call: Invocation, view: View) -> list[w.Message]:
    """The input of a run. What was said before goes along only where the hub gave it: an agent that remembers gets
    none."""
    made: list[w.Message] = []
    for message in (*call.history, *call.input_messages):
        # ACP has no system role: an instruction is the user's.
        role: Role = "agent" if message.role == "agent" else "user"
        made.append(encode_message(message.replace(role=role), view))
    return made
