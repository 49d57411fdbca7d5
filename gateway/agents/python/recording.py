"""A recording: what an agent said in a task, as JSON with its times, and an agent that says it again."""

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
"""Of the file. A reader refuses a newer one."""

Pace = Literal["recorded", "full"]

_IDS: Final = ("message_id", "call_id", "step_id", "artifact_id", "interrupt_id", "checkpoint_id", "parent_id")
"""Fields by which events of one task mean each other."""


_HASH: Final = re.compile(r"[0-9a-f]{32}")
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}")


class RecordingError(Exception):
    """One line: which file, and what is wrong with it."""


class RecordedEvent(Value):
    at: int
    """Microseconds since the run began."""
    event: Event


class RecordedRun(Value):
    cause: str
    input: RunCreated
    """What was asked. It is shown to readers: the same is said again to whatever is asked."""
    events: tuple[RecordedEvent, ...]
    """Of the agent, and the run's end."""


class Recording(Value):
    kind: ClassVar[Literal["babelgate recording"]] = "babelgate recording"
    format: int = FORMAT
    babelgate: str = ""
    agent: AgentInfo
    runs: tuple[RecordedRun, ...]
    """Of one task: the first, and one for each time that it was answered."""
    files: Mapping[str, str] = {}
    """Base64, by the hash that parts name them by."""
    wire: JsonObject = {}
    """What was said on the wire meanwhile (`babelgate.gateway.cli.wire`); replays do not read it. Since format 2."""


def recording_of(
    records: Sequence[Record], agent: AgentInfo, version: str, wire: JsonObject | None = None
) -> Recording:
    """Of the records of one task, with the bytes of its files in their parts."""
    files: dict[str, bytes] = {}
    spoken = agent_records(records)
    runs: list[RecordedRun] = []
    for created in (each for each in records if isinstance(each.event, RunCreated)):
        run_id = created.run_id
        ended = [each for each in records if each.run_id == run_id and isinstance(each.event, RunEnded)]
        said = [each for each in spoken if each.run_id == run_id and not isinstance(each.event, UpstreamBound)]
        _collect_files((each.event for each in (created, *said)), files)
        events = tuple(RecordedEvent(at=each.at - created.at, event=each.event) for each in (*said, *ended))
        asked = cast("RunCreated", created.event).replace(headers={})
        runs.append(RecordedRun(cause=asked.cause, input=asked, events=events))
    coded = {name: base64.b64encode(data).decode() for name, data in sorted(files.items())}
    return Recording(babelgate=version, agent=agent, runs=tuple(runs), files=coded, wire=wire or {})


def _collect_files(values: Iterable[object], found: dict[str, bytes]) -> None:
    for value in values:
        if isinstance(value, FilePart):
            if value.inline is not None and value.blob is not None:
                found[value.blob] = value.inline
        elif isinstance(value, Value):
            _collect_files(value.members().values(), found)
        elif isinstance(value, tuple):
            _collect_files(cast("tuple[object, ...]", value), found)


def read_recording(path: Path) -> Recording:
    """Raises RecordingError."""
    try:
        told = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise RecordingError(f"{path}: it cannot be read: {error.strerror}") from None
    except msgspec.DecodeError:
        raise RecordingError(f"{path}: not a recording: the file is not JSON") from None
    if not isinstance(told, dict) or told.get("kind") != "babelgate recording":  # pyright: ignore[reportUnknownMemberType]
        raise RecordingError(f"{path}: not a recording made by babelgate record")
    number = cast("JsonObject", told).get("format")
    if isinstance(number, int) and number > FORMAT:
        raise RecordingError(f"{path}: a newer version has written it (format {number}; this one reads {FORMAT})")
    try:
        made = msgspec.convert(told, Recording)
        for each in made.files.values():
            base64.b64decode(each, validate=True)
    except msgspec.ValidationError as error:
        raise RecordingError(f"{path}: not a recording: {error}") from None
    except ValueError:
        raise RecordingError(f"{path}: not a recording: a file in it is not base64") from None
    return made


class Recorded:
    """The agent of a recording: whatever it is asked, it says what it said then."""

    def __init__(self, recording: Recording, pace: Pace = "full") -> None:
        self.info = recording.agent.replace(remembers=False, replies=False, continuable=False)
        self._runs = recording.runs
        self._files = {name: base64.b64decode(data) for name, data in recording.files.items()}
        self._pace: Pace = pace
        self._ids = frozenset(_find_ids([to_json(each.event) for run in recording.runs for each in run.events]))

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        """Raises agent_failed."""
        number = len({each.run_id for each in await call.past()} - {None, call.run_id})
        if number >= len(self._runs):
            count = len(self._runs)
            raise FaultError(
                FaultCode.AGENT_FAILED,
                f"The recording has only {count} run{'' if count == 1 else 's'}, and this call asks for one more. "
                "Record a longer task.",
            )
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for each in self._runs[number].events:
            if self._pace == "recorded":
                await asyncio.sleep(max(0.0, begun + each.at / 1e6 - loop.time()))
            if not (isinstance(each.event, RunEnded) and each.event.status is RunStatus.PAUSED):
                yield self._say_again(each.event, call.task_id)

    def _say_again(self, event: Event, task_id: str) -> Event:
        """With ids of this task's own, and with the bytes of its files."""
        told: JsonObject = self._renew(to_json(event), task_id)
        return type(event).of_members({name: self._renew_within(each, task_id) for name, each in told.items()})

    def _renew(self, value: Any, task_id: str) -> Any:
        """The ids of an event, a message, a part."""
        made = {**value}
        for name in _IDS:
            if isinstance(made.get(name), str):
                made[name] = _new_id(made[name], task_id)
        if isinstance(made.get("change"), dict):
            since = made["change"]["since"]
            made["change"] = {**made["change"], "since": _new_id(since, task_id)}
        if made.get("kind") == "file" and made.get("blob") in self._files:
            made |= {"inline": self._files[made["blob"]], "blob": None, "size": None}
        for name in ("message", "part"):
            if isinstance(made.get(name), dict):
                made[name] = self._renew(made[name], task_id)
        if isinstance(made.get("parts"), tuple | list):
            made["parts"] = [self._renew(each, task_id) for each in made["parts"]]
        return made

    def _renew_within(self, value: Any, task_id: str) -> Any:
        """The ids of the recording wherever a value quotes them: a graph names its questions and messages in its state
        and in what only LangGraph's callers are shown. Nothing else is changed."""
        if isinstance(value, str):
            return _UUID.sub(lambda found: _new_id(found[0], task_id) if found[0] in self._ids else found[0], value)
        if isinstance(value, dict):
            members = cast("JsonObject", value).items()
            return {self._renew_within(name, task_id): self._renew_within(each, task_id) for name, each in members}
        if isinstance(value, list | tuple):
            return [self._renew_within(each, task_id) for each in cast("Sequence[Any]", value)]
        return value


def _find_ids(value: Any) -> Iterator[str]:
    """Yield the ids of events that cannot be anything else: UUIDs, and the hashes by which graphs name questions."""
    if isinstance(value, dict):
        for name, each in cast("JsonObject", value).items():
            if name in _IDS and isinstance(each, str) and _UUID.fullmatch(each):
                yield each
            yield from _find_ids(each)
    elif isinstance(value, list | tuple):
        for each in cast("Sequence[Any]", value):
            yield from _find_ids(each)


def _new_id(recorded: str, task_id: str) -> str:
    """The id of a new task for one of the recording, in its form: LangGraph knows its questions by that."""
    made = uuid5(NAMESPACE_URL, f"{task_id}/{recorded}")
    return made.hex if _HASH.fullmatch(recorded) else str(made)
