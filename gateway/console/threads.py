"""Console API for threads, with their states, questions and files."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, cast, get_args

from litestar import Response
from litestar.params import FromPath

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.runtime.codec import encode_state
from babelgate.canonical import FaultCode, FaultError, Principal
from babelgate.canonical.fold import Fold
from babelgate.canonical.history import Revision, StateHistory
from babelgate.canonical.message import FilePart
from babelgate.canonical.thread import Interrupt, ThreadStatus
from babelgate.canonical.value import JsonObject
from babelgate.gateway.access.guard import GuardedHub
from babelgate.gateway.clock import format_time
from babelgate.gateway.console.parameters import Parameters, encode_ask, encode_page, read_id
from babelgate.gateway.storage.thread_summaries import MAX_FILES, ThreadQuery, ThreadSummary

_STATUSES: Final[Sequence[ThreadStatus]] = get_args(ThreadStatus)


class ThreadOverviewHandlers(Handlers):
    """HTTP handlers of the console for threads."""

    def __init__(self, guarded_hub: GuardedHub) -> None:
        self._hub = guarded_hub

    async def list_threads(self, request: AnyRequest) -> Response[Any]:
        """List the caller's threads, the most recently changed first. Raises forbidden if the policy does not allow it,
        and invalid for a wrong query parameter."""
        parameters = Parameters(request, "q", "agent", "status", "meta", "after", "limit", repeatable=("meta",))
        query = ThreadQuery(
            agent=parameters.text("agent"),
            status=_read_status(parameters.text("status")),
            metadata=parameters.members("meta"),
            words=parameters.text("q") or "",
            after=parameters.cursor(),
            limit=parameters.limit(),
        )
        page = await self._hub.overview.threads(caller(request).principal, query)
        return json_response(encode_page([_encode_thread(each) for each in page.threads], page.next_cursor))

    async def get_thread(self, request: AnyRequest, thread_id: FromPath[str]) -> Response[Any]:
        """Return one thread with its runs, values, open questions and files. Raises forbidden if the policy does not
        allow it, and not_found for an unknown thread."""
        principal, thread_id = caller(request).principal, read_id(thread_id, "Thread")
        summary = await self._hub.overview.thread(principal, thread_id)
        content = await self._hub.overview.thread_content(principal, thread_id)
        body = {
            **_encode_thread(summary),
            "run_ids": content.run_ids,
            "open": [_encode_question(question) for question in summary.questions],
        }
        try:
            history = await self._read_history(principal, thread_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.TOO_LARGE:
                raise
            files = [_encode_file(file, None) for file in content.files]
            return json_response({**body, "values": None, "why_no_values": error.fault.message, "files": files})
        head = history.head
        state: JsonObject = {"values": None, "checkpoint_id": None, "next": []} if head is None else encode_state(head)
        state.pop("created_at", None)
        files = [_encode_file(file, run_id) for file, run_id in islice(_find_files(history.fold), MAX_FILES)]
        return json_response({**body, **state, "files": files})

    async def list_revisions(self, request: AnyRequest, thread_id: FromPath[str]) -> Response[Any]:
        """List the revisions of a thread's state, newest first. Raises forbidden if the policy does not allow it,
        invalid for a wrong query parameter, not_found for an unknown thread, and too_large if its log exceeds
        `limits.thread`."""
        parameters = Parameters(request, "after", "limit")
        limit, after = parameters.limit(), parameters.cursor()
        history = await self._read_history(caller(request).principal, read_id(thread_id, "Thread"))
        revisions: Iterator[Revision] = history.newest()
        if after is not None:
            seq = history.revision_seq(after)
            if not seq:
                raise FaultError(FaultCode.INVALID, "after: expected the `next` of an earlier page")
            revisions = history.newest(before=seq)
        found = list(islice(revisions, limit + 1))
        next_cursor = found[limit - 1].checkpoint_id if len(found) > limit else None
        return json_response(encode_page([_encode_revision(each) for each in found[:limit]], next_cursor))

    async def _read_history(self, principal: Principal, thread_id: str) -> StateHistory:
        empty = partial(StateHistory, thread_id, principal.owner)
        return await self._hub.reads.snapshot(principal, thread_id, StateHistory, empty, inline=False)


def _read_status(value: str | None) -> ThreadStatus | None:
    if value is None or value in _STATUSES:
        return cast("ThreadStatus | None", value)
    raise FaultError(FaultCode.INVALID, f"status: expected one of {', '.join(_STATUSES)}, got {value[:40]!r}")


def _encode_thread(summary: ThreadSummary) -> JsonObject:
    thread = summary.thread
    return {
        "thread_id": thread.thread_id,
        "title": summary.title,
        "agents": summary.agents,
        "runs": summary.runs,
        "status": summary.status,
        "asks": [encode_ask(question) for question in summary.questions],
        "created_at": format_time(thread.created_at),
        "updated_at": format_time(summary.updated_at),
        "metadata": thread.metadata,
    }


def _encode_question(question: Interrupt) -> JsonObject:
    return {
        "task_id": question.task_id,
        "run_id": question.run_id,
        "interrupt_id": question.interrupt_id,
        "kind": question.ask,
        "message": question.message.text,
        "schema": question.answer_schema,
        "value": question.value,
        "raised_at": format_time(question.raised_at),
    }


def _find_files(fold: Fold) -> Iterator[tuple[FilePart, str | None]]:
    """Yield each file of a thread once, with the id of the run in which it occurs first; None outside of runs."""
    known_sources: set[tuple[str | None, str | None]] = set()
    for run_id, messages in fold.messages_by_run().items():
        for part in (part for message in messages for part in message.parts):
            if isinstance(part, FilePart) and (part.blob, part.url) not in known_sources:
                known_sources.add((part.blob, part.url))
                yield part, run_id
    for artifact in fold.artifacts.values():
        for part in artifact.parts:
            if isinstance(part, FilePart) and (part.blob, part.url) not in known_sources:
                known_sources.add((part.blob, part.url))
                yield part.replace(name=part.name or artifact.name), artifact.run_id


def _encode_file(file: FilePart, run_id: str | None) -> JsonObject:
    source = {"url": file.url} if file.blob is None else {"blob": file.blob}
    return {**source, "name": file.name, "media_type": file.media_type, "size": file.size, "run_id": run_id}


def _encode_revision(revision: Revision) -> JsonObject:
    return {
        "checkpoint_id": revision.checkpoint_id,
        "parent": revision.parent_id,
        "at": format_time(revision.at),
        "source": revision.source,
        "run_id": revision.run_id,
        "next": list(revision.next),
    }
