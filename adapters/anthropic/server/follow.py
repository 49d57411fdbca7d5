"""Reading of a run as a message: wait for the message, stream it, or read it later."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from litestar import Response
from pydantic_core import to_json

from babelgate.adapters.anthropic.codec.names import PROTOCOL
from babelgate.adapters.anthropic.codec.settings import demanded_schema
from babelgate.adapters.anthropic.errors import STARTED_OVER, STOPPING
from babelgate.adapters.anthropic.server.answers import error_response
from babelgate.adapters.anthropic.write.frames import FrameWriter
from babelgate.adapters.anthropic.write.message import AnswerWriter
from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.adapters.kit.server.caller import Caller, loss_header
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.passages import split_passages
from babelgate.adapters.kit.server.sse import LargeFrame, pieces_of
from babelgate.canonical import Fault, FaultCode, Hub, Record, Scope, Task
from babelgate.canonical.event import RunCreated
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import JsonObject


class MessageReading:
    """Reader of one run's records that shows them as a message, whole or as a stream."""

    def __init__(self, hub: Hub, who: Caller, task: Task, run_id: str) -> None:
        self.writer = AnswerWriter(task.task_id, run_id, task.agent, who.base_url)
        self._hub = hub
        self._principal = who.principal
        self._task = task
        self._run_id = run_id
        self._schema: JsonObject | None = None
        """JSON Schema that the request demands of the answer; None for any text."""

    async def follow(self) -> None:
        """Read the run's records until it ends, or until the gateway shuts down."""
        async with self._open() as batches:
            async for batch in batches:
                for record in batch:
                    self._write(record)
                    if self.writer.has_ended:
                        return

    async def read(self) -> None:
        """Read the run's records that are in the log now. Also read whether the task was cancelled while it waited for
        an answer to the run's question."""
        log = self._hub.reads.log(self._principal, Scope.task(self._task), self._task.first_seq - 1)
        async with aclosing(log) as batches:
            async for batch in batches:
                for record in batch:
                    if self.writer.has_ended:
                        if isinstance(record.event, RunCreated):
                            return
                        self.writer.end_task(record.event)
                    self._write(record)

    def _open(self) -> aclosing[AsyncGenerator[Sequence[Record]]]:
        scope = Scope.task(self._task)
        return aclosing(self._hub.reads.follow(self._principal, scope, self._task.first_seq - 1))

    def _write(self, record: Record) -> list[JsonObject]:
        if isinstance(record.event, RunCreated) and record.run_id == self._run_id:
            self._schema = demanded_schema(record.event)
        return self.writer.write(record)

    async def response(self, headers: Mapping[str, str], *, losses: Sequence[Loss] = ()) -> Response[Any]:
        """Return the message as an HTTP response, or the error response of a failed run. `losses` are losses of the
        request."""
        fault = await self._find_fault()
        if fault is not None:
            return error_response(fault, headers, self.writer.body() if self.writer.has_output else None)
        return self.snapshot(headers, losses)

    async def present(self, headers: Mapping[str, str]) -> Response[Any]:
        """Return the message as it is now, also that of a run that has not ended."""
        return await self.response(headers) if self.writer.has_ended else self.snapshot(headers)

    def snapshot(self, headers: Mapping[str, str], losses: Sequence[Loss] = ()) -> Response[Any]:
        """Return the message with what was read so far, also that of a failed run. `losses` are losses of the
        request."""
        all_headers = {**headers, **loss_header((*self.writer.losses, *losses))}
        body = self.writer.body()
        if self.writer.is_short:  # measuring the size of the value would take longer than encoding it
            return Response(to_json(body), media_type="application/json", headers=all_headers)
        return json_response(body, all_headers)

    async def _find_fault(self) -> Fault | None:
        """Return the reason why there is no complete answer: a shutdown, a failed run, or an answer that does not match
        the schema. Otherwise return None."""
        if not self.writer.has_ended:
            return STOPPING
        return self.writer.fault or await self._schema_fault()

    async def _schema_fault(self) -> Fault | None:
        """Return a fault if the answer does not match the schema that the request demands. A refusal, a question, and
        an answer that the token limit cut off are not validated."""
        writer = self.writer
        if self._schema is None or writer.stop_reason != "end_turn" or writer.is_paused:
            return None
        value = writer.output if writer.output is not None else parse_text(writer.text)
        error = (
            ": it is not JSON"
            if value is ABSENT
            else await self._hub.find_schema_error(self._principal, self._schema, value)
        )
        if error is None:
            return None
        words = f"The agent's answer does not fit output_config.format{error}"
        return Fault(code=FaultCode.AGENT_INVALID, message=words, details={PROTOCOL: {"code": "invalid_output"}})

    async def frames(self, *, restates: bool = False) -> AsyncGenerator[bytes]:
        """Yield the frames of the message's stream, from its start to its end. Each item joins the frames that are
        ready.

        A restart of the agent voids what was sent. If `restates`, the stream then begins the message again, with the
        content that is not void; otherwise it ends with an error.
        """
        writer, frames = self.writer, FrameWriter()
        has_begun = False
        async with self._open() as batches:
            async for batch in batches:
                ready: list[bytes | LargeFrame] = []
                for passage, texts in split_passages(batch):
                    block = self.writer.open_block(passage[0]) if texts else None
                    if block is not None:
                        writer.extend(block, texts)
                        ready += frames.texts(block, texts)
                        continue
                    for record in passage:
                        events = self._write(record)
                        if not has_begun and record.run_id == self._run_id:
                            has_begun = True
                            ready += frames.events((writer.begin(), _PING))
                        ready += frames.events(events)
                        if restates and writer.is_broken:
                            writer.is_broken = False
                            ready += frames.events(writer.restate())
                    if writer.is_broken or writer.has_ended:
                        break
                ready += await self._last_frames(frames)
                is_over = writer.is_broken or writer.has_ended
                # The iterator frees the list when it ends. A client may not read the last bytes for hours.
                pending = iter(ready)
                del ready
                async with aclosing(pieces_of(pending)) as pieces:
                    async for piece in pieces:
                        yield piece
                if is_over:
                    return
        for each in frames.fault(STOPPING):
            assert isinstance(each, bytes)
            yield each

    async def _last_frames(self, frames: FrameWriter) -> list[bytes | LargeFrame]:
        """Return the frames that end the stream, or none if the run continues."""
        if self.writer.is_broken:
            return frames.fault(STARTED_OVER)
        if not self.writer.has_ended:
            return []
        fault = await self._find_fault()
        return frames.events(self.writer.end()) if fault is None else frames.fault(fault)


_PING: Final[JsonObject] = {"type": "ping"}
