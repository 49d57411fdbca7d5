"""Question by which the gateway itself pauses a run, because a budget is used up."""

from typing import Final

from babelgate.canonical.thread import Interrupt

QUESTION_NODE: Final = "babelgate.budget"
"""Node of these questions. No agent can use it (`babelgate.gateway.runs.event_check`)."""
QUESTION_PREFIX: Final = "budget:"
"""First characters of the ids of these questions."""


def is_budget_question(question: Interrupt) -> bool:
    """Return True if the gateway itself asked a question, because a budget is used up."""
    return question.node == QUESTION_NODE


def is_approval(value: object) -> bool:
    """Return True if the answer to such a question lets the run continue."""
    return value is True
