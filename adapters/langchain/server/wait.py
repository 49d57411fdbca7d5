"""Keep-alive while a caller waits (`/wait`): a JSON body that begins at once, with a line feed every five seconds, so
that nothing on the way takes the connection for dead, and ends with the result."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from babelgate.adapters.kit.extension import URI, Slice
from babelgate.adapters.kit.server.encoding import encode_in_pieces
from babelgate.adapters.kit.server.whole_states import tell_states_whole
from babelgate.adapters.langchain.codec import agent_protocol, state
from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.adapters.langchain.errors.encode import encode_error
from babelgate.adapters.langchain.server.lookup import apply_task_cancel, read_history
from babelgate.canonical import Event, FaultCode, FaultError, Hub, Record, Run, RunReason, Scope, StateHistory
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    MessageStarted,
    RunCreated,
    RunEnded,
    RunRemoved,
    StepStarted,
    ToolStarted,
)
from babelgate.canonical.feature import Feature
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import JsonObject

KEEP_ALIVE: Final = 5.0
"""Seconds, as langgraph-api 0.16.7 has it (api/runs.py)."""
_STREAMED: Final[Mapping[type[object], Feature]] = {
    ArtifactAdded: Feature.ARTIFACT,
    Custom: Feature.CUSTOM,
    StepStarted: Feature.STEP,
    ToolStarted: Feature.TOOL_ACTIVITY,
}
"""Events that have a form in streams, and none in a state."""
_HOW: Final = "in streams only"


@dataclass(frozen=True, slots=True)
class _Ended:
    """A run when nothing more is to come from it: because it has ended, or because the gateway has."""

    history: StateHistory
    run: Run | None
    created: RunCreated | None
    unsaid: tuple[Loss, ...]
    """What the run said, and its state does not show."""


async def _wait_for_end(hub: Hub, thread_id: str, run_id: str, owner: str, after: int, *, removed: bool) -> _Ended:
    """Wait for the end of a run that begins after a seq, and with `removed` until it is gone from the thread if that is
    what follows. The state is that of the end, whatever came later."""
    history = await read_history(hub, owner, thread_id, after)
    created: RunCreated | None = None
    unsaid: dict[Feature, None] = {}
    async with aclosing(hub.reads.follow(owner, Scope(thread_id), history.seq, inline=True)) as batches:
        async for batch in batches:
            for record in batch:
                history.apply(record)
                event = record.event
                if isinstance(event, RunCreated) and event.run_id == run_id:
                    created = event
                if record.run_id == run_id and (feature := _streamed_feature(event)) is not None:
                    unsaid[feature] = None
                if _is_last(record, run_id, removed=removed):
                    return _stands(history, run_id, created, unsaid)
    return _stands(history, run_id, created, unsaid)


def _streamed_feature(event: Event) -> Feature | None:
    if isinstance(event, MessageStarted):
        return Feature.PROGRESS if event.phase == "progress" else None
    return _STREAMED.get(type(event))


def _stands(history: StateHistory, run_id: str, created: RunCreated | None, unsaid: Mapping[Feature, None]) -> _Ended:
    run = history.fold.runs.get(run_id)
    task = None if run is None else history.task(run.task_id)
    # A graph's own callers expect nothing else than its state.
    lost = () if task is None or task.stateful else tuple(Loss(feature=feature, how=_HOW) for feature in unsaid)
    return _Ended(history, run, created, lost)


def _is_last(record: Record, run_id: str, *, removed: bool) -> bool:
    event = record.event
    if isinstance(event, RunRemoved):
        return event.run_id == run_id
    if not isinstance(event, RunEnded) or record.run_id != run_id:
        return False
    return not removed or event.reason is not RunReason.ROLLED_BACK


async def outcome(
    hub: Hub,
    thread_id: str,
    run_id: str,
    owner: str,
    dialect: Dialect,
    *,
    after: int,
    removed: bool = False,
    extended: bool = False,
) -> tuple[JsonObject, Sequence[Loss]]:
    """What a wait ends with, for a run that begins after the seq `after`, and what the run said that is not in it. The
    status was sent long ago, so what goes wrong is said in the body, too. `extended` = with the records of the run."""
    try:
        ended = await _wait_for_end(hub, thread_id, run_id, owner, after, removed=removed)
        body = await _encode_result(hub, owner, ended, dialect)
        if extended and "__error__" not in body:
            body = {**body, URI: await _read_records(hub, owner, thread_id, run_id)}
        return body, ended.unsaid
    except FaultError as error:
        if error.fault.code is FaultCode.NOT_FOUND:
            return error_body("HTTPException", "404: Run not found"), ()
        return {"__error__": encode_error(error.fault)}, ()


async def body_of(waiting: Awaitable[tuple[JsonObject, object]]) -> JsonObject:
    """Of an `outcome`, for whom headers are gone in which losses could be told."""
    body, _ = await waiting
    return body


async def _read_records(hub: Hub, owner: str, thread_id: str, run_id: str) -> JsonObject:
    """An envelope of the Babelgate extension: those from the first one on, as far as they fit."""
    told = Slice()
    log = hub.reads.log(owner, Scope(thread_id, "run", run_id), 0)
    async with aclosing(tell_states_whole(hub, owner, thread_id, log)) as batches:
        async for batch in batches:
            for record in batch:
                told.add(record)
            if told.is_full:
                break
    return told.envelope()


async def _encode_result(hub: Hub, owner: str, found: _Ended, dialect: Dialect) -> JsonObject:
    run = None if found.run is None else await apply_task_cancel(hub, owner, found.run)
    created = found.created
    if run is not None and run.removed:
        return {}
    # langgraph-api 0.16.7: the status is 200 by now.
    if run is None or created is None or (not run.has_ended and not await _is_there(hub, owner, run)):
        return error_body("HTTPException", "404: Run not found")
    if dialect == "agent-protocol":
        told = run.replace(loss=(*run.loss, *found.unsaid))
        return agent_protocol.encode_wait(found.history, told, created)
    if run.has_ended:
        return state.wait_result(found.history, run)
    # The gateway is shutting down. What there is by now must not be taken for the result.
    # With an error beside it: langgraph-sdk 0.4.14 raises, and does not take it for the end.
    values = state.encode_values(found.history.head)
    return values | error_body("ShuttingDown", f"The gateway is shutting down, and the run is {run.status}: join it.")


async def _is_there(hub: Hub, owner: str, run: Run) -> bool:
    try:
        await hub.reads.run(owner, run.run_id)
    except FaultError as error:
        return error.fault.code is not FaultCode.NOT_FOUND
    return True


def error_body(kind: str, message: str) -> JsonObject:
    return {"__error__": {"error": kind, "message": message}}


async def keep_alive(result: Callable[[], Any]) -> AsyncGenerator[bytes]:
    """Line feeds until there is a result, and the result."""
    waiting: asyncio.Future[Any] = asyncio.ensure_future(result())
    try:
        while True:
            done, _ = await asyncio.wait((waiting,), timeout=KEEP_ALIVE)
            if done:
                break
            # As langgraph-api 0.16.7 does every five seconds; JSON may begin with white space.
            yield b"\n"
        async with aclosing(encode_in_pieces(waiting.result())) as pieces:
            async for piece in pieces:
                yield piece
    finally:
        waiting.cancel()
