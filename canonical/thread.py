"""Snapshots (read model): threads, tasks, runs, questions and artifacts at one moment of the log.

They are plain values. `babelgate.canonical.fold` derives them from records; the database stores some of them in rows,
as caches. All times are microseconds since 1970, UTC.
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
"""State of a thread by its runs:

- busy: a run is pending or running
- interrupted: no run is active, and a task waits for an answer
- error: the last run failed
- idle: none of these
"""


def next_run_id(stopped: str) -> str:
    """Return the id of the run that continues after the run `stopped` has stopped for a question. The id exists before
    the run does: AIEF shows that run as a created step, and step ids do not change."""
    return str(uuid5(NAMESPACE_OID, f"{stopped}/following"))


class Thread(Value):
    thread_id: str
    owner: str
    created_at: int
    changed_at: int
    metadata: JsonObject = {}
    config: JsonObject = {}
    ttl: int | None = None
    """Seconds after the last change until the thread is erased or pruned; None keeps it."""
    keeps_latest: bool = False
    """True if the thread is pruned to its newest state when its `ttl` ends; False if it is erased."""
    ephemeral: bool = False
    uploads: tuple[FilePart, ...] = ()
    """Files that callers have uploaded since the last input. The next input includes them."""
    last_edit_seq: int = msgspec.field(default=0, name="revised")
    """Number of the newest record by which a caller changed messages; 0 before the first. Such a record adds a message
    outside runs, or it is a revision that removes messages or starts from a given parent."""
    changed_values: int = 0
    """Record number of the newest revision that a caller made; 0 before the first."""
    extra: JsonObject = {}
    """Data that protocols store on the thread, by protocol. A change replaces the whole value of a protocol."""

    @property
    def can_expire(self) -> bool:
        """True if the thread will be erased or pruned automatically."""
        return self.ephemeral or self.ttl is not None


class ThreadView(Value):
    """Thread with the status that results from its runs."""

    thread: Thread
    status: ThreadStatus
    updated_at: int
    """Time of the thread's newest record, in microseconds since 1970, UTC."""


class Task(Value):
    task_id: str
    thread_id: str
    agent: str
    state: TaskState
    created_at: int
    changed_at: int
    """Time of the last change of state, in microseconds since 1970, UTC."""
    first_seq: int
    last_seq: int
    """Number of the last record that changed the task's state. All records of a terminal task lie between `first_seq`
    and this number."""
    fault: Fault | None = None
    continues: str | None = None
    references: tuple[str, ...] = ()
    metadata: JsonObject = {}
    protocol: str = ""
    version: str = ""
    rollback: bool = False
    """True if the task is being cancelled and its run will be removed."""

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
    """Return the texts of losses by feature. Each text occurs once; several texts of one feature are joined by `; `."""
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
    """Name of the agent, or of the assistant that configures it, as the caller wrote it."""
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
    """Ids that the agent's server has given to this run so far, by kind (`UpstreamBound.ids`), for example
    `{"task": "t-17", "context": "c-4"}`. Empty for an agent in process."""
    removed: bool = False
    key_id: str = ""
    """Id of the API key of the caller who created the run, for the operator. Callers never see it."""
    subject: str = ""
    """Subject (`Principal.subject`) of the caller who created the run. Other callers never see it."""
    first_words: str | None = None
    """Beginning of the input's text, for lists. Empty if the input has no text. None in a row of an earlier release."""

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED


class Interrupt(Value):
    """Question of an agent or of the gateway, open until `action` is set."""

    interrupt_id: str
    task_id: str
    run_id: str
    ask: str
    message: Message
    raised_at: int
    value: Json = None
    answer_schema: JsonObject | None = None
    takes_text: bool = False
    """True if the agent also understands an answer in the caller's words, which does not conform to the schema."""
    node: str = ""
    ns: tuple[str, ...] = ()
    """Namespace of the graph inside the agent in which `node` asked the question."""
    asker: str = "agent"
    """`agent`, or `gateway` if the gateway itself asked before it started the agent, for example because a budget is
    used up."""
    action: str | None = None
    answer: Json = None
    extra: Extra = {}
    """Data that only one protocol defines, by the protocol's name, from the event that raised the question."""

    @property
    def is_open(self) -> bool:
        return self.action is None


class Artifact(Value):
    """Named output of an agent, or an upload of a caller. The author of an agent yields `Artifact.of("report.txt",
    text)`."""

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
        """Return an artifact of one file with `content` as its bytes. Text is encoded as UTF-8. Without `media_type`,
        the type is text/plain for text and application/octet-stream for bytes."""
        data = content.encode() if isinstance(content, str) else content
        media_type = media_type or ("text/plain" if isinstance(content, str) else "application/octet-stream")
        return cls(name=name, parts=(FilePart(name=name, media_type=media_type, inline=data, size=len(data)),))

    @property
    def text(self) -> str:
        return text_of(self.parts)
