"""Recordings: the events of one task as JSON, with their times, and an agent that replays them."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, cast
from uuid import NAMESPACE_URL, uuid5

import msgspec

from babelgate.canonical import AgentInfo, Event, FaultCode, FaultError, FilePart, Invocation, Record
from babelgate.canonical.event import RunCreated, RunEnded, UpstreamBound
from babelgate.canonical.json import to_json
from babelgate.canonical.replay import agent_records
from babelgate.canonical.state import RunStatus
from babelgate.canonical.value import JsonObject, Value

FORMAT: Final = 2
"""Version of the file format of recordings. A reader rejects newer versions."""

Pace = Literal["recorded", "full"]

_IDS: Final = ("message_id", "call_id", "step_id", "artifact_id", "interrupt_id", "checkpoint_id", "parent_id")
"""Fields with ids by which the events of a task refer to each other."""


_HASH: Final = re.compile(r"[0-9a-f]{32}")
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}")


class RecordingError(Exception):
    """Recording that cannot be read. The message has the file and the reason in one line."""


class RecordedEvent(Value):
    at: int
    """Time since the run was created, in microseconds."""
    event: Event


class RecordedRun(Value):
    cause: str
    input: RunCreated
    """Input of the run, for human readers. A replay does not compare it with its own input."""
    events: tuple[RecordedEvent, ...]
    """Events of the agent in this run, and the end of the run."""


class Recording(Value):
    kind: ClassVar[Literal["babelgate recording"]] = "babelgate recording"
    format: int = FORMAT
    babelgate: str = ""
    agent: AgentInfo
    runs: tuple[RecordedRun, ...]
    """Runs of one task: the first one, and one for each answer."""
    files: Mapping[str, str] = {}
    """Content of the files in base64, by the hash by which file parts refer to them."""
    wire: JsonObject = {}
    """Recorded HTTP traffic (`babelgate.gateway.cli.wire`). Replays do not read it. Since format 2."""


def recording_of(
    records: Sequence[Record], agent: AgentInfo, version: str, wire: JsonObject | None = None
) -> Recording:
    """Return the recording of a task from its records.

    The file parts of the records must contain the bytes. `version` is that of Babelgate. `wire` is the HTTP traffic
    with the agent's server, if it was recorded.
    """
    files: dict[str, bytes] = {}
    events_of_agent = agent_records(records)
    runs: list[RecordedRun] = []
    for created in (each for each in records if isinstance(each.event, RunCreated)):
        run_id = created.run_id
        end = [record for record in records if record.run_id == run_id and isinstance(record.event, RunEnded)]
        of_run = [
            record
            for record in events_of_agent
            if record.run_id == run_id and not isinstance(record.event, UpstreamBound)
        ]
        _collect_files((record.event for record in (created, *of_run)), files)
        events = tuple(RecordedEvent(at=record.at - created.at, event=record.event) for record in (*of_run, *end))
        run_input = cast("RunCreated", created.event).replace(headers={}, trace={}, key_id="", subject="")
        runs.append(RecordedRun(cause=run_input.cause, input=run_input, events=events))
    encoded = {name: base64.b64encode(data).decode() for name, data in sorted(files.items())}
    return Recording(babelgate=version, agent=agent, runs=tuple(runs), files=encoded, wire=wire or {})


def _collect_files(values: Iterable[object], files: dict[str, bytes]) -> None:
    """Add the bytes of all file parts in `values` to `files`, by hash."""
    for value in values:
        if isinstance(value, FilePart):
            if value.inline is not None and value.blob is not None:
                files[value.blob] = value.inline
        elif isinstance(value, Value):
            _collect_files(value.members().values(), files)
        elif isinstance(value, tuple):
            _collect_files(cast("tuple[object, ...]", value), files)


def read_recording(path: Path) -> Recording:
    """Read a recording from a file. Raises RecordingError if the file cannot be read, is no recording, or was written
    by a newer version."""
    try:
        data = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise RecordingError(f"{path}: it cannot be read: {error.strerror}") from None
    except msgspec.DecodeError:
        raise RecordingError(f"{path}: not a recording: the file is not JSON") from None
    if not isinstance(data, dict) or data.get("kind") != "babelgate recording":  # pyright: ignore[reportUnknownMemberType]
        raise RecordingError(f"{path}: not a recording made by babelgate record")
    number = cast("JsonObject", data).get("format")
    if isinstance(number, int) and number > FORMAT:
        raise RecordingError(f"{path}: a newer version has written it (format {number}; this one reads {FORMAT})")
    try:
        recording = msgspec.convert(data, Recording)
        for content in recording.files.values():
            base64.b64decode(content, validate=True)
    except msgspec.ValidationError as error:
        raise RecordingError(f"{path}: not a recording: {error}") from None
    except ValueError:
        raise RecordingError(f"{path}: not a recording: a file in it is not base64") from None
    return recording


class Recorded:
    """Agent that replays a recording, even if its input differs from the recorded one."""

    def __init__(self, recording: Recording, pace: Pace = "full") -> None:
        self.info = recording.agent.replace(remembers=False, replies=False, continuable=False)
        self._runs = recording.runs
        self._files = {name: base64.b64decode(data) for name, data in recording.files.items()}
        self._pace: Pace = pace
        self._ids = frozenset(_find_ids([to_json(each.event) for run in recording.runs for each in run.events]))

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        """Yield the recorded events of the task's next run, at their recorded times or at once. Raises agent_failed if
        the recording has no more runs."""
        number = len({each.run_id for each in await call.past()} - {None, call.run_id})
        if number >= len(self._runs):
            count = len(self._runs)
            raise FaultError(
                FaultCode.AGENT_FAILED,
                f"The recording has only {count} run{'' if count == 1 else 's'}, and this call asks for one more. "
                "Record a longer task.",
            )
        loop = asyncio.get_running_loop()
        started = loop.time()
        for each in self._runs[number].events:
            if self._pace == "recorded":
                await asyncio.sleep(max(0.0, started + each.at / 1e6 - loop.time()))
            if not (isinstance(each.event, RunEnded) and each.event.status is RunStatus.PAUSED):
                yield self._replay(each.event, call.task_id)

    def _replay(self, event: Event, task_id: str) -> Event:
        """Return a recorded event with new ids for this task, and with the bytes of its files."""
        renewed: JsonObject = self._renew(to_json(event), task_id)
        return type(event).of_members({name: self._renew_within(each, task_id) for name, each in renewed.items()})

    def _renew(self, value: Any, task_id: str) -> Any:
        """Return an event, a message or a part with new ids in its id fields, and with the bytes of its files."""
        renewed = {**value}
        for name in _IDS:
            if isinstance(renewed.get(name), str):
                renewed[name] = _new_id(renewed[name], task_id)
        if isinstance(renewed.get("change"), dict):
            since = renewed["change"]["since"]
            renewed["change"] = {**renewed["change"], "since": _new_id(since, task_id)}
        if renewed.get("kind") == "file" and renewed.get("blob") in self._files:
            renewed |= {"inline": self._files[renewed["blob"]], "blob": None, "size": None}
        for name in ("message", "part"):
            if isinstance(renewed.get(name), dict):
                renewed[name] = self._renew(renewed[name], task_id)
        if isinstance(renewed.get("parts"), tuple | list):
            renewed["parts"] = [self._renew(each, task_id) for each in renewed["parts"]]
        return renewed

    def _renew_within(self, value: Any, task_id: str) -> Any:
        """Return a value in which all ids of the recording are replaced by new ones, also within texts.

        A graph refers to its questions and messages in its state, and in data that only LangGraph's callers receive.
        """
        if isinstance(value, str):
            return _UUID.sub(lambda match: _new_id(match[0], task_id) if match[0] in self._ids else match[0], value)
        if isinstance(value, dict):
            members = cast("JsonObject", value).items()
            return {self._renew_within(name, task_id): self._renew_within(each, task_id) for name, each in members}
        if isinstance(value, list | tuple):
            return [self._renew_within(each, task_id) for each in cast("Sequence[Any]", value)]
        return value


def _find_ids(value: Any) -> Iterator[str]:
    """Yield the ids in recorded events that can be found within other text: UUIDs, and the hashes by which graphs
    identify questions."""
    if isinstance(value, dict):
        for name, each in cast("JsonObject", value).items():
            if name in _IDS and isinstance(each, str) and _UUID.fullmatch(each):
                yield each
            yield from _find_ids(each)
    elif isinstance(value, list | tuple):
        for each in cast("Sequence[Any]", value):
            yield from _find_ids(each)


def _new_id(recorded: str, task_id: str) -> str:
    """Return the id that replaces an id of the recording in a new task.

    A hash remains a hash, by which LangGraph recognizes the ids of questions. The same arguments give the same id.
    """
    renewed = uuid5(NAMESPACE_URL, f"{task_id}/{recorded}")
    return renewed.hex if _HASH.fullmatch(recorded) else str(renewed)
