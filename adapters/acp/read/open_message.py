"""Message that is being read, as canonical events."""

from typing import Any

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.messages import decode_role, message_extra, own_member
from babelgate.adapters.acp.codec.parts import part_extra
from babelgate.adapters.acp.read.run_state import RunState
from babelgate.canonical import Part, RefusalPart, TextPart
from babelgate.canonical.event import MessageEnded, MessageStarted, Native, PartAdded, PartDelta, PartEnded
from babelgate.canonical.value import JsonObject


class OpenWireMessage:
    """The wire message that has begun, and the canonical message that begins with the first part for it.

    A wire message may contain only artifacts and tool calls, which are no parts of a canonical message.
    """

    __slots__ = ("_extra", "_is_bare", "_metadata", "_name", "_run", "_text", "is_open", "is_unshown", "part_count")

    def __init__(self, run: RunState) -> None:
        self.is_open = False
        """True while a canonical message is open."""
        self.is_unshown = False
        """True if the wire message has begun and no event shows it."""
        self.part_count = -1
        """Number of its parts so far; -1 if its beginning did not arrive."""
        self._run = run
        self._name: str | None = None
        """Name of the author."""
        self._extra: dict[str, Any] = {}
        """Members of the message that only another ACP server can show."""
        self._metadata: JsonObject = {}
        """Metadata that another gateway added."""
        self._is_bare = False
        """True if a native event shows the message, and no canonical message has begun."""
        self._text: str | None = None
        """Media type of the open text part; empty for a refusal."""

    def begin(self, message: w.Message) -> None:
        """Begin a wire message. No event shows it until something belongs in it."""
        _, self._name = decode_role(message.role, self._run.agent)
        self._extra = message_extra(message, "created_at")
        self._metadata = own_member(message, "metadata")
        self.is_unshown = True
        self.part_count = 0

    def open(self) -> None:
        """Start the canonical message if none is open."""
        if self.is_open:
            return
        self.is_open = True
        self.is_unshown = False
        # The agent speaks, even if its server sends another role.
        self._run.events.append(MessageStarted(name=self._name, metadata=self._metadata, extra=self._extra))

    def show(self) -> None:
        """Show that the wire message has begun, to ACP callers alone. What follows belongs to it and is no part of a
        canonical message."""
        if self.is_unshown:
            event = Native(protocol="acp", event="message.created", data={"name": self._name}, extra=self._extra)
            self._run.events.append(event)
            self.is_unshown = False
            self._is_bare = True

    def say(self, part: TextPart | RefusalPart) -> None:
        """Add a piece of text. The event contains how its wire part differs from the usual form, so that pieces with
        different wire parts form one text."""
        content_type = "" if isinstance(part, RefusalPart) else part.media_type or "text/plain"
        extra = part.extra if part.text or part.extra else part_extra({"content": ""})
        self.open()
        if self._text == content_type:
            self._run.events.append(PartDelta(text=part.text, extra=extra))
            return
        self.end_text()
        self._text = content_type
        bare = part.replace(extra={}) if part.extra else part
        self._run.events.append(PartAdded(part=bare, open=True, extra=extra))

    def add(self, part: Part) -> None:
        """Add a part that arrives whole."""
        self.open()
        self.end_text()
        self._run.events.append(PartAdded(part=part))

    def add_progress(self, text: str) -> None:
        """Add a progress report, which ends the message so far."""
        self.end_text()
        if self.is_open:
            self._run.events.append(MessageEnded())
        self.is_open = False
        started = MessageStarted(name=self._name, phase="progress", metadata=self._metadata)
        self._run.events += (started, PartAdded(part=TextPart(text=text)), MessageEnded())

    def end_text(self) -> None:
        """End the open text part."""
        if self._text is not None:
            self._text = None
            self._run.events.append(PartEnded())

    def finish(self, completed: w.Message | None) -> None:
        """End the message. `completed` is its final form, or None if it was not completed."""
        extra = {} if completed is None else message_extra(completed, "completed_at")
        if completed is not None and not self.is_open:
            self.show()
        if self.is_open:
            usage = {} if completed is None else own_member(completed, "usage")
            self._run.events.append(MessageEnded(usage=usage, extra=extra))
        elif self._is_bare:
            self._run.events.append(Native(protocol="acp", event="message.completed", extra=extra))
        self.is_open = self.is_unshown = self._is_bare = False
        self._name, self._extra, self._metadata = None, {}, {}
        self.part_count = -1

    # Messages that are not the wire's

    def open_unsent(self) -> None:
        """Start a canonical message outside of a wire message. ACP callers do not see it."""
        self.is_open = True
        self._run.events.append(MessageStarted(extra=part_extra(None)))

    def end_unsent(self) -> None:
        """End a canonical message outside of a wire message."""
        self._run.events.append(MessageEnded())
        self.is_open = False
