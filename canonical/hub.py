"""Ports between servers and the hub. `Hub` submits, answers and cancels, and `Reads` has the calls that change nothing.
An adapter's routes get a `Hub`: `babelgate.gateway.access.guard` implements it in front of `babelgate.gateway.hub`.

The first parameter of every method is the principal of the caller. A method raises forbidden if the principal may not
call it. An agent that the principal cannot discover, and an object of another owner, raise not_found. When a method
returns, its changes are committed.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self, TypeVar

import msgspec

from babelgate.canonical.agent import AgentInfo, Introspectable
from babelgate.canonical.assistant import Assistants
from babelgate.canonical.cron import Crons
from babelgate.canonical.event import Record, RunCreated, Strategy
from babelgate.canonical.grant import Grants
from babelgate.canonical.listed import Listed
from babelgate.canonical.message import FilePart, Message
from babelgate.canonical.principal import Principal
from babelgate.canonical.run_input import RunInput
from babelgate.canonical.state import RunStatus, TaskState
from babelgate.canonical.store import Store
from babelgate.canonical.thread import Artifact, Interrupt, Run, Task, Thread, ThreadStatus, ThreadView
from babelgate.canonical.value import Json, JsonObject


class Snapshot(Protocol):
    """View that is folded from the records of a thread. Its user applies every record, in order."""

    @property
    def seq(self) -> int:
        """Number of the last applied record."""
        ...

    @property
    def size(self) -> int:
        """Estimated memory of the view, in bytes."""
        ...

    def apply(self, record: Record, /) -> object: ...

    def copy(self) -> Self:
        """Return an independent copy, to which further records can be applied."""
        ...


S = TypeVar("S", bound=Snapshot)


class Scope(msgspec.Struct, frozen=True):
    """Part of a thread's log that a reader follows: the whole thread, or one task or run. `id` is the task id or run
    id, and None for the whole thread."""

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
    """Starting point of a run that does not begin at the newest state of its thread. Exactly one of `task_id`, `run_id`
    and `checkpoint` is set: the run starts from that task's or run's last state, or from that revision."""

    task_id: str | None = None
    run_id: str | None = None
    checkpoint: str | None = None
    thread_id: str | None = None
    """Thread that has the checkpoint; None means the thread on which the run starts."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """Request of a caller to start a run of an agent."""

    agent: str
    protocol: str = ""
    version: str = ""
    input: RunInput = RunInput()
    thread_id: str | None = None
    """UUID of a thread of this owner, or of the thread to create. None creates a thread, unless `alias`, `follow_up` or
    `continues` names one."""
    alias: str | None = None
    """Protocol's own name of the thread, if that is not a UUID. The thread is created if it does not exist. The name
    is unique per owner, protocol and agent."""
    task_id: str | None = None
    """UUID for the new task, if the caller chose one; None lets the hub choose."""
    run_id: str | None = None
    follow_up: str | None = None
    """Id of an open task for which to create the run; None creates a new task."""
    continues: str | None = None
    references: tuple[str, ...] = ()
    ephemeral: bool = False
    """True if a thread that this call creates is erased soon after its task has ended."""
    thread_metadata: JsonObject = {}
    """Members to merge into the thread's metadata."""
    history: tuple[Message, ...] = ()
    """Messages of an earlier conversation that the thread does not hold yet, such as those of a chat completion
    request. They precede the input."""
    fork: Fork | None = None
    """Starting point of the run. If it lies in the run's own thread, the run begins a branch, as with
    `input.checkpoint`. If it lies in another thread of the owner, the run's thread must be new or empty, and begins
    with that state."""
    state: JsonObject = {}
    """Members of the state to replace before the run starts, each with its complete new value."""
    as_node: str | None = None
    """Name of the graph node that counts as the author of the change by `state`. None leaves the choice to the
    graph."""
    strategy: Strategy = "enqueue"
    supersede: bool = False
    """True to cancel a paused task of the thread; otherwise its questions stay open."""
    start_in: int | None = None
    """Delay before the run starts, in microseconds."""
    if_missing: Literal["create", "reject", "recreate"] = "create"
    """Handling of a `thread_id` that the owner does not have. `create` creates the thread unless a thread with this id
    was erased; `recreate` creates it even then; `reject` raises not_found."""
    if_exists: Literal["continue", "reject"] = "continue"
    """Handling of a thread that exists and that `thread_id` or `alias` names. `reject` raises conflict with the reason
    `THREAD_EXISTS`, for callers that then have to read the thread first."""
    webhook: "Webhook | None" = None
    """Webhook to register in the same commit. The hub fills its `task_id`."""
    key_id: str = ""
    """Id of the caller's API key. The guard of the hub sets it."""
    caller: Principal | None = None
    """Principal of the caller; None for work of the gateway itself. The guard of the hub sets it."""

    @property
    def subject(self) -> str:
        """Subject of the caller (`Principal.subject`); empty if there is no caller, for work of the gateway itself."""
        return "" if self.caller is None else self.caller.subject


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """Answers to open questions of one task: `values` by interrupt id, or one `bare` value."""

    task_id: str
    values: Mapping[str, Json] | None = None
    bare: Json = None
    """Answer to the oldest open question. Used without `values`."""
    input: RunInput = RunInput()
    """Input of the run that continues. Its messages are the answers in the caller's words, for the log and for agents
    that take messages."""
    action: Literal["answer", "decline"] = "answer"
    is_text: bool = False
    """True if the caller could send only text. A text that violates its question's schema is then converted to the
    value that it represents, such as true or a number."""
    protocol: str = ""
    webhook: "Webhook | None" = None
    key_id: str = ""
    """Id of the caller's API key. The guard of the hub sets it."""
    caller: Principal | None = None
    """Principal of the caller; None for work of the gateway itself. The guard of the hub sets it."""
    may_raise: bool = False
    """True if the caller may let a run continue although its budget is used up, by answering the gateway's question.
    The guard of the hub sets it."""

    @property
    def subject(self) -> str:
        """Subject of the caller (`Principal.subject`); empty if there is no caller, for work of the gateway itself."""
        return "" if self.caller is None else self.caller.subject


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Ids and log position of the run that a submission or an answer has created."""

    thread_id: str
    task_id: str
    run_id: str
    seq: int
    """Number of the last record before the run's first one. `follow(scope, after=seq)` yields all of the run and
    nothing older."""
    created_at: int
    """Creation time of the run, in microseconds since 1970, UTC."""
    task: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    agent: str | None = None
    thread_id: str | None = None
    states: frozenset[TaskState] | None = None
    changed_after: int | None = None
    """Earliest time of a matching task's last change of state, in microseconds since 1970, UTC; None means no
    condition."""
    agents: frozenset[str] | None = None
    """Names of the agents whose tasks match. None means all. The guard sets it to those that the caller may read."""
    stateless: bool = True
    """True to include tasks of stateless runs, whose threads are ephemeral."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPage:
    tasks: Listed[Task]
    """Tasks of the page, the most recent change of state first."""
    next_cursor: str | None
    total: int


class ThreadChange(msgspec.Struct, frozen=True, kw_only=True):
    """Change of the data that a caller keeps on a thread. Members of `metadata`, `config` and `extra` are added to
    those of the thread, or replace those of the same name."""

    metadata: JsonObject = {}
    config: JsonObject = {}
    ttl: int | None = None
    """Seconds after the last change until the thread is erased or pruned; None leaves the setting unchanged."""
    keeps_latest: bool | None = None
    """True to prune the thread to its newest state when its `ttl` ends, False to erase it; None leaves the setting
    unchanged."""
    extra: JsonObject = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFilter:
    """Conditions of a search for threads. Ephemeral threads never match."""

    ids: tuple[str, ...] | None = None
    metadata: JsonObject = field(default_factory=dict[str, object])
    """Members that the thread's metadata must have, with these values."""
    values: JsonObject = field(default_factory=dict[str, object])
    """Members, other than messages, that the values of the thread's state must have, with these values."""
    status: ThreadStatus | None = None
    agent: str | None = None
    """Name of an agent that ran on the thread, or for which it was created (`extra[protocol]["agent"]`)."""
    protocol: str | None = None
    """Key in the thread's `extra` under which a protocol stores the name of the agent for which it created the thread.
    Used with `agent`."""
    agents: frozenset[str] | None = None
    """Names of agents. Threads on which another agent ran do not match. None means no condition. The guard sets it to
    those that the caller may read."""


ThreadOrder = Literal["thread_id", "status", "created_at", "updated_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    thread_id: str | None = None
    agent: str | None = None
    status: frozenset[RunStatus] | None = None
    metadata: JsonObject = field(default_factory=dict[str, object])
    agents: frozenset[str] | None = None
    """Names of the agents whose runs match. None means all. The guard sets it to those that the caller may read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """Page of one agent's runs on a thread, oldest first, with the records that are needed to show them."""

    run_ids: Sequence[str]
    total: int
    """Number of runs on all pages, without removed ones."""
    records: Sequence[Record]
    """Records of the thread itself, of the tasks of these runs, and of the agent's tasks that wait for an answer, in
    order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Messages that were added to a thread together: a run with its input, or a message that a caller added outside
    runs."""

    seq: int
    """Number of the turn's first record. Turns are sorted by it."""
    until: int | None
    """Number of the run's last record; None if the run has not ended. For a message outside runs it is `seq`."""
    run_id: str | None = None
    task_id: str | None = None
    message_id: str | None = None
    """Id of the message, for a message outside runs; None for a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateUpdate:
    """Revision that a caller makes (`babelgate.canonical.history`)."""

    thread_id: str
    values: JsonObject = field(default_factory=dict[str, object])
    """Members of the state to replace in the parent revision, each with its complete new value."""
    messages: tuple[Message, ...] = ()
    """Messages to append to the parent's. A message with the id of an earlier one replaces it."""
    removed_ids: tuple[str, ...] = ()
    """Ids of messages of the parent revision that the new revision leaves out."""
    checkpoint: str | None = None
    """Id of the parent; None means the newest revision."""
    as_node: str | None = None
    agent: str | None = None
    """Agent for which the thread was created, if no agent has run on it yet. A stateful agent then makes the
    revision."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Registration of a URL to which the gateway posts the events of a task, in the format that `dialect` names.
    `config` may hold tokens and credentials, which are secrets."""

    webhook_id: str
    task_id: str = ""
    dialect: str
    """Name of the adapter's encoder that writes the posted events: `a2a-0.3` or `a2a-1.0`."""
    url: str
    config: JsonObject = {}
    """Settings from the caller who registered the webhook, verbatim: token, authentication, and other members that the
    encoder needs."""


class Reads(Protocol):
    """Read access to threads, tasks, runs and files. Another owner's object is not found."""

    async def task(self, principal: Principal, task_id: str) -> Task: ...

    async def run(self, principal: Principal, run_id: str) -> Run: ...

    async def run_input(self, principal: Principal, run: Run) -> RunCreated:
        """Return the event that created a run, with the run's input. Raises not_found."""
        ...

    async def runs(self, principal: Principal, where: RunFilter, *, limit: int, offset: int = 0) -> Listed[Run]:
        """Return the runs that match `where`, newest first, without removed ones: at most `limit`, after the first
        `offset`."""
        ...

    async def last_begun(self, principal: Principal, thread_id: str, *, ended_before: int | None = None) -> Run | None:
        """Return the run of a thread that started last, or None if no run matches.

        With `ended_before`, the number of a record, only runs that ended before that record match. Removed runs, and
        runs that ended before they started, never match. Raises not_found.
        """
        ...

    async def run_page(
        self, principal: Principal, thread_id: str, agent: str, *, limit: int, offset: int = 0
    ) -> RunPage | None:
        """Return the records for a page of an agent's runs on a thread. The cost does not depend on the length of the
        thread.

        Return None if the page is too large to be read at once. Return None also if agents have marked steps on the
        thread, because AIEF then shows one run as several steps. Raises not_found.
        """
        ...

    async def turns(
        self, principal: Principal, thread_id: str, *, limit: int, beyond: int | None = None, descending: bool = True
    ) -> Sequence[Turn]:
        """Return the newest turns of a thread, or with `descending=False` the oldest.

        `beyond` is the number of the first record of the last turn on the previous page; the result continues after
        that turn. Removed runs are left out. A page may have fewer than `limit` turns if they are long; only an empty
        list means that there are no more. Raises not_found.
        """
        ...

    def turn_log(
        self, principal: Principal, thread_id: str, turns: Sequence[Turn], *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        """Yield the records of consecutive turns, in order and in batches.

        The batches include the records that create the tasks of these turns, and earlier questions, answers and tool
        calls of these tasks. If a message outside runs was replaced under its id, its replacement is included. Some
        other records may be among them. `inline` fills in stored files, as in `records`. Raises not_found.
        """
        ...

    async def removed_messages(self, principal: Principal, thread_id: str) -> Set[str]:
        """Return the ids of messages that were in the thread and that a later revision removed. Raises not_found."""
        ...

    async def thread(self, principal: Principal, thread_id: str) -> Thread: ...

    async def thread_view(self, principal: Principal, thread_id: str) -> ThreadView: ...

    async def threads(
        self,
        principal: Principal,
        where: ThreadFilter,
        *,
        limit: int,
        offset: int = 0,
        order: ThreadOrder = "created_at",
        descending: bool = True,
    ) -> Listed[ThreadView]: ...

    async def count_threads(self, principal: Principal, where: ThreadFilter) -> int: ...

    async def thread_of(self, principal: Principal, protocol: str, agent: str, alias: str) -> str | None:
        """Return the id of the thread that a protocol knows by this alias, or None."""
        ...

    async def aliases(self, principal: Principal, protocol: str, thread_ids: Sequence[str]) -> Mapping[str, str]:
        """Return a protocol's alias of each thread, by thread id. Threads without an alias are left out."""
        ...

    async def open_interrupts(self, principal: Principal, task_id: str) -> Sequence[Interrupt]:
        """Return the unanswered questions of a task, oldest first."""
        ...

    async def known_interrupts(self, principal: Principal, thread_id: str, interrupt_ids: Collection[str]) -> Set[str]:
        """Return those of `interrupt_ids` that are ids of questions of the thread, open or answered."""
        ...

    async def tasks(
        self, principal: Principal, where: TaskFilter, *, limit: int, cursor: str | None = None
    ) -> TaskPage:
        """Return a page of tasks. `cursor` is the next cursor of the previous page; None requests the first page.
        Raises invalid for a cursor that the gateway did not issue."""
        ...

    async def tasks_active_at(self, principal: Principal, moment: int, *, slack: int, limit: int) -> Sequence[Task]:
        """Return the tasks that had been created by a moment and changed their state at or after it, the earliest
        change first.

        `moment` is in microseconds since 1970, UTC. `slack` is the maximum difference between clocks, in microseconds:
        both comparisons allow it.
        """
        ...

    async def chain(self, principal: Principal, task_id: str) -> Sequence[Task]:
        """Return a task, the task that continues it (`Task.continues`), the one that continues that, and so on, oldest
        first. ACP shows them as one run. Raises not_found if the owner has no task with this id."""
        ...

    async def records(
        self, principal: Principal, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> Sequence[Record]:
        """Return all committed records of a scope after record number `after`. Use it only for a scope that is known to
        be short. `inline` puts the bytes of stored files into the parts that name them, up to `limits.inline`."""
        ...

    def log(
        self, principal: Principal, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        """Yield the records of a scope after record number `after` in batches, because a log may be larger than the
        memory. `inline` fills in stored files, as in `records`."""
        ...

    async def logs(
        self, principal: Principal, task_ids: Sequence[str], *, inline: bool = False
    ) -> Mapping[str, Sequence[Record]]:
        """Return all records of each of several ended tasks, by task id, to show them in a list. Tasks that are open,
        or too long to be read at once, are left out. `inline` fills in stored files, as in `records`."""
        ...

    async def snapshot(
        self,
        principal: Principal,
        thread_id: str,
        name: Hashable,
        empty: Callable[[], S],
        *,
        until: int | None = None,
        inline: bool = False,
    ) -> S:
        """Return the view that results from all committed records of a thread, or from those up to the record number
        `until` if it is not None.

        `name` identifies the kind of view, and `empty` creates a view of no records. Records that an earlier call has
        folded under this name are not read again. `inline` fills in stored files, as in `records`. The result is a copy
        that no other call uses. Raises not_found, and too_large beyond `limits.thread`.
        """
        ...

    def follow(
        self, principal: Principal, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        """Yield the committed records of a scope after the number `after`, then new ones as they are committed, in
        batches.

        `inline` fills in stored files. Ends after a run's RunEnded, a task's terminal TaskChanged, the erasure of a
        thread, and when the gateway shuts down.
        """
        ...

    async def await_thread(self, principal: Principal, thread_id: str) -> bool:
        """Wait until the owner has a thread with this id. Return True then, or False if the gateway shuts down
        first."""
        ...

    async def file(self, principal: Principal, blob: str) -> FilePart:
        """Return a stored file by the hash of its bytes, with the bytes in `inline`. Raises not_found unless a thread
        of this owner names the file."""
        ...

    async def file_pieces(self, principal: Principal, blob: str) -> tuple[FilePart, AsyncGenerator[bytes]]:
        """Return a stored file by the hash of its bytes, with its size, and an iterator that reads its bytes in pieces.
        Raises not_found unless a thread of this owner names the file."""
        ...

    async def webhooks(self, principal: Principal, task_id: str) -> Sequence[Webhook]:
        """Return the registered webhooks of a task. Raises not_found."""
        ...


class Hub(Protocol):
    @property
    def reads(self) -> Reads: ...

    @property
    def is_stopping(self) -> bool:
        """True if the gateway is shutting down and closes connections itself. A connection that ends then does not mean
        that its caller has disconnected."""
        ...

    @property
    def stopping(self) -> Awaitable[object]:
        """Awaitable that completes when `is_stopping` becomes true."""
        ...

    @property
    def store(self) -> Store:
        """Operations on the long-term memory of agents and callers, which are JSON objects by owner, namespace and key:
        get, put, delete, search."""
        ...

    @property
    def assistants(self) -> Assistants:
        """Operations on assistants, which are agents as their callers have configured them: create, change, search and
        delete."""
        ...

    @property
    def crons(self) -> Crons:
        """Operations on crons, which are scheduled requests to agents: create, change, search and delete."""
        ...

    @property
    def grants(self) -> Grants:
        """Operations on grants: share a thread with another owner or with a group, list the grants that a caller has
        given or received, and delete a grant."""
        ...

    # Agents

    def agents(self, principal: Principal) -> Sequence[AgentInfo]: ...

    def agent(self, principal: Principal, name: str) -> AgentInfo:
        """Return an agent by its name or its UUID (uuid5 of the name). Raises not_found, also for an agent that the
        caller cannot discover."""
        ...

    def introspectable_agent(self, principal: Principal, name: str) -> Introspectable | None:
        """Return the agent if it can describe its own graph, else None. Raises not_found for an unknown agent, and for
        one that the caller cannot discover."""
        ...

    # Writing

    async def create_thread(
        self,
        principal: Principal,
        change: ThreadChange,
        *,
        thread_id: str | None = None,
        if_exists: Literal["raise", "return"] = "raise",
    ) -> Thread:
        """Create a thread without a run. Without `thread_id`, it gets a new id. The id of an erased thread can be used
        again. If the id is taken, `if_exists` decides: `raise` raises conflict, `return` returns the existing
        thread."""
        ...

    async def change_thread(self, principal: Principal, thread_id: str, change: ThreadChange) -> Thread:
        """Change the metadata and settings of a thread. Raises not_found."""
        ...

    async def copy_thread(self, principal: Principal, thread_id: str) -> Thread:
        """Create a thread with the same metadata and revisions, but no active runs and no open questions. Raises
        not_found."""
        ...

    async def update_state(self, principal: Principal, update: StateUpdate) -> str:
        """Commit a revision and return its checkpoint id. Raises not_found (thread or checkpoint), conflict while a run
        is pending or running, and invalid or unsupported if a stateful agent refuses the change."""
        ...

    async def upload(
        self, principal: Principal, thread_id: str, file: FilePart, folder: str | None = None, *, key: str | None = None
    ) -> Artifact:
        """Store a file (`inline`) on a thread, as an input of its next run. `folder` is only displayed, and may be
        None.

        A repeated upload with the same `key` returns the stored file. Without a key, each upload stores a new file.
        Raises not_found, too_large, invalid (the key belongs to another file).
        """
        ...

    async def submit(self, principal: Principal, submission: Submission) -> Receipt:
        """Commit a new run. Raises conflict (the thread is busy and the strategy is to reject, or the id is taken),
        queue_full, not_found, task_ended, invalid (a file that is too large, for example)."""
        ...

    def check_submit(self, principal: Principal, agent: str) -> None:
        """Check that the caller may start a run of an agent and read it. Servers call it before they begin a response
        that cannot report an error any more.

        Raises forbidden, with the scopes of both operations, and not_found.
        """
        ...

    async def answer(self, principal: Principal, answers: Answers) -> Receipt:
        """Commit the answers to a task's questions, and create the run that continues. If several callers answer a
        question, the first commit wins.

        Raises not_found, not_awaiting, task_ended, invalid (a value violates the schema of its question, which stays
        open).
        """
        ...

    async def check_answers(self, principal: Principal, answers: Answers) -> None:
        """Check the values of answers against the schemas of their questions, and commit nothing. Servers call it to
        refuse a request with several answers before the first is committed. Raises not_found (the task or a question),
        invalid (a value violates the schema of its question)."""
        ...

    async def cancel(self, principal: Principal, task_id: str) -> Task:
        """Request the end of a task. On return the task is cancelling, or cancelled if no agent was running. A repeated
        request changes nothing. Raises not_found, task_ended (the task was already terminal)."""
        ...

    async def cancel_run(self, principal: Principal, run_id: str, *, rollback: bool = False) -> Run:
        """Cancel the task of a run that has not ended. With `rollback` the run is removed once it has ended. Raises
        not_found, task_ended (the run has ended)."""
        ...

    async def delete_thread(self, principal: Principal, thread_id: str) -> None:
        """Erase a thread with its rows, log and blobs. Only a tombstone remains."""
        ...

    async def prune_thread(self, principal: Principal, thread_id: str) -> None:
        """Delete all revisions of a thread except the newest.

        Earlier revisions are no longer found, and their states and checkpoints are deleted from the database. Runs and
        messages remain. Raises not_found, conflict (a run is active), and too_large beyond `limits.thread`.
        """
        ...

    async def change_run(self, principal: Principal, run_id: str, metadata: JsonObject) -> Run:
        """Replace the metadata of an ended run. Raises not_found, conflict (it has not ended), too_large."""
        ...

    async def remove_run(self, principal: Principal, run_id: str) -> None:
        """Hide an ended run from the thread. Its records keep their numbers but lose their content. Raises not_found,
        conflict (the run has not ended)."""
        ...

    # Webhooks

    async def set_webhook(self, principal: Principal, webhook: Webhook) -> None:
        """Register a webhook, or replace the one with the same id. Raises not_found, invalid (an address that is not
        allowed)."""
        ...

    async def delete_webhook(self, principal: Principal, task_id: str, webhook_id: str) -> bool: ...

    # On a caller's behalf

    async def find_schema_error(self, principal: Principal, schema: JsonObject, value: Json) -> str | None:
        """Return how a value violates a JSON Schema that a caller wrote, or None if the value is valid. Raises
        invalid if the schema is wrong or cannot be checked within its bounds."""
        ...

    async def fetch(self, principal: Principal, url: str, received: Callable[[int], None]) -> bytes:
        """Download a small document, such as a message, from a URL that a caller named.

        Only public and allowed addresses are contacted; the host is resolved once, and redirects are not followed.
        `received` is called with the number of bytes as they arrive; an exception from it ends the download. Raises
        invalid for every failure: the address is not allowed, the server cannot be reached, or its response is not 2xx
        or too large.
        """
        ...
