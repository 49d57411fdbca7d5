"""The demo agents, word for word."""

import asyncio
from typing import Any

import pytest

from babelgate.canonical import Artifact, FaultCode, FilePart, Message, RunStatus, TextPart
from babelgate.canonical.event import (
    ArtifactAdded,
    PartAdded,
    PartDelta,
    RunEnded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.replay import agent_events
from babelgate.conformance.contract import Dialogue, Transcript, check_agent
from babelgate.conformance.contract.trial import STRANGE
from babelgate.gateway import demo
from babelgate.gateway.agents.python.agent import wrap
from tests.gateway.talk import within


def dialogue(name: str) -> Dialogue:
    return Dialogue(wrap(getattr(demo, name), name)[1])


async def tell(name: str, said: str | Message | dict[str, Any]) -> Transcript:
    heard = await dialogue(name).say(said)
    assert heard.fault is None
    return heard


@pytest.mark.parametrize("name", demo.__all__)
async def test_every_one_passes_the_contract(name: str):
    text, strange = ("0.01 s", ()) if name == "slow" else ("Hello, 2 worlds", STRANGE)
    await check_agent(lambda: wrap(getattr(demo, name), name)[1], text=text, answer={"approved": True}, strange=strange)


@pytest.mark.parametrize("name", demo.__all__)
def test_every_one_says_what_it_does(name: str):
    info, _ = wrap(getattr(demo, name), name)
    assert info.name == name
    assert info.description.endswith(".")


@pytest.mark.parametrize("text", ["hi", "", "  two\nlines ", "\u2028\U0001f600"])
async def test_echo_says_the_callers_text(text: str):
    heard = await tell("echo", text)
    assert [message.parts for message in heard.messages] == [(TextPart(text=text),)]


async def test_stream_says_one_word_a_token():
    heard = await tell("stream", "one two  three\n")
    tokens: list[str] = []
    for event in heard.events:
        if isinstance(event, PartDelta):
            tokens.append(event.text)
        elif isinstance(event, PartAdded) and isinstance(event.part, TextPart):
            tokens.append(event.part.text)
    assert tokens == ["one", " two", "  three\n"]
    assert heard.text == "one two  three\n"


async def test_ask_asks_for_a_name_and_greets():
    asked = dialogue("ask")
    assert [question.message.text for question in (await asked.say("hi")).questions] == ["What is your name?"]
    assert (await asked.answer("Ann")).text == "Hello, Ann."


async def test_approve_asks_for_two_approvals_at_once():
    asked = dialogue("approve")
    first, second = (await asked.say("hi")).questions
    assert [question.ask for question in (first, second)] == ["approval", "approval"]
    assert [question.value for question in (first, second)] == [{"action": "write"}, {"action": "send"}]
    assert first.answer_schema == {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}},
        "required": ["approved"],
    }
    heard = await asked.answer({"approved": True}, {"approved": False})
    assert heard.text == "write: approved\nsend: not approved\n"


async def test_approve_takes_no_answer_for_no():
    asked = dialogue("approve")
    await asked.say("hi")
    heard = await asked.reply(("answer", {"approved": True}), ("decline", None))
    assert heard.text == "write: approved\nsend: not approved\n"


async def test_files_returns_each_file_and_a_report_of_the_text():
    sent = (FilePart(name="a.bin", inline=b"1", media_type="image/png"), FilePart(inline=b"2"))
    said = Message(role="user", parts=(TextPart(text="the text"), *sent))
    artifacts = [event for event in (await tell("files", said)).events if isinstance(event, ArtifactAdded)]
    assert [artifact.name for artifact in artifacts] == ["a.bin", "file-2", "report.txt"]
    parts = [artifact.part for artifact in artifacts]
    assert all(isinstance(part, FilePart) for part in parts)
    assert [getattr(part, "size", None) for part in parts] == [1, 1, 8]
    (report,) = Artifact.of("report.txt", "the text").parts
    assert isinstance(report, FilePart) and report.inline == b"the text"


async def test_steps_are_plan_work_review():
    heard = await tell("steps", "hi")
    names = [event.name for event in heard.events if isinstance(event, StepStarted)]
    assert names == [event.name for event in heard.events if isinstance(event, StepEnded)] == ["plan", "work", "review"]
    assert heard.text == "Planned. Worked. Reviewed."


async def test_json_counts_and_has_a_schema():
    info, _ = wrap(demo.json, "json")
    assert info.schemas["output"]["required"] == ["text", "words", "length"]
    heard = await tell("json", "two words")
    assert heard.ended == RunEnded(output={"text": "two words", "words": 2, "length": 9})


async def test_tools_calls_word_count():
    heard = await tell("tools", "three small words")
    started, ended = (event for event in heard.events if isinstance(event, ToolStarted | ToolEnded))
    assert isinstance(started, ToolStarted) and isinstance(ended, ToolEnded)
    assert (started.name, ended.output) == ("word_count", 3)
    assert heard.text == "3 words"


async def test_slow_says_a_token_at_once_and_is_silent_for_the_number_in_the_text():
    made = dialogue("slow")
    run = asyncio.ensure_future(made.say("wait 60 seconds, or 5"))
    first = made.agent.run(made.call("600"))
    assert (await within(anext(first))).kind == "message_started"
    assert (await within(anext(first))).kind == "part_added"
    await asyncio.wait((run,), timeout=0.05)
    assert not run.done()
    run.cancel()
    await asyncio.wait((run,))
    await first.aclose()  # type: ignore[attr-defined]
    assert (await within(tell("slow", "0.001"))).text == "Waiting."


@pytest.mark.slow
async def test_a_thousand_slow_ones_at_once_are_fine():
    loop = asyncio.get_running_loop()
    began = loop.time()
    heard = await within(asyncio.gather(*(tell("slow", "0.2") for _ in range(1000))))
    assert len(heard) == 1000
    assert loop.time() - began < 60, "one after the other they take 200 seconds"


async def test_fail_says_a_token_and_raises_with_the_callers_text():
    made = dialogue("fail")
    heard = await made.say("because")
    assert heard.text == "Failing."
    assert heard.fault is not None
    assert (heard.fault.code, heard.fault.message) == (FaultCode.AGENT_FAILED, "RuntimeError: because")
    (ended,) = (record.event for record in made.records if isinstance(record.event, RunEnded))
    assert ended.status is RunStatus.ERROR
    assert len(agent_events(made.records)) == 4
