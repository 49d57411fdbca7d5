"""Requests of an agent to its user → canonical questions, and the answers → results of the requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.codec.content import PROTOCOL, own_members
from babelgate.adapters.agent_client.codec.questions import options_of
from babelgate.canonical import InterruptAnswered, InterruptRaised, Message, TextPart, ToolCallPart
from babelgate.canonical.json import as_object, as_text, is_identical, objects_in
from babelgate.canonical.value import Json, JsonObject

_ALLOWS: Final = ("allow_once", "allow_always")
_REJECTS: Final = ("reject_once", "reject_always")
_FIELD: Final = "answer"
CANCELLED: Final[JsonObject] = {"outcome": {"outcome": "cancelled"}}
"""Result of a permission request without an answer, for example because the turn is cancelled."""
_DISMISSED: Final[Mapping[str, JsonObject]] = {w.PERMISSION: CANCELLED, w.ELICITATION: {"action": "cancel"}}


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """Request of an agent that waits for the answer to a question."""

    request_id: int | str
    method: str
    params: JsonObject
    question: InterruptRaised

    @property
    def call_id(self) -> str:
        """Id of the tool call that needs a permission; empty for another question."""
        return as_text(as_object(self.params.get("toolCall")).get("toolCallId"))

    @property
    def dismissal(self) -> JsonObject:
        """Result that ends the request without an answer."""
        return _DISMISSED[self.method]

    def encode_answer(self, answer: InterruptAnswered) -> JsonObject:
        """Return the result of the request for an answer of the caller."""
        if self.method == w.PERMISSION:
            return _permission(self.params, self.question, answer)
        if answer.action != "answer":
            return {"action": "decline"}
        if self.params.get("mode") == "url":
            return {"action": "accept"}
        return {"action": "accept", "content": self._content(answer.value)}

    def _content(self, value: Json) -> JsonObject:
        """Return an answer as the content of the form. A form of a gateway has one field for an answer that is no
        object."""
        if isinstance(value, dict):
            return as_object(value)
        fields = as_object(as_object(self.params.get("requestedSchema")).get("properties"))
        return {next(iter(fields), _FIELD): value}


def decode_mark(members: JsonObject) -> InterruptRaised:
    """Return the question of another Babelgate, from the object `question` in `_meta.babelgate`."""
    kind: Any = members.get("kind")
    ask: Literal["input", "approval", "auth"] = kind if kind in ("input", "approval", "auth") else "input"
    schema = as_object(members.get("schema"))
    return InterruptRaised(
        interrupt_id=as_text(members.get("id")) or None,
        ask=ask,
        message=_message(as_text(members.get("message")), as_object(members.get("call"))),
        value=members.get("value"),
        answer_schema=schema or None,
    )


def _message(text: str, call: JsonObject) -> Message:
    """Return the message of a question. `call` is the call of a tool of the caller; empty for another question."""
    if not call:
        return Message.of(text)
    name, arguments = as_text(call.get("name")), as_text(call.get("arguments"))
    part = ToolCallPart(call_id=as_text(call.get("id")), name=name, arguments=arguments, side="caller")
    return Message(parts=(part,) if text == f"{name}({arguments})" else (TextPart(text=text), part))


def decode_request(method: str, params: JsonObject, call: JsonObject, question_id: str, folder: str) -> InterruptRaised:
    """Return the question of a `session/request_permission` or an `elicitation/create`.

    - `call`: all known members of the tool call of a permission request.
    - `question_id`: id for a question that does not come from another Babelgate.
    - `folder`: working directory of the agent. The text shows paths in it relative to it.
    """
    mark = as_object(own_members(params).get("question"))
    if mark:
        return decode_mark(mark)
    if method == w.PERMISSION:
        return _permission_question(params, call, question_id, folder)
    if params.get("mode") == "url":
        return InterruptRaised(
            interrupt_id=question_id,
            ask="auth",
            message=Message.of(as_text(params.get("message"))),
            value={"url": as_text(params.get("url"))},
        )
    return InterruptRaised(
        interrupt_id=question_id,
        message=Message.of(as_text(params.get("message"))),
        answer_schema=as_object(params.get("requestedSchema")) or None,
    )


def _permission_question(params: JsonObject, call: JsonObject, question_id: str, folder: str) -> InterruptRaised:
    """Return a permission request as an approval. The answer is a boolean if there is one option for yes and one for
    no, and the id of an option otherwise."""
    options = objects_in(params.get("options"))
    kinds = [each.get("kind") for each in options]
    title = as_text(call.get("title")) or as_text(call.get("name")) or "tool"
    if folder:
        title = title.replace(f"{folder}/", "")
    kind = as_text(call.get("kind"))
    is_plain = sorted(map(str, kinds)) == ["allow_once", "reject_once"]
    schema: JsonObject = {"type": "boolean"}
    value: JsonObject = {"toolCall": call, "options": options}
    if not is_plain:
        schema = {"enum": [as_text(each.get("optionId")) for each in options]}
    return InterruptRaised(
        interrupt_id=question_id,
        ask="approval",
        message=Message.of(f"Allow {'this' if kind in ('', 'other') else kind.replace('_', ' ')}? {title}"),
        value=value,
        answer_schema=schema,
        extra={PROTOCOL: {"permission": True}},
    )


def _permission(params: JsonObject, question: InterruptRaised, answer: InterruptAnswered) -> JsonObject:
    options = objects_in(params.get("options"))
    if answer.action != "answer":
        return select(options, _REJECTS)
    value = answer.value
    # A gateway offers one option for each value that its question accepts.
    choices = options_of(question) if own_members(params).get("question") else ()
    marked = next((each for each in choices if is_identical(each.value, value)), None)
    wanted = value if marked is None else marked.id
    for each in options:
        if isinstance(wanted, str) and wanted in (each.get("optionId"), each.get("name")):
            return _choose(each)
    if isinstance(value, bool):
        return select(options, _ALLOWS if value else _REJECTS)
    return CANCELLED


def select(options: list[JsonObject], kinds: tuple[str, ...]) -> JsonObject:
    """Return the result that selects the option of the first kind that is offered, or `CANCELLED` if none is."""
    for kind in kinds:
        for each in options:
            if each.get("kind") == kind:
                return _choose(each)
    return CANCELLED


def decide(params: JsonObject, *, is_allowed: bool) -> JsonObject:
    """Return the result of a permission request that the operator has decided for all calls. The selected option never
    covers later requests, unless the agent offers no other."""
    return select(objects_in(params.get("options")), _ALLOWS if is_allowed else _REJECTS)


def _choose(option: JsonObject) -> JsonObject:
    return {"outcome": {"outcome": "selected", "optionId": as_text(option.get("optionId"))}}
