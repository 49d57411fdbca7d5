"""Texts of questions and errors, which protocols put into different members."""

import re
from typing import Any

import pytest

from babelgate.conformance.across.compare import differences
from babelgate.conformance.across.driver import Driver
from babelgate.conformance.across.find import DRIVERS
from babelgate.conformance.across.langgraph import question_of
from babelgate.conformance.across.model import Meaning, Shot


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Refund?", "Refund?"),
        ({"question": "Refund?", "amount": 12.5}, "Refund?"),
        ({"amount": 12.5, "prompt": "Refund?"}, "Refund?"),
        ({"amount": 12.5}, ""),
        (None, ""),
    ],
)
def test_text_of_a_question_is_found_in_its_value(value: Any, text: str) -> None:
    question = question_of({"id": "i", "value": value})
    assert (question.text, question.value) == (text, None if value == text else value)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("RuntimeError: it failed", "it failed", True),
        ("it failed", "RuntimeError: it failed", True),
        ("RuntimeError: it failed", "ValueError: it failed", False),
        ("it failed", "it worked", False),
        ("RuntimeError: it failed", "RuntimeError: at once", False),
    ],
)
def test_error_is_compared_without_its_class(one: str, other: str, is_same: bool) -> None:
    here, there = (
        Shot(name, Meaning("failed", error=words), []) for name, words in (("acp", one), ("langgraph", other))
    )
    assert ([each.aspect for each in differences(here, there)] == []) is is_same


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_a_missing_ability_names_no_other_protocol(driver: type[Driver]) -> None:
    others = {each.title.split()[0] for each in DRIVERS if each.__module__ != driver.__module__}
    named = {other for other in others for reason in driver.lacks.values() if re.search(rf"\b{other}\b", reason)}
    assert named == set()
