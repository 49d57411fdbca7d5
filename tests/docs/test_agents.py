"""Every example of docs/agents.md runs and says what the page says."""

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from babelgate.canonical import DataPart
from babelgate.conformance.contract import Dialogue, Transcript, check_agent
from babelgate.gateway.agents.python.agent import wrap

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    code: str
    talk: list[str]

    def run(self) -> dict[str, Any]:
        """Its own names, in the order in which it gives them."""
        names: dict[str, Any] = {"__name__": "example"}
        exec(compile(self.code, str(PAGE), "exec"), names)
        return {name: value for name, value in names.items() if getattr(value, "__module__", "") == "example"}


EXAMPLES = [Example(code, talk.splitlines()) for code, talk in BLOCK.findall(PAGE.read_text("utf-8"))]


def said(heard: Transcript) -> list[str]:
    if heard.fault is not None:
        return [f"! {heard.fault.message}"]
    if heard.questions:
        return [f"? {question.message.text}" for question in heard.questions]
    data = [json.dumps(part.data) for message in heard.messages for part in message.parts if isinstance(part, DataPart)]
    return [f"< {text}" for text in data or [heard.text.strip()]]


def test_the_page_has_an_example_of_every_form():
    assert len(EXAMPLES) >= 12
    assert sum(not example.talk for example in EXAMPLES) == 1


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.talk], ids=lambda e: e.code.strip().splitlines()[0])
async def test_an_example_says_what_the_page_says(example: Example):
    target = list(example.run().values())[-1]
    dialogue = Dialogue(wrap(target, "example")[1])
    talk: list[str] = []
    told = [line[2:] for line in example.talk if line.startswith("> ")]
    while told:
        if dialogue.questions:
            answers = [told.pop(0) for _ in dialogue.questions]
            talk += [f"> {answer}" for answer in answers]
            heard = await dialogue.answer(*answers)
        else:
            talk.append(f"> {told[0]}")
            heard = await dialogue.say(told.pop(0))
        talk += said(heard)
    assert talk == example.talk
    await check_agent(lambda: wrap(target, "example")[1], text="2")


async def test_the_example_of_a_check_passes():
    checked, check = (example for example in EXAMPLES if "Echo" in example.code)
    names: dict[str, Any] = checked.run()
    exec(compile(check.code, str(PAGE), "exec"), names)
    test: Callable[[], Awaitable[None]] = names["test_echo"]
    await test()
