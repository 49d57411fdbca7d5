"""Frames of a chat completion's stream."""

from collections.abc import Sequence
from typing import Final

from pydantic_core import to_json

from babelgate.adapters.kit.extension import URI, envelope
from babelgate.adapters.kit.server.sse import TextFrames, frame
from babelgate.adapters.openai.errors.encode import encode_error
from babelgate.adapters.openai.wire import replies as w
from babelgate.adapters.openai.wire.replies import PieceExtras
from babelgate.adapters.openai.write.completion import CompletionWriter, StreamPiece
from babelgate.canonical import Fault, FaultCode, Record
from babelgate.canonical.thread import losses_by_feature
from babelgate.canonical.value import JsonObject

DONE: Final = b"data: [DONE]\n\n"

_REPEATED: Final = 1_000
"""Maximum size of the upstream's members that every chunk repeats, in bytes. Larger ones are only in the last chunk.
Chosen."""

STARTED_OVER: Final = Fault(
    code=FaultCode.AGENT_FAILED,
    message="The agent was restarted: discard the part of the answer that this stream has sent.",
    details={"openai": {"code": "started_over"}},
)


class ChunkWriter:
    """Writer of the frames of one completion's stream. `counts`: the caller requested token counts."""

    def __init__(self, completion_id: str, created: int, model: str, *, counts: bool) -> None:
        self._head = (completion_id, created, model)
        self._counts = counts
        self._last_seq = 0
        """Seq of the newest record that was sent for the Babelgate extension."""
        self._members: JsonObject = {}
        """Members of the agent's upstream completion, such as `service_tier`."""
        self._repeated: JsonObject = {}
        """Members of `_members` that every chunk repeats: all of them, or {} if they are too large."""
        self._content = TextFrames(lambda text: self._chunk({"content": text}))

    def begin(self) -> bytes:
        """Return the first frame, whose delta has the role."""
        # The role is sent once, because the official client concatenates all strings (openai-python 3.52.0,
        # lib/streaming/_deltas.py).
        return self._frame({"role": "assistant", "content": "", "refusal": None})

    def pieces(self, pieces: Sequence[StreamPiece], about: JsonObject) -> list[bytes]:
        """Return a frame for each piece. `about` are the members of the agent's upstream completion so far."""
        self._repeat(about)
        return [self._encode_piece(*piece) for piece in pieces]

    def texts(self, texts: Sequence[str], about: JsonObject) -> list[bytes]:
        """Return a frame for each text that is plain content, from a template."""
        self._repeat(about)
        return self._content.write(texts)

    def _repeat(self, about: JsonObject) -> None:
        if about is not self._members:
            self._members = about
            self._repeated = about if len(to_json(about)) <= _REPEATED else {}
            self._content = TextFrames(lambda text: self._chunk({"content": text}))

    def _encode_piece(self, delta: JsonObject, extras: PieceExtras) -> bytes:
        choice = dict(extras.get("choice", {}))
        if "logprobs" in extras:
            choice["logprobs"] = extras["logprobs"]
        return frame(to_json(self._chunk(delta, None, choice)))

    def record(self, record: Record) -> bytes:
        """Return a frame with an empty delta and one record for the Babelgate extension."""
        chunk = {**self._chunk({}), URI: envelope(self._last_seq, (record,))}
        self._last_seq = record.seq
        return frame(to_json(chunk))

    def end(self, writer: CompletionWriter, fault: Fault | None) -> list[bytes]:
        """Return the last frames: tool calls, the finish reason, token counts and `[DONE]`. With a `fault`, return only
        an error, because clients take a stream that merely ends for a complete answer."""
        if fault is not None:
            return [frame(to_json(encode_error(fault)))]
        frames = [
            self._frame({"tool_calls": [{"index": number, **call}]}) for number, call in enumerate(writer.tool_calls)
        ]
        # All annotations in one chunk: clients merge the lists of deltas by `index`, which annotations do not have.
        last: JsonObject = {"annotations": writer.annotations} if writer.annotations else {}
        loss: JsonObject = {"babelgate": {"loss": losses_by_feature(writer.losses)}}
        chunk = {
            **writer.about,
            **self._chunk(last, writer.finish, writer.ended),
            **(loss if writer.losses else {}),
        }
        frames.append(frame(to_json(chunk)))
        if self._counts:
            # SPEC/chat/chat_completion_stream_options_param.py, include_usage: this chunk has no choices, and all
            # others have a `usage` of null.
            frames.append(frame(to_json({**self._repeated, **w.chunk(*self._head, [], usage=writer.usage)})))
        return [*frames, DONE]

    def _frame(self, delta: JsonObject) -> bytes:
        return frame(to_json(self._chunk(delta)))

    def _chunk(self, delta: JsonObject, finish: str | None = None, extras: JsonObject | None = None) -> JsonObject:
        more: JsonObject = {"usage": None} if self._counts else {}
        return {**self._repeated, **w.chunk(*self._head, [w.choice(delta, finish, extras)], **more)}
