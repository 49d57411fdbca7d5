"""Resources: what callers and agents have produced, under `babelgate://`, and agents that are offered as resources.

A caller reads only what its principal may read: every access goes through the hub.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

from babelgate.adapters.kit.server.caller import Caller
from babelgate.adapters.mcp.agents import AgentTool
from babelgate.adapters.mcp.codec.uris import (
    ARTIFACT_TEMPLATE,
    RUN_TEMPLATE,
    TEMPLATES,
    THREAD_TEMPLATE,
    Address,
    parse_uri,
)
from babelgate.adapters.mcp.server.calls import Peer, Retry, ToolCalls
from babelgate.adapters.mcp.write.stored import (
    artifact_entry,
    file_contents,
    part_contents,
    run_artifacts,
    run_contents,
    run_entry,
    thread_contents,
    thread_entry,
)
from babelgate.canonical import FaultCode, FaultError, FilePart, Hub, Scope, TextPart
from babelgate.canonical.event import ArtifactAdded
from babelgate.canonical.fold import Fold
from babelgate.canonical.hub import RunFilter, ThreadFilter
from babelgate.canonical.message import Part
from babelgate.canonical.thread import Artifact, Run, ThreadView
from babelgate.canonical.value import JsonObject

_PAGE: Final = 50
"""Maximum number of threads, or of runs with their artifacts, on one page. Chosen."""
_FILE: Final = 32 * 2**20
"""Maximum size of a file or of an artifact that is read as a resource, in bytes. Chosen: base64 and JSON need four
times this memory."""
SUGGESTIONS: Final = 100
"""Maximum number of suggested values (SPEC/server/utilities/completion, Completion Results)."""
_THREADS, _RUNS = "threads", "runs"


class ResourceNotFound(Exception):
    """Raised if the caller has no resource with a URI (SPEC/server/resources, Error Handling)."""

    def __init__(self, uri: str) -> None:
        super().__init__("Resource not found")
        self.uri = uri


class Resources:
    """Implementation of the `resources/…` methods for all callers, independent of the SDK."""

    def __init__(self, hub: Hub, calls: ToolCalls) -> None:
        self._hub = hub
        self._calls = calls

    # Lists

    async def list_page(self, who: Caller, cursor: str | None) -> JsonObject:
        """Return a page of the caller's resources: agents that are resources, then threads, then runs with their
        artifacts, each newest first. Threads of calls without a `thread_id` are left out. Raises invalid for a cursor
        that the gateway did not issue."""
        phase, offset = _decode_cursor(cursor)
        entries: list[JsonObject] = []
        if cursor is None:
            entries += [_entry(agent) for agent in self._resource_agents(who).values() if not _variables(agent)]
        agent = who.agent if who.has_single_agent else None
        if phase == _THREADS:
            where = ThreadFilter(agent=agent)
            threads = await self._hub.reads.threads(
                who.principal, where, limit=_PAGE + 1, offset=offset, order="updated_at"
            )
            views = await threads.all()
            entries += [thread_entry(view) for view in views[:_PAGE]]
            following = f"{_THREADS}.{offset + _PAGE}" if len(views) > _PAGE else f"{_RUNS}.0"
            return {"resources": entries, "nextCursor": following}
        listed = await self._hub.reads.runs(who.principal, RunFilter(agent=agent), limit=_PAGE + 1, offset=offset)
        runs = await listed.all()
        for run in runs[:_PAGE]:
            entries.append(run_entry(run))
        entries += await self._artifact_entries(who, runs[:_PAGE])
        page: JsonObject = {"resources": entries}
        return {**page, "nextCursor": f"{_RUNS}.{offset + _PAGE}"} if len(runs) > _PAGE else page

    async def _artifact_entries(self, who: Caller, runs: Sequence[Run]) -> Sequence[JsonObject]:
        """Return the artifacts of runs that have ended. Those of tasks that are open, or very long, are listed only in
        the run's contents."""
        logs = await self._hub.reads.logs(who.principal, list({run.task_id for run in runs}))
        entries: list[JsonObject] = []
        for run in runs:
            records = [each for each in logs.get(run.task_id, ()) if each.run_id == run.run_id]
            if any(isinstance(each.event, ArtifactAdded) for each in records):
                entries += [
                    artifact_entry(each) for each in run_artifacts(Fold(run.thread_id, "", records), run.run_id)
                ]
        return entries

    def templates(self, who: Caller) -> Sequence[JsonObject]:
        """Return the templates of the gateway's resources, and of agents that are resources with variables."""
        agents = self._resource_agents(who).values()
        return [*TEMPLATES, *(_entry(agent) for agent in agents if _variables(agent))]

    def _resource_agents(self, who: Caller) -> Mapping[str, AgentTool]:
        agents = self._calls.agents(who)
        return {name: agent for name, agent in agents.items() if agent.role == "resource"}

    # Contents

    async def read(self, who: Caller, uri: str, peer: Peer, retry: Retry | None = None) -> JsonObject:
        """Return the contents of a resource. For an agent that is a resource, this is a run: it may return questions
        instead.

        Raises ResourceNotFound, too_large for contents beyond the limits, and the fault of a failed run. Raises
        forbidden if a token needs more scopes.
        """
        address = parse_uri(uri)
        if address is None:
            return await self._run_agent(who, uri, peer, retry)
        try:
            return {"contents": await self._contents(who, uri, address)}
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
            raise ResourceNotFound(uri) from error

    async def _contents(self, who: Caller, uri: str, address: Address) -> Sequence[JsonObject]:
        match address.kind:
            case "thread":
                return [thread_contents(uri, *await self._thread(who, address.id))]
            case "run":
                run, fold = await self._run(who, address.id)
                return [run_contents(uri, run, fold)]
            case "artifact":
                run, fold = await self._run(who, address.run_id)
                found = [each for each in run_artifacts(fold, run.run_id) if each.artifact_id == address.id]
                if not found:
                    raise ResourceNotFound(uri)
                return await self._artifact(who, uri, found[0])
            case "file":
                return [file_contents(uri, await self._file(who, address.id))]

    async def _thread(self, who: Caller, thread_id: str) -> tuple[ThreadView, Fold]:
        """Return a thread, and the fold of its records. Raises not_found, also if the caller cannot see an agent that
        ran on the thread, and too_large."""
        view = await self._hub.reads.thread_view(who.principal, thread_id)
        fold = await self._hub.reads.snapshot(
            who.principal, thread_id, ("mcp", "thread"), partial(Fold, thread_id, view.thread.owner)
        )
        if {run.agent for run in fold.runs.values()} - self._calls.agents(who).keys():
            raise FaultError(FaultCode.NOT_FOUND, "There is no such thread.")
        return view, fold

    async def _run(self, who: Caller, run_id: str) -> tuple[Run, Fold]:
        """Return a run, and the fold of its task's records. Raises not_found."""
        run = await self._hub.reads.run(who.principal, run_id)
        if run.removed or run.agent not in self._calls.agents(who):
            raise FaultError(FaultCode.NOT_FOUND, "There is no such run.")
        task = await self._hub.reads.task(who.principal, run.task_id)
        fold = Fold(run.thread_id)
        async with aclosing(self._hub.reads.log(who.principal, Scope.task(task), task.first_seq - 1)) as batches:
            async for records in batches:
                for record in records:
                    fold.apply(record)
        return run, fold

    async def _artifact(self, who: Caller, uri: str, artifact: Artifact) -> Sequence[JsonObject]:
        """Return the contents of an artifact: pieces of one text or of one file joined, and other parts one by one."""
        parts, size = list[Part](), 0
        for part in artifact.parts:
            if isinstance(part, FilePart) and part.blob is not None:
                size += part.size or 0
                _check_size(size)
                stored = await self._file(who, part.blob)
                part = part.replace(inline=stored.inline, name=part.name or artifact.name)
            parts.append(part)
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        if len(texts) == len(parts):
            return [part_contents(uri, parts[0].replace(text="".join(texts)))]
        pieces = [part.inline for part in parts if isinstance(part, FilePart) and part.inline is not None]
        if len(pieces) == len(parts):
            return [part_contents(uri, parts[0].replace(inline=b"".join(pieces)))]
        return [part_contents(uri, part) for part in parts]

    async def _file(self, who: Caller, blob: str) -> FilePart:
        """Return a stored file with its bytes. Raises not_found, too_large."""
        part, pieces = await self._hub.reads.file_pieces(who.principal, blob)
        async with aclosing(pieces):
            _check_size(part.size or 0)
            content = b"".join([piece async for piece in pieces])
        return part.replace(inline=content)

    # Agents

    async def _run_agent(self, who: Caller, uri: str, peer: Peer, retry: Retry | None) -> JsonObject:
        """Return the output of the agent that is the resource with this URI, as contents. The variables of its template
        are the input."""
        for agent in self._resource_agents(who).values():
            variables = None if agent.template is None else agent.template.match(uri)
            if variables is None:
                continue
            result = await self._calls.call_agent(who, agent, _arguments(agent, variables, uri), peer, retry)
            if result.get("resultType") == "input_required":
                return result
            await self._calls.check_output(who, result)
            contents = [_content(uri, block) for block in result["content"]]
            if "structuredContent" in result and len(contents) == 1:
                contents[0]["mimeType"] = "application/json"
            return {"contents": contents, "_meta": result["_meta"]}
        raise ResourceNotFound(uri)

    # Subscriptions

    async def changes(self, who: Caller, uri: str) -> AsyncGenerator[None]:
        """Check that a resource can be followed, then return a generator that yields once for each batch of new records
        of its thread or run. It ends when there are no more, at once for a resource that never changes: an artifact of
        a run that has ended, a file. An agent's resource is computed for each read, so its changes are unknown.

        Raises ResourceNotFound, and forbidden if the caller may not read the resource.
        """
        address = parse_uri(uri)
        try:
            if address is None:
                templates = [agent.template for agent in self._resource_agents(who).values()]
                if all(each is None or each.match(uri) is None for each in templates):
                    raise ResourceNotFound(uri)
                return _nothing()
            if address.kind == "thread":
                _, fold = await self._thread(who, address.id)
                return self._follow(who, Scope(address.id), fold.seq)
            if address.kind == "file":
                await self._hub.reads.file_pieces(who.principal, address.id)
                return _nothing()
            run, fold = await self._run(who, address.run_id or address.id)
            if run.has_ended:
                return _nothing()
            return self._follow(who, Scope(run.thread_id, "run", run.run_id), fold.seq)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
            raise ResourceNotFound(uri) from error

    async def _follow(self, who: Caller, scope: Scope, after: int) -> AsyncGenerator[None]:
        async with aclosing(self._hub.reads.follow(who.principal, scope, after)) as batches:
            async for batch in batches:
                if batch:
                    yield

    # Completion

    async def complete(
        self, who: Caller, template: str, name: str, value: str, other_values: Mapping[str, str]
    ) -> tuple[list[str], bool]:
        """Return values for a variable of a template that begin with `value`: ids of the caller's newest threads, runs
        and artifacts, or the choices in the input schema of an agent that is a resource. `other_values` are those
        of other variables. The second member is true if there are older threads or runs, which were not searched."""
        agent_name = who.agent if who.has_single_agent else None
        if template == THREAD_TEMPLATE and name == "thread_id":
            listed = await self._hub.reads.threads(
                who.principal, ThreadFilter(agent=agent_name), limit=SUGGESTIONS + 1, order="updated_at"
            )
            return _newest([view.thread.thread_id for view in await listed.all()], value)
        if template in (RUN_TEMPLATE, ARTIFACT_TEMPLATE) and name == "run_id":
            runs = await self._hub.reads.runs(who.principal, RunFilter(agent=agent_name), limit=SUGGESTIONS + 1)
            return _newest([run.run_id for run in await runs.all()], value)
        if template == ARTIFACT_TEMPLATE and name == "artifact_id" and "run_id" in other_values:
            return await self._artifact_ids(who, other_values["run_id"], value), False
        for agent in self._resource_agents(who).values():
            if agent.template is not None and agent.template.template == template:
                return agent.choices(name, value), False
        return [], False

    async def _artifact_ids(self, who: Caller, run_id: str, value: str) -> list[str]:
        address = parse_uri(RUN_TEMPLATE.replace("{run_id}", run_id))
        if address is None:
            return []
        try:
            run, fold = await self._run(who, address.id)
        except FaultError:
            return []
        ids = [each.artifact_id or "" for each in run_artifacts(fold, run.run_id)]
        return [each for each in ids if each.startswith(value)]


def _newest(ids: Sequence[str], value: str) -> tuple[list[str], bool]:
    """Return the ids that begin with `value` among the first `SUGGESTIONS`, and whether there are more ids."""
    return [each for each in ids[:SUGGESTIONS] if each.startswith(value)], len(ids) > SUGGESTIONS


async def _nothing() -> AsyncGenerator[None]:
    return
    yield


def _check_size(size: int) -> None:
    if size > _FILE:
        raise FaultError(
            FaultCode.TOO_LARGE,
            f"The file has {size} bytes, and a resource can have {_FILE}: read it by another protocol.",
        )


def _decode_cursor(cursor: str | None) -> tuple[str, int]:
    """Return the part of the list at which a page begins, and the number of its entries before the page."""
    if cursor is None:
        return _THREADS, 0
    phase, _, offset = cursor.partition(".")
    if phase not in (_THREADS, _RUNS) or not offset.isascii() or not offset.isdecimal() or len(offset) > 9:
        raise FaultError(FaultCode.INVALID, "cursor: It must be the nextCursor of a page.")
    return phase, int(offset)


def _variables(agent: AgentTool) -> Sequence[str]:
    return () if agent.template is None else agent.template.variables


def _entry(agent: AgentTool) -> JsonObject:
    """Return an agent that is a resource as an entry of a list: of templates if its URI has variables."""
    template = agent.template.template if agent.template is not None else ""
    key = "uriTemplate" if _variables(agent) else "uri"
    return {key: template, "name": agent.info.name, "description": agent.description}


def _arguments(agent: AgentTool, variables: Mapping[str, str], uri: str) -> JsonObject:
    """Return the input of an agent's run: the variables of the URI, or the URI as the message for an agent that takes
    messages."""
    return {"message": uri} if agent.takes_messages else dict(variables)


def _content(uri: str, block: JsonObject) -> JsonObject:
    """Return a block of an agent's output as contents of the resource with this URI."""
    match block["type"]:
        case "text":
            return {"uri": uri, "mimeType": "text/plain", "text": block["text"]}
        case "image" | "audio":
            return {"uri": uri, "mimeType": block["mimeType"], "blob": block["data"]}
        case "resource":
            return {**block["resource"], "uri": uri}
        case _:
            return {"uri": block["uri"], "mimeType": "text/uri-list", "text": block["uri"]}
