"""SSE streams of one assistant message: live, or repeated from the first chunk."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import Final

import msgspec

from babelgate.adapters.kit.server.encoding import encode
from babelgate.adapters.kit.server.fanout import EncodedRecord, Encoder, FanoutCache
from babelgate.adapters.kit.server.sse import LargeFrame, TextFrames, frame, frame_of, join_frames, pieces_of
from babelgate.adapters.vercel_ui import wire as w
from babelgate.adapters.vercel_ui.write.reply import ReplyWriter
from babelgate.adapters.vercel_ui.write.view import ReplyView
from babelgate.canonical import Hub, Principal, Record, Scope, Task
from babelgate.canonical.event import RunStarted

DONE: Final = frame(b"[DONE]")
_TEXTS: Final = frozenset(
    {
        *("start-step", "finish-step", "text-start", "text-delta", "text-end"),
        *("reasoning-start", "reasoning-delta", "reasoning-end"),
    }
)
"""Types of chunks with at most one long text, which are encoded without a check of their size. They are most of an
answer."""
_META: Final = "providerMetadata"
_ENCODE: Final = msgspec.json.Encoder().encode
_CUT: Final[dict[str, str]] = {
    "type": "error",
    "errorText": "The gateway is shutting down. Reload the chat to continue.",
}
"""Last chunk of a stream that a shutdown of the gateway ends before the run. A page takes a stream without an `error`
or `finish` for a success."""


class ReplyStream:
    """SSE stream of one assistant message, from one of its runs on.

    - `first_run`: id of the first run to send, for the `start` chunk.
    - `last_run`: id of the run whose end is the end of the stream.
    - `show_after`: number of the last record that is not sent.
    - `skip`: number of chunks to leave out at the beginning.
    - `started_run`: True if the stream is the response to the request that started the run.
    """

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        task: Task,
        view: ReplyView,
        *,
        first_run: str,
        last_run: str,
        show_after: int,
        skip: int = 0,
        started_run: bool = False,
    ) -> None:
        self._hub = hub
        self._principal = principal
        self._task = task
        self._view = view
        self._first_run = first_run
        self._last_run = last_run
        self._show_after = show_after
        self._skip = skip
        self._started_run = started_run
        self._has_ended = False
        """True once the last frame is ready."""

    async def frames(self, lines: FanoutCache) -> AsyncGenerator[bytes]:
        """Yield the bytes of the SSE stream. `lines` is the cache by which readers of equal streams share encoded
        frames."""
        async with aclosing(self._batches(lines)) as batches:
            async for batch in batches:
                if (joined := join_frames(batch, is_last=self._has_ended)) is not None:
                    yield joined
                    continue
                async with aclosing(pieces_of(batch)) as pieces:
                    async for piece in pieces:
                        yield piece

    async def _batches(self, lines: FanoutCache) -> AsyncGenerator[Sequence[bytes | LargeFrame]]:
        """Yield the SSE frames in batches as records arrive, until the last run ends. If the gateway shuts down before,
        the last chunk is an error."""
        writer = ReplyWriter(self._view)
        begins = self._task.first_seq - 1
        view = (self._principal.owner, self._view)
        follower = lines.join(view, _Encoder(writer), (), self._rebuild, begins=begins, started_run=self._started_run)
        # The records of the run's creation are there already, so the first chunk waits for nothing.
        ready: list[bytes | LargeFrame] = [*self._shown([frame_of(encode(writer.start(self._first_run)))])]
        scope = Scope.task(self._task)
        async with aclosing(self._hub.reads.follow(self._principal, scope, begins, inline=True)) as batches:
            async for batch in batches:
                for passage, encoded in await follower.write_all(batch):
                    if passage[-1].seq <= self._show_after:
                        continue
                    frames = encoded.frames
                    if encoded.stopped and not self._is_end(passage[-1], encoded):
                        frames = frames[:-1]  # the end of a stream, but not of this one
                    ready += self._shown(frames)
                    if self._is_end(passage[-1], encoded):
                        self._has_ended = True
                        yield [*ready, DONE]
                        return
                if ready:
                    yield ready
                    ready = []
        yield [*ready, frame_of(encode(_CUT)), DONE]

    def _is_end(self, record: Record, encoded: EncodedRecord) -> bool:
        return encoded.stopped and (record.run_id == self._last_run or isinstance(record.event, RunStarted))

    def _shown(self, frames: Sequence[bytes | LargeFrame]) -> Sequence[bytes | LargeFrame]:
        """Return the frames without those that the option `skip` leaves out, and reduce the number still to skip."""
        if self._skip <= 0:
            return frames
        rest = frames[self._skip :]
        self._skip -= len(frames)
        return rest

    async def _rebuild(self, seq: int) -> Encoder:
        """Return an encoder that has read all records of the task before the record number `seq`."""
        writer = ReplyWriter(self._view)
        log = self._hub.reads.log(self._principal, Scope.task(self._task), self._task.first_seq - 1, inline=True)
        async with aclosing(log) as batches:
            async for batch in batches:
                for record in batch:
                    if record.seq >= seq:
                        return _Encoder(writer)
                    writer.write(record)
        return _Encoder(writer)


class _Encoder:
    """Encoder of a task's records as SSE frames, for `FanoutCache`."""

    def __init__(self, writer: ReplyWriter) -> None:
        self._writer = writer

    def write(self, record: Record) -> EncodedRecord:
        frames = [_frame(chunk) for chunk in self._writer.write(record)]
        return EncodedRecord(frames, self._writer.has_stopped)

    def write_passage(self, passage: Sequence[Record], texts: Sequence[str]) -> Sequence[bytes] | None:
        kind = self._writer.find_text(passage[0])
        return None if kind is None else _deltas(*kind).write(texts)


def _frame(chunk: w.Chunk) -> bytes | LargeFrame:
    """Return the SSE frame of a chunk."""
    if chunk["type"] in _TEXTS and _META not in chunk:
        return frame(_ENCODE(chunk))
    return frame_of(encode(chunk))


@lru_cache(maxsize=256)
def _deltas(kind: str, part_id: str) -> TextFrames:
    """Return the cached encoder for the delta chunks of one text or reasoning part. `kind` is the type of these chunks,
    for example `text-delta`."""
    return TextFrames(lambda text: {"type": kind, "id": part_id, "delta": text})
