"""Responses to callers that wait for the end of a run (`/wait`, `/join`).

The JSON body begins immediately with a line feed every five seconds, so that no proxy closes the connection as idle,
and ends with the result.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from babelgate.adapters.kit.extension import URI, Slice
from babelgate.adapters.kit.server.encoding import encode_in_pieces
from babelgate.adapters.kit.server.whole_states import complete_states
from babelgate.adapters.langchain.codec import agent_protocol, state
from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.adapters.langchain.errors.encode import encode_error
from babelgate.adapters.langchain.server.encoded_messages import encoded_messages
from babelgate.adapters.langchain.server.lookup import apply_task_cancel, read_history
from babelgate.canonical import (
    Event,
    FaultCode,
    FaultError,
    Hub,
    Principal,
    Record,
    Run,
    RunReason,
    Scope,
    StateHistory,
)
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
"""Seconds between two line feeds, as in langgraph-api 0.16.7 (api/runs.py)."""
_STREAMED: Final[Mapping[type[object], Feature]] = {
    ArtifactAdded: Feature.ARTIFACT,
    Custom: Feature.CUSTOM,
    StepStarted: Feature.STEP,
    ToolStarted: Feature.TOOL_ACTIVITY,
}
"""Feature by event type, for events that a stream shows but the state does not."""
_STREAMS_ONLY: Final = "in streams only"
"""Text of the loss of a feature that only streams show."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A run that has ended, or that the gateway no longer follows because it is shutting down."""

    history: StateHistory
    run: Run | None
    created: RunCreated | None
    unsaid: tuple[Loss, ...]
    """Losses of output that only streams show."""


async def _wait_for_end(
    hub: Hub, thread_id: str, run_id: str, principal: Principal, after: int, *, removed: bool
) -> _Ended:
    """Wait for the end of a run, and return it with the history at that moment, even if the thread has continued since.
    `after` is a seq before the run's first record.

    With `removed`, a run that is being rolled back ends when it is removed from the thread. Raises not_found.
    """
    history = await read_history(hub, principal, thread_id, after)
    created: RunCreated | None = None
    unsaid: dict[Feature, None] = {}
    async with aclosing(hub.reads.follow(principal, Scope(thread_id), history.seq, inline=True)) as batches:
        async for batch in batches:
            for record in batch:
                history.apply(record)
                event = record.event
                if isinstance(event, RunCreated) and event.run_id == run_id:
                    created = event
                if record.run_id == run_id and (feature := _streamed_feature(event)) is not None:
                    unsaid[feature] = None
                if _is_last(record, run_id, removed=removed):
                    return _result(history, run_id, created, unsaid)
    return _result(history, run_id, created, unsaid)


def _streamed_feature(event: Event) -> Feature | None:
    """Return the feature of an event that streams show but the state does not, or None."""
    if isinstance(event, MessageStarted):
        return Feature.PROGRESS if event.phase == "progress" else None
    return _STREAMED.get(type(event))


def _result(history: StateHistory, run_id: str, created: RunCreated | None, unsaid: Mapping[Feature, None]) -> _Ended:
    """Return the run as `history` shows it. `created` is the run's `RunCreated`, or None. `unsaid` are features of the
    run that only streams show; for agents without their own state they become losses."""
    run = history.fold.runs.get(run_id)
    task = None if run is None else history.task(run.task_id)
    # Callers of a graph expect only its state.
    lost = (
        () if task is None or task.stateful else tuple(Loss(feature=feature, how=_STREAMS_ONLY) for feature in unsaid)
    )
    return _Ended(history, run, created, lost)


def _is_last(record: Record, run_id: str, *, removed: bool) -> bool:
    """Return True if the record ends the run. With `removed`, the end of a rolled-back run is its removal from the
    thread."""
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
    principal: Principal,
    dialect: Dialect,
    *,
    after: int,
    removed: bool = False,
    extended: bool = False,
) -> tuple[JsonObject, Sequence[Loss]]:
    """Wait for the end of a run, and return the body of the response and the losses of features that the body cannot
    show. `after` is a seq before the run's first record.

    The status 200 of the response was sent before, so errors are in the body, too. With `removed`, also wait until a
    run that is rolled back is removed. `extended` adds the run's records for the Babelgate extension.
    """
    try:
        ended = await _wait_for_end(hub, thread_id, run_id, principal, after, removed=removed)
        body = await _encode_result(hub, principal, ended, dialect)
        if extended and "__error__" not in body:
            body = {**body, URI: await _read_records(hub, principal, thread_id, run_id)}
        return body, ended.unsaid
    except FaultError as error:
        if error.fault.code is FaultCode.NOT_FOUND:
            return error_body("HTTPException", "404: Run not found"), ()
        return {"__error__": encode_error(error.fault)}, ()


async def body_of(pending: Awaitable[tuple[JsonObject, object]]) -> JsonObject:
    """Return the body of an `outcome` without its losses. The losses would be in a header, and the headers were sent
    before."""
    body, _ = await pending
    return body


async def _read_records(hub: Hub, principal: Principal, thread_id: str, run_id: str) -> JsonObject:
    """Return an envelope of the Babelgate extension with the records of the run, from the first one, as many as an
    envelope can hold."""
    envelope = Slice()
    log = hub.reads.log(principal, Scope(thread_id, "run", run_id), 0)
    async with aclosing(complete_states(hub, principal, thread_id, log)) as batches:
        async for batch in batches:
            for record in batch:
                envelope.add(record)
            if envelope.is_full:
                break
    return envelope.envelope()


async def _encode_result(hub: Hub, principal: Principal, ended: _Ended, dialect: Dialect) -> JsonObject:
    """Return the body for a run that has ended. A run that does not exist, or that a shutdown interrupts, gives an
    error in the body."""
    run = None if ended.run is None else await apply_task_cancel(hub, principal, ended.run)
    created = ended.created
    if run is not None and run.removed:
        return {}
    # langgraph-api 0.16.7: the status is 200 by now.
    if run is None or created is None or (not run.has_ended and not await _exists(hub, principal, run)):
        return error_body("HTTPException", "404: Run not found")
    if dialect == "agent-protocol":
        run_with_losses = run.replace(loss=(*run.loss, *ended.unsaid))
        return agent_protocol.encode_wait(ended.history, run_with_losses, created)
    if run.has_ended:
        revision = state.revision_of(ended.history, run)
        return state.wait_body(run, revision, await encoded_messages.encode_values(revision))
    # The gateway is shutting down. The values so far must not be taken for the result, so an error is added:
    # langgraph-sdk 0.4.14 raises it.
    values = state.encode_values(ended.history.head)
    return values | error_body("ShuttingDown", f"The gateway is shutting down, and the run is {run.status}: join it.")


async def _exists(hub: Hub, principal: Principal, run: Run) -> bool:
    try:
        await hub.reads.run(principal, run.run_id)
    except FaultError as error:
        return error.fault.code is not FaultCode.NOT_FOUND
    return True


def error_body(kind: str, message: str) -> JsonObject:
    """Return the body of a failed wait: `__error__` with the kind and the message of the error."""
    return {"__error__": {"error": kind, "message": message}}


async def keep_alive(result: Callable[[], Any]) -> AsyncGenerator[bytes]:
    """Yield a line feed every `KEEP_ALIVE` seconds until `result` has returned, and then its JSON. Cancels `result` if
    the client disconnects."""
    pending: asyncio.Future[Any] = asyncio.ensure_future(result())
    try:
        while True:
            done, _ = await asyncio.wait((pending,), timeout=KEEP_ALIVE)
            if done:
                break
            # langgraph-api 0.16.7 does the same. JSON may begin with white space.
            yield b"\n"
        async with aclosing(encode_in_pieces(pending.result())) as pieces:
            async for piece in pieces:
                yield piece
    finally:
        pending.cancel()
