"""State of reading one message: the wire message, and the canonical message that it becomes."""

from typing import Any

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.messages import decode_role, message_extra, own_member
from babelgate.adapters.acp.codec.parts import part_extra
from babelgate.adapters.acp.read.run_state import RunState
from babelgate.canonical import Part, RefusalPart, TextPart
from babelgate.canonical.event import MessageEnded, MessageStarted, Native, PartAdded, PartDelta, PartEnded
from babelgate.canonical.value import JsonObject


class OpenWireMessage:
    """The wire message that is being read. A canonical message is started for it when a part of the message arrives.

    A wire message may contain only artifacts and tool calls, which are no parts of a canonical message.
    """

    __slots__ = ("_extra", "_is_bare", "_metadata", "_name", "_run", "_text", "is_open", "is_unshown", "part_count")

    def __init__(self, run: RunState) -> None:
        self.is_open = False
        """True if a canonical message has started and not ended."""
        self.is_unshown = False
        """True if the wire message has started, but no canonical event represents this start."""
        self.part_count = -1
        """Number of parts of the wire message that were read; -1 if no wire message has started."""
        self._run = run
        self._name: str | None = None
        """Name of the message's author, from its role. None for the called agent."""
        self._extra: dict[str, Any] = {}
        """Members of the wire message that the canonical model lacks, as the `extra` of the canonical message."""
        self._metadata: JsonObject = {}
        """Metadata that another gateway has added to the message."""
        self._is_bare = False
        """True if the start of the wire message is represented by a `Native` event, because it has no canonical
        message."""
        self._text: str | None = None
        """Media type of the part to which text is being added; empty for a refusal, None if there is no such part."""

    def begin(self, message: w.Message) -> None:
        """Start a wire message, without an event. The event is added when the first part, artifact or tool call
        arrives."""
        _, self._name = decode_role(message.role, self._run.agent)
        self._extra = message_extra(message, "created_at")
        self._metadata = own_member(message, "metadata")
        self.is_unshown = True
        self.part_count = 0

    def open(self) -> None:
        """Add the event that starts a canonical message, unless one is open."""
        if self.is_open:
            return
        self.is_open = True
        self.is_unshown = False
        # The agent speaks, even if its server sends another role.
        self._run.events.append(MessageStarted(name=self._name, metadata=self._metadata, extra=self._extra))

    def show(self) -> None:
        """Add a `Native` event for the start of the wire message, unless another event represents it. It lets ACP
        callers see that an artifact or a tool call is in this message."""
        if self.is_unshown:
            event = Native(protocol="acp", event="message.created", data={"name": self._name}, extra=self._extra)
            self._run.events.append(event)
            self.is_unshown = False
            self._is_bare = True

    def say(self, part: TextPart | RefusalPart) -> None:
        """Add a text or refusal, which continues the open part if it has the same media type. The event's `extra` has
        the differences of the wire part, so that different wire parts can form one canonical part."""
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
        """Add a part that is complete."""
        self.open()
        self.end_text()
        self._run.events.append(PartAdded(part=part))

    def add_progress(self, text: str) -> None:
        """Add a progress report as a separate message. It ends the canonical message that is open."""
        self.end_text()
        if self.is_open:
            self._run.events.append(MessageEnded())
        self.is_open = False
        started = MessageStarted(name=self._name, phase="progress", metadata=self._metadata)
        self._run.events += (started, PartAdded(part=TextPart(text=text)), MessageEnded())

    def end_text(self) -> None:
        """Add the event that ends the part to which text is being added, if there is one."""
        if self._text is not None:
            self._text = None
            self._run.events.append(PartEnded())

    def finish(self, completed: w.Message | None) -> None:
        """End the wire message, and the canonical message that is open. `completed` is the message as the server has
        completed it, or None if the server has not."""
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
        """Start a canonical message that corresponds to no wire message. ACP callers do not see it."""
        self.is_open = True
        self._run.events.append(MessageStarted(extra=part_extra(None)))

    def end_unsent(self) -> None:
        """End the canonical message that `open_unsent` has started."""
        self._run.events.append(MessageEnded())
        self.is_open = False
