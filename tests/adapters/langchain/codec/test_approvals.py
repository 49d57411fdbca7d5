from typing import Any

import pytest

from babelgate.adapters.langchain.codec.approvals import answer_approval, decode_approval
from babelgate.adapters.langchain.codec.interrupts import encode_answer
from babelgate.canonical.event import InterruptAnswered

WIPE: dict[str, Any] = {"name": "wipe", "args": {"disk": "sda"}}
REVIEWED: dict[str, Any] = {
    "action_requests": [WIPE, {**WIPE, "name": "send", "description": "May I send?"}],
    "review_configs": [
        {"action_name": "wipe", "allowed_decisions": ["approve", "reject"]},
        {"action_name": "send", "allowed_decisions": ["approve", "edit", "respond"]},
    ],
}
APPROVAL: dict[str, Any] = {"type": "tool_approval", "tool_call_id": "c", **WIPE, "description": "Sure?"}
INBOX: list[Any] = [
    {"action_request": {"action": "wipe", "args": {}}, "config": {"allow_respond": True}, "description": "Sure?"}
]


def answered(asked: Any, value: Any) -> Any:
    found = decode_approval(asked)
    assert found is not None
    return answer_approval(found[0], value)


@pytest.mark.parametrize(
    ("asked", "words"), [(REVIEWED, 'wipe({"disk":"sda"})\nMay I send?'), (APPROVAL, "Sure?"), (INBOX, "Sure?")]
)
def test_the_words_are_the_description_or_the_call(asked: Any, words: str) -> None:
    found = decode_approval(asked)
    assert found is not None
    assert found[1] == words


OTHERS: list[Any] = [
    *("words", None, [], [1], {"question": "Sure?"}, {"type": "tool_approval"}),
    *({"action_requests": []}, {"action_requests": [{"args": {}}]}, [{"action_request": {}}]),
]


@pytest.mark.parametrize("asked", OTHERS)
def test_what_asks_for_something_else_is_none(asked: Any) -> None:
    assert decode_approval(asked) is None


REJECTED = {"type": "reject", "message": "Not today"}
EDIT = {"type": "edit", "edited_action": WIPE}
INBOX_EDIT: dict[str, Any] = {"type": "edit", "args": {}}


@pytest.mark.parametrize(
    ("asked", "value", "decided"),
    [
        (REVIEWED, "yes", {"decisions": [{"type": "approve"}] * 2}),
        (REVIEWED, {"approved": False}, {"decisions": [{"type": "reject"}] * 2}),
        (REVIEWED, "Not today", {"decisions": [REJECTED, {"type": "respond", "message": "Not today"}]}),
        (APPROVAL, True, {"type": "approve"}),
        (APPROVAL, None, {"type": "reject"}),
        (INBOX, "ok", [{"type": "accept", "args": None}]),
        (INBOX, "no", [{"type": "ignore", "args": None}]),
        (INBOX, "Ask again", [{"type": "response", "args": "Ask again"}]),
        # What is a decision already is not touched.
        (REVIEWED, {"decisions": [EDIT]}, {"decisions": [EDIT]}),
        (APPROVAL, EDIT, EDIT),
        (INBOX, [INBOX_EDIT], [INBOX_EDIT]),
    ],
)
def test_an_answer_is_a_decision_of_each_call(asked: Any, value: Any, decided: Any) -> None:
    assert answered(asked, value) == decided


def test_a_rejection_of_several_calls_says_why() -> None:
    assert answered(REVIEWED, {"approved": False, "message": "Not today"})["decisions"][0] == REJECTED


def test_a_declined_approval_is_a_no_and_any_other_question_nothing() -> None:
    declined = InterruptAnswered(interrupt_id="i", action="decline", value="ignored")
    found = decode_approval(APPROVAL)
    assert found is not None
    assert encode_answer({"approval": found[0]}, declined) == {"type": "reject"}
    assert encode_answer({}, declined) is None
