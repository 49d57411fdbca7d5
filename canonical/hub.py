"""The hub as servers see it: submit, answer, cancel, and `reads` for what changes nothing. `babelgate.gateway.hub`
implements it; an adapter's routes get one.

Every call takes the owner first, and another owner's thing is not found. Whatever a call acknowledges is committed.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self, TypeVar

import msgspec

from babelgate.canonical.agent import AgentInfo, Introspectable
from babelgate.canonical.assistant import Assistants
from babelgate.canonical.cron import Crons
from babelgate.canonical.event import Record, RunCreated, Strategy
from babelgate.canonical.listed import Listed
from babelgate.canonical.message import FilePart, Message
from babelgate.canonical.run_input import RunInput
from babelgate.canonical.state import RunStatus, TaskState
from babelgate.canonical.store import Store
from babelgate.canonical.thread import Artifact, Interrupt, Run, Task, Thread, ThreadStatus, ThreadView
from babelgate.canonical.value import Json, JsonObject


class Snapshot(Protocol):
    """What the records of a thread add up to, in some view of it. Fed with every one, in order."""

    @property
    def seq(self) -> int:
        """Of the last record."""
        ...

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        ...

    def apply(self, record: Record, /) -> object: ...

    def copy(self) -> Self:
        """One that goes on by itself."""
        ...


S = TypeVar("S", bound=Snapshot)


class Scope(msgspec.Struct, frozen=True):
    """Which part of a thread's log a reader follows. `id` is the task's or the run's; None = the whole thread."""

    thread_id: str
    kind: Literal["thread", "task", "run"] = "thread"
    id: str | None = None

    @classmethod
    def task(cls, task: Task) -> "Scope":
        return cls(task.thread_id, "task", task.task_id)

    def has_record(self, record: Record) -> bool:
        if self.kind == "task":
            return record.task_id == self.id
        return self.kind == "thread" or record.run_id == self.id


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run starts, if not from the newest state of its thread: from what a task or a run came to, or from a
    revision. One of the three is given."""

    task_id: str | None = None
    run_id: str | None = None
    checkpoint: str | None = None
    thread_id: str | None = None
    """Of the checkpoint; None = the thread that the run is for."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller asks an agent for."""

    agent: str
    protocol: str = ""
    version: str = ""
    input: RunInput = RunInput()
    thread_id: str | None = None
    """A UUID: of a thread of this owner, or of the thread to be created."""
    alias: str | None = None
    """The protocol's own name of the thread, where it is no UUID; found or made, unique per owner, protocol and
    agent."""
    task_id: str | None = None
    """A UUID chosen by the caller for the new task."""
    run_id: str | None = None
    follow_up: str | None = None
    """An open task of which this is the next run, instead of a new task."""
    continues: str | None = None
    references: tuple[str, ...] = ()
    ephemeral: bool = False
    """A thread that is created by this call is erased soon after its task has ended."""
    thread_metadata: JsonObject = {}
    """Merged into the thread's."""
    history: tuple[Message, ...] = ()
    """Messages of the conversation that were said elsewhere and are news here; said on the thread before the input."""
    fork: Fork | None = None
    """Of the thread itself: the run begins a branch of it, as `input.checkpoint` does. Of another thread of the owner:
    one that nothing was said on yet, or that is made, begins with the state of that one."""
    state: JsonObject = {}
    """Members that take the place of those of the state which the run starts from, as by an update of the state
    before it."""
    as_node: str | None = None
    """In whose place they are changed."""
    strategy: Strategy = "enqueue"
    supersede: bool = False
    """A paused task of the thread is cancelled by this input; otherwise its questions stay open."""
    start_in: int | None = None
    """Microseconds that have to pass before it starts."""
    if_missing: Literal["create", "reject", "recreate"] = "create"
    """Whether an unknown `thread_id` makes a thread: `recreate` also where there was one that was erased."""
    webhook: "Webhook | None" = None
    """Registered in the same commit; its `task_id` is filled."""


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """Answers to open questions of a task: by interrupt id, or one bare value."""

    task_id: str
    values: Mapping[str, Json] | None = None
    bare: Json = None
    """Used where `values` is None: answers the oldest open question."""
    input: RunInput = RunInput()
    """Of the run that goes on; its messages are the answers as the caller said them, for the log and for agents that
    take messages."""
    action: Literal["answer", "decline"] = "answer"
    protocol: str = ""
    webhook: "Webhook | None" = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What a submission or an answer made."""

    thread_id: str
    task_id: str
    run_id: str
    seq: int
    """Of the last record before the run's first one: `follow(scope, after=seq)` shows all of the run and nothing
    older."""
    created_at: int
    """Of the run; microseconds since 1970, UTC."""
    task: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    agent: str | None = None
    thread_id: str | None = None
    states: frozenset[TaskState] | None = None
    changed_after: int | None = None
    """Microseconds; tasks whose state changed at or after it."""
    stateless: bool = True
    """Include tasks of stateless runs, whose threads are ephemeral."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPage:
    tasks: Listed[Task]
    """Newest change of state first."""
    next_cursor: str | None
    total: int


class ThreadChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller keeps on a thread. Members of the objects replace those of the thread, whole."""

    metadata: JsonObject = {}
    config: JsonObject = {}
    ttl: int | None = None
    """Seconds."""
    keeps_latest: bool | None = None
    """At the end of its `ttl` the thread loses all states but the newest, and is not erased."""
    extra: JsonObject = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFilter:
    """Ephemeral threads are in no list."""

    ids: tuple[str, ...] | None = None
    metadata: JsonObject = field(default_factory=dict[str, object])
    """Members that the thread's metadata must have."""
    values: JsonObject = field(default_factory=dict[str, object])
    """Members that the values of its state must have, other than its messages."""
    status: ThreadStatus | None = None
    agent: str | None = None
    """An agent that ran on it, or for which it was created (`extra[protocol]["agent"]`)."""
    protocol: str | None = None
    """With `agent`: the protocol that keeps the name of the agent on the thread."""


ThreadOrder = Literal["thread_id", "status", "created_at", "updated_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    thread_id: str | None = None
    agent: str | None = None
    status: frozenset[RunStatus] | None = None
    metadata: JsonObject = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """Some of an agent's runs on a thread, oldest first."""

    run_ids: Sequence[str]
    total: int
    """How many there are, without those that were removed."""
    records: Sequence[Record]
    """Of the thread itself, of the tasks of these runs, and of the agent's tasks that wait for an answer, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What was said at once on a thread: in a run, with its input, or by a caller outside of any."""

    seq: int
    """Of the record that begins it. Turns are in this order."""
    until: int | None
    """Of the last record of a run; None = it goes on."""
    run_id: str | None = None
    task_id: str | None = None
    message_id: str | None = None
    """Of what was said outside of runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateUpdate:
    """A revision that a caller makes (`babelgate.canonical.history`)."""

    thread_id: str
    values: JsonObject = field(default_factory=dict[str, object])
    """Members that take the place of the parent's, whole."""
    messages: tuple[Message, ...] = ()
    """Said on top of the parent's; one with the id of an earlier message takes its place."""
    removed_ids: tuple[str, ...] = ()
    """Ids of messages to leave out."""
    checkpoint: str | None = None
    """The parent; None = the newest revision."""
    as_node: str | None = None
    agent: str | None = None
    """Of a thread that no agent has been at work on, the one that it was made for: the state is that agent's, if it
    keeps one."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Where a caller wants a task's events pushed, in which dialect. Tokens and credentials are secrets."""

    webhook_id: str
    task_id: str = ""
    dialect: str
    """Names an encoder of the adapters: `a2a-0.3`, `a2a-1.0`."""
    url: str
    config: JsonObject = {}
    """The registrant's own words, verbatim: token, authentication, whatever else its encoder needs."""


class Reads(Protocol):
    """What can be asked without changing anything. Another owner's thing is not found."""

    async def task(self, owner: str, task_id: str) -> Task: ...

    async def run(self, owner: str, run_id: str) -> Run: ...

    async def run_input(self, owner: str, run: Run) -> RunCreated:
        """The input of a run. Raises not_found."""
        ...

    async def runs(self, owner: str, where: RunFilter, *, limit: int, offset: int = 0) -> Listed[Run]:
        """Newest first; without those that were removed."""
        ...

    async def last_begun(self, owner: str, thread_id: str, *, ended_before: int | None = None) -> Run | None:
        """The run that began last, of those that ended before a seq or of all. Runs that were removed, and those that
        ended before they began, do not count. At the end of a run no other is at work. Raises not_found."""
        ...

    async def run_page(self, owner: str, thread_id: str, agent: str, *, limit: int, offset: int = 0) -> RunPage | None:
        """What a page of an agent's runs on a thread needs, however long the thread is. None where it is too large to
        be read at once, and where steps were marked on the thread, so that a run may be several. Raises not_found."""
        ...

    async def turns(
        self, owner: str, thread_id: str, *, limit: int, beyond: int | None = None, descending: bool = True
    ) -> Sequence[Turn]:
        """The newest turns of a thread, or the oldest; or those that come in this order after the one that begins with
        the record `beyond`. Without runs that were removed. Fewer than `limit` where they are long, and none only where
        there are no more. Raises not_found."""
        ...

    def turn_log(
        self, owner: str, thread_id: str, turns: Sequence[Turn], *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        """The records that tell of turns that follow each other, in order: theirs, those that create their tasks, and
        the questions, answers and calls of these tasks until then. Where a message outside of runs was said again under
        its id, that, too. Some others may be among them. Raises not_found."""
        ...

    async def removed_messages(self, owner: str, thread_id: str) -> Set[str]:
        """Ids of the messages that a revision of the thread has left out. Raises not_found."""
        ...

    async def thread(self, owner: str, thread_id: str) -> Thread: ...

    async def thread_view(self, owner: str, thread_id: str) -> ThreadView: ...

    async def threads(
        self,
        owner: str,
        where: ThreadFilter,
        *,
        limit: int,
        offset: int = 0,
        order: ThreadOrder = "created_at",
        descending: bool = True,
    ) -> Listed[ThreadView]: ...

    async def count_threads(self, owner: str, where: ThreadFilter) -> int: ...

    async def thread_of(self, owner: str, protocol: str, agent: str, alias: str) -> str | None:
        """The thread behind a protocol's own name of it."""
        ...

    async def aliases(self, owner: str, protocol: str, thread_ids: Sequence[str]) -> Mapping[str, str]:
        """thread_id → the name by which this protocol's callers know it; threads without one are left out."""
        ...

    async def open_interrupts(self, owner: str, task_id: str) -> Sequence[Interrupt]:
        """Unanswered questions of a task, oldest first."""
        ...

    async def known_interrupts(self, owner: str, thread_id: str, interrupt_ids: Collection[str]) -> Set[str]:
        """Return which of the ids belong to questions of the thread, open or answered."""
        ...

    async def tasks(self, owner: str, where: TaskFilter, *, limit: int, cursor: str | None = None) -> TaskPage:
        """Raises invalid for a cursor that is not one of ours."""
        ...

    async def tasks_active_at(self, owner: str, moment: int, *, slack: int, limit: int) -> Sequence[Task]:
        """Tasks that existed at a moment, in microseconds since the epoch, and changed after it. Those that changed
        first come first. `slack`: microseconds by which clocks may differ."""
        ...

    async def chain(self, owner: str, task_id: str) -> Sequence[Task]:
        """The task and those that continue it, oldest first."""
        ...

    async def records(self, owner: str, scope: Scope, after: int = 0, *, inline: bool = False) -> Sequence[Record]:
        """All committed records of a scope, for one that is known to be short. `inline` fills the bytes of stored files
        into the parts that name them, up to `limits.inline`."""
        ...

    def log(
        self, owner: str, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        """The same, some at a time: a log may be larger than the memory."""
        ...

    async def logs(
        self, owner: str, task_ids: Sequence[str], *, inline: bool = False
    ) -> Mapping[str, Sequence[Record]]:
        """All records of tasks that have ended, by task: read at once, for a list. Those that are too long for that are
        left out, and those that have not ended."""
        ...

    async def snapshot(
        self,
        owner: str,
        thread_id: str,
        name: Hashable,
        empty: Callable[[], S],
        *,
        until: int | None = None,
        inline: bool = False,
    ) -> S:
        """What all committed records of a thread add up to, or those up to the seq `until`. What was added up before
        under the same name is not read again. It is the caller's own copy. Raises not_found, and too_large beyond
        `limits.thread`."""
        ...

    def follow(
        self, owner: str, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        """Follow a scope: what is committed at once, then what comes, in batches of whatever is ready. Ends after a
        run's RunEnded, a task's terminal TaskChanged, the erasure of a thread, and when the gateway shuts down."""
        ...

    async def await_thread(self, owner: str, thread_id: str) -> bool:
        """Returns once the owner has such a thread: True, or False when the gateway shuts down before."""
        ...

    async def file(self, owner: str, blob: str) -> FilePart:
        """A stored file by the hash of its bytes, with the bytes in `inline`, if a thread of this owner names it."""
        ...

    async def file_pieces(self, owner: str, blob: str) -> tuple[FilePart, AsyncGenerator[bytes]]:
        """The same, with its size, and its bytes as they are read."""
        ...

    async def webhooks(self, owner: str, task_id: str) -> Sequence[Webhook]:
        """Of a task, those that are registered. Raises not_found."""
        ...


class Hub(Protocol):
    @property
    def reads(self) -> Reads: ...

    @property
    def is_stopping(self) -> bool:
        """Whether the gateway closes connections because it stops: their callers have not left."""
        ...

    @property
    def store(self) -> Store:
        """Memory under namespaces and keys, by owner."""
        ...

    @property
    def assistants(self) -> Assistants:
        """Agents as their callers have configured them, by owner."""
        ...

    @property
    def crons(self) -> Crons:
        """What is asked of agents by a schedule, by owner."""
        ...

    # Agents

    def agents(self) -> Sequence[AgentInfo]: ...

    def agent(self, name: str) -> AgentInfo:
        """By name or by UUID (uuid5 of the name). Raises not_found; agent_unreachable for one that is listed as
        broken."""
        ...

    def introspectable_agent(self, name: str) -> Introspectable | None:
        """An agent that can show what it is made of. Raises not_found."""
        ...

    # Writing

    async def create_thread(
        self,
        owner: str,
        change: ThreadChange,
        *,
        thread_id: str | None = None,
        if_exists: Literal["raise", "return"] = "raise",
    ) -> Thread:
        """A thread without a run; the id of an erased one can be used again. Raises conflict (the id is taken)."""
        ...

    async def change_thread(self, owner: str, thread_id: str, change: ThreadChange) -> Thread:
        """Raises not_found."""
        ...

    async def copy_thread(self, owner: str, thread_id: str) -> Thread:
        """A thread with the same metadata and revisions, where nothing runs and nothing is asked. Raises not_found."""
        ...

    async def update_state(self, owner: str, update: StateUpdate) -> str:
        """Commit a revision; returns its checkpoint id. Raises not_found (thread or checkpoint), conflict while a run
        is pending or running."""
        ...

    async def upload(
        self, owner: str, thread_id: str, file: FilePart, folder: str | None = None, *, key: str | None = None
    ) -> Artifact:
        """Keep a file (`inline`) on a thread; it is an input of the next run. What was uploaded there under the same
        `key` is not kept twice: it is returned as it is. Raises not_found, too_large, invalid (the key of another
        file)."""
        ...

    async def submit(self, owner: str, submission: Submission) -> Receipt:
        """Commit a new run. Raises conflict (busy and told to reject, id taken), queue_full, not_found, task_ended,
        invalid (a file that is too large, say)."""
        ...

    async def answer(self, owner: str, answers: Answers) -> Receipt:
        """Commit answers; the first commit wins. Raises not_found, not_awaiting, task_ended."""
        ...

    async def cancel(self, owner: str, task_id: str) -> Task:
        """Ask for the end of a task: it is cancelling when this returns, or cancelled if no agent was at work. Asking
        again while it is cancelling changes nothing. Raises not_found, task_ended."""
        ...

    async def cancel_run(self, owner: str, run_id: str, *, rollback: bool = False) -> Run:
        """The same, for the task of a run that has not ended. With `rollback` the run is removed when it has. Raises
        not_found, task_ended (the run has ended)."""
        ...

    async def delete_thread(self, owner: str, thread_id: str) -> None:
        """Erase a thread: rows, log and blobs go, a tombstone stays."""
        ...

    async def prune_thread(self, owner: str, thread_id: str) -> None:
        """Forget all revisions of a thread but the newest: it alone is found from then on, and the states and
        checkpoints before it are gone from the database. Runs and what was said stay. Raises not_found, conflict (a run
        is active), and too_large beyond `limits.thread`."""
        ...

    async def change_run(self, owner: str, run_id: str, metadata: JsonObject) -> Run:
        """Replace the metadata of an ended run. Raises not_found, conflict (it has not ended), too_large."""
        ...

    async def remove_run(self, owner: str, run_id: str) -> None:
        """Hide an ended run from the thread and empty its events under the same numbers. Raises not_found, conflict."""
        ...

    # Webhooks

    async def set_webhook(self, owner: str, webhook: Webhook) -> None:
        """Register, or replace the one with the same id. Raises not_found, invalid (an address that is not allowed)."""
        ...

    async def delete_webhook(self, owner: str, task_id: str, webhook_id: str) -> bool: ...

    # On a caller's behalf

    async def find_schema_error(self, schema: JsonObject, value: Json) -> str | None:
        """What of a value does not fit a JSON Schema that a caller wrote; None if all does. Raises invalid for what is
        no schema, or cannot be looked at within its bounds."""
        ...

    async def fetch(self, url: str, received: Callable[[int], None]) -> bytes:
        """Get a small document from a URL that a caller named, under the gateway's rules: public addresses and allowed
        ones only, resolved once, no redirects. `received` is told of the bytes as they come, and ends the call by what
        it raises. Raises invalid."""
        ...
