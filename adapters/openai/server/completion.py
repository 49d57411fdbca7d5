"""Reading of a run as a chat completion: wait for it, stream it, or read it later."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from litestar import Response

from babelgate.adapters.kit.extension import URI, Slice
from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.adapters.kit.server.caller import loss_header
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.passages import split_passages
from babelgate.adapters.kit.server.whole_states import complete_states
from babelgate.adapters.openai.codec.names import completion_id
from babelgate.adapters.openai.server.answers import error_response
from babelgate.adapters.openai.wire import replies as w
from babelgate.adapters.openai.write.chunks import STARTED_OVER, ChunkWriter
from babelgate.adapters.openai.write.completion import CompletionWriter
from babelgate.canonical import Fault, FaultCode, Hub, Principal, Record, Scope, Task
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import JsonObject

_STOPPING = Fault(code=FaultCode.SHUTTING_DOWN, message="The gateway is shutting down, and the run has not ended.")


class Completion:
    """Reader of one run's records that shows them as a chat completion, whole or as a stream.

    - `schema`: JSON Schema that the caller demanded of the answer, or None.
    - `extended`: True if the caller activated the Babelgate extension.
    """

    def __init__(
        self,
        hub: Hub,
        principal: Principal,
        task: Task,
        run_id: str,
        created_at: int,
        schema: JsonObject | None = None,
        *,
        extended: bool = False,
    ) -> None:
        self._run_id = run_id
        self._extended = extended
        self.writer = CompletionWriter(task.task_id, run_id)
        self.completion_id = completion_id(run_id)
        self._hub = hub
        self._principal = principal
        self._task = task
        self._created = created_at // 1_000_000
        self._schema = schema
        self._slice = Slice()
        """Records of the run that the response will contain for the Babelgate extension."""

    async def follow(self) -> None:
        """Read the run's records until it ends, or until the gateway shuts down."""
        async with self._open_records() as batches:
            async for batch in batches:
                for record in batch:
                    self.writer.write(record)
                    if self._extended and record.run_id == self._run_id:
                        self._slice.add(record)
                    if self.writer.has_ended:
                        return

    async def read(self) -> None:
        """Read the run's records that are in the log now."""
        log = self._hub.reads.log(self._principal, Scope.task(self._task), self._task.first_seq - 1)
        async with aclosing(log) as batches:
            async for batch in batches:
                for record in batch:
                    self.writer.write(record)
                    if self.writer.has_ended:
                        return

    def _open_records(self) -> aclosing[AsyncGenerator[Sequence[Record]]]:
        records = self._hub.reads.follow(self._principal, Scope.task(self._task), self._task.first_seq - 1)
        if not self._extended:
            return aclosing(records)
        return aclosing(complete_states(self._hub, self._principal, self._task.thread_id, records))

    def body(self) -> JsonObject:
        """Return the completion as JSON from the records read so far."""
        writer = self.writer
        completion = w.completion(
            self.completion_id,
            self._created,
            self._task.agent,
            writer.message(),
            writer.finish,
            writer.usage,
            writer.choice_extras,
        )
        return {**writer.about, **completion}

    async def response(
        self, headers: Mapping[str, str], *, losses: Sequence[Loss] = (), metadata: JsonObject | None = None
    ) -> Response[Any]:
        """Return the completion as an HTTP response. For a failed run, return an error response that contains the
        incomplete completion.

        `losses` are losses of the request. `metadata` is added to the completion unless it is None.
        """
        fault = await self.find_fault()
        if fault is not None:
            return error_response(fault, headers, unfinished=self.body() if self.writer.has_output else None)
        body = self.body() if metadata is None else {**self.body(), "metadata": metadata}
        if self._extended:
            body[URI] = self._slice.envelope()
        return json_response(body, {**headers, **loss_header((*self.writer.losses, *losses))})

    async def find_fault(self) -> Fault | None:
        """Return the reason why there is no complete answer: a shutdown, a failed run, or an answer that does not match
        the schema. Otherwise return None."""
        if not self.writer.has_ended:
            return _STOPPING
        return self.writer.fault or await self._schema_fault()

    async def _schema_fault(self) -> Fault | None:
        """Return a fault if the answer does not match the schema that the caller demanded, else None.

        A refusal, a question, and an answer that the token limit cut off are not validated.
        """
        # SPEC/chat/chat_completion.py, finish_reason: only `stop` means that the model finished its answer.
        if self._schema is None or self.writer.finish != "stop" or self.writer.is_paused:
            return None
        if self.writer.message()["content"] is None:
            return None
        value = self.writer.output if self.writer.output is not None else parse_text(self.writer.content)
        error = (
            ": it is not JSON"
            if value is ABSENT
            else await self._hub.find_schema_error(self._principal, self._schema, value)
        )
        if error is None:
            return None
        words = f"The agent's answer does not fit the response_format{error}"
        return Fault(code=FaultCode.AGENT_INVALID, message=words, details={"openai": {"code": "invalid_output"}})

    async def frames(self, *, counts: bool) -> AsyncGenerator[bytes]:
        """Yield the frames of the completion's stream. Each item joins the frames that are ready. `counts`: the caller
        requested token counts."""
        writer = self.writer
        chunks = ChunkWriter(self.completion_id, self._created, self._task.agent, counts=counts)
        yield chunks.begin()
        async with self._open_records() as batches:
            async for batch in batches:
                ready: list[bytes] = []
                for passage, texts in split_passages(batch):
                    if texts and not self._extended and writer.add_texts(passage[0], texts):
                        ready += chunks.texts(texts, writer.about)
                        continue
                    for record in passage:
                        ready += chunks.pieces(writer.write(record), writer.about)
                        if self._extended and record.run_id == self._run_id:
                            ready.append(chunks.record(record))
                    if writer.broken:
                        yield b"".join([*ready, *chunks.end(writer, STARTED_OVER)])
                        return
                    if writer.has_ended:
                        yield b"".join([*ready, *chunks.end(writer, await self.find_fault())])
                        return
                if ready:
                    joined = b"".join(ready)
                    ready.clear()  # free the frames, because a client may not read the next bytes for hours
                    yield joined
        yield b"".join(chunks.end(writer, await self.find_fault()))
