"""Tests of the exact output of the demo agents."""

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


async def tell(name: str, content: str | Message | dict[str, Any]) -> Transcript:
    transcript = await dialogue(name).say(content)
    assert transcript.fault is None
    return transcript


@pytest.mark.parametrize("name", demo.__all__)
async def test_demo_agent_passes_the_contract(name: str):
    text, strange = ("0.01 s", ()) if name == "slow" else ("Hello, 2 worlds", STRANGE)
    await check_agent(lambda: wrap(getattr(demo, name), name)[1], text=text, answer={"approved": True}, strange=strange)


@pytest.mark.parametrize("name", demo.__all__)
def test_demo_agent_has_a_description(name: str):
    info, _ = wrap(getattr(demo, name), name)
    assert info.name == name
    assert info.description.endswith(".")


@pytest.mark.parametrize("text", ["hi", "", "  two\nlines ", "\u2028\U0001f600"])
async def test_echo_says_the_callers_text(text: str):
    transcript = await tell("echo", text)
    assert [message.parts for message in transcript.messages] == [(TextPart(text=text),)]


async def test_stream_says_one_word_a_token():
    transcript = await tell("stream", "one two  three\n")
    tokens: list[str] = []
    for event in transcript.events:
        if isinstance(event, PartDelta):
            tokens.append(event.text)
        elif isinstance(event, PartAdded) and isinstance(event.part, TextPart):
            tokens.append(event.part.text)
    assert tokens == ["one", " two", "  three\n"]
    assert transcript.text == "one two  three\n"


async def test_ask_asks_for_a_name_and_greets():
    conversation = dialogue("ask")
    assert [question.message.text for question in (await conversation.say("hi")).questions] == ["What is your name?"]
    assert (await conversation.answer("Ann")).text == "Hello, Ann."


async def test_approve_asks_for_two_approvals_at_once():
    conversation = dialogue("approve")
    first, second = (await conversation.say("hi")).questions
    assert [question.ask for question in (first, second)] == ["approval", "approval"]
    assert [question.value for question in (first, second)] == [{"action": "write"}, {"action": "send"}]
    assert first.answer_schema == {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}},
        "required": ["approved"],
    }
    transcript = await conversation.answer({"approved": True}, {"approved": False})
    assert transcript.text == "write: approved\nsend: not approved\n"


async def test_declined_approval_counts_as_no():
    conversation = dialogue("approve")
    await conversation.say("hi")
    transcript = await conversation.reply(("answer", {"approved": True}), ("decline", None))
    assert transcript.text == "write: approved\nsend: not approved\n"


async def test_files_returns_each_file_and_a_report():
    sent = (FilePart(name="a.bin", inline=b"1", media_type="image/png"), FilePart(inline=b"2"))
    message = Message(role="user", parts=(TextPart(text="the text"), *sent))
    artifacts = [event for event in (await tell("files", message)).events if isinstance(event, ArtifactAdded)]
    assert [artifact.name for artifact in artifacts] == ["a.bin", "file-2", "report.txt"]
    parts = [artifact.part for artifact in artifacts]
    assert all(isinstance(part, FilePart) for part in parts)
    assert [getattr(part, "size", None) for part in parts] == [1, 1, 8]
    (report,) = Artifact.of("report.txt", "the text").parts
    assert isinstance(report, FilePart) and report.inline == b"the text"


async def test_steps_are_plan_work_review():
    transcript = await tell("steps", "hi")
    names = [event.name for event in transcript.events if isinstance(event, StepStarted)]
    assert (
        names
        == [event.name for event in transcript.events if isinstance(event, StepEnded)]
        == ["plan", "work", "review"]
    )
    assert transcript.text == "Planned. Worked. Reviewed."


async def test_json_counts_and_has_a_schema():
    info, _ = wrap(demo.json, "json")
    assert info.schemas["output"]["required"] == ["text", "words", "length"]
    transcript = await tell("json", "two words")
    assert transcript.ended == RunEnded(output={"text": "two words", "words": 2, "length": 9})


async def test_tools_calls_word_count():
    transcript = await tell("tools", "three small words")
    started, ended = (event for event in transcript.events if isinstance(event, ToolStarted | ToolEnded))
    assert isinstance(started, ToolStarted) and isinstance(ended, ToolEnded)
    assert (started.name, ended.output) == ("word_count", 3)
    assert transcript.text == "3 words"


async def test_slow_waits_for_the_seconds_in_the_text():
    conversation = dialogue("slow")
    run = asyncio.ensure_future(conversation.say("wait 60 seconds, or 5"))
    first = conversation.agent.run(conversation.call("600"))
    assert (await within(anext(first))).kind == "message_started"
    assert (await within(anext(first))).kind == "part_added"
    await asyncio.wait((run,), timeout=0.05)
    assert not run.done()
    run.cancel()
    await asyncio.wait((run,))
    await first.aclose()  # type: ignore[attr-defined]
    assert (await within(tell("slow", "0.001"))).text == "Waiting."


@pytest.mark.slow
async def test_a_thousand_slow_agents_run_at_once():
    loop = asyncio.get_running_loop()
    began = loop.time()
    transcripts = await within(asyncio.gather(*(tell("slow", "0.2") for _ in range(1000))))
    assert len(transcripts) == 1000
    assert loop.time() - began < 60, "sequential runs would take 200 seconds"


async def test_fail_raises_with_the_callers_text():
    conversation = dialogue("fail")
    transcript = await conversation.say("because")
    assert transcript.text == "Failing."
    assert transcript.fault is not None
    assert (transcript.fault.code, transcript.fault.message) == (FaultCode.AGENT_FAILED, "RuntimeError: because")
    (ended,) = (record.event for record in conversation.records if isinstance(record.event, RunEnded))
    assert ended.status is RunStatus.ERROR
    assert len(agent_events(conversation.records)) == 4
