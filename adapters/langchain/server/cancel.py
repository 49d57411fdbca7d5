"""Routes that cancel runs (interrupt, rollback) and delete them."""

from collections.abc import Sequence
from typing import Any, Final

from litestar import Response, delete, post
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import Pieces
from babelgate.adapters.langchain.server.answers import empty_answer, ids, run_paths
from babelgate.adapters.langchain.server.dialect import both, dialect_of
from babelgate.adapters.langchain.server.lookup import find_path_run, find_run, not_found
from babelgate.adapters.langchain.server.parameters import flag, principal_of, read_body, uuid
from babelgate.adapters.langchain.server.wait import body_of, keep_alive, outcome
from babelgate.adapters.langchain.wire.requests import MAX_PAGE, RunsCancel
from babelgate.canonical import FaultCode, FaultError, Hub, Principal, Run, RunFilter, RunStatus
from babelgate.canonical.value import JsonObject

_NONE_FOUND: Final = "No runs found to cancel."
_NONE_MATCHES: Final = (
    "No matching runs to cancel. Please verify the thread ID and run IDs are correct, and the runs haven't been "
    "deleted or completed."
)


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    server = CancelHandlers(hub)
    run = "/threads/{thread_id:str}/runs/{run_id:str}"
    alone = "/runs/{run_id:str}"
    return [
        post(both(f"{run}/cancel"), status_code=202)(server.cancel),
        post(both(f"{alone}/cancel"), status_code=200)(server.cancel),
        post(both("/runs/cancel"), status_code=200)(server.cancel_many),
        delete([*both(run), *both(alone)], status_code=200)(server.delete),
    ]


class CancelHandlers(Handlers):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def cancel(self, request: AnyRequest) -> Response[Any]:
        """Cancel the run in the path. With `action=rollback`, also remove it from its thread; with `wait`, respond when
        it has ended. Raises invalid for wrong query parameters, and not_found for an unknown run."""
        principal = principal_of(request)
        is_platform = dialect_of(request) == "langgraph" and "thread_id" in request.path_params
        is_waiting, rollback = flag(request, "wait"), _rollback(request, strict=not is_platform)
        try:
            run = await find_path_run(self._hub, request)
        except FaultError as error:
            raise not_found(error, _NONE_FOUND) from error
        cancelled_run = await self._cancel(principal, run.run_id, rollback=rollback)
        if not is_platform:
            if is_waiting:
                await self._end(principal, cancelled_run)
            # OpenAPI 0.1.6, /runs/{run_id}/cancel: 204, with or without waiting.
            return empty_answer(204, ids(run))
        if not is_waiting:
            # langgraph-api 0.16.7: 202, and no body.
            return empty_answer(202, ids(run))
        pieces = keep_alive(lambda: self._end(principal, cancelled_run))
        return Pieces(pieces, ids(run) | run_paths(run.thread_id, run.run_id, "join"))

    async def _end(self, principal: Principal, run: Run) -> JsonObject:
        """Wait for the end of a run that is being cancelled. Return the body of a `wait`, or {} for a run that is
        already removed."""
        if run.removed:
            return {}
        after = run.first_seq - 1
        return await body_of(
            outcome(self._hub, run.thread_id, run.run_id, principal, "langgraph", after=after, removed=True)
        )

    async def _cancel(self, principal: Principal, run_id: str, *, rollback: bool) -> Run:
        """Request the cancellation of a run. With `rollback`, the run is also removed from its thread. Raises not_found
        if the run does not exist or has ended."""
        try:
            return await self._hub.cancel_run(principal, run_id, rollback=rollback)
        except FaultError as error:
            if error.fault.code in (FaultCode.TASK_ENDED, FaultCode.NOT_FOUND):
                raise FaultError(FaultCode.NOT_FOUND, _NONE_MATCHES) from error
            raise

    async def cancel_many(self, request: AnyRequest) -> Response[Any]:
        """Cancel all runs that have a status, or named runs of one thread. Raises invalid, and not_found if no run was
        cancelled."""
        principal = principal_of(request)
        body = await read_body(request, RunsCancel)
        rollback = _rollback(request, strict=False)
        if body.status is not None and body.thread_id is None and not body.run_ids:
            run_ids = await self._active(principal, body.status)
        elif body.status is None and body.thread_id is not None and body.run_ids:
            run_ids = await self._find_runs(principal, body.thread_id, body.run_ids)
        else:
            # langgraph-api 0.16.7 accepts only one of the two forms.
            raise FaultError(FaultCode.INVALID, "Give either status, or thread_id and run_ids.")
        cancelled = 0
        for run_id in run_ids:
            try:
                await self._cancel(principal, run_id, rollback=rollback)
            except FaultError as error:
                if error.fault.code is not FaultCode.NOT_FOUND:
                    raise
            else:
                cancelled += 1
        if not cancelled:
            raise FaultError(FaultCode.NOT_FOUND, _NONE_MATCHES if run_ids else _NONE_FOUND)
        return empty_answer(204)

    async def _find_runs(self, principal: Principal, thread_id: str, run_ids: Sequence[str]) -> Sequence[str]:
        """Return those of the ids whose run exists on the thread, without duplicates. Raises invalid for an id that is
        not a UUID."""
        thread_id = uuid(thread_id, "thread")
        existing_ids: list[str] = []
        for run_id in dict.fromkeys(uuid(id_, "run") for id_ in run_ids):
            try:
                existing_ids.append((await find_run(self._hub, principal, run_id, thread_id)).run_id)
            except FaultError as error:
                if error.fault.code is not FaultCode.NOT_FOUND:
                    raise
        return existing_ids

    async def _active(self, principal: Principal, status: str) -> Sequence[str]:
        """Return the ids of all runs of the owner with a status: `pending`, `running`, or `all` for both."""
        every = frozenset({RunStatus.PENDING, RunStatus.RUNNING})
        where = RunFilter(status=every if status == "all" else frozenset({RunStatus(status)}))
        active_ids: dict[str, None] = {}
        while (page := await self._hub.reads.runs(principal, where, limit=MAX_PAGE, offset=len(active_ids))).count:
            count = len(active_ids)
            active_ids |= {run.run_id: None async for run in page}
            if len(active_ids) == count:  # runs ended in the meantime, and the whole page was seen before
                break
        return list(active_ids)

    async def delete(self, request: AnyRequest) -> Response[Any]:
        """Delete the run in the path. In LangGraph's dialect an active run is cancelled first. Raises not_found,
        invalid, and conflict for an active run in the Agent Protocol."""
        principal = principal_of(request)
        run = await find_path_run(self._hub, request)
        if run.has_ended:
            await self._remove(principal, run)
            return empty_answer(204)
        # The README: "Delete a finished run. A pending run needs to be cancelled first."
        if dialect_of(request) == "agent-protocol":
            raise FaultError(FaultCode.CONFLICT, f"Run {run.run_id} is {run.status}: cancel it first.")
        try:
            await self._end(principal, await self._hub.cancel_run(principal, run.run_id, rollback=True))
        except FaultError as error:
            if error.fault.code is not FaultCode.TASK_ENDED:  # it ended just now
                raise not_found(error, "Run not found") from error
        run = await self._hub.reads.run(principal, run.run_id)
        if not run.removed:  # another request was already cancelling it, or it ended first
            await self._remove(principal, run)
        return empty_answer(204)

    async def _remove(self, principal: Principal, run: Run) -> None:
        """Remove a run that has ended from its thread. If the run stopped for a question, cancel the task that waits
        for the answer. Raises not_found."""
        task = await self._hub.reads.task(principal, run.task_id)
        if run.status is RunStatus.PAUSED and task.is_waiting:  # its question is removed with it
            try:
                await self._hub.cancel(principal, task.task_id)
            except FaultError as error:
                if error.fault.code is not FaultCode.TASK_ENDED:
                    raise
        try:
            await self._hub.remove_run(principal, run.run_id)
        except FaultError as error:
            raise not_found(error, "Run not found") from error


def _rollback(request: AnyRequest, *, strict: bool) -> bool:
    """Return True if the query parameter `action` is `rollback`. LangGraph Platform treats any unknown action as
    `interrupt`; with `strict` it raises invalid."""
    action = request.query_params.get("action", "interrupt")
    if strict and action not in ("interrupt", "rollback"):
        raise FaultError(FaultCode.INVALID, "action: must be interrupt or rollback")
    return action == "rollback"
