"""The frames of a completion's stream."""

from collections.abc import Sequence
from typing import Final

from pydantic_core import to_json

from babelgate.adapters.kit.extension import URI, envelope
from babelgate.adapters.kit.server.sse import TextFrames, frame
from babelgate.adapters.openai.errors.encode import encode_error
from babelgate.adapters.openai.wire import replies as w
from babelgate.adapters.openai.wire.replies import Beside
from babelgate.adapters.openai.write.completion import CompletionWriter, Piece
from babelgate.canonical import Fault, FaultCode, Record
from babelgate.canonical.thread import losses_by_feature
from babelgate.canonical.value import JsonObject

DONE: Final = b"data: [DONE]\n\n"

_REPEATED: Final = 1_000
"""Bytes of members that every chunk has; what is larger is in the one that ends the choice."""

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
        self._said_of: JsonObject = {}
        """What the agent's own server says of its completion."""
        self._repeated: JsonObject = {}
        """Of these, what every chunk has."""
        self._content = TextFrames(lambda text: self._chunk({"content": text}))

    def begin(self) -> bytes:
        # Once: the official client adds up strings, the role among them (openai-python 3.52.0,
        # lib/streaming/_deltas.py).
        return self._frame({"role": "assistant", "content": "", "refusal": None})

    def pieces(self, pieces: Sequence[Piece], about: JsonObject) -> list[bytes]:
        """`about` = what the agent's own server says of its completion by now."""
        self._repeat(about)
        return [self._encode_piece(*piece) for piece in pieces]

    def texts(self, texts: Sequence[str], about: JsonObject) -> list[bytes]:
        """Pieces that are plain content."""
        self._repeat(about)
        return self._content.write(texts)

    def _repeat(self, about: JsonObject) -> None:
        if about is not self._said_of:
            self._said_of = about
            self._repeated = about if len(to_json(about)) <= _REPEATED else {}
            self._content = TextFrames(lambda text: self._chunk({"content": text}))

    def _encode_piece(self, delta: JsonObject, beside: Beside) -> bytes:
        choice = dict(beside.get("choice", {}))
        if "logprobs" in beside:
            choice["logprobs"] = beside["logprobs"]
        return frame(to_json(self._chunk(delta, None, choice)))

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
        lost: JsonObject = {"babelgate": {"loss": losses_by_feature(writer.losses)}}
        told = {
            **writer.about,
            **self._chunk(last, writer.finish, writer.ended),
            **(lost if writer.losses else {}),
        }
        frames.append(frame(to_json(told)))
        if self._counts:
            # SPEC/chat/chat_completion_stream_options_param.py, include_usage: no choices, and null in those before.
            frames.append(frame(to_json({**self._repeated, **w.chunk(*self._about, [], usage=writer.usage)})))
        return [*frames, DONE]

    def _frame(self, delta: JsonObject) -> bytes:
        return frame(to_json(self._chunk(delta)))

    def _chunk(self, delta: JsonObject, finish: str | None = None, beside: JsonObject | None = None) -> JsonObject:
        more: JsonObject = {"usage": None} if self._counts else {}
        return {**self._repeated, **w.chunk(*self._about, [w.choice(delta, finish, beside)], **more)}
