"""Reading of the events that start and complete messages.

Parts are read from `message.part` alone. If an agent yields a message at once, `message.created` contains all its
parts, too (SDK 1.0.3, server/executor.py).
"""

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.read.generic import GenericReader
from babelgate.adapters.acp.read.open_message import OpenWireMessage
from babelgate.adapters.acp.read.parts import PartReader
from babelgate.adapters.acp.read.tools import ToolReader


class MessageReader:
    """Reader of one run's messages. It adds their events to the run."""

    __slots__ = ("_generic", "_message", "_parts", "_tools", "count")

    def __init__(self, message: OpenWireMessage, parts: PartReader, tools: ToolReader, generic: GenericReader) -> None:
        self.count = 0
        """Number of messages that the server has completed."""
        self._message = message
        self._parts = parts
        self._tools = tools
        self._generic = generic

    def read(self, event: w.MessageEvent) -> None:
        """Add the canonical events for the start or the completion of a message. Raises invalid for a part that breaks
        the protocol."""
        if event.type == "message.created":
            self.finish()
            self._message.begin(event.message)
            return
        self.count += 1
        if self._message.part_count >= 0:
            # The parts that did not arrive as events.
            for part in event.message.parts[self._message.part_count :]:
                self._parts.read(part)
        self.finish(event.message)

    def read_whole(self, message: w.Message) -> None:
        """Add the canonical events for a message that has all its parts. Raises invalid for a part that breaks the
        protocol."""
        self._message.begin(message)
        for part in message.parts:
            self._parts.read(part)
        self.finish(message)

    def finish(self, completed: w.Message | None = None) -> None:
        """End the open message, and the thoughts and tool calls in it. `completed` is the message as the server has
        completed it, or None if the server has not."""
        self._generic.end_pieces()
        self._message.end_text()
        self._tools.end_open()
        self._message.finish(completed)
