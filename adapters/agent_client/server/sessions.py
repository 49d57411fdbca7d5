"""Sessions of the protocol: threads of the caller. The id of a session is that of its thread."""

from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, cast
from uuid import UUID

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.codec.choices import SessionOption, check_choice, current_values, session_options
from babelgate.adapters.agent_client.codec.content import PROTOCOL, invalid
from babelgate.adapters.agent_client.write.session import session_updates
from babelgate.adapters.kit.server.caller import Caller
from babelgate.adapters.kit.time import encode_time
from babelgate.canonical import AgentInfo, FaultCode, FaultError, Hub, Record, Scope, StateHistory, Task
from babelgate.canonical.hub import RunFilter, TaskFilter, ThreadChange, ThreadFilter
from babelgate.canonical.json import as_object
from babelgate.canonical.state import TERMINAL, TaskState
from babelgate.canonical.thread import Thread, ThreadView
from babelgate.canonical.value import Json, JsonObject, is_uuid

_PAGE: Final = 20
"""Maximum number of sessions in one result of `session/list`. Chosen: each one takes a read for its title."""
_OPEN: Final = frozenset(TaskState) - TERMINAL
_OPTIONS: Final = "options"
"""Member of the thread's data that has the chosen values of options."""
_NO_SERVERS: Final = "the gateway passes no MCP servers of the client to agents"


class Sessions:
    """Sessions of one caller with one agent."""

    def __init__(self, hub: Hub, who: Caller, info: AgentInfo) -> None:
        self._hub = hub
        self._who = who
        self._info = info
        self._agent = info.name
        self.has_booleans = False
        """True if the client shows options that are booleans."""

    def url_of(self, blob: str) -> str:
        """Return the gateway's URL of a stored file, by its hash."""
        return f"{self._who.root_url}/agent-client/{self._agent}/files/{blob}"

    async def find(self, session_id: str) -> Thread:
        """Return the thread of a session. Raises not_found."""
        if is_uuid(session_id):
            try:
                return await self._hub.reads.thread(self._who.principal, str(UUID(session_id)))
            except FaultError as error:
                if error.fault.code is not FaultCode.NOT_FOUND:
                    raise
        raise FaultError(FaultCode.NOT_FOUND, f"Session {session_id[:100]!r} not found.")

    async def create(self, params: w.NewSession) -> JsonObject:
        """Create the thread of a new session, and return the result of `session/new`. MCP servers that the client
        offers to the agent are reported as a loss."""
        marks: JsonObject = {"agent": self._agent, "cwd": params.cwd}
        if params.additional_directories:
            marks["additionalDirectories"] = params.additional_directories
        change = ThreadChange(metadata={"cwd": params.cwd}, extra={PROTOCOL: marks})
        thread = await self._hub.create_thread(self._who.principal, change)
        result: JsonObject = {"sessionId": thread.thread_id}
        if params.mcp_servers:
            result["_meta"] = {w.OWN: {"loss": {"mcp-servers": _NO_SERVERS}}}
        return {**result, **self.describe_options(thread)}

    # Options

    @property
    def _options(self) -> Sequence[SessionOption]:
        return session_options(self._info, has_booleans=self.has_booleans)

    def describe_options(self, thread: Thread) -> JsonObject:
        """Return the options of a session as a member of a result, with their current values. Return no member if the
        agent has none."""
        chosen = _choices_of(thread)
        options: list[JsonObject] = [each.encode(chosen) for each in self._options]
        return {"configOptions": cast("Json", options)} if options else {}

    async def set_option(self, params: w.SetOption) -> JsonObject:
        """Store the value of an option, and return the result of `session/set_config_option`. Raises invalid,
        not_found."""
        thread = await self.find(params.session_id)
        check_choice(self._options, params.config_id, params.value)
        marks = as_object(thread.extra.get(PROTOCOL))
        chosen: JsonObject = {**_choices_of(thread), params.config_id: params.value}
        change = ThreadChange(extra={PROTOCOL: {**marks, _OPTIONS: chosen}})
        return self.describe_options(await self._hub.change_thread(self._who.principal, thread.thread_id, change))

    def config_of(self, thread: Thread) -> JsonObject:
        """Return the configuration of the agent for the runs of a session, from the values of its options."""
        values = current_values(session_options(self._info, has_booleans=True), _choices_of(thread))
        return {"configurable": values} if values else {}

    async def updates(self, thread_id: str) -> list[w.Update]:
        """Return the updates with which `session/load` repeats the conversation of a thread. Raises not_found."""
        hidden_runs = await self._hidden_runs(thread_id)
        records: list[Record] = []
        log = self._hub.reads.log(self._who.principal, Scope(thread_id), inline=True)
        async with aclosing(log) as batches:
            async for batch in batches:
                records += batch
        return list(session_updates(records, hidden_runs, self.url_of))

    async def _hidden_runs(self, thread_id: str) -> set[str]:
        """Return the ids of the runs on branches other than the current one: their states do not lead to the newest
        state."""
        principal = self._who.principal
        history = await self._hub.reads.snapshot(
            principal, thread_id, StateHistory, partial(StateHistory, thread_id, principal.owner)
        )
        line: set[str | None] = set()
        checkpoint = history.head_id
        while checkpoint is not None and (revision := history.get(checkpoint)) is not None:
            line.add(revision.run_id)
            checkpoint = revision.parent_id
        return {revision.run_id for revision in history.all() if revision.run_id is not None} - line

    async def list(self, params: w.ListSessions) -> JsonObject:
        """Return a page of the caller's sessions with the agent as the result of `session/list`, the most recently
        changed first. Raises invalid for a malformed cursor."""
        offset = _decode_cursor(params.cursor)
        where = ThreadFilter(
            agent=self._agent, protocol=PROTOCOL, metadata={} if params.cwd is None else {"cwd": params.cwd}
        )
        found = await self._hub.reads.threads(
            self._who.principal, where, limit=_PAGE + 1, offset=offset, order="updated_at"
        )
        views = await found.all()
        sessions = [await self._describe(view) for view in views[:_PAGE]]
        result: JsonObject = {"sessions": sessions}
        return result if len(views) <= _PAGE else {**result, "nextCursor": str(offset + _PAGE)}

    async def _describe(self, view: ThreadView) -> JsonObject:
        thread = view.thread
        cwd: object = thread.metadata.get("cwd")
        members: JsonObject = {"sessionId": thread.thread_id, "cwd": cwd if isinstance(cwd, str) and cwd else "/"}
        runs = await self._hub.reads.runs(self._who.principal, RunFilter(thread_id=thread.thread_id), limit=1)
        title = next((run.first_words for run in await runs.all()), None)
        if title:
            members["title"] = title
        return {**members, "updatedAt": encode_time(view.updated_at, "milliseconds")}

    async def delete(self, session_id: str) -> None:
        """Delete the thread of a session. A session that does not exist is no error."""
        try:
            thread = await self.find(session_id)
            await self._hub.delete_thread(self._who.principal, thread.thread_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise

    async def cancel(self, session_id: str) -> None:
        """Cancel the newest task of a session, if it has not ended. Raises not_found."""
        thread = await self.find(session_id)
        task = await self.open_task(thread.thread_id)
        if task is None:
            return
        try:
            await self._hub.cancel(self._who.principal, task.task_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.TASK_ENDED:
                raise

    async def open_task(self, thread_id: str) -> Task | None:
        """Return the agent's newest open task on a thread, or None if all of its tasks have ended."""
        where = TaskFilter(agent=self._agent, thread_id=thread_id, states=_OPEN)
        page = await self._hub.reads.tasks(self._who.principal, where, limit=1)
        return next(iter(await page.tasks.all()), None)


def _choices_of(thread: Thread) -> JsonObject:
    """Return the values that the user has chosen in a session, by option id."""
    return as_object(as_object(thread.extra.get(PROTOCOL)).get(_OPTIONS))


def _decode_cursor(cursor: str | None) -> int:
    """Return the number of sessions on the pages before the cursor of `session/list`, which is 0 for None. Raises
    invalid."""
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 9:
        raise invalid("cursor", "expected a nextCursor of an earlier answer")
    return int(cursor)
