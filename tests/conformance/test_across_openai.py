"""Comparison of Chat Completions with Responses, which both lack parts of a run."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from babelgate.conformance.across.play import play
from babelgate.conformance.across.report.text import lines
from babelgate.conformance.across.verdict import AcrossVerdict, judge
from babelgate.conformance.probe import ProbeOptions
from babelgate.conformance.trigger import Trigger, Triggers
from tests.conformance.servers import openai_chat, openai_responses
from tests.serving import serving

KEY = {"Authorization": "Bearer first-caller"}
TRIGGERS = Triggers(
    {
        **dict.fromkeys(("plain", "question", "data", "files", "long"), Trigger("Hello", agent="mock-1")),
        "fail": Trigger("fail", agent="mock-1"),
    }
)


@dataclass(frozen=True)
class Both:
    chat: str
    responses: str

    async def compare(self, *only: str) -> AcrossVerdict:
        options = ProbeOptions(headers=KEY, triggers=TRIGGERS)
        return judge(await play([self.chat, self.responses], options, only=only))


@asynccontextmanager
async def serve_both(chat: str = "", responses: str = "") -> AsyncGenerator[Both]:
    """Serve both scripted servers, each with an optional violation."""
    async with (
        serving(openai_chat.SERVER.make(chat)) as one,
        serving(openai_responses.SERVER.make(responses)) as other,
    ):
        yield Both(f"{one}/v1", f"{other}/v1")


async def test_equal_models_are_equal_by_chat_and_by_responses() -> None:
    async with serve_both() as both:
        verdict = await both.compare("plain", "turns", "fail")
    assert verdict.record.protocols == ["openai-chat", "openai-responses"]
    assert [(each.id, each.difference) for each in verdict.findings] == []
    assert verdict.is_same and verdict.played == 3
    shots_by_scenario = {each.scenario.name: each.shots["openai-responses"] for each in verdict.record.played}
    states = {
        name: [shot.meaning and shot.meaning.state for shot in shots.values()]
        for name, shots in shots_by_scenario.items()
    }
    assert states == {"plain": ["completed"], "turns": ["completed", "completed"], "fail": ["failed"]}
    assert all(shot.meaning and "Hello" in shot.meaning.text for shot in shots_by_scenario["turns"].values())


async def test_missing_text_in_one_protocol_is_found() -> None:
    async with serve_both(chat="answers have no text") as both:
        verdict = await both.compare("plain")
    [finding] = verdict.against
    assert finding.difference.aspect == "text"
    assert {finding.here.protocol, finding.there.protocol} == {"openai-chat", "openai-responses"}


async def test_missing_failure_in_one_stream_is_found() -> None:
    async with serve_both(chat="failed streams just end") as both:
        verdict = await both.compare("fail", "plain")
    assert {each.difference.aspect for each in verdict.against} >= {"state", "error"}
    assert {each.scenario for each in verdict.against} == {"fail"}


async def test_scenarios_that_both_protocols_lack_are_not_applicable() -> None:
    async with serve_both() as both:
        verdict = await both.compare("question", "files", "data", "cancel")
    marks = {verdict.mark(each, name) for each in verdict.record.played for name in verdict.record.protocols}
    assert marks == {"–"}
    assert not verdict.is_same, "nothing was compared"
    report = "\n".join(lines(verdict))
    assert "– OpenAI chat, question: a question is a normal answer, and the run does not wait" in report
    assert "– Open Responses, cancel: a response ends with its connection" in report
