"""Question by which the gateway pauses a run whose budget is used up."""

from typing import Final

from babelgate.canonical.thread import Interrupt

QUESTION_NODE: Final = "babelgate.budget"
"""Node of all questions about budgets, by which they are recognized. No agent can use it
(`babelgate.gateway.runs.event_check`)."""
QUESTION_PREFIX: Final = "budget:"
"""First characters of the ids of questions about budgets."""


def is_budget_question(question: Interrupt) -> bool:
    """Return True if a question is one of the gateway about a budget."""
    return question.node == QUESTION_NODE


def is_approval(value: object) -> bool:
    """Return True if an answer to a question about a budget lets the run continue: the JSON value true."""
    return value is True
