"""Examples of docs/agents.md: each runs and prints what the page shows."""

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
        """Execute the example, and return its definitions in their order."""
        names: dict[str, Any] = {"__name__": "example"}
        exec(compile(self.code, str(PAGE), "exec"), names)
        return {name: value for name, value in names.items() if getattr(value, "__module__", "") == "example"}


EXAMPLES = [Example(code, talk.splitlines()) for code, talk in BLOCK.findall(PAGE.read_text("utf-8"))]


def output_of(transcript: Transcript) -> list[str]:
    if transcript.fault is not None:
        return [f"! {transcript.fault.message}"]
    if transcript.questions:
        return [f"? {question.message.text}" for question in transcript.questions]
    data = [
        json.dumps(part.data) for message in transcript.messages for part in message.parts if isinstance(part, DataPart)
    ]
    return [f"< {text}" for text in data or [transcript.text.strip()]]


def test_the_page_has_an_example_of_every_form():
    assert len(EXAMPLES) >= 12
    assert sum(not example.talk for example in EXAMPLES) == 1


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.talk], ids=lambda e: e.code.strip().splitlines()[0])
async def test_an_example_prints_what_the_page_shows(example: Example):
    target = list(example.run().values())[-1]
    dialogue = Dialogue(wrap(target, "example")[1])
    talk: list[str] = []
    inputs = [line[2:] for line in example.talk if line.startswith("> ")]
    while inputs:
        if dialogue.questions:
            answers = [inputs.pop(0) for _ in dialogue.questions]
            talk += [f"> {answer}" for answer in answers]
            transcript = await dialogue.answer(*answers)
        else:
            talk.append(f"> {inputs[0]}")
            transcript = await dialogue.say(inputs.pop(0))
        talk += output_of(transcript)
    assert talk == example.talk
    await check_agent(lambda: wrap(target, "example")[1], text="2")


async def test_the_example_of_a_check_passes():
    checked, check = (example for example in EXAMPLES if "Echo" in example.code)
    names: dict[str, Any] = checked.run()
    exec(compile(check.code, str(PAGE), "exec"), names)
    test: Callable[[], Awaitable[None]] = names["test_echo"]
    await test()
