"""Streams: one run from the log, whole or after a cursor, and the history of a thread before it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from babelgate.adapters.ag_ui import wire as w
from babelgate.adapters.ag_ui.write.run_events import RunEventWriter
from babelgate.adapters.ag_ui.write.transcript import ConversationReducer
from babelgate.adapters.kit.server.encoding import encode
from babelgate.adapters.kit.server.passages import split_passages
from babelgate.adapters.kit.server.sse import LargeFrame, TextFrames, frame, frame_of, join_frames, pieces_of
from babelgate.adapters.kit.server.whole_states import complete_states
from babelgate.canonical import FaultCode, FaultError, Hub, Principal, Record, Scope, Task
from babelgate.canonical.value import JsonObject

_HISTORY: Final = "history"
"""Id of the SSE frames that show the history. As a cursor it is the start of the run, because these frames precede all
frames of the run."""


class Cursor(NamedTuple):
    """Position after a frame: the number of its record in the log, and the frame's number among those of the record,
    from 0. Its text is `seq-number`, such as `12-0`."""

    seq: int = 0
    number: int = -1

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Return the position that a frame's id names. An empty text is the start of the run. Raises invalid."""
        if not text or text == _HISTORY:
            return cls()
        seq, _, number = text.partition("-")
        if not (seq.isdecimal() and number.isdecimal() and len(text) <= 40):
            raise FaultError(FaultCode.INVALID, f"after: expected the id of a frame, got {text[:40]!r}")
        return cls(int(seq), int(number))


class RunFrames:
    """Encoder of one run as SSE frames, from its records in the log. With `after`, the frames up to this cursor are
    omitted."""

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        task: Task,
        run_id: str,
        *,
        base_url: str,
        thread_name: str,
        has_states: bool,
        after: Cursor | None = None,
    ) -> None:
        self._hub = hub
        self._principal = principal
        self._task = task
        self._run_id = run_id
        self._base_url = base_url
        # Only an agent that keeps its state refers to revisions from before the task.
        self._has_states = has_states
        self._after = Cursor() if after is None else after
        self.writer = RunEventWriter(run_id, thread_name, base_url=base_url, agent=task.agent)
        self._text: tuple[Any, TextFrames] | None = None
        """Frame template of the newest passage of text deltas, with the message id and part index that it is for. None
        before the first passage."""

    async def frames(self) -> AsyncGenerator[bytes]:
        """Yield the bytes of the frames until the run has ended. If the log ends before that, because the gateway
        stops, the last frame is a `RUN_ERROR`."""
        async with aclosing(self._batches()) as batches:
            async for ready in batches:
                if (joined := join_frames(ready, is_last=self.writer.has_ended)) is not None:
                    yield joined
                    continue
                async with aclosing(pieces_of(ready)) as pieces:
                    async for piece in pieces:
                        yield piece

    async def _batches(self) -> AsyncGenerator[Sequence[bytes | LargeFrame]]:
        writer = self.writer
        log = self._hub.reads.follow(self._principal, Scope.task(self._task), self._task.first_seq - 1, inline=True)
        if self._has_states:
            log = complete_states(self._hub, self._principal, self._task.thread_id, log)
        async with aclosing(log) as batches:
            async for batch in batches:
                ready: list[bytes | LargeFrame] = []
                for passage, texts in split_passages(batch):
                    if texts and (encoded := self._write_texts(passage, texts)) is not None:
                        ready += encoded
                        continue
                    for record in passage:
                        ready += self._write(record)
                        if writer.is_restarted:
                            ready += await self._correct(record)
                    if writer.has_ended:
                        yield ready
                        return
                if ready:
                    yield ready
        if writer.has_begun:
            yield [frame(to_json(writer.interrupt()))]

    def _write(self, record: Record) -> Sequence[bytes | LargeFrame]:
        """Return the frames of a record that are after the cursor."""
        events = self.writer.write(record)
        return [
            frame_of(encode(event), id=f"{record.seq}-{number}")
            for number, event in enumerate(events)
            if (record.seq, number) > self._after
        ]

    def _write_texts(self, passage: Sequence[Record], texts: Sequence[str]) -> Sequence[bytes] | None:
        """Return the frames of a passage, which is a series of text deltas of one part. `texts` has the text of each
        record. Return None if the records must be written one by one."""
        make = self.writer.text_maker(passage[0])
        if make is None:
            return None
        event = passage[0].event
        key = (getattr(event, "message_id", None), getattr(event, "index", None))
        if self._text is None or self._text[0] != key:
            self._text = (key, TextFrames(make))
        visible = [number for number, record in enumerate(passage) if (record.seq, 0) > self._after]
        if len(visible) < len(passage):
            passage, texts = [passage[number] for number in visible], [texts[number] for number in visible]
        return self._text[1].write(texts, ids=[f"{record.seq}-0" for record in passage])

    async def _correct(self, record: Record) -> Sequence[bytes | LargeFrame]:
        """Return the frame of a `MESSAGES_SNAPSHOT` without the messages that a restart of the run voids. Its number is
        99, after all other frames of the record. Empty if the cursor is past it."""
        if (record.seq, 99) <= self._after:
            return ()
        transcript = await read_transcript(self._hub, self._principal, self._task, self._base_url, until=record.seq)
        event = messages_snapshot(transcript, record.at)
        return [frame_of(encode(event), id=f"{record.seq}-99")]


async def read_transcript(
    hub: Hub, principal: Principal, task: Task, base_url: str, *, until: int | None = None
) -> ConversationReducer:
    """Return the reducer with the messages of the task's thread, up to the record number `until`. None is the end of
    the log."""
    transcript = ConversationReducer(task.thread_id, base_url=base_url, agent=task.agent)
    log = hub.reads.log(principal, Scope(task.thread_id), inline=True)
    async with aclosing(complete_states(hub, principal, task.thread_id, log)) as batches:
        async for batch in batches:
            for record in batch:
                if until is not None and record.seq > until:
                    return transcript
                transcript.apply(record)
    return transcript


def messages_snapshot(transcript: ConversationReducer, at: int) -> JsonObject:
    """Return the `MESSAGES_SNAPSHOT` event with all messages. `at` is its time in microseconds since 1970."""
    return {"type": "MESSAGES_SNAPSHOT", "timestamp": at // 1000, "messages": transcript.messages()}


def history_frames(
    transcript: ConversationReducer, state: JsonObject, at: int, thread_id: str, run_id: str, end: JsonObject
) -> list[bytes | LargeFrame]:
    """Return the frames of a run that executes nothing and only restates the conversation. `state` is the shared state,
    and `at` the time in microseconds since 1970. `end` has the type and further members of the last event."""
    stamp = {"timestamp": at // 1000}
    events: list[JsonObject] = [
        {"type": "RUN_STARTED", **stamp, "threadId": thread_id, "runId": run_id, "protocolVersion": w.VERSION},
        messages_snapshot(transcript, at),
    ]
    if state:
        events.append({"type": "STATE_SNAPSHOT", **stamp, "snapshot": state})
    ids = {"threadId": thread_id, "runId": run_id} if end["type"] == "RUN_FINISHED" else {}
    events.append({"type": end["type"], **stamp, **ids, **end})
    return [frame_of(encode(event), id=_HISTORY) for event in events]
