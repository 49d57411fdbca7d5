"""Access to a task on another AIEF server during one run: executes its steps, and reports each of its files once."""

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
"""Number of items to request in one page of a list. Chosen."""
MAX_PAGES: Final = 100
"""Maximum number of pages that are requested of one list. Chosen."""
MAX_FILES: Final = 1000
"""Maximum number of files that one run reports. Chosen."""
MAX_BYTES: Final = 2**30
"""Total size of a run's files, in bytes, after which no further file is downloaded. Chosen."""
PAGE_LIMIT: Final = 2**20
"""Maximum size of one page in the list of files, in bytes. Chosen: all pages are in memory until the run is over."""

_NO_SUCH_LIST: Final = frozenset({404, 405, 501})
"""HTTP statuses of servers that have no list of files."""
_TOO_LARGE: Final = "a file was larger than the limit and was not fetched"
_MISSING: Final = "a file could not be fetched"
_TOO_MANY: Final = f"files beyond the first {MAX_FILES} were not fetched"
_TOO_MUCH: Final = f"files beyond the first {MAX_BYTES} bytes were not fetched"
_UNLISTED: Final = "the list of files could not be read"


class UpstreamTask:
    """A task on another AIEF server, as one run uses it."""

    def __init__(self, http: HttpClient, reader: StepReader, deadline: float, file_limit: int) -> None:
        """Create an object without a task. `deadline` is the latest end of the run, on the event loop's clock."""
        self.id = ""
        self._http = http
        self._reader = reader
        self._deadline = deadline
        self._file_limit = file_limit
        self._reported: set[str] = set()
        """Ids of files not to report: uploads of the caller, files of earlier runs, and files that were reported."""
        self._file_count = 0
        self._bytes = 0
        """Total size of the downloaded files, in bytes."""
        self._is_full = False
        """True if a limit on files is exceeded, so that no more files are reported."""
        self._can_list = True
        """False if the files from before the run are not known, so that the list does not show which files are new."""

    @property
    def _path(self) -> str:
        return f"{TASKS}/{_segment(self.id)}"

    async def create(self, body: JsonObject) -> w.Task:
        """Create a task at the server. Raises agent_invalid for an invalid response."""
        answer = await self._http.post(TASKS, body, self._deadline)
        created = decode_reply(w.Task, answer)
        self.id = created.task_id
        self._reported.clear()
        self._can_list = True
        return created

    async def resume(self, task_id: str) -> None:
        """Continue a task of an earlier run, and mark its present files as reported. Raises agent_unreachable or
        agent_timeout if the server does not respond; any other failure means that the server does not list files."""
        self.id = task_id
        try:
            self._reported |= {artifact.artifact_id for artifact in await self._list_artifacts()}
        except FaultError as error:
            if error.fault.code in UNAVAILABLE:
                raise
            self._can_list = False

    async def upload(self, files: Sequence[tuple[str, bytes, str]]) -> None:
        """Upload files, each given by name, bytes and media type, to the task."""
        for name, content, media_type in files:
            answer = await self._http.upload(f"{self._path}/artifacts", name, content, media_type, self._deadline)
            self._reported.add(decode_reply(w.Artifact, answer).artifact_id)

    async def step(self, body: JsonObject, previous_run: str | None = None) -> StepEvents:
        """Execute a step, and return its events. The request is never repeated, because it may have reached the agent.

        `previous_run` is the newest run that another Babelgate had on the task before; None if it had none. If the
        response of this step is lost, the run after that one is looked up.
        """
        records = self._reader.records
        try:
            # Only the response to the POST is reliable: on the Python SDK 1.0.2, a GET of the step returns the task's
            # first step.
            response = await self._http.post(f"{self._path}/steps", body, self._deadline, start=records.seq)
        except FaultError as error:
            if error.fault.code is not FaultCode.AGENT_UNREACHABLE or not self._http.answers_extended:
                raise
            return await self._with_files(await self._recover(previous_run, error))
        events = self._read(response)
        if not records.active:
            return events
        all_events = list(events.content)
        while records.behind:
            all_events += await self._read_more(str(_step_id(response)))
        return await self._with_files(all_events)

    def _read(self, response: Json) -> StepEvents:
        """Return the events of a response with a step. Raises agent_invalid for a malformed response, and agent_failed
        if the step reports a failure."""
        with blaming_the_agent():
            return self._reader.read(response)

    async def _read_more(self, step_id: str) -> Sequence[Event]:
        """Fetch the step again, and return the events of records that did not fit into the earlier response. Raises
        agent_invalid if the response brings no more records."""
        before = self._reader.records.seq
        response = await self._http.get(f"{self._path}/steps/{_segment(step_id)}", self._deadline, start=before or 0)
        events = self._read(response)
        if self._reader.records.behind and self._reader.records.seq == before:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server leaves out records of its run")
        return events.content

    async def _recover(self, previous_run: str | None, lost: FaultError) -> list[Event]:
        """Return the events of the run whose response was lost, after waiting until it stops. It is the run after
        `previous_run`; None means the first one of the task. Raises `lost` if the server has no such run."""
        events: list[Event] = []
        backoff = Backoff(FIRST_WAIT, LAST_WAIT)
        while not self._reader.stopped:
            try:
                task = await self._http.get(self._path, self._deadline)
                step_id = _newest_step(task, previous_run)
                if step_id is None:
                    raise lost
                new_events = await self._read_more(step_id)
            except FaultError as error:
                if error is lost or not is_gone(error.fault):
                    raise
                backoff.count_failure(error)
            else:
                events += new_events
                if new_events:
                    backoff.reset()
            if not self._reader.stopped:
                await backoff.wait()
        return events

    async def _with_files(self, events: Sequence[Event]) -> StepEvents:
        """Return the events as a step, with the bytes of files that their records name by hash."""
        return StepEvents(await with_files(events, self._file), (), ())

    async def _file(self, blob: str) -> bytes:
        """Return the bytes of a file of another Babelgate by its hash. Raises too_large if it exceeds the limit of one
        file."""
        return await self._http.download(f"{self._path}/artifacts/{_segment(blob)}", self._file_limit, self._deadline)

    async def has_run_out(self) -> bool:
        """Return True if the server lists the task's steps, and all are completed. A step was then refused because no
        step is left, and not because the agent failed."""
        try:
            # The JavaScript SDK 1.0.5 responds with 500 to this list.
            statuses = await self._pages("steps", "step_id", lambda step: step.get("status"))
        except FaultError:
            return False
        return bool(statuses) and all(status == "completed" for status in statuses)

    # Files

    async def fetch(self, artifact: w.Artifact) -> Sequence[Event]:
        """Download a file, and return it as an `ArtifactAdded`. Return nothing for a file that was reported, and a loss
        for a file that cannot be read. Raises agent_timeout at the deadline of the run."""
        if artifact.artifact_id in self._reported or self._is_full:
            return ()
        self._reported.add(artifact.artifact_id)
        self._file_count += 1
        if self._file_count > MAX_FILES or self._bytes > MAX_BYTES:
            self._is_full = True
            return self._reader.note(Feature.ARTIFACT, _TOO_MANY if self._file_count > MAX_FILES else _TOO_MUCH)
        try:
            content = await self._http.download(
                f"{self._path}/artifacts/{_segment(artifact.artifact_id)}", self._file_limit, self._deadline
            )
        except FaultError as error:
            if error.fault.code is FaultCode.AGENT_TIMEOUT:
                raise
            large = error.fault.code is FaultCode.TOO_LARGE
            return self._reader.note(Feature.ARTIFACT, _TOO_LARGE if large else _MISSING)
        self._bytes += len(content)
        return (decode_artifact(artifact, content),)

    async def list_unreported(self) -> tuple[Sequence[w.Artifact], Sequence[Event]]:
        """Return the files that the agent created during the run and no step reported. If the list cannot be read, also
        return a loss.

        The Python SDK assigns all files to the task's first step, so its later steps report no files.
        """
        if not self._can_list:
            return (), ()
        try:
            artifacts = await self._list_artifacts()
        except FaultError as error:
            has_no_list = error.fault.details.get("status") in _NO_SUCH_LIST
            return (), () if has_no_list else self._reader.note(Feature.ARTIFACT, _UNLISTED)
        return [artifact for artifact in artifacts if artifact.agent_created is not False], ()

    async def _list_artifacts(self) -> list[w.Artifact]:
        """Return all files of the task. Raises agent_invalid for an invalid list."""
        with blaming_the_agent():
            return await self._pages("artifacts", "artifact_id", partial(validate, w.Artifact), PAGE_LIMIT)

    async def _pages(
        self, name: str, key: str, convert: Callable[[dict[str, Any]], T], limit: int | None = None
    ) -> list[T]:
        """Return all items of a list of the task, converted by `convert`. `name` is the list's path and member, `key`
        the item's member with its id, and `limit` the maximum size of a page in bytes.

        A response is an object with one page, or an array with all items. The list ends when a page has no new item,
        because `total_pages` is wrong on the Python SDK, and some servers repeat the same page endlessly.
        """
        items_by_key: dict[str, T] = {}
        for page in range(1, MAX_PAGES + 1):
            # The Python SDK 1.0.2 ignores both parameters for artifacts, and responds with an array.
            query = f"?current_page={page}&page_size={PAGE_SIZE}"
            response = await self._http.get(f"{self._path}/{name}{query}", self._deadline, limit)
            items = _items(response, name)
            new = {str(item.get(key)): convert(item) for item in items if str(item.get(key)) not in items_by_key}
            items_by_key |= new
            if not new or isinstance(response, list) or _total(response) <= len(items_by_key):
                break
        return list(items_by_key.values())


def _items(response: Json, name: str) -> list[dict[str, Any]]:
    """Return the items of one page of the list `name`. Raises agent_invalid if the response has no list."""
    listed: Any = response.get(name) if isinstance(response, dict) else response
    if not isinstance(listed, list):
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent's server answered without a list of {name}")
    return [cast("dict[str, Any]", each) for each in cast("list[Any]", listed) if isinstance(each, dict)]


def _total(response: Json) -> int:
    """Return the number of items on all pages, or 0 if the response has no pagination and therefore all items."""
    pages: Any = response.get("pagination") if isinstance(response, dict) else None
    total: Any = cast("dict[str, Any]", pages).get("total_items") if isinstance(pages, dict) else None
    return total if isinstance(total, int) else 0


def _step_id(response: Json) -> str | None:
    return decode_reply(w.Step, response).step_id


def _newest_step(response: Json, previous_run: str | None) -> str | None:
    """Return the id of the newest step that has begun, from another Babelgate's description of a task. Return None if
    that step belongs to `previous_run`, or if no step has begun."""
    for step in reversed(_items(response, "steps")):
        output = step.get("additional_output")
        ids: Any = cast("dict[str, Any]", output).get("babelgate") if isinstance(output, dict) else None
        run_id: Any = cast("dict[str, Any]", ids).get("run_id") if isinstance(ids, dict) else None
        if run_id is not None:
            step_id = step.get("step_id")
            return step_id if run_id != previous_run and isinstance(step_id, str) else None
    return None


def _segment(wire_id: str) -> str:
    """Return an id quoted as one segment of a path. Raises agent_invalid for an id that would change the path."""
    if wire_id in (".", ".."):
        raise FaultError(FaultCode.AGENT_INVALID, "The agent's server sent an id that cannot be part of a URL")
    return quote(wire_id, safe="")
