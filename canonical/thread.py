"""Snapshots: what threads, tasks, runs, questions and artifacts are at one moment of the log.

They are plain values. `canonical.fold` derives them from records; the database keeps some of them in rows, as caches.
All times are microseconds since 1970, UTC.
"""

from dataclasses import dataclass, field

from pydantic import Field

from canonical.event import Cause, Strategy
from canonical.fault import Fault
from canonical.message import FilePart, Message, Part, text_of
from canonical.state import ENDED, TERMINAL, WAITING, RunReason, RunStatus, TaskState
from canonical.value import Extra, Json, JsonObject, Value

__all__ = ("Artifact", "Interrupt", "Loss", "Run", "Task", "Thread")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    thread_id: str
    owner: str
    created_at: int
    changed_at: int
    metadata: JsonObject = field(default_factory=dict[str, object])
    config: JsonObject = field(default_factory=dict[str, object])
    ttl: int | None = None
    ephemeral: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    task_id: str
    thread_id: str
    agent: str
    state: TaskState
    created_at: int
    changed_at: int
    """When the state changed last."""
    first_seq: int
    last_seq: int
    """From the record that created the task to its last change of state: all of its records, once it is terminal."""
    fault: Fault | None = None
    continues: str | None = None
    references: tuple[str, ...] = ()
    metadata: JsonObject = field(default_factory=dict[str, object])
    protocol: str = ""
    version: str = ""

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def waiting(self) -> bool:
        return self.state in WAITING


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    feature: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    run_id: str
    task_id: str
    status: RunStatus
    cause: Cause
    created_at: int
    first_seq: int
    last_seq: int
    strategy: Strategy = "enqueue"
    attempt: int = 0
    start_after: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    reason: RunReason | None = None
    fault: Fault | None = None
    output: Json = None
    usage: JsonObject = field(default_factory=dict[str, object])
    loss: tuple[Loss, ...] = ()
    upstream: dict[str, str] = field(default_factory=dict[str, str])
    """The upstream's own ids of this run, as far as it has told them."""
    removed: bool = False

    @property
    def ended(self) -> bool:
        return self.status in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """A question, open until `action` is set."""

    interrupt_id: str
    task_id: str
    run_id: str
    ask: str
    message: Message
    raised_at: int
    value: Json = None
    answer_schema: JsonObject | None = None
    action: str | None = None
    answer: Json = None

    @property
    def open(self) -> bool:
        return self.action is None


class Artifact(Value):
    """A named output of an agent, or an upload of a caller. An author of an agent yields
    `Artifact.of("report.txt", text)`."""

    artifact_id: str | None = None
    name: str | None = None
    description: str | None = None
    parts: tuple[Part, ...] = ()
    task_id: str | None = None
    run_id: str | None = None
    origin: str = "agent"
    folder: str | None = None
    complete: bool = True
    created_at: int = 0
    metadata: JsonObject = Field(default_factory=dict)
    extra: Extra = Field(default_factory=dict)

    @classmethod
    def of(cls, name: str, content: str | bytes, media_type: str | None = None) -> "Artifact":
        """One file: `content` as its bytes (text is UTF-8)."""
        data = content.encode() if isinstance(content, str) else content
        media_type = media_type or ("text/plain" if isinstance(content, str) else "application/octet-stream")
        return cls(name=name, parts=(FilePart(name=name, media_type=media_type, inline=data, size=len(data)),))

    @property
    def text(self) -> str:
        return text_of(self.parts)
