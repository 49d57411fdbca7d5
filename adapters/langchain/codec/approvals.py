"""Approvals of tool calls: the forms in which LangChain's frameworks ask for them, and the decisions that each form
accepts.

None of the forms accepts a plain word such as `yes` as a decision: a graph fails on it. So the answers of callers of
other protocols are converted to decisions. An answer that is a decision already is not changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from babelgate.adapters.kit.client.consent import is_yes
from babelgate.adapters.kit.json import json_text
from babelgate.canonical.json import as_object, objects_in
from babelgate.canonical.value import Json, JsonObject

_NO: Final = frozenset(("", "no", "n", "false", "reject", "rejected", "deny", "denied", "decline", "cancel", "ignore"))
"""Lowercase answers that reject a call without giving a reason."""
_DECISIONS: Final = ("approve", "edit", "reject", "respond")
"""Types of decisions that approvals accept in langchain 1.5.0."""


def decode_approval(value: Json) -> tuple[JsonObject, str] | None:
    """Return the form of the expected decision, for `answer_approval`, and the question's text, such as
    `send_mail({"to": "a"})`. Return None if the interrupt's `value` does not ask for an approval."""
    if isinstance(value, list):
        return _inbox(objects_in(cast("list[Any]", value)))
    question = as_object(value)
    if question.get("type") == "tool_approval" and isinstance(question.get("name"), str):
        return {"as": "decision"}, _words(question.get("description"), question["name"], question.get("args"))
    requests = objects_in(question.get("action_requests"))
    if not requests or not all(isinstance(request.get("name"), str) for request in requests):
        return None
    words = [_words(request.get("description"), request["name"], request.get("args")) for request in requests]
    reviews = {
        review.get("action_name"): review.get("allowed_decisions")
        for review in objects_in(question.get("review_configs"))
    }
    allowed = [reviews.get(request["name"]) for request in requests]
    return {"as": "decisions", "allowed": allowed}, "\n".join(words)


def _inbox(requests: Sequence[JsonObject]) -> tuple[JsonObject, str] | None:
    """Decode approvals in the form of Agent Inbox, which langchain's middleware before 1.0 uses, too. Return the form
    of the expected decision and the question's text, or None if the requests have another form."""
    actions = [as_object(request.get("action_request")) for request in requests]
    if not requests or not all(isinstance(action.get("action"), str) for action in actions):
        return None
    words = [
        _words(request.get("description"), action["action"], action.get("args"))
        for request, action in zip(requests, actions, strict=True)
    ]
    may: list[Json] = [as_object(request.get("config")) for request in requests]
    return {"as": "responses", "may": may}, "\n".join(words)


def _words(description: Any, name: str, args: Json) -> str:
    """Return the text of an approval question: its description or, if that is missing, the call as
    `name(arguments)`."""
    return description if isinstance(description, str) and description else f"{name}({json_text(args)})"


def answer_approval(form: Mapping[str, Any], value: Json) -> Json:
    """Return a caller's answer as the value that resumes the graph: one decision, or one for each requested call.
    `form` comes from `decode_approval`. An answer that is a decision is kept; None rejects."""
    match form["as"]:
        case "decision":
            return value if as_object(value).get("type") in _DECISIONS else _decision(None, value)
        case "decisions":
            if "decisions" in as_object(value):
                return value
            kind: Json = as_object(value).get("type")
            decision = value if kind in _DECISIONS else None
            return {"decisions": [decision or _decision(allowed, value) for allowed in form["allowed"]]}
        case _:
            if isinstance(value, list):
                return value
            return [_response(as_object(config), value) for config in form["may"]]


def _decision(allowed: Any, value: Json) -> JsonObject:
    decisions = cast("list[Any]", allowed) if isinstance(allowed, list) else ["approve", "reject"]
    reason = _reason(value)
    if is_yes(value) and "approve" in decisions:
        return {"type": "approve"}
    if "respond" in decisions and "reject" not in decisions and reason is not None:
        return {"type": "respond", "message": reason}
    return {"type": "reject"} if reason is None else {"type": "reject", "message": reason}


def _response(config: JsonObject, value: Json) -> JsonObject:
    if as_object(value).get("type") in ("accept", "ignore", "response", "edit"):
        return as_object(value)
    reason = _reason(value)
    if is_yes(value) and config.get("allow_accept") is not False:
        return {"type": "accept", "args": None}
    if reason is not None and config.get("allow_respond") is True:
        return {"type": "response", "args": reason}
    return {"type": "ignore", "args": None}


def _reason(value: Json) -> str | None:
    """Return the text of an answer that explains a rejection: its member `message`, or the string itself. Return None
    for other values and for words such as `no`."""
    message: Any = as_object(value).get("message")
    if isinstance(message, str):
        return message
    return value if isinstance(value, str) and value.strip().rstrip(".!").lower() not in _NO else None
