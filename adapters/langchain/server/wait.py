"""Waiting for the end of a run: a JSON body that begins at once, with a line feed every five seconds, so that nothing
on the way takes the connection for dead, and ends with the result."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, cast

from litestar import Response
from pydantic_core import to_json

from adapters.langchain import codec, codec_agent_protocol
from adapters.langchain.fault import encode_error
from adapters.langchain.modes import Dialect
from adapters.langchain.server.call import read_history, settled
from canonical import FaultCode, FaultError, History, Hub, Record, Run, RunReason, Scope
from canonical.event import RunCreated, RunEnded, RunRemoved
from canonical.value import JsonObject

__all__ = ("KEEP_ALIVE", "Waiting", "error_body", "kept_alive", "result")

KEEP_ALIVE: Final = 5.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A run when nothing more is to come from it: because it has ended, or because the gateway has."""

    history: History
    run: Run | None
    created: RunCreated | None


async def _ended(hub: Hub, thread_id: str, run_id: str, owner: str, after: int, *, removed: bool) -> _Ended:
    """Wait for the end of a run that begins after a seq, and with `removed` until it is gone from the thread if that is
    what follows. The state is that of the end, whatever came later."""
    history = await read_history(hub, owner, thread_id, after)
    created: RunCreated | None = None
    reading = hub.read(owner, Scope(thread_id), history.seq, inline=True)
    async with aclosing(cast("AsyncGenerator[Sequence[Record]]", reading)) as batches:
        async for batch in batches:
            for record in batch:
                history.apply(record)
                event = record.event
                if isinstance(event, RunCreated) and event.run_id == run_id:
                    created = event
                if _is_last(record, run_id, removed=removed):
                    return _Ended(history, history.fold.runs.get(run_id), created)
    return _Ended(history, history.fold.runs.get(run_id), created)


def _is_last(record: Record, run_id: str, *, removed: bool) -> bool:
    event = record.event
    if isinstance(event, RunRemoved):
        return event.run_id == run_id
    if not isinstance(event, RunEnded) or record.run_id != run_id:
        return False
    return not removed or event.reason is not RunReason.ROLLED_BACK


async def result(
    hub: Hub, thread_id: str, run_id: str, owner: str, dialect: Dialect, *, after: int, removed: bool = False
) -> JsonObject:
    """What a wait ends with, for a run that begins after the seq `after`. The status was sent long ago, so what goes
    wrong is said in the body, too."""
    try:
        ended = await _ended(hub, thread_id, run_id, owner, after, removed=removed)
        return await _encoded(hub, owner, ended, dialect)
    except FaultError as error:
        if error.fault.code is FaultCode.NOT_FOUND:
            return error_body("HTTPException", "404: Run not found")
        return {"__error__": encode_error(error.fault)}


async def _encoded(hub: Hub, owner: str, found: _Ended, dialect: Dialect) -> JsonObject:
    run = None if found.run is None else await settled(hub, owner, found.run)
    created = found.created
    if run is not None and run.removed:
        return {}
    if run is None or created is None or (not run.ended and not await _is_there(hub, owner, run)):
        return error_body("HTTPException", "404: Run not found")
    if dialect == "agent-protocol":
        return codec_agent_protocol.encode_wait(found.history, run, created)
    if run.ended:
        return codec.wait_result(found.history, run)
    # The gateway is shutting down. What there is by now must not be taken for the result.
    values = codec.encode_values(found.history.head)
    return values | error_body("ShuttingDown", f"The gateway is shutting down, and the run is {run.status}: join it.")


async def _is_there(hub: Hub, owner: str, run: Run) -> bool:
    try:
        await hub.run(owner, run.run_id)
    except FaultError as error:
        return error.fault.code is not FaultCode.NOT_FOUND
    return True


def error_body(kind: str, message: str) -> JsonObject:
    return {"__error__": {"error": kind, "message": message}}


async def kept_alive(result: Callable[[], Any]) -> AsyncGenerator[bytes]:
    """Line feeds until there is a result, and the result."""
    waiting: asyncio.Future[Any] = asyncio.ensure_future(result())
    try:
        while True:
            done, _ = await asyncio.wait((waiting,), timeout=KEEP_ALIVE)
            if done:
                break
            yield b"\n"
        yield to_json(waiting.result())
    finally:
        waiting.cancel()


class Waiting(Response[AsyncIterator[bytes]]):
    """Answers with pieces of a JSON body as they come, and closes their iterator when the reader leaves."""

    def __init__(self, pieces: AsyncIterator[bytes], headers: Mapping[str, str]) -> None:
        super().__init__(pieces, status_code=200, media_type="application/json", headers=dict(headers))
        self._pieces = pieces

    def to_asgi_response(self, *_: Any, headers: Mapping[str, str] | None = None, **__: Any) -> Any:
        return _Body(self._pieces, {**(headers or {}), **self.headers})


@dataclass(frozen=True, slots=True)
class _Body:
    pieces: Any
    headers: Mapping[str, str]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        head = [(name.lower().encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        head.append((b"content-type", b"application/json"))
        async with aclosing(self.pieces):
            await send({"type": "http.response.start", "status": 200, "headers": head})
            sending = asyncio.ensure_future(self._send(send))
            leaving = asyncio.ensure_future(_left(receive))
            try:
                await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                # Both have ended when the pieces are closed: an iterator that somebody waits for cannot be.
                over = sending.done()
                sending.cancel()
                leaving.cancel()
                await asyncio.wait((sending, leaving))
            if over:
                sending.result()

    async def _send(self, send: Any) -> None:
        async for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
