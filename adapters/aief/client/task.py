"""A task on another AIEF server, as far as one run has to do with it: its steps, and its files, each told once."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote

from babelgate.adapters.aief.client.http import HttpClient
from babelgate.adapters.aief.read import StepEvents, StepReader, decode_artifact
from babelgate.adapters.aief.wire import replies as w
from babelgate.adapters.kit.client.backoff import FIRST_WAIT, LAST_WAIT, Backoff
from babelgate.adapters.kit.client.blame import blaming_the_agent, decode_reply
from babelgate.adapters.kit.client.blobs import with_files
from babelgate.adapters.kit.client.status import UNAVAILABLE, is_gone
from babelgate.adapters.kit.json import validate
from babelgate.canonical import Event, FaultCode, FaultError, Feature
from babelgate.canonical.value import Json, JsonObject

T = TypeVar("T")

TASKS: Final = "/ap/v1/agent/tasks"
PAGE_SIZE: Final = 100
MAX_PAGES: Final = 100
MAX_FILES: Final = 1000
"""Files that one run may bring."""
MAX_BYTES: Final = 2**30
"""Of them together."""
PAGE_LIMIT: Final = 2**20
"""Bytes of one page of the list of files: all pages are kept until the run is over."""

_NO_SUCH_LIST: Final = frozenset({404, 405, 501})
_TOO_LARGE: Final = "a file was larger than the limit and was not fetched"
_MISSING: Final = "a file could not be fetched"
_TOO_MANY: Final = f"files beyond the first {MAX_FILES} were not fetched"
_TOO_MUCH: Final = f"files beyond the first {MAX_BYTES} bytes were not fetched"
_UNLISTED: Final = "the list of files could not be read"


class Task:
    def __init__(self, http: HttpClient, reader: StepReader, until: float, file_limit: int) -> None:
        """`until` = when the run must be over, on the loop's clock."""
        self.id = ""
        self._http = http
        self._reader = reader
        self._until = until
        self._file_limit = file_limit
        self._known: set[str] = set()
        """Files that need not be told: the caller's, those of earlier runs, and those that were told."""
        self._told = 0
        self._bytes = 0
        """Of files that were fetched."""
        self._is_full = False
        """No more files are told."""
        self._lists = True
        """Of what the list has, it is known what is new."""

    @property
    def _path(self) -> str:
        return f"{TASKS}/{_segment(self.id)}"

    async def create(self, body: JsonObject) -> w.Task:
        answer = await self._http.post(TASKS, body, self._until)
        made = decode_reply(w.Task, answer)
        self.id = made.task_id
        self._known.clear()
        self._lists = True
        return made

    async def resume(self, task_id: str) -> None:
        """Go on with a task of an earlier run: what files it has now are not this run's. Raises agent_unreachable,
        agent_timeout."""
        self.id = task_id
        try:
            self._known |= {artifact.artifact_id for artifact in await self._list_artifacts()}
        except FaultError as error:
            if error.fault.code in UNAVAILABLE:
                raise
            self._lists = False

    async def upload(self, files: Sequence[tuple[str, bytes, str]]) -> None:
        for name, content, media_type in files:
            answer = await self._http.upload(f"{self._path}/artifacts", name, content, media_type, self._until)
            self._known.add(decode_reply(w.Artifact, answer).artifact_id)

    async def step(self, body: JsonObject, before: str | None = None) -> StepEvents:
        """Have a step done. It is never asked for twice: the first time may have reached the agent. `before` = the run
        that a gateway like this one had of the task, if it told one: a step whose answer is lost is looked for
        there."""
        records = self._reader.records
        try:
            # The answer counts: a GET of the step gives the task's first one on the Python SDK 1.0.2.
            answer = await self._http.post(f"{self._path}/steps", body, self._until, start=records.seq)
        except FaultError as error:
            if error.fault.code is not FaultCode.AGENT_UNREACHABLE or not self._http.answers_extended:
                raise
            return await self._with_files(await self._look_again(before, error))
        told = self._read(answer)
        if not records.active:
            return told
        said = list(told.said)
        while records.behind:
            said += await self._read_on(str(_step_id(answer)))
        return await self._with_files(said)

    def _read(self, answer: Json) -> StepEvents:
        with blaming_the_agent():
            return self._reader.read(answer)

    async def _read_on(self, step_id: str) -> Sequence[Event]:
        """The records that the step had no room for."""
        before = self._reader.records.seq
        answer = await self._http.get(f"{self._path}/steps/{_segment(step_id)}", self._until, start=before or 0)
        told = self._read(answer)
        if self._reader.records.behind and self._reader.records.seq == before:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server leaves out records of its run")
        return told.said

    async def _look_again(self, before: str | None, lost: FaultError) -> list[Event]:
        """What the run says whose answer was lost, until it stops. Raises `lost` if the server has begun none."""
        said: list[Event] = []
        backoff = Backoff(FIRST_WAIT, LAST_WAIT)
        while not self._reader.stopped:
            try:
                task = await self._http.get(self._path, self._until)
                step_id = _newest_step(task, before)
                if step_id is None:
                    raise lost
                news = await self._read_on(step_id)
            except FaultError as error:
                if error is lost or not is_gone(error.fault):
                    raise
                backoff.count_failure(error)
            else:
                said += news
                if news:
                    backoff.reset()
            if not self._reader.stopped:
                await backoff.wait()
        return said

    async def _with_files(self, events: Sequence[Event]) -> StepEvents:
        return StepEvents(await with_files(events, self._file), (), ())

    async def _file(self, blob: str) -> bytes:
        """By its hash, of a gateway. Raises too_large."""
        return await self._http.download(f"{self._path}/artifacts/{_segment(blob)}", self._file_limit, self._until)

    async def has_run_out(self) -> bool:
        """Whether a step was refused because none is left: then all that there are are completed. One that failed is
        not; a server that does not list its steps does not know."""
        try:
            # The JavaScript SDK 1.0.5 answers 500 to this list.
            statuses = await self._pages("steps", "step_id", lambda step: step.get("status"))
        except FaultError:
            return False
        return bool(statuses) and all(status == "completed" for status in statuses)

    # Files

    async def fetch(self, artifact: w.Artifact) -> Sequence[Event]:
        """A file, unless it need not be told. Raises agent_timeout."""
        if artifact.artifact_id in self._known or self._is_full:
            return ()
        self._known.add(artifact.artifact_id)
        self._told += 1
        if self._told > MAX_FILES or self._bytes > MAX_BYTES:
            self._is_full = True
            return self._reader.note(Feature.ARTIFACT, _TOO_MANY if self._told > MAX_FILES else _TOO_MUCH)
        try:
            content = await self._http.download(
                f"{self._path}/artifacts/{_segment(artifact.artifact_id)}", self._file_limit, self._until
            )
        except FaultError as error:
            if error.fault.code is FaultCode.AGENT_TIMEOUT:
                raise
            large = error.fault.code is FaultCode.TOO_LARGE
            return self._reader.note(Feature.ARTIFACT, _TOO_LARGE if large else _MISSING)
        self._bytes += len(content)
        return (decode_artifact(artifact, content),)

    async def list_unmentioned(self) -> tuple[Sequence[w.Artifact], Sequence[Event]]:
        """Files that no step told of, and what is to be noted of the list: the Python SDK puts all files on the task's
        first step, also later ones."""
        if not self._lists:
            return (), ()
        try:
            listed = await self._list_artifacts()
        except FaultError as error:
            is_none = error.fault.details.get("status") in _NO_SUCH_LIST
            return (), () if is_none else self._reader.note(Feature.ARTIFACT, _UNLISTED)
        return [artifact for artifact in listed if artifact.agent_created is not False], ()

    async def _list_artifacts(self) -> list[w.Artifact]:
        with blaming_the_agent():
            return await self._pages("artifacts", "artifact_id", partial(validate, w.Artifact), PAGE_LIMIT)

    async def _pages(
        self, name: str, key: str, kept: Callable[[dict[str, Any]], T], limit: int | None = None
    ) -> list[T]:
        """A list as an object with pages, or as an array that is all of it. The end is where nothing new comes:
        `total_pages` is wrong on the Python SDK, and some servers give the same page for ever."""
        found: dict[str, T] = {}
        for page in range(1, MAX_PAGES + 1):
            # The Python SDK 1.0.2 ignores both for artifacts, and gives them as a bare array.
            query = f"?current_page={page}&page_size={PAGE_SIZE}"
            answer = await self._http.get(f"{self._path}/{name}{query}", self._until, limit)
            items = _items(answer, name)
            new = {str(item.get(key)): kept(item) for item in items if str(item.get(key)) not in found}
            found |= new
            if not new or isinstance(answer, list) or _total(answer) <= len(found):
                break
        return list(found.values())


def _items(answer: Json, name: str) -> list[dict[str, Any]]:
    listed: Any = answer.get(name) if isinstance(answer, dict) else answer
    if not isinstance(listed, list):
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent's server answered without a list of {name}")
    return [cast("dict[str, Any]", each) for each in cast("list[Any]", listed) if isinstance(each, dict)]


def _total(answer: Json) -> int:
    """Of all pages; 0 = this is all, as where the server knows no pages."""
    pages: Any = answer.get("pagination") if isinstance(answer, dict) else None
    total: Any = cast("dict[str, Any]", pages).get("total_items") if isinstance(pages, dict) else None
    return total if isinstance(total, int) else 0


def _step_id(answer: Json) -> str | None:
    return decode_reply(w.Step, answer).step_id


def _newest_step(answer: Json, before: str | None) -> str | None:
    """Of a gateway's task: the last step that has begun, unless its run is the one `before`."""
    for step in reversed(_items(answer, "steps")):
        beside = step.get("additional_output")
        own: Any = cast("dict[str, Any]", beside).get("babelgate") if isinstance(beside, dict) else None
        run_id: Any = cast("dict[str, Any]", own).get("run_id") if isinstance(own, dict) else None
        if run_id is not None:
            step_id = step.get("step_id")
            return step_id if run_id != before and isinstance(step_id, str) else None
    return None


def _segment(wire_id: str) -> str:
    """An id in a path, where it must not lead elsewhere."""
    if wire_id in (".", ".."):
        raise FaultError(FaultCode.AGENT_INVALID, "The agent's server gave an id that cannot be part of a URL")
    return quote(wire_id, safe="")
