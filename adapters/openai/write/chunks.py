"""The frames of a completion's stream."""

from collections.abc import Sequence
from typing import Final

from pydantic_core import to_json

from adapters._extension import URI, envelope
from adapters._server.encoding import TextTemplate
from adapters._sse import frame
from adapters.openai.errors.encode import encode_error
from adapters.openai.wire import replies as w
from adapters.openai.write.completion import CompletionWriter
from canonical import Fault, FaultCode, Record
from canonical.value import JsonObject

DONE: Final = b"data: [DONE]\n\n"

STARTED_OVER: Final = Fault(
    code=FaultCode.AGENT_FAILED,
    message="The agent was started again: what the stream has told of its answer is void.",
    details={"openai": {"code": "started_over"}},
)


class ChunkWriter:
    """`counts` = the caller wants the usage."""

    def __init__(self, completion_id: str, created: int, model: str, *, counts: bool) -> None:
        self._about = (completion_id, created, model)
        self._counts = counts
        self._told = 0
        """The seq of the last record that was told."""
        self._content = TextTemplate(lambda text: self._chunk({"content": text}))

    def begin(self) -> bytes:
        # Once: the official client adds up strings, the role among them (openai-python 3.52.0,
        # lib/streaming/_deltas.py).
        return self._frame({"role": "assistant", "content": "", "refusal": None})

    def deltas(self, deltas: Sequence[JsonObject]) -> list[bytes]:
        return [
            frame(self._content.encode(delta["content"])) if "content" in delta else self._frame(delta)
            for delta in deltas
        ]

    def record(self, record: Record) -> bytes:
        """By the extension, in a chunk that says nothing else."""
        told = {**self._chunk({}), URI: envelope(self._told, (record,))}
        self._told = record.seq
        return frame(to_json(told))

    def end(self, writer: CompletionWriter, fault: Fault | None) -> list[bytes]:
        """A stream that only ended would be taken for a whole answer, so what went wrong is told."""
        if fault is not None:
            return [frame(to_json(encode_error(fault)))]
        frames = [
            self._frame({"tool_calls": [{"index": number, **call}]}) for number, call in enumerate(writer.tool_calls)
        ]
        # All at once: lists of a delta are added up by an `index`, which these have not.
        last: JsonObject = {"annotations": writer.annotations} if writer.annotations else {}
        lost: JsonObject = {"babelgate": {"loss": {loss.feature: loss.how for loss in writer.losses}}}
        told = {**writer.about, **self._chunk(last, writer.finish), **(lost if writer.losses else {})}
        frames.append(frame(to_json(told)))
        if self._counts:
            # SPEC/chat/chat_completion_stream_options_param.py, include_usage: no choices, and null in those before.
            frames.append(frame(to_json(w.chunk(*self._about, [], usage=writer.usage))))
        return [*frames, DONE]

    def _frame(self, delta: JsonObject) -> bytes:
        return frame(to_json(self._chunk(delta)))

    def _chunk(self, delta: JsonObject, finish: str | None = None) -> JsonObject:
        more: JsonObject = {"usage": None} if self._counts else {}
        return w.chunk(*self._about, [w.choice(delta, finish)], **more)
