"""Frames of a message's stream. Each has an `event` line, because clients skip frames without one."""

from collections.abc import Iterable, Sequence
from typing import Final

from babelgate.adapters.anthropic.errors import encode_error
from babelgate.adapters.anthropic.write.block import Block
from babelgate.adapters.kit.server.encoding import encode
from babelgate.adapters.kit.server.sse import LargeFrame, TextFrames, frame_of
from babelgate.canonical import Fault
from babelgate.canonical.value import JsonObject

_DELTA: Final = "content_block_delta"


class FrameWriter:
    """Encoder of the events of one stream as frames."""

    def __init__(self) -> None:
        self._block: Block | None = None
        self._texts: TextFrames | None = None

    def events(self, events: Iterable[JsonObject]) -> list[bytes | LargeFrame]:
        """Return a frame for each event."""
        return [frame_of(encode(event), event=event["type"]) for event in events]

    def texts(self, block: Block, texts: Sequence[str]) -> list[bytes]:
        """Return a frame for each text that continues a block, from a template."""
        if self._texts is None or self._block is not block:
            self._block, self._texts = block, TextFrames(block.delta)
        return self._texts.write(texts, event=_DELTA)

    def fault(self, fault: Fault) -> list[bytes | LargeFrame]:
        """Return the frame that ends the stream with an error. A client of Python takes a stream that merely ends for a
        complete answer."""
        return self.events([encode_error(fault)])
