"""Message that is being written: its open parts, and the citations and progress text for its end."""

from dataclasses import dataclass, field
from typing import Literal

from babelgate.canonical.event import MessageStarted
from babelgate.canonical.value import JsonObject

PartKind = Literal["text", "refusal", "reasoning", "call"]


@dataclass(slots=True)
class MessageDraft:
    """Canonical message that has not ended, and which of its events were sent."""

    started: MessageStarted
    is_shown: bool = False
    """True if `TEXT_MESSAGE_START` was sent."""
    has_content: bool = False
    """True if text was sent."""
    is_after_data: bool = False
    """True if the newest text sent is the JSON of a data part. A line break must then precede further text."""
    open_parts: dict[int, PartKind] = field(default_factory=dict[int, PartKind])
    """Kind of each open part, to which deltas may add text, by the index of the part."""
    newest: int = -1
    """Index of the newest part; -1 before the first one."""
    call_ids: dict[int, str] = field(default_factory=dict[int, str])
    """Ids of the tool calls among the open parts, by index."""
    thoughts: dict[int, str] = field(default_factory=dict[int, str])
    """Ids on the wire of the reasoning parts among the open parts, by index."""
    citations: list[JsonObject] = field(default_factory=list[JsonObject])
    progress: list[str] = field(default_factory=list[str])
    """Pieces of a progress message, which is sent when it is complete."""

    @property
    def message_id(self) -> str:
        return self.started.message_id or ""

    @property
    def is_progress(self) -> bool:
        return self.started.phase == "progress"
