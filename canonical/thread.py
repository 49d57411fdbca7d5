"""Snapshots (read model): what threads, tasks, runs, questions and artifacts are at one moment of the log.

They are plain values. `babelgate.canonical.fold` derives them from records; the database keeps some of them in rows, as
caches. All times are microseconds since 1970, UTC.
"""

from collections.abc import Iterable
from typing import Literal
from uuid import NAMESPACE_OID, uuid5

import msgspec

from babelgate.canonical.event import Cause, Strategy
from babelgate.canonical.fault import Fault
from babelgate.canonical.message import FilePart, Message, Part, text_of
from babelgate.canonical.state import ENDED, TERMINAL, WAITING, RunReason, RunStatus, TaskState
from babelgate.canonical.value import Extra, Json, JsonObject, Value

ThreadStatus = Literal["idle", "busy", "interrupted", "error"]
"""Busy: a run is pending or running; interrupted: none is, and a task waits for an answer; error: the last run
failed."""


def next_run_id(stopped: str) -> str:
    """The id of the run that goes on where this one stopped for a question. It is known before the run exists: AIEF
    shows it as a created step, and step ids do not change."""
    return str(uuid5(NAMESPACE_OID, f"{stopped}/following"))


class Thread(Value):
    thread_id: str
    owner: str
    created_at: int
    changed_at: int
    metadata: JsonObject = {}
    config: JsonObject = {}
    ttl: int | None = None
    """Seconds after its last change at which it is erased, or pruned."""
    keeps_latest: bool = False
    """It is pruned to its newest state then, and not erased."""
    ephemeral: bool = False
    uploads: tuple[FilePart, ...] = ()
    """Files that callers uploaded since the last input: the next one brings them."""
    last_edit_seq: int = msgspec.field(default=0, name="revised")
    """Seq of the newest record by which a caller changed what was said: a message that belongs to no run, or a revision
    that leaves messages out or follows one that it names. 0 before the first."""
    changed_values: int = 0
    """Seq of the newest revision that a caller made of its state. 0 before the first."""
    extra: JsonObject = {}
    """What a protocol keeps on the thread for itself, by protocol; members are replaced whole."""

    @property
    def can_expire(self) -> bool:
        """Whether it is erased some day by itself."""
        return self.ephemeral or self.ttl is not None


class ThreadView(Value):
    """A thread and what follows from its runs."""

    thread: Thread
    status: ThreadStatus
    updated_at: int
    """Of its newest record."""


class Task(Value):
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
    metadata: JsonObject = {}
    protocol: str = ""
    version: str = ""
    rollback: bool = False
    """It is being cancelled, and its run will be removed."""

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def is_waiting(self) -> bool:
        return self.state in WAITING


class Loss(Value):
    feature: str
    how: str


def losses_by_feature(losses: Iterable[Loss]) -> dict[str, str]:
    """Return what got lost, by feature: each text once, joined where one feature has several."""
    found: dict[str, list[str]] = {}
    for loss in dict.fromkeys(losses):
        found.setdefault(loss.feature, []).append(loss.how)
    return {feature: "; ".join(texts) for feature, texts in found.items()}


class Run(Value):
    run_id: str
    task_id: str
    thread_id: str = ""
    agent: str = ""
    assistant: str | None = None
    """The caller's own name of the agent or of a configuration of it."""
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
    metadata: JsonObject = {}
    usage: JsonObject = {}
    loss: tuple[Loss, ...] = ()
    upstream: dict[str, str] = {}
    """The upstream's own ids of this run, as far as it has told them."""
    removed: bool = False

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED


class Interrupt(Value):
    """A question, open until `action` is set."""

    interrupt_id: str
    task_id: str
    run_id: str
    ask: str
    message: Message
    raised_at: int
    value: Json = None
    answer_schema: JsonObject | None = None
    node: str = ""
    ns: tuple[str, ...] = ()
    """Who asked, and where inside the agent."""
    action: str | None = None
    answer: Json = None
    extra: Extra = {}
    """As its event has it: what one protocol alone has words for, under that protocol's name."""

    @property
    def is_open(self) -> bool:
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
    metadata: JsonObject = {}
    extra: Extra = {}

    @classmethod
    def of(cls, name: str, content: str | bytes, media_type: str | None = None) -> "Artifact":
        """One file: `content` as its bytes (text is UTF-8)."""
        data = content.encode() if isinstance(content, str) else content
        media_type = media_type or ("text/plain" if isinstance(content, str) else "application/octet-stream")
        return cls(name=name, parts=(FilePart(name=name, media_type=media_type, inline=data, size=len(data)),))

    @property
    def text(self) -> str:
        return text_of(self.parts)
