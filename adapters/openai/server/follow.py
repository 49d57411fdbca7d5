"""A run as a response: awaited, streamed, or read again. Its log is all that there is of it."""

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
from babelgate.adapters.kit.server.whole_states import tell_states_whole
from babelgate.adapters.openai.codec.model import schema_of
from babelgate.adapters.openai.codec.names import RECORDS
from babelgate.adapters.openai.server.answers import error_response
from babelgate.adapters.openai.write.chunks import DONE
from babelgate.adapters.openai.write.response import ResponseWriter
from babelgate.canonical import Fault, FaultCode, FaultError, Hub, Record, Scope, Task
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import JsonObject

_STOPPING: Final = Fault(
    code=FaultCode.SHUTTING_DOWN, message="The gateway is shutting down, and the run has not ended."
)


class Reading:
    """One reading of a run. `extended` = its caller has activated the Babelgate extension."""

    def __init__(self, hub: Hub, owner: str, task: Task, run_id: str, *, extended: bool = False) -> None:
        self._run_id = run_id
        self.extended = extended
        self._told = 0
        """The seq of the last record of the run."""
        self._slice = Slice()
        self.writer = ResponseWriter(task.task_id, task.agent, run_id)
        self._hub = hub
        self._owner = owner
        self._task = task

    async def follow(self) -> None:
        """Wait for the end of the run, or that of the gateway."""
        async with aclosing(self._follow()) as batches:
            async for batch in batches:
                for record in batch:
                    await self._write(record)
                    if self.writer.has_ended:
                        return

    def _follow(self) -> AsyncGenerator[Sequence[Record]]:
        records = self._hub.reads.follow(self._owner, Scope.task(self._task), self._task.first_seq - 1)
        return self._with_whole_states(records)

    def _with_whole_states(self, records: AsyncGenerator[Sequence[Record]]) -> AsyncGenerator[Sequence[Record]]:
        if not self.extended:
            return records
        return tell_states_whole(self._hub, self._owner, self._task.thread_id, records)

    async def read(self, *, begins: bool = False) -> None:
        """What there is by now; or of a run that `begins`, what there was then."""
        log = self._hub.reads.log(self._owner, Scope.task(self._task), self._task.first_seq - 1)
        async with aclosing(self._with_whole_states(log)) as batches:
            async for batch in batches:
                for record in batch:
                    await self._write(record)
                    if self.writer.is_over or (begins and self.writer.created is not None):
                        return

    async def _write(self, record: Record) -> list[JsonObject]:
        ended = self.writer.has_ended
        if self.extended and record.run_id == self._run_id and not ended:
            self._slice.add(record)
        events = self.writer.write(record)
        if self.writer.has_ended and not ended:
            events += self.writer.end(await self._schema_fault())
        return events

    async def _schema_fault(self) -> Fault | None:
        """What is wrong with an answer that has to be JSON of a certain form. What it has to fit stands in the log, so
        all readers find the same."""
        writer = self.writer
        schema = None if writer.created is None else schema_of(writer.created.config)
        if schema is None or not writer.has_to_fit:
            return None
        value = writer.output if writer.output is not None else parse_text(writer.text)
        try:
            wrong = ": it is not JSON" if value is ABSENT else await self._hub.find_schema_error(schema, value)
        except FaultError:  # a run of another protocol: nobody has looked at it, and it is no schema
            return None
        if wrong is None:
            return None
        words = f"The agent's answer does not fit the text.format{wrong}"
        return Fault(code=FaultCode.AGENT_INVALID, message=words, details={"openai": {"code": "invalid_output"}})

    def answer(self, headers: Mapping[str, str], *, losses: Sequence[Loss] = ()) -> Response[Any]:
        """The response as it is."""
        told = {**headers, **loss_header((*self.writer.losses, *losses))}
        response = self.writer.response()
        if self.extended:
            response[URI] = self._slice.envelope()
        return json_response(response, told)

    def final_answer(self, headers: Mapping[str, str], *, losses: Sequence[Loss] = ()) -> Response[Any]:
        """The response, or what the run failed with and beside it the response that failed."""
        writer = self.writer
        if not writer.has_ended:
            return error_response(_STOPPING, headers, said=writer.response(), name="response")
        if writer.fault is not None and not writer.has_failed_there:
            return error_response(writer.fault, headers, said=writer.response(), name="response")
        return self.answer(headers, losses=losses)

    async def frames(self, after: int = -1) -> AsyncGenerator[bytes]:
        """The events with a number above `after`, as many at a time as are there. If the gateway stops, they end
        without an end: the rest can be had from there on."""
        async with aclosing(self._follow()) as batches:
            async for batch in batches:
                ready = [_frame(event) for event in await self._events(batch, after)]
                if self.writer.has_ended:
                    ready.append(DONE)
                # An iterator lets go of its list at the end; a reader may not take what was made of it for hours.
                frames = iter(ready)
                del ready
                async with aclosing(pieces_of(frames)) as pieces:
                    async for piece in pieces:
                        yield piece
                if self.writer.has_ended:
                    return

    async def messages(self, more: JsonObject) -> AsyncGenerator[bytes]:
        """The same events from the first on, each as the JSON of a message of its own, with `more` members."""
        async with aclosing(self._follow()) as batches:
            async for batch in batches:
                for event in await self._events(batch):
                    yield await as_bytes(_encode_event({**event, **more} if more else event))
                if self.writer.has_ended:
                    return

    async def _events(self, batch: Sequence[Record], after: int = -1) -> list[JsonObject]:
        """Up to the last one of the response."""
        events: list[JsonObject] = []
        for record in batch:
            events += [event for event in await self._write(record) if event["sequence_number"] > after]
            if self.extended and record.run_id == self._run_id:
                events.append(self._tell_record(record))
            if self.writer.has_ended:
                break
        return events

    def _tell_record(self, record: Record) -> JsonObject:
        """Without a number of its own: those of other events are what they are without the extension."""
        told: JsonObject = {"type": RECORDS, URI: envelope(self._told, (record,))}
        self._told = record.seq
        return told


def _encode_event(event: JsonObject) -> bytes | LargeJson:
    """One text is encoded in one step: there is no need to look how large each token is."""
    return to_json(event) if event["type"] == _DELTA else encode(event)


_DELTA: Final = "response.output_text.delta"


def _frame(event: JsonObject) -> bytes | LargeFrame:
    # Open Responses: the event line is the type.
    return frame_of(_encode_event(event), event=event["type"])
