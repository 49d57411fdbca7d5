"""Approvals of calls of tools, in the forms of LangChain's frameworks, and the decisions that each of these takes.

A plain word is no decision in any of them: a graph fails on it. So what callers of other protocols say becomes one.
What is a decision already is not touched.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from babelgate.adapters.kit.client.consent import is_yes
from babelgate.adapters.kit.json import json_text
from babelgate.canonical.json import as_object, objects_in
from babelgate.canonical.value import Json, JsonObject

_NO: Final = frozenset(("", "no", "n", "false", "reject", "rejected", "deny", "denied", "decline", "cancel", "ignore"))
_DECISIONS: Final = ("approve", "edit", "reject", "respond")


def decode_approval(value: Json) -> tuple[JsonObject, str] | None:
    """How the question is answered (`answer_approval`), and its words; None where it asks for no approval."""
    if isinstance(value, list):
        return _inbox(objects_in(cast("list[Any]", value)))
    asked = as_object(value)
    if asked.get("type") == "tool_approval" and isinstance(asked.get("name"), str):
        return {"as": "decision"}, _words(asked.get("description"), asked["name"], asked.get("args"))
    requests = objects_in(asked.get("action_requests"))
    if not requests or not all(isinstance(each.get("name"), str) for each in requests):
        return None
    words = [_words(each.get("description"), each["name"], each.get("args")) for each in requests]
    reviews = {
        each.get("action_name"): each.get("allowed_decisions") for each in objects_in(asked.get("review_configs"))
    }
    allowed = [reviews.get(each["name"]) for each in requests]
    return {"as": "decisions", "allowed": allowed}, "\n".join(words)


def _inbox(requests: Sequence[JsonObject]) -> tuple[JsonObject, str] | None:
    """Of Agent Inbox, and of langchain's middleware before 1.0."""
    actions = [as_object(each.get("action_request")) for each in requests]
    if not requests or not all(isinstance(action.get("action"), str) for action in actions):
        return None
    words = [
        _words(each.get("description"), action["action"], action.get("args"))
        for each, action in zip(requests, actions, strict=True)
    ]
    may: list[Json] = [as_object(each.get("config")) for each in requests]
    return {"as": "responses", "may": may}, "\n".join(words)


def _words(description: Any, name: str, args: Json) -> str:
    return description if isinstance(description, str) and description else f"{name}({json_text(args)})"


def answer_approval(form: Mapping[str, Any], value: Json) -> Json:
    """`form` = of `decode_approval`; None as a value is a no."""
    match form["as"]:
        case "decision":
            return value if as_object(value).get("type") in _DECISIONS else _decision(None, value)
        case "decisions":
            if "decisions" in as_object(value):
                return value
            told: Json = as_object(value).get("type")
            decided = value if told in _DECISIONS else None
            return {"decisions": [decided or _decision(allowed, value) for allowed in form["allowed"]]}
        case _:
            if isinstance(value, list):
                return value
            return [_response(as_object(may), value) for may in form["may"]]


def _decision(allowed: Any, value: Json) -> JsonObject:
    may = cast("list[Any]", allowed) if isinstance(allowed, list) else ["approve", "reject"]
    words = _reason(value)
    if is_yes(value) and "approve" in may:
        return {"type": "approve"}
    if "respond" in may and "reject" not in may and words is not None:
        return {"type": "respond", "message": words}
    return {"type": "reject"} if words is None else {"type": "reject", "message": words}


def _response(may: JsonObject, value: Json) -> JsonObject:
    if as_object(value).get("type") in ("accept", "ignore", "response", "edit"):
        return as_object(value)
    words = _reason(value)
    if is_yes(value) and may.get("allow_accept") is not False:
        return {"type": "accept", "args": None}
    if words is not None and may.get("allow_respond") is True:
        return {"type": "response", "args": words}
    return {"type": "ignore", "args": None}


def _reason(value: Json) -> str | None:
    """Words that say more than no."""
    said: Any = as_object(value).get("message")
    if isinstance(said, str):
        return said
    return value if isinstance(value, str) and value.strip().rstrip(".!").lower() not in _NO else None
