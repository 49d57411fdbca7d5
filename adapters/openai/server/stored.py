"""Routes of stored chat completions. Every run that has ended on a stored thread, of any protocol, is shown as a
completion."""

from collections.abc import AsyncGenerator
from typing import Any, Final

from litestar import Response
from pydantic_core import to_json

from babelgate.adapters.kit.json import read_json, validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller, run_headers
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import list_response
from babelgate.adapters.openai.codec.messages import encode_messages
from babelgate.adapters.openai.codec.names import completion_id
from babelgate.adapters.openai.server.completion import Completion
from babelgate.adapters.openai.server.lookup import find_run, no_completion, read_inputs, run_of
from babelgate.adapters.openai.server.page import limit_of, page_of
from babelgate.adapters.openai.wire import replies as w
from babelgate.adapters.openai.wire.responses import MetadataUpdate
from babelgate.canonical import FaultCode, FaultError, Hub, Run, RunFilter, RunStatus, Task
from babelgate.canonical.value import JsonObject

_MOST_RUNS: Final = 100
_MOST_SEARCHED: Final = 10_000
"""Maximum number of runs that are searched for the completion after which a page begins. Chosen."""
_SHOWN: Final = frozenset({RunStatus.SUCCESS, RunStatus.PAUSED})


class StoredCompletions(Handlers):
    """Handlers of the routes for stored completions."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def get_completion(self, request: AnyRequest) -> Response[Any]:
        """Return the completion in the path. A failed run gives an error response with its fault. Raises not_found."""
        who = caller(request)
        run, task = await self._find(who, request)
        completion = await self._read(who, run, task)
        return await completion.response(run_headers(task, run.run_id), metadata=_metadata(run))

    async def _find(self, who: Caller, request: AnyRequest) -> tuple[Run, Task]:
        stored_id: str = request.path_params["completion_id"]
        found = await find_run(self._hub, who.principal, run_of(stored_id), no_completion(stored_id))
        if not found.run.has_ended:
            raise no_completion(stored_id)
        return found.run, found.task

    async def _read(self, who: Caller, run: Run, task: Task) -> Completion:
        completion = Completion(self._hub, who.principal, task, run.run_id, run.created_at)
        await completion.read()
        return completion

    async def list_messages(self, request: AnyRequest) -> Response[Any]:
        """Return a page of the completion's input messages. Raises not_found for an unknown completion, and invalid for
        wrong query parameters."""
        who = caller(request)
        run, task = await self._find(who, request)
        messages = encode_messages(await read_inputs(self._hub, who.principal, run))
        # resources/chat/completions/messages.py, list: oldest first.
        query = {"order": "asc", **request.query_params}
        return json_response(page_of(messages, query), run_headers(task, run.run_id))

    async def list_completions(self, request: AnyRequest) -> Response[Any]:
        """Return a page of completions, newest first. Raises invalid for wrong query parameters, and unsupported for
        `order=asc`."""
        who = caller(request)
        query = request.query_params
        limit = limit_of(query.get("limit"))
        if query.get("order", "desc") != "desc":
            raise FaultError(FaultCode.UNSUPPORTED, "order: Only desc is supported.")
        metadata = {
            name.removeprefix("metadata[").removesuffix("]"): query[name]
            for name in query
            if name.startswith("metadata[") and name.endswith("]")
        }
        where = RunFilter(agent=query.get("model"), metadata=metadata, status=_SHOWN)
        start = await self._start(who, where, query.get("after"))
        runs = await (await self._hub.reads.runs(who.principal, where, limit=limit + 1, offset=start)).all()
        page = runs[:limit]
        ids = [completion_id(run.run_id) for run in page]
        shell: JsonObject = {
            "object": "list",
            "data": [],
            "first_id": ids[0] if ids else None,
            "last_id": ids[-1] if ids else None,
            "has_more": len(runs) > limit,
        }
        return await list_response(to_json(shell), self._entries(who, page), name="data")

    async def _start(self, who: Caller, where: RunFilter, after: str | None) -> int:
        """Return the offset of a page in the list of completions. `after` is the id of the completion before it; None
        means the first page. Raises not_found."""
        if after is None:
            return 0
        run_id = run_of(after)
        for offset in range(0, _MOST_SEARCHED, _MOST_RUNS):
            runs = await (await self._hub.reads.runs(who.principal, where, limit=_MOST_RUNS, offset=offset)).all()
            for number, run in enumerate(runs):
                if run.run_id == run_id:
                    return offset + number + 1
            if len(runs) < _MOST_RUNS:
                break
        raise no_completion(after)

    async def _entries(self, who: Caller, runs: list[Run]) -> AsyncGenerator[bytes]:
        for run in runs:
            try:
                task = await self._hub.reads.task(who.principal, run.task_id)
                completion = await self._read(who, run, task)
            except FaultError as error:
                if error.fault.code is not FaultCode.NOT_FOUND:  # deleted meanwhile
                    raise
                continue
            yield to_json({**completion.body(), "metadata": _metadata(run)})

    async def change_completion(self, request: AnyRequest) -> Response[Any]:
        """Replace the metadata of the completion in the path. Raises not_found for an unknown completion, invalid for a
        malformed body, and too_large for the metadata."""
        who = caller(request)
        run, task = await self._find(who, request)
        # resources/chat/completions/completions.py, update: replaces all metadata.
        body = validate(MetadataUpdate, await read_json(request))
        others = {name: value for name, value in run.metadata.items() if not isinstance(value, str)}
        changed = await self._hub.change_run(who.principal, run.run_id, {**others, **body.metadata})
        completion = await self._read(who, changed, task)
        return await completion.response(run_headers(task, run.run_id), metadata=_metadata(changed))

    async def delete_completion(self, request: AnyRequest) -> Response[Any]:
        """Delete the completion in the path, which removes the run. Raises not_found."""
        who = caller(request)
        run, _ = await self._find(who, request)
        await self._hub.remove_run(who.principal, run.run_id)
        return json_response(w.Deleted(id=request.path_params["completion_id"]))


def _metadata(run: Run) -> JsonObject:
    # SPEC/chat/completion_create_params.py, metadata: strings only. Callers of other protocols may store other values.
    return {name: value for name, value in run.metadata.items() if isinstance(value, str)}
