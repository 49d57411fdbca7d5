"""Reading of a run as a response: wait for it, stream it, or read it later. All of it is computed from the run's
log."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from litestar import Response
from pydantic_core import to_json

from babelgate.adapters.kit.extension import URI, Slice, envelope
from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.adapters.kit.server.caller import loss_header
from babelgate.adapters.kit.server.encoding import LargeJson, as_bytes, encode, json_response
from babelgate.adapters.kit.server.sse import LargeFrame, frame_of, pieces_of
from babelgate.adapters.kit.server.whole_states import complete_states
from babelgate.adapters.openai.codec.model import schema_of
from babelgate.adapters.openai.codec.names import RECORDS
from babelgate.adapters.openai.server.answers import error_response
from babelgate.adapters.openai.write.chunks import DONE
from babelgate.adapters.openai.write.response import ResponseWriter
from babelgate.canonical import Fault, FaultCode, FaultError, Hub, Principal, Record, Scope, Task
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import JsonObject

_STOPPING: Final = Fault(
    code=FaultCode.SHUTTING_DOWN, message="The gateway is shutting down, and the run has not ended."
)


class Reading:
    """One reading of a run as a response. `extended`: the caller activated the Babelgate extension."""

    def __init__(self, hub: Hub, principal: Principal, task: Task, run_id: str, *, extended: bool = False) -> None:
        self._run_id = run_id
        self.extended = extended
        self._last_seq = 0
        """Seq of the newest record that was sent to the stream for the Babelgate extension."""
        self._slice = Slice()
        """Records of the run that the response will contain for the Babelgate extension."""
        self.writer = ResponseWriter(task.task_id, task.agent, run_id)
        self._hub = hub
        self._principal = principal
        self._task = task

    async def follow(self) -> None:
        """Read the run's records until it ends, or until the gateway shuts down."""
        async with aclosing(self._follow()) as batches:
            async for batch in batches:
                for record in batch:
                    await self._write(record)
                    if self.writer.has_ended:
                        return

    def _follow(self) -> AsyncGenerator[Sequence[Record]]:
        records = self._hub.reads.follow(self._principal, Scope.task(self._task), self._task.first_seq - 1)
        return self._with_whole_states(records)

    def _with_whole_states(self, records: AsyncGenerator[Sequence[Record]]) -> AsyncGenerator[Sequence[Record]]:
        if not self.extended:
            return records
        return complete_states(self._hub, self._principal, self._task.thread_id, records)

    async def read(self, *, begins: bool = False) -> None:
        """Read the run's records that are in the log now. `begins`: stop after the record that created the run."""
        log = self._hub.reads.log(self._principal, Scope.task(self._task), self._task.first_seq - 1)
        async with aclosing(self._with_whole_states(log)) as batches:
            async for batch in batches:
                for record in batch:
                    await self._write(record)
                    if self.writer.is_over or (begins and self.writer.created is not None):
                        return

    async def _write(self, record: Record) -> list[JsonObject]:
        """Pass a record to the writer, and return the stream's events for it. The record that ends the run also gives
        the last event."""
        had_ended = self.writer.has_ended
        if self.extended and record.run_id == self._run_id and not had_ended:
            self._slice.add(record)
        events = self.writer.write(record)
        if self.writer.has_ended and not had_ended:
            events += self.writer.end(await self._schema_fault())
        return events

    async def _schema_fault(self) -> Fault | None:
        """Return a fault if the answer does not match the schema that its request demanded, else None. The schema is
        read from the log, so all readers get the same result."""
        writer = self.writer
        schema = None if writer.created is None else schema_of(writer.created.config)
        if schema is None or not writer.has_to_fit:
            return None
        value = writer.output if writer.output is not None else parse_text(writer.text)
        try:
            error = (
                ": it is not JSON"
                if value is ABSENT
                else await self._hub.find_schema_error(self._principal, schema, value)
            )
        except FaultError:  # a run of another protocol, whose schema was never validated, and is invalid
            return None
        if error is None:
            return None
        words = f"The agent's answer does not fit the text.format{error}"
        return Fault(code=FaultCode.AGENT_INVALID, message=words, details={"openai": {"code": "invalid_output"}})

    def answer(self, headers: Mapping[str, str], *, losses: Sequence[Loss] = ()) -> Response[Any]:
        """Return an HTTP response with the response object from the records read so far. `losses` are losses of the
        request."""
        all_headers = {**headers, **loss_header((*self.writer.losses, *losses))}
        response = self.writer.response()
        if self.extended:
            response[URI] = self._slice.envelope()
        return json_response(response, all_headers)

    def final_answer(self, headers: Mapping[str, str], *, losses: Sequence[Loss] = ()) -> Response[Any]:
        """Return an HTTP response with the finished response. For a failed run or a shutdown, return an error response
        that contains the incomplete response."""
        writer = self.writer
        if not writer.has_ended:
            return error_response(_STOPPING, headers, unfinished=writer.response(), name="response")
        if writer.fault is not None and not writer.has_failed_there:
            return error_response(writer.fault, headers, unfinished=writer.response(), name="response")
        return self.answer(headers, losses=losses)

    async def frames(self, after: int = -1) -> AsyncGenerator[bytes]:
        """Yield the stream's events with a sequence number above `after`, as frames. Each item joins the frames that
        are ready.

        If the gateway shuts down, the stream ends without its last event, and the caller can resume it.
        """
        async with aclosing(self._follow()) as batches:
            async for batch in batches:
                ready = [_frame(event) for event in await self._events(batch, after)]
                if self.writer.has_ended:
                    ready.append(DONE)
                # The iterator frees the list when it ends. A client may not read the last bytes for hours.
                frames = iter(ready)
                del ready
                async with aclosing(pieces_of(frames)) as pieces:
                    async for piece in pieces:
                        yield piece
                if self.writer.has_ended:
                    return

    async def messages(self, more: JsonObject) -> AsyncGenerator[bytes]:
        """Yield all events as JSON for a WebSocket, each with the members of `more` added."""
        async with aclosing(self._follow()) as batches:
            async for batch in batches:
                for event in await self._events(batch):
                    yield await as_bytes(_encode_event({**event, **more} if more else event))
                if self.writer.has_ended:
                    return

    async def _events(self, batch: Sequence[Record], after: int = -1) -> list[JsonObject]:
        """Return the stream's events with a sequence number above `after` for a batch of records, at most up to the
        last event of the response."""
        events: list[JsonObject] = []
        for record in batch:
            events += [event for event in await self._write(record) if event["sequence_number"] > after]
            if self.extended and record.run_id == self._run_id:
                events.append(self._encode_record(record))
            if self.writer.has_ended:
                break
        return events

    def _encode_record(self, record: Record) -> JsonObject:
        """Return a record in an envelope of the Babelgate extension, as an event of the stream. The event has no
        sequence number, so the numbers of other events stay the same."""
        event: JsonObject = {"type": RECORDS, URI: envelope(self._last_seq, (record,))}
        self._last_seq = record.seq
        return event


def _encode_event(event: JsonObject) -> bytes | LargeJson:
    """Return an event as JSON. Text deltas bypass `encode`, which would check the size of each token first."""
    return to_json(event) if event["type"] == _DELTA else encode(event)


_DELTA: Final = "response.output_text.delta"


def _frame(event: JsonObject) -> bytes | LargeFrame:
    # Open Responses: the `event` line holds the type.
    return frame_of(_encode_event(event), event=event["type"])
