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


def decision_for(question: Any, value: Any) -> Any:
    approval = decode_approval(question)
    assert approval is not None
    return answer_approval(approval[0], value)


@pytest.mark.parametrize(
    ("question", "text"), [(REVIEWED, 'wipe({"disk":"sda"})\nMay I send?'), (APPROVAL, "Sure?"), (INBOX, "Sure?")]
)
def test_the_text_is_the_description_or_the_call(question: Any, text: str) -> None:
    approval = decode_approval(question)
    assert approval is not None
    assert approval[1] == text


OTHERS: list[Any] = [
    *("words", None, [], [1], {"question": "Sure?"}, {"type": "tool_approval"}),
    *({"action_requests": []}, {"action_requests": [{"args": {}}]}, [{"action_request": {}}]),
]


@pytest.mark.parametrize("value", OTHERS)
def test_another_question_is_not_an_approval(value: Any) -> None:
    assert decode_approval(value) is None


REJECTED = {"type": "reject", "message": "Not today"}
EDIT = {"type": "edit", "edited_action": WIPE}
INBOX_EDIT: dict[str, Any] = {"type": "edit", "args": {}}


@pytest.mark.parametrize(
    ("question", "value", "decision"),
    [
        (REVIEWED, "yes", {"decisions": [{"type": "approve"}] * 2}),
        (REVIEWED, {"approved": False}, {"decisions": [{"type": "reject"}] * 2}),
        (REVIEWED, "Not today", {"decisions": [REJECTED, {"type": "respond", "message": "Not today"}]}),
        (APPROVAL, True, {"type": "approve"}),
        (APPROVAL, None, {"type": "reject"}),
        (INBOX, "ok", [{"type": "accept", "args": None}]),
        (INBOX, "no", [{"type": "ignore", "args": None}]),
        (INBOX, "Ask again", [{"type": "response", "args": "Ask again"}]),
        # A decision is passed through unchanged.
        (REVIEWED, {"decisions": [EDIT]}, {"decisions": [EDIT]}),
        (APPROVAL, EDIT, EDIT),
        (INBOX, [INBOX_EDIT], [INBOX_EDIT]),
    ],
)
def test_an_answer_is_a_decision_of_each_call(question: Any, value: Any, decision: Any) -> None:
    assert decision_for(question, value) == decision


def test_a_rejection_of_several_calls_has_the_message() -> None:
    assert decision_for(REVIEWED, {"approved": False, "message": "Not today"})["decisions"][0] == REJECTED


def test_a_declined_approval_is_rejected_and_another_question_null() -> None:
    declined = InterruptAnswered(interrupt_id="i", action="decline", value="ignored")
    approval = decode_approval(APPROVAL)
    assert approval is not None
    assert encode_answer({"approval": approval[0]}, declined) == {"type": "reject"}
    assert encode_answer({}, declined) is None
