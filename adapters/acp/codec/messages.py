"""Conversion between ACP and the canonical model: messages, questions and answers. `parts` converts their parts, and
`write` and `read` convert streams."""

import re
from collections.abc import Sequence
from typing import Any, Final, cast

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.parts import EncodingContext, decode_part, encode_parts, extra_of, own_of
from babelgate.adapters.kit.extension import named_question
from babelgate.adapters.kit.json import validate
from babelgate.adapters.kit.time import encode_time
from babelgate.canonical import DataPart, Invocation, Message, Part, TextPart
from babelgate.canonical.event import InterruptRaised
from babelgate.canonical.message import Role
from babelgate.canonical.value import Extra, Json, JsonObject

_SCHEMA: Final = "application/schema+json"
"""Media type of the part of a question that contains the schema of the answer."""
_TIMES: Final[tuple[str, ...]] = ("created_at", "completed_at")
"""Names of the members of a message that contain times."""
_REQUEST: Final = "acp.request"
"""Key in `extra` of a run's input for the name by which the caller addressed the agent."""
_MESSAGE: Final = "acp.message"
"""Key in `extra` of a message, or of the events that start and end it, for members of the wire message that the
canonical model lacks, such as times. Members that ACP does not define are under the key `acp`."""

OF_RUN: Final = "run"
"""Name of a `Native` event whose `extra` contains the members of another server's run that ACP does not define. The
event has no data."""


def encode_role(role: Role, name: str | None, agent: str) -> str:
    """Return the role of a message on the wire: `user`, or `agent/<name>`. The name is `name`, or `agent`, the name of
    the called agent, if `name` is None."""
    if role == "user":
        return "user"
    # components.schemas.Message.role: `^(user|agent(\/[a-zA-Z0-9_\-]+)?)$`.
    return "agent/" + re.sub(r"[^a-zA-Z0-9_\-]", "-", name or agent)


def decode_role(role: str, agent: str | None) -> tuple[Role, str | None]:
    """Return the canonical role and the name in a role on the wire. The name is None for a user, and for the called
    agent, whose name is `agent`."""
    if role == "user":
        return "user", None
    name = role.partition("/")[2] or None
    return "agent", None if name == agent else name


# Messages


def encode_message(message: Message, view: EncodingContext, at: int | None = None) -> w.Message:
    """Return a canonical message as a wire message. `at` is the time to give it, in microseconds since 1970; times that
    an ACP peer sent are kept."""
    wire = w.Message(role=encode_role(message.role, message.name, view.agent), parts=encode_parts(message.parts, view))
    members = message_members(message.extra, metadata=message.metadata)
    if at is not None:
        time = encode_time(at)  # with `Z`: the TypeScript client rejects `+00:00`
        members = {"created_at": time, "completed_at": time, **members}
    return wire.model_copy(update=members)


def message_members(extra: Extra, **own_members: JsonObject) -> dict[str, Any]:
    """Return the members of a wire message except its parts: the times and unknown members in `extra`, which an ACP
    peer sent, and `own_members`, which ACP does not define, under the key `babelgate`."""
    peer_members = extra_of(extra)
    unknown = {key: value for key, value in peer_members.items() if key not in w.Message.model_fields and key != "url"}
    present = {name: value for name, value in own_members.items() if value}
    return {**unknown, **(extra.get(_MESSAGE) or {}), **({w.OWN: present} if present else {})}


def own_member(message: w.Message, name: str) -> JsonObject:
    """Return the object that another gateway has added to a message under `babelgate` and `name`. Return an empty
    object if there is none."""
    value = own_of(message).get(name)
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def message_extra(message: w.Message, *times: str) -> dict[str, Any]:
    """Return the `extra` with the unknown members of a wire message, from which `message_members` restores them.
    `times` are the names of the times to include."""
    unknown = {name: value for name, value in (message.model_extra or {}).items() if name != w.OWN}
    extra: dict[str, Any] = {"acp": unknown} if unknown else {}
    sent_times = {name: _utc(getattr(message, name)) for name in times if name in message.model_fields_set}
    if sent_times:
        extra[_MESSAGE] = sent_times
    return extra


def _utc(time: str | None) -> str | None:
    # The TypeScript client of SDK 1.0.3 (zod, `datetime()`) accepts no offset but Z.
    return time.replace("+00:00", "Z") if time is not None else None


def decode_message(message: w.Message, *, agent: str | None = None) -> Message:
    """Return a wire message as a canonical message. Its name is None if its role names the called agent, `agent`.
    Raises invalid for a malformed part."""
    role, name = decode_role(message.role, agent)
    parts = tuple(decoded for index, part in enumerate(message.parts) for decoded in decode_part(part, index))
    extra = message_extra(message, *_TIMES)
    if message.role == "agent":  # without a name, although messages of this gateway have one
        extra[_MESSAGE] = {**(extra.get(_MESSAGE) or {}), "role": message.role}
    return Message(role=role, name=name, parts=parts, metadata=own_member(message, "metadata"), extra=extra)


def dump_sent(message: w.Message) -> JsonObject:
    """Return a message as JSON for a request. Times that are not set are omitted, because the receiving server sets
    them."""
    return message.model_dump(exclude={name for name in _TIMES if name not in message.model_fields_set})


# Requests


def request_extra(request: w.RunCreateRequest) -> Extra:
    """Return the `extra` for a run's input: members of the request that ACP does not define, and the name by which the
    caller addressed the agent."""
    extra: dict[str, Any] = {"acp": dict(request.model_extra)} if request.model_extra else {}
    return {**extra, _REQUEST: {"agent_name": request.agent_name}}


def request_metadata(request: w.RunCreateRequest) -> JsonObject:
    """Return the member `metadata` of a request. ACP does not define it, but callers send it, and agents of other
    protocols can receive it."""
    metadata = (request.model_extra or {}).get("metadata")
    return cast("JsonObject", metadata) if isinstance(metadata, dict) else {}


def requested_agent(extra: Extra) -> str | None:
    """Return the name by which an ACP caller addressed the agent, from the `extra` of a run's input. Return None if the
    caller used another protocol."""
    request: JsonObject = extra.get(_REQUEST) or {}
    return request.get("agent_name")


# Questions and answers


def encode_question(event: InterruptRaised, view: EncodingContext, at: int) -> JsonObject:
    """Return a question as an `await_request`. The SDK's clients support only a message, so the question's data and the
    schema of its answer become parts of that message. `at` is the time of the question, in microseconds since 1970."""
    parts = list(event.message.parts)
    if event.value is not None and not any(isinstance(part, DataPart) for part in parts):
        parts.append(DataPart(data=event.value))
    if event.answer_schema is not None:
        parts.append(DataPart(data=event.answer_schema, media_type=_SCHEMA))
    message = event.message.replace(role="agent", parts=tuple(parts))
    return {**extra_of(event.extra), "type": "message", "message": encode_message(message, view, at).model_dump()}


def encode_questions(questions: Sequence[tuple[InterruptRaised, int]], view: EncodingContext) -> JsonObject:
    """Return the `await_request` of a paused run (components.schemas.Run), which has a place for one question.

    `questions` are the open questions, the oldest first, each with its time in microseconds since 1970. The result
    shows the oldest one. Its member `babelgate` lists all of them, unless there is only one and its kind is `input`.
    """
    requests = [encode_question(event, view, at) for event, at in questions]
    if len(questions) == 1 and questions[0][0].ask == "input":
        return requests[0]
    listed: list[JsonObject] = [
        {"id": event.interrupt_id, "ask": event.ask, "message": each["message"]}
        for (event, _), each in zip(questions, requests, strict=True)
    ]
    return {**requests[0], w.OWN: {"questions": listed}}


def decode_questions(await_request: JsonObject | None, *, agent: str | None = None) -> list[InterruptRaised]:
    """Return the questions in an `await_request`: all that another gateway lists, or otherwise the single one. Names in
    their messages are None if they are that of the called agent, `agent`. Raises invalid for a malformed message."""
    gateway_member = (await_request or {}).get(w.OWN)
    listed = cast("JsonObject", gateway_member).get("questions") if isinstance(gateway_member, dict) else None
    questions: list[InterruptRaised] = []
    for each in cast("list[Any]", listed) if isinstance(listed, list) else []:
        member = cast("JsonObject", each) if isinstance(each, dict) else {}
        id, ask = member.get("id"), member.get("ask")
        if isinstance(id, str) and isinstance(member.get("message"), dict):
            question = decode_question({"message": member["message"]}, agent=agent)
            kind = ask if ask in ("approval", "auth") else "input"
            questions.append(named_question(question.replace(interrupt_id=id, ask=kind)))
    return questions or [decode_question(await_request, agent=agent)]


def decode_question(await_request: JsonObject | None, *, agent: str | None = None) -> InterruptRaised:
    """Return the question in an `await_request`, or a general question if it contains no message. The name in its
    message is None if it is that of the called agent, `agent`. Raises invalid for a malformed message."""
    request = await_request or {}
    # components.schemas.AwaitRequest: any object; only the servers of the SDK always put a message into it.
    if not isinstance(request.get("message"), dict):
        prompt = Message.of("The agent awaits an answer.")
        return InterruptRaised(message=prompt, value=request or None)
    wire = validate(w.Message, request["message"])
    message = decode_message(wire, agent=agent)
    schema: JsonObject | None = None
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, DataPart) and part.media_type == _SCHEMA and isinstance(part.data, dict):
            schema = part.data
        else:
            parts.append(part)
    data = [part.data for part in parts if isinstance(part, DataPart)]
    # The agent asks, even if the role is another one (the SDK's default is `user`).
    extra: JsonObject = {**message.extra, _MESSAGE: {**(message.extra.get(_MESSAGE) or {}), "role": wire.role}}
    question = message.replace(role="agent", parts=tuple(parts), extra=extra)
    more = {name: value for name, value in request.items() if name not in ("type", "message", w.OWN)}
    return InterruptRaised(
        message=question,
        value=data[0] if len(data) == 1 else None,
        answer_schema=schema,
        extra={"acp": more} if more else {},
    )


def encode_answer(call: Invocation, view: EncodingContext, answers: Sequence[JsonObject] = ()) -> JsonObject:
    """Return the `await_resume` of a request: one message with all answers of the caller. `answers` are the answers
    with the ids of their questions, for a server that is another gateway."""
    parts = [part for message in call.messages for part in message.parts]
    if not parts:
        parts = [
            TextPart(text=answer.value) if isinstance(answer.value, str) else DataPart(data=answer.value)
            for answer in call.answers
        ]
    message = encode_message(Message(role="user", parts=tuple(parts)), view)
    # SDK 1.0.3 (MessageAwaitResume) refuses any other type with 403.
    resume: JsonObject = {"type": "message", "message": dump_sent(message)}
    return {**resume, w.OWN: {"answers": list(answers)}} if answers else resume


def decode_answer(await_resume: JsonObject) -> tuple[Json, Message]:
    """Return the caller's answer in an `await_resume`, as a value and as a message.

    The value is JSON if the message has one JSON part and no text, and otherwise the text of the message. The OpenAPI
    document allows any object: one without a message is the value itself. Raises invalid for a malformed message.
    """
    if await_resume.get("type") == "message" or isinstance(await_resume.get("message"), dict):
        message = decode_message(validate(w.Message, await_resume.get("message")))
        message = message.replace(role="user", name=None)
        data = [part.data for part in message.parts if isinstance(part, DataPart)]
        return data[0] if len(data) == 1 and not message.text else message.text, message
    value: Json = await_resume
    return value, Message(role="user", parts=(DataPart(data=value),))


def encode_input(call: Invocation, view: EncodingContext) -> list[w.Message]:
    """Return the input of a run as wire messages. They include the history only if the hub has supplied it, for an
    agent that does not remember the conversation."""
    messages: list[w.Message] = []
    for message in (*call.history, *call.input_messages):
        # ACP has no system role, so instructions become messages of the user.
        role: Role = "agent" if message.role == "agent" else "user"
        messages.append(encode_message(message.replace(role=role), view))
    return messages
