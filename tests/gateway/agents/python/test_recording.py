"""Tests of recordings: their creation from the log of a task, and their replay."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from babelgate.canonical import AgentInfo, FaultError, Invocation, Record, TextPart
from babelgate.canonical.event import Event, MessageEnded, MessageStarted, PartAdded, RunCreated, RunEnded
from babelgate.canonical.json import to_json
from babelgate.gateway.agents.python.recording import (
    FORMAT,
    Recorded,
    Recording,
    RecordingError,
    read_recording,
    recording_of,
)

CALL = Invocation(agent="one", thread_id="th", task_id="ta", run_id="new")


def records(*events: Event) -> list[Record]:
    """Return the records of a run, a tenth of a second apart."""
    return [Record(seq, 1_000_000 + seq * 100_000, "ta", "old", 1, event) for seq, event in enumerate(events, 1)]


@pytest.fixture
def recording() -> Recording:
    run_records = records(
        RunCreated(run_id="old", headers={"authorization": "Bearer k3y-of-mine"}),
        MessageStarted(message_id="m"),
        PartAdded(message_id="m", index=0, part=TextPart(text="Hello")),
        MessageEnded(message_id="m"),
        RunEnded(usage={"total_tokens": 3}),
    )
    return recording_of(run_records, AgentInfo(name="one"), "0")


async def say(agent: Recorded, call: Invocation = CALL) -> list[Event]:
    return [event async for event in agent.run(call)]


async def test_a_replay_has_the_ids_of_the_new_task(recording: Recording) -> None:
    started, added, ended, end = await say(Recorded(recording))
    assert isinstance(added, PartAdded) and added.part == TextPart(text="Hello")
    assert isinstance(started, MessageStarted) and isinstance(ended, MessageEnded)
    assert started.message_id == added.message_id == ended.message_id != "m"
    assert end == RunEnded(usage={"total_tokens": 3})


async def test_every_replay_is_the_same(recording: Recording) -> None:
    assert await say(Recorded(recording)) == await say(Recorded(recording))


async def test_the_recorded_pace_delays_every_event(recording: Recording) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    came = [loop.time() - begun async for _ in Recorded(recording, "recorded").run(CALL)]
    assert [each.at for each in recording.runs[0].events] == [100_000, 200_000, 300_000, 400_000]
    assert all(at >= each / 10 - 0.01 for each, at in enumerate(came, 1))


async def test_an_unrecorded_run_fails(recording: Recording) -> None:
    async def past() -> list[Record]:
        return records(RunCreated(run_id="old"))

    call = Invocation(agent="one", thread_id="th", task_id="ta", run_id="new", past=past)
    with pytest.raises(FaultError, match="has only 1 run, and"):
        await say(Recorded(recording), call)


def test_the_headers_of_the_caller_are_not_recorded(recording: Recording) -> None:
    assert "k3y-of-mine" not in json.dumps(to_json(recording))


def test_a_recording_is_read_back_unchanged(recording: Recording, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(to_json(recording)), encoding="utf-8")
    assert read_recording(file) == recording


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": FORMAT + 1, "news": []}, "a newer version has written it"),
        ({"kind": "other"}, "not a recording made by babelgate record"),
        ({"runs": 3}, r"not a recording: .*\$\.runs"),
        ({"files": {"a": "?"}}, "a file in it is not base64"),
    ],
)
def test_an_unreadable_recording_is_reported_in_one_line(
    recording: Recording, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps({**to_json(recording), **change}), encoding="utf-8")
    with pytest.raises(RecordingError, match=words) as caught:
        read_recording(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", ""])
def test_a_recording_that_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RecordingError, match="not a recording"):
        read_recording(tmp_path / "run.json")
