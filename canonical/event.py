"""Event sourcing, the events: a union of every fact that a thread's log can hold.

An agent yields the events of its run. The hub adds ids, numbers and times, and commits them as records; only the hub
appends to a log. Every view in every protocol is derived from records. So an event holds all that an encoder needs, and
nothing that changes later.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from babelgate.canonical.difference import StateChange
from babelgate.canonical.fault import Fault
from babelgate.canonical.message import FilePart, Message, Part, Phase, Role
from babelgate.canonical.run_input import RunInput
from babelgate.canonical.state import RunReason, RunStatus, TaskState
from babelgate.canonical.value import Extra, Json, JsonObject, Value

Cause = Literal["input", "answer", "follow_up", "update", "cron"]
Strategy = Literal["reject", "enqueue", "interrupt", "rollback"]
"""Effect of a new input on a thread with an active run (the multitask strategies of LangGraph Platform)."""


class _Event(Value):
    extra: Extra = {}


class ThreadChanged(_Event):
    """First record of every thread, and every later change of the metadata and settings that the caller keeps on it."""

    kind: ClassVar[Literal["thread_changed"]] = "thread_changed"
    metadata: JsonObject = {}
    """Members to merge into the thread's metadata."""
    ttl: int | None = None
    """Seconds after the last change until the thread is erased or pruned. None leaves it unchanged."""
    keeps_latest: bool | None = None
    """True if the thread is pruned to its newest state when its `ttl` ends, False if it is erased. None leaves the
    setting unchanged."""
    config: JsonObject = {}
    ephemeral: bool | None = None
    """True if the thread is hidden from lists at once, and erased soon after its task has ended. None leaves the
    setting unchanged."""


class LossNoted(_Event):
    """Note that the gateway could not carry a part of the upstream's output whole. Losses toward callers are no events:
    the encoder of the caller's protocol computes them."""

    kind: ClassVar[Literal["loss_noted"]] = "loss_noted"
    feature: str
    how: str


class TaskCreated(_Event):
    kind: ClassVar[Literal["task_created"]] = "task_created"
    task_id: str
    agent: str
    continues: str | None = None
    """Id of an ended task that this one continues: the caller sent another input to it, and an ended task takes none.
    None for a task that continues no other."""
    references: tuple[str, ...] = ()
    metadata: JsonObject = {}
    protocol: str = ""
    version: str = ""
    stateful: bool = False
    """True if the agent saves the thread's revisions itself (`AgentInfo.stateful`)."""


class RunCreated(RunInput):
    """New run with its input. The members of the input are members of the event, because the log had this form before
    `RunInput` existed."""

    kind: ClassVar[Literal["run_created"]] = "run_created"
    run_id: str
    cause: Cause = "input"
    strategy: Strategy = "enqueue"
    start_after: int | None = None
    """Earliest start of the run, in microseconds since 1970, UTC; None means at once."""
    key_id: str = ""
    """Id of the caller's API key (`babelgate.canonical.principal.Principal.key_id`), for the operator. Callers never
    see it. Earlier releases stored none."""
    subject: str = ""
    """Subject of the caller who created the run (`Principal.subject`). Budgets are counted for it, and the tokens that
    the gateway stores for calls of agents belong to it. Other callers never see it. Earlier releases stored none."""
    resumes: str = ""
    """Id of an earlier run whose input this run executes. The gateway paused that run before its agent began, because a
    budget was used up. Empty for any other run."""

    @classmethod
    def of(
        cls,
        run_input: RunInput,
        *,
        run_id: str,
        cause: Cause,
        strategy: Strategy = "enqueue",
        start_after: int | None = None,
        key_id: str = "",
        subject: str = "",
        resumes: str = "",
    ) -> "RunCreated":
        return cls(
            run_id=run_id,
            cause=cause,
            strategy=strategy,
            start_after=start_after,
            key_id=key_id,
            subject=subject,
            resumes=resumes,
            **run_input.members(),
        )

    @property
    def input(self) -> RunInput:
        return RunInput(**{name: getattr(self, name) for name in RunInput.__struct_fields__})


class RunStarted(_Event):
    kind: ClassVar[Literal["run_started"]] = "run_started"
    attempt: int = 1
    node: str = ""
    resumed: bool = msgspec.field(default=False, name="goes_on")
    """True if a later attempt continues where the previous one was cut off. The gateway re-attached to the upstream, or
    the agent was started again and has only repeated itself so far. If False, a later attempt starts over: the agent
    sends everything again, and the earlier content of the run is void."""
    void: tuple[str, ...] | None = None
    """Ids of the messages that a restart makes void, if the agent continues from a saved state and repeats only
    unfinished work. None means everything that the run has sent."""

    @property
    def is_restart(self) -> bool:
        return self.attempt > 1 and not self.resumed

    def is_void(self, message_id: str | None) -> bool:
        """Return True if this start voids what earlier attempts of the run sent in a message. A `message_id` of None
        means content outside messages."""
        return self.is_restart and (self.void is None or message_id in self.void)


class UpstreamBound(_Event):
    """Ids that the upstream gave to this run. The gateway needs them to resume, cancel or re-attach to the run
    there."""

    kind: ClassVar[Literal["upstream_bound"]] = "upstream_bound"
    protocol: str
    ids: dict[str, str]
    """Ids that the upstream gave to the run, by kind: some of `task`, `context`, `run`, `session`, `thread`."""


class TaskChanged(_Event):
    kind: ClassVar[Literal["task_changed"]] = "task_changed"
    state: TaskState
    message_id: str | None = None
    fault: Fault | None = None
    rollback: bool = False
    """True if the run is to be removed once it has ended. Set only with the state `cancelling`."""


class RunEnded(_Event):
    kind: ClassVar[Literal["run_ended"]] = "run_ended"
    status: RunStatus = RunStatus.SUCCESS
    reason: RunReason = RunReason.DONE
    fault: Fault | None = None
    output: Json = None
    """Structured output of the agent, as JSON; None if it returned none."""
    usage: JsonObject = {}


class RunRemoved(_Event):
    kind: ClassVar[Literal["run_removed"]] = "run_removed"
    run_id: str
    why: Literal["rollback", "deleted"]


class RunChanged(_Event):
    """Change of an ended run's metadata by a caller. The record belongs to the thread and not to the run, because no
    record of a run may follow its `RunEnded`."""

    kind: ClassVar[Literal["run_changed"]] = "run_changed"
    run_id: str
    metadata: JsonObject = {}
    """New metadata, which replaces all of the previous metadata."""


class MessageStarted(_Event):
    kind: ClassVar[Literal["message_started"]] = "message_started"
    message_id: str | None = None
    role: Role = "agent"
    name: str | None = None
    phase: Phase = "answer"
    node: str = ""
    ns: tuple[str, ...] = ()
    metadata: JsonObject = {}


class PartAdded(_Event):
    """Part of an open message. The part is complete, unless `open` is true: then deltas follow until `PartEnded`."""

    kind: ClassVar[Literal["part_added"]] = "part_added"
    message_id: str | None = None
    index: int | None = None
    part: Part
    open: bool = False


class PartDelta(_Event):
    kind: ClassVar[Literal["part_delta"]] = "part_delta"
    message_id: str | None = None
    index: int | None = None
    text: str


class PartEnded(_Event):
    kind: ClassVar[Literal["part_ended"]] = "part_ended"
    message_id: str | None = None
    index: int | None = None


class MessageEnded(_Event):
    kind: ClassVar[Literal["message_ended"]] = "message_ended"
    message_id: str | None = None
    finish: Literal["stop", "length", "tool_calls", "refusal"] = "stop"
    usage: JsonObject = {}


class ToolStarted(_Event):
    """Call of a tool that the agent executes itself."""

    kind: ClassVar[Literal["tool_started"]] = "tool_started"
    call_id: str | None = None
    name: str
    input: Json = None
    node: str = ""


class ToolEnded(_Event):
    kind: ClassVar[Literal["tool_ended"]] = "tool_ended"
    call_id: str | None = None
    name: str
    output: Json = None
    fault: Fault | None = None


class StepStarted(_Event):
    kind: ClassVar[Literal["step_started"]] = "step_started"
    step_id: str | None = None
    name: str
    node: str = ""
    ns: tuple[str, ...] = ()
    input: Json = None
    input_change: StateChange | None = None
    """Difference to an earlier revision that encodes the step's input, if the input is a state or contains one.
    `StateHistory.resolve` combines it with `input` and returns the whole input."""


class StepEnded(_Event):
    kind: ClassVar[Literal["step_ended"]] = "step_ended"
    step_id: str | None = None
    name: str
    node: str = ""
    ns: tuple[str, ...] = ()
    update: Json = None
    fault: Fault | None = None


class ArtifactAdded(_Event):
    """Named output or upload, or one piece of it. With `append` the part is added to the artifact with the same
    `artifact_id`. `last` marks the final piece."""

    kind: ClassVar[Literal["artifact_added"]] = "artifact_added"
    artifact_id: str | None = None
    name: str | None = None
    description: str | None = None
    part: Part
    append: bool = False
    last: bool = True
    origin: Literal["caller", "agent"] = "agent"
    folder: str | None = None
    """Folder for display only. It is never used as a path."""
    metadata: JsonObject = {}


class InterruptRaised(_Event):
    """Question of the agent, or of the gateway, for which the run stopped."""

    kind: ClassVar[Literal["interrupt_raised"]] = "interrupt_raised"
    interrupt_id: str | None = None
    ask: Literal["input", "approval", "auth"] = "input"
    message: Message = msgspec.field(default_factory=Message)
    value: Json = None
    answer_schema: JsonObject | None = None
    """JSON Schema of the answer; None if the question has none."""
    takes_text: bool = False
    """True if the agent also understands an answer in the caller's words, which does not conform to the schema."""
    node: str = ""
    ns: tuple[str, ...] = ()
    asker: Literal["agent", "gateway"] = "agent"
    """`agent`, or `gateway` if the gateway itself asks before it starts the agent, for example because a budget is used
    up. The agent never receives the answer to a question of the gateway."""


class InterruptAnswered(_Event):
    kind: ClassVar[Literal["interrupt_answered"]] = "interrupt_answered"
    interrupt_id: str
    action: Literal["answer", "decline", "superseded"] = "answer"
    value: Json = None


class StateSaved(_Event):
    """Revision of the thread's state, saved by a stateful agent or made by a caller."""

    kind: ClassVar[Literal["state_saved"]] = "state_saved"
    checkpoint_id: str | None = None
    parent_id: str | None = None
    source: str = "loop"
    step: int = 0
    as_node: str | None = None
    values: JsonObject | None = None
    delta: JsonObject | None = None
    """Changed members of the state, with their complete new values; all others are those of the parent revision. At
    most one of `values`, `delta` and `change` is set."""
    change: StateChange | None = None
    removed_ids: tuple[str, ...] = msgspec.field(default=(), name="forgets")
    """Ids of messages that are no longer part of the conversation."""
    next: tuple[str, ...] = ()
    ns: tuple[str, ...] = ()
    pruned: bool = False
    """True if the values of this revision have been deleted from the log by a `StatesPruned`."""
    origin: Mapping[str, str] = {}
    """Ids of the upstream's run that ended with this state, if the revision is copied from another thread
    (`babelgate.canonical.history.UpstreamState`)."""


class StatesPruned(_Event):
    """Removal of all revisions of the thread except the newest, at a caller's request. The removed revisions are
    hidden, and their states are deleted from the log."""

    kind: ClassVar[Literal["states_pruned"]] = "states_pruned"
    checkpoint_id: str
    """Id of the revision that remains: the newest one."""


class Custom(_Event):
    kind: ClassVar[Literal["custom"]] = "custom"
    name: str = ""
    ns: tuple[str, ...] = ()
    value: Json = None


class Native(_Event):
    """Event of the upstream that has no canonical form, kept as the upstream sent it. Only a server of the same
    protocol can show it to callers."""

    kind: ClassVar[Literal["native"]] = "native"
    protocol: str
    event: str
    ns: tuple[str, ...] = ()
    data: Any = None
    change: StateChange | None = None
    """Difference to an earlier revision that encodes `data`, if that is a state or contains one
    (`StateHistory.resolve`)."""


AgentEvent = (
    LossNoted
    | UpstreamBound
    | MessageStarted
    | PartAdded
    | PartDelta
    | PartEnded
    | MessageEnded
    | ToolStarted
    | ToolEnded
    | StepStarted
    | StepEnded
    | ArtifactAdded
    | InterruptRaised
    | StateSaved
    | Custom
    | Native
)
"""Events that agents send. The hub also appends some of them: ends of items that an agent left open, and messages,
files and states that callers bring."""
HubEvent = (
    ThreadChanged
    | TaskCreated
    | RunCreated
    | RunStarted
    | TaskChanged
    | RunEnded
    | RunRemoved
    | RunChanged
    | InterruptAnswered
    | StatesPruned
)
"""Events that only the hub appends. A `RunEnded` from an agent tells the hub how the run ends, and is not recorded."""
Event = HubEvent | AgentEvent

_ENCODER = msgspec.json.Encoder()
_HOLDS_FILES = frozenset((PartAdded, ArtifactAdded, InterruptRaised, RunCreated))


def encode_event(event: Event) -> bytes:
    """Return an event as JSON for the log, without members that have their default and without the bytes of files.

    Raises:
        TypeError, UnicodeEncodeError, RecursionError: if it holds a value that is not JSON. NaN and infinity become
            null; `babelgate.gateway.runs.event_check` rejects them earlier.
    """
    return _ENCODER.encode(_without_bytes(event) if type(event) in _HOLDS_FILES else event)


def whole_message(message: Message) -> list[Event]:
    """Return the events that record a complete message: its start, each part whole, and its end."""
    return [
        MessageStarted(
            message_id=message.message_id,
            role=message.role,
            name=message.name,
            phase=message.phase,
            metadata=message.metadata,
            extra=message.extra,
        ),
        *(PartAdded(message_id=message.message_id, index=i, part=part) for i, part in enumerate(message.parts)),
        MessageEnded(message_id=message.message_id),
    ]


def _without_bytes(event: Event) -> Event:
    match event:
        case PartAdded(part=FilePart(inline=bytes())) | ArtifactAdded(part=FilePart(inline=bytes())):
            return event.replace(part=event.part.replace(inline=None))
        case InterruptRaised() if event.message.has_bytes:
            return event.replace(message=event.message.without_bytes())
        case RunCreated() if any(message.has_bytes for message in event.messages):
            return event.replace(messages=tuple(message.without_bytes() for message in event.messages))
        case _:
            return event


class Record(Value, kw_only=False):
    """Committed event of a thread's log, with its number, its time, and the task and run to which it belongs."""

    seq: int
    """Number of the record in the thread's log: 1, 2, 3… without a gap."""
    at: int
    """Time of the commit in microseconds since 1970, UTC; never earlier than the record before."""
    task_id: str | None
    run_id: str | None
    attempt: int
    """Attempt of the run that produced the event; 0 if no run did."""
    event: Event


def files_of(event: Event) -> list[FilePart]:
    """Return the file parts of an event whose bytes are in the artifact store. Empty for an event without such parts,
    and for a `RunCreated`."""
    match event:
        case PartAdded() | ArtifactAdded():
            parts = (event.part,)
        case InterruptRaised():
            parts = event.message.parts
        case _:
            return []
    return [part for part in parts if isinstance(part, FilePart) and part.blob is not None]
