"""State and checkpoints of a thread: what LangGraph calls values and checkpoints, as revisions, for every agent.

A stateful agent saves its revisions itself (`StateSaved`). For other agents they follow from the log: the input of a
run makes a revision, and so does each stop. Their values are the members of the caller's inputs, the last structured
output, and the messages, each id once. Callers can make revisions too (`Hub.update_state`). A revision has a parent, so
a run from an older one begins a branch. The newest revision is the thread's state.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final, cast
from uuid import NAMESPACE_OID, uuid5

import msgspec

from babelgate.canonical.difference import StateChange, apply_difference, state_change
from babelgate.canonical.event import (
    MessageStarted,
    PartDelta,
    Record,
    RunCreated,
    RunEnded,
    RunRemoved,
    RunStarted,
    StateSaved,
    StatesPruned,
    TaskCreated,
)
from babelgate.canonical.fault import Fault
from babelgate.canonical.fold import Fold
from babelgate.canonical.json import is_identical
from babelgate.canonical.message import Message
from babelgate.canonical.state import RunStatus
from babelgate.canonical.thread import Interrupt
from babelgate.canonical.value import Json, JsonObject

ORIGIN_AGENT: Final = "agent"
"""Key of `Revision.origin` whose value is the name of the agent that ran. All other members are ids that the agent's
server gave to that run."""
_REVISION_OVERHEAD: Final = 1000
"""Estimated memory of a revision in bytes, not counting its values. Chosen."""
_CACHE_INTERVAL: Final = 32
"""Number of revisions between two cached states on the path from the root to a revision. So a read applies at most this
many revisions to a cached state. Chosen."""
_CACHE_SIZE: Final = 64
"""Maximum number of cached states; beyond it, the oldest is dropped. Chosen."""
_State = tuple[JsonObject, dict[str, None]]
"""State of a revision: its values, and the ids of its messages as the keys of a dict, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """State of the thread at one moment."""

    checkpoint_id: str
    parent_id: str | None
    seq: int
    """Number of the record that made the revision."""
    at: int
    task_id: str | None
    run_id: str | None
    source: str
    """Kind of the change that made the revision, as in LangGraph's metadata: `input`, `loop`, `update` or `fork`."""
    step: int
    node: str
    """Name of the node that made the revision, or the agent's name if no node is known. A caller's update is applied as
    the output of a node (`as_node`): it has that node's name, or else the name from its parent."""
    ns: tuple[str, ...] = ()
    """Namespace of the subgraph inside the agent whose state this is; () is the thread's own state."""
    values: JsonObject = field(default_factory=dict[str, object])
    messages: tuple[Message, ...] = ()
    """Messages, except those that a stateful agent keeps in `values`."""
    next: tuple[str, ...] = ()
    """Nodes to run next: for an agent without a graph, the agent itself until its run has ended."""
    questions: tuple[Interrupt, ...] = ()
    """Questions that were open when the revision was made."""
    fault: Fault | None = None
    origin: Mapping[str, str] = field(default_factory=dict[str, str])
    """Ids of the upstream's run that ended with this state, and that agent's name (`ORIGIN_AGENT`). Empty unless the
    revision is copied from another thread."""


@dataclass(frozen=True, slots=True)
class UpstreamState:
    """Relation of a revision to the agent's own server: the run there on which it is based, and what has changed
    since."""

    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """Ids that the upstream gave to its run that ended with this state. Empty if the upstream never had exactly these
    messages."""
    changed: JsonObject = field(default_factory=dict[str, object])
    """Members of the state that callers have changed after that run."""


@dataclass(frozen=True, slots=True)
class _Node:
    """Revision in the tree. It is stored as its difference to its parent, unless `whole` has all its values."""

    revision: Revision
    whole: JsonObject | None
    delta: JsonObject
    message_ids: tuple[str, ...]
    removed_ids: tuple[str, ...]
    change: StateChange | None = None
    pruned: bool = False
    """True if the values have been deleted from the log (`StateSaved.pruned`)."""


def members(data: Json) -> JsonObject:
    """Return a run's data input or output as members of the state: the members of an object, none for None, and for any
    other value the single member `input`."""
    if data is None:
        return {}
    return dict(data) if isinstance(data, dict) else {"input": data}


class StateHistory:
    """Tree of a thread's revisions, built from all records of the thread in order. `fold` holds the runs and tasks of
    the same records."""

    def __init__(self, thread_id: str, owner: str = "", records: Iterable[Record] = ()) -> None:
        self.fold = Fold(thread_id, owner)
        self._nodes: dict[str, _Node] = {}
        self._tips: dict[str, str] = {}
        """Checkpoint id of the newest revision of each task, by task id."""
        self._inputs: dict[str, RunCreated] = {}
        self._agents: dict[str, TaskCreated] = {}
        self._unassigned: list[str] = []
        """Ids of messages outside runs that no revision holds yet. They are earlier history that a submission brought,
        or belong to a state update."""
        self._answers: dict[str, list[str]] = {}
        """Ids of the messages with the phase `answer` that each active run has sent, by run id."""
        self._pruned = 0
        """Number of the record of the oldest visible revision after a `StatesPruned`: revisions of earlier records are
        hidden. 0 before the first."""
        self._size = 0
        """Estimated memory of all revisions in bytes, not counting values that they share with their parents."""
        self._last_state: tuple[str, _State] | None = None
        """Checkpoint id and state of the revision that was read last, which is most likely the parent of the next
        one."""
        self._cache: dict[str, _State] = {}
        """Cached states of other revisions, by checkpoint id."""
        self._children: dict[str | None, list[str]] | None = None
        """Checkpoint ids of the visible revisions, by the id of their parent; None until `then` needs them, and after
        each new record."""
        for record in records:
            self.apply(record)

    @property
    def seq(self) -> int:
        """Number of the last applied record."""
        return self.fold.seq

    @property
    def size(self) -> int:
        return self.fold.size + self._size

    def copy(self) -> "StateHistory":
        """Return an independent copy. Both have the newest state, so that the next one is not built from the first."""
        head = self._head()
        if head is not None and (self._last_state is None or self._last_state[0] != head):
            self._last_state = (head, self._state(head))
        copy = StateHistory(self.fold.thread_id)
        copy.fold = self.fold.copy()
        copy._nodes, copy._tips = dict(self._nodes), dict(self._tips)
        copy._inputs, copy._agents = dict(self._inputs), dict(self._agents)
        copy._unassigned = list(self._unassigned)
        copy._answers = {run_id: list(ids) for run_id, ids in self._answers.items()}
        copy._last_state, copy._cache, copy._size = self._last_state, dict(self._cache), self._size
        copy._pruned = self._pruned
        return copy

    def apply(self, record: Record) -> str | None:
        """Apply a record. Return the id of the revision that it makes, or None.

        The content of a revision is assembled only when it is read (`get`): in a long thread it is every message so
        far.
        """
        self.fold.apply(record)
        event, run_id = record.event, record.run_id
        if type(event) is PartDelta:  # most events of a long answer
            return None
        self._children = None
        match event:
            case TaskCreated():
                self._agents[event.task_id] = event
            case RunCreated():
                self._inputs[event.run_id] = event
            case MessageStarted():
                self._note_message(event, run_id)
            case RunStarted():
                return self._start(record, event)
            case RunEnded():
                return self._end(record, event)
            case StateSaved():
                return self._save(record, event)
            case RunRemoved():
                self._last_state = None
                self._cache.clear()
            case StatesPruned(checkpoint_id=remaining) if remaining in self._nodes:
                self._pruned = self._nodes[remaining].revision.seq
            case _:
                pass
        return None

    def add_texts(self, event: PartDelta, texts: Sequence[str], seq: int) -> None:
        """Apply several deltas that differ from `event` in their text only, as `Fold.add_texts` does."""
        self.fold.add_texts(event, texts, seq)

    # Records that make a revision

    def _note_message(self, event: MessageStarted, run_id: str | None) -> None:
        if run_id is None:
            self._unassigned.append(event.message_id or "")
        elif event.phase == "answer":
            self._answers.setdefault(run_id, []).append(event.message_id or "")

    def _start(self, record: Record, event: RunStarted) -> str | None:
        run_id, task_id = record.run_id or "", record.task_id or ""
        if not event.resumed:
            self._answers[run_id] = []
        created = self._inputs.get(run_id)
        if created is None or event.attempt > 1 or created.cause == "answer" or self._is_stateful(task_id):
            return None
        outside, self._unassigned = self._unassigned, []
        message_ids = (*outside, *(message.message_id or "" for message in created.messages))
        parent = created.checkpoint if created.checkpoint in self._nodes else None
        node = event.node or self._agent(task_id)
        return self._add(record, "input", node, message_ids, delta=members(created.data), parent=parent, next_=(node,))

    def _end(self, record: Record, event: RunEnded) -> str | None:
        run_id, task_id = record.run_id or "", record.task_id or ""
        message_ids = self._answers.pop(run_id, None)
        if self._is_stateful(task_id):
            return self._complete_tip(run_id, task_id, event)
        if message_ids is None:
            return None
        node = self._agent(task_id)
        is_unfinished = event.status in (RunStatus.PAUSED, RunStatus.ERROR, RunStatus.TIMEOUT)
        questions = tuple(self.fold.open_interrupts(task_id)) if event.status is RunStatus.PAUSED else ()
        output = {"output": event.output} if not isinstance(event.output, dict | None) else members(event.output)
        return self._add(
            record,
            "loop",
            node,
            tuple(message_ids),
            delta=output,
            parent=self._tips.get(task_id),
            next_=(node,) if is_unfinished else (),
            questions=questions,
            fault=event.fault,
        )

    def _complete_tip(self, run_id: str, task_id: str, event: RunEnded) -> None:
        """Add the open questions and the fault of a run that ended to the last state that its stateful agent saved.

        The agent saves a state before it asks or fails. A run without an input may save none and ask in the state from
        which it continued.
        """
        tip = self._tips.get(task_id)
        if tip is None:
            created = self._inputs.get(run_id)
            tip = (created and created.checkpoint) or self._head() or ""
            if tip not in self._nodes or not self._nodes[tip].revision.next:
                return
            self._tips[task_id] = tip
        if (node := self._nodes.get(tip)) is not None:
            questions = tuple(self.fold.open_interrupts(task_id)) if event.status is RunStatus.PAUSED else ()
            self._nodes[tip] = replace(node, revision=replace(node.revision, questions=questions, fault=event.fault))

    def _save(self, record: Record, event: StateSaved) -> str | None:
        if record.run_id is None:
            return self._update(record, event)
        questions = self.fold.open_interrupts(record.task_id) if event.next else ()
        return self._add(
            record,
            event.source,
            event.as_node or self._agent(record.task_id or ""),
            (),
            whole=event.values,
            delta=event.delta or {},
            change=event.change,
            parent=event.parent_id,
            next_=event.next,
            questions=tuple(questions),
            checkpoint_id=event.checkpoint_id,
            removed_ids=event.removed_ids,
            ns=event.ns,
            step=event.step,
            pruned=event.pruned,
            origin=event.origin,
        )

    def _update(self, record: Record, event: StateSaved) -> str:
        """Add a revision that a caller made, and return its checkpoint id. Tasks whose newest revision was its parent
        continue from the new one."""
        message_ids, self._unassigned = tuple(self._unassigned), []
        parent = event.parent_id or self._head()
        questions = tuple(self.fold.open_interrupts())
        before = self._nodes.get(parent or "")
        new_id = self._add(
            record,
            event.source,
            event.as_node or ("" if before is None else before.revision.node),
            message_ids,
            whole=event.values,
            delta=event.delta or {},
            change=event.change,
            parent=parent,
            next_=event.next or (before.revision.next if before is not None and questions else ()),
            questions=questions,
            checkpoint_id=event.checkpoint_id,
            removed_ids=event.removed_ids,
            ns=event.ns,
            step=None if event.values is None and event.change is None and not event.pruned else event.step,
            pruned=event.pruned,
            origin=event.origin,
        )
        for task_id, tip in self._tips.items():
            if tip == parent:
                self._tips[task_id] = new_id
        return new_id

    def _add(
        self,
        record: Record,
        source: str,
        node: str,
        message_ids: tuple[str, ...],
        *,
        whole: JsonObject | None = None,
        delta: JsonObject,
        change: StateChange | None = None,
        parent: str | None,
        next_: tuple[str, ...],
        questions: tuple[Interrupt, ...] = (),
        fault: Fault | None = None,
        checkpoint_id: str | None = None,
        removed_ids: tuple[str, ...] = (),
        ns: tuple[str, ...] = (),
        step: int | None = None,
        pruned: bool = False,
        origin: Mapping[str, str] | None = None,
    ) -> str:
        if parent is None and not ns:
            parent = self._head()
        before = self._nodes.get(parent or "")
        if change is not None:
            self._size += len(msgspec.json.encode(change))
        else:
            whole, delta = self._share_values(parent, whole, delta)
        # The id is derived from the record, so every fold of the log finds the same one.
        checkpoint_id = checkpoint_id or str(uuid5(NAMESPACE_OID, f"{self.fold.thread_id}/{record.seq}"))
        if step is None:
            step = -1 if before is None else before.revision.step + 1
        revision = Revision(
            checkpoint_id=checkpoint_id,
            parent_id=parent,
            seq=record.seq,
            at=record.at,
            task_id=record.task_id,
            run_id=record.run_id,
            source=source,
            step=step,
            node=node,
            ns=ns,
            next=next_,
            questions=questions,
            fault=fault,
            origin=origin or {},
        )
        self._size += _REVISION_OVERHEAD
        self._nodes[checkpoint_id] = _Node(revision, whole, delta, message_ids, removed_ids, change, pruned)
        if record.task_id is not None and not ns:
            self._tips[record.task_id] = checkpoint_id
        return checkpoint_id

    def _share_values(
        self, parent: str | None, whole: JsonObject | None, delta: JsonObject
    ) -> tuple[JsonObject | None, JsonObject]:
        """Return `whole` and `delta`, in which each value that equals that of the parent is replaced by the parent's
        own object. Without this, an agent that sends its whole state each time would fill the memory with copies of its
        first message. `whole` is None for a revision that has only a `delta`."""
        values = delta if whole is None else whole
        before: JsonObject = {}
        if parent is not None and values:
            before, message_ids = self._state(parent)
            self._last_state = (parent, (before, message_ids))  # the next revision is most likely a child of this one
        shared: JsonObject = {}
        for name, value in values.items():
            old = before.get(name)
            if name in before and is_identical(old, value):
                shared[name] = old
            elif isinstance(old, list) and isinstance(value, list):
                shared[name] = self._share_list(cast("list[Json]", old), cast("list[Json]", value))
            else:
                shared[name] = value
                self._size += len(msgspec.json.encode(value))
        return (None, shared) if whole is None else (shared, delta)

    def _share_list(self, before: list[Json], now: list[Json]) -> list[Json]:
        prefix = sum(1 for _ in takewhile(bool, map(is_identical, before, now)))
        self._size += len(msgspec.json.encode(now[prefix:])) + 8 * prefix
        return [*before[:prefix], *now[prefix:]]

    def _is_stateful(self, task_id: str) -> bool:
        return task_id in self._agents and self._agents[task_id].stateful

    def _agent(self, task_id: str) -> str:
        return self._agents[task_id].agent if task_id in self._agents else ""

    # Differences

    def difference(self, since: str | None, values: JsonObject) -> StateChange | None:
        """Return `values` as their difference to the values of the revision `since`. Return None if `since` is None or
        unknown, or if the difference is not much shorter than the values (`state_change`)."""
        before = None if since is None else self.values_of(since)
        return None if since is None or before is None else state_change(since, before, values)

    def values_of(self, checkpoint_id: str) -> JsonObject | None:
        """Return the values of a revision, even if its run has been removed, or None if the revision is unknown."""
        if checkpoint_id not in self._nodes:
            return None
        values, message_ids = self._state(checkpoint_id)
        self._last_state = (checkpoint_id, (values, message_ids))
        return values

    def resolve(self, change: StateChange | None, rest: Json) -> Json:
        """Return the state of an event that stores it as a difference to an earlier revision.

        `change` is the difference of the whole state, or of its member `change.member`; `rest` has all other members.
        If `change` is None, the event has the whole state in `rest`.
        """
        if change is None:
            return rest
        values = apply_difference(self.values_of(change.since), change.new)
        return {**members(rest), change.member: values} if change.member else values

    # Pruning

    def find_needed(self) -> tuple[str, dict[int, JsonObject | None]] | None:
        """Return the revisions that must stay when a thread is pruned to its newest revision, or None if no older
        revision exists.

        The result is the checkpoint id of the newest revision, and a mapping of the record numbers of all needed
        revisions. A number maps to the revision's values if the pruned log must store them whole, because the revision
        is stored as a difference to one that is deleted. Otherwise it maps to None. Besides the newest revision and
        those that it is derived from, two kinds are needed: states of subgraphs that are newer than it, and revisions
        of open tasks, which may start again from the log.
        """
        head = self._head()
        if head is None:
            return None
        seq = self._nodes[head].revision.seq
        if all(self._is_hidden(node) or node.revision.seq >= seq for node in self._nodes.values()):
            return None
        needed: dict[int, JsonObject | None] = {}
        for checkpoint_id, node in self._nodes.items():
            task = self.fold.tasks.get(node.revision.task_id or "")
            is_open = task is not None and not task.is_terminal
            is_later = node.revision.seq > seq and not self._is_removed(node)
            if checkpoint_id == head or is_open or is_later:
                self._note_needed(checkpoint_id, needed)
        return head, needed

    def _note_needed(self, checkpoint_id: str, needed: dict[int, JsonObject | None]) -> None:
        """Add to `needed` a revision and those that its state is derived from, up to one that is stored whole or for
        which `needed` holds the whole values."""
        node = self._nodes.get(checkpoint_id)
        while node is not None and node.revision.seq not in needed:
            is_visible = not self._is_removed(node)
            values = self.values_of(node.revision.checkpoint_id) if is_visible and node.change is not None else None
            needed[node.revision.seq] = values
            if values is not None or (is_visible and node.whole is not None):
                return
            node = self._nodes.get((node.revision.parent_id if node.change is None else node.change.since) or "")

    def revision_seq(self, checkpoint_id: str) -> int:
        """Return the number of the record that made a revision; 0 if the revision is unknown."""
        node = self._nodes.get(checkpoint_id)
        return 0 if node is None else node.revision.seq

    # Reads

    def task(self, task_id: str | None) -> TaskCreated | None:
        """Return the event that created a task, or None if the thread has no such task."""
        return self._agents.get(task_id or "")

    @property
    def head(self) -> Revision | None:
        """Newest revision, which is the thread's state; None before the first input."""
        newest = self._head()
        return None if newest is None else self._build_revision(newest)

    @property
    def head_id(self) -> str | None:
        return self._head()

    def get(self, checkpoint_id: str) -> Revision | None:
        node = self._nodes.get(checkpoint_id)
        return None if node is None or self._is_hidden(node) else self._build_revision(checkpoint_id)

    def of_run(self, run_id: str) -> Revision | None:
        """Return the last revision of the thread's own state (not of a subgraph) that a run made. Return None if the
        run made none, or if it was removed or pruned."""
        for checkpoint_id, node in reversed(self._nodes.items()):
            if node.revision.run_id == run_id and not node.revision.ns:
                return None if self._is_hidden(node) else self._build_revision(checkpoint_id)
        return None

    def upstream_state(self, revision: Revision, agent: str) -> UpstreamState:
        """Return the relation of a revision to the agent's own server: the ids of the run there on which the revision
        is based, and the state's members that callers changed after that run.

        That run is the one that made the revision or its nearest ancestor that a run made. The ids are left out if
        another agent made it, or if the messages have changed since.
        """
        at = revision
        while at.run_id is None and not at.origin and at.parent_id is not None:
            parent = self.get(at.parent_id)
            if parent is None:
                break
            at = parent
        upstream_values: JsonObject = {} if at.run_id is None and not at.origin else at.values
        changed = {
            name: value
            for name, value in revision.values.items()
            if name != "messages" and (name not in upstream_values or not is_identical(upstream_values[name], value))
        }
        # Messages that came from elsewhere since then are in no revision yet.
        same = (
            not self._unassigned
            and at.messages == revision.messages
            and upstream_values.keys() <= revision.values.keys()
        )
        return UpstreamState(self._upstream_of(at, agent) if same else {}, changed)

    def _upstream_of(self, revision: Revision, agent: str) -> Mapping[str, str]:
        """Return the ids that the upstream gave to the run that ended with a revision. Empty if no run did, or if the
        run failed or belonged to another agent."""
        if revision.origin:
            ids = {name: value for name, value in revision.origin.items() if name != ORIGIN_AGENT}
            return ids if revision.origin.get(ORIGIN_AGENT) == agent else {}
        run, task = self.fold.runs.get(revision.run_id or ""), self.task(revision.task_id)
        if run is None or task is None or task.agent != agent or run.status is not RunStatus.SUCCESS:
            return {}
        last = self.of_run(run.run_id)
        return run.upstream if last is not None and last.checkpoint_id == revision.checkpoint_id else {}

    def all(self, ns: tuple[str, ...] = ()) -> list[Revision]:
        """Return the revisions of the graph with the namespace `ns`, newest first, without removed and pruned ones."""
        found = [
            n.revision.checkpoint_id for n in self._nodes.values() if n.revision.ns == ns and not self._is_hidden(n)
        ]
        return [self._build_revision(checkpoint_id) for checkpoint_id in found][::-1]

    def newest(self, ns: tuple[str, ...] = (), before: int | None = None) -> Iterator[Revision]:
        """Yield the revisions of namespace `ns`, newest first, and build each when it is needed.

        `before` is a record number: only revisions made before it are included. None includes all.
        """
        for checkpoint_id, node in reversed(self._nodes.items()):
            if node.revision.ns == ns and (before is None or node.revision.seq < before) and not self._is_hidden(node):
                yield self._build_revision(checkpoint_id)

    def then(self, revision: Revision) -> list[Revision]:
        """Return the children of a revision that have the same namespace, newest first."""
        if self._children is None:
            self._children = {}
            for checkpoint_id, node in self._nodes.items():
                if not self._is_hidden(node):
                    self._children.setdefault(self._parent(node), []).append(checkpoint_id)
        found = [
            each
            for each in self._children.get(revision.checkpoint_id, ())
            if self._nodes[each].revision.ns == revision.ns
        ]
        return [self._build_revision(checkpoint_id) for checkpoint_id in reversed(found)]

    def inner(self, revision: Revision, node: str) -> Revision | None:
        """Return the newest state that the subgraph inside the node `node` saved after `revision`, or None if it has
        saved none since."""
        depth = len(revision.ns)
        for checkpoint_id, each in reversed(self._nodes.items()):
            candidate = each.revision
            if candidate.seq <= revision.seq:
                return None
            within = len(candidate.ns) == depth + 1 and candidate.ns[:depth] == revision.ns
            if within and candidate.ns[-1].partition(":")[0] == node and not self._is_hidden(each):
                return self._build_revision(checkpoint_id)
        return None

    def _parent(self, node: _Node) -> str | None:
        """Return the checkpoint id of a node's nearest ancestor that is not hidden, or None if all are hidden. An
        ancestor that is not in this history counts as not hidden."""
        parent = node.revision.parent_id
        while parent is not None and parent in self._nodes and self._is_hidden(self._nodes[parent]):
            parent = self._nodes[parent].revision.parent_id
        return parent

    def _head(self) -> str | None:
        for checkpoint_id, node in reversed(self._nodes.items()):
            if not node.revision.ns and not self._is_removed(node):
                return checkpoint_id if node.revision.seq >= self._pruned else None
        return None

    def _is_hidden(self, node: _Node) -> bool:
        return node.pruned or node.revision.seq < self._pruned or self._is_removed(node)

    def _is_removed(self, node: _Node) -> bool:
        run = self.fold.runs.get(node.revision.run_id or "")
        return run is not None and run.removed

    def _build_revision(self, checkpoint_id: str) -> Revision:
        values, message_ids = self._state(checkpoint_id)
        self._last_state = (checkpoint_id, (values, message_ids))
        node = self._nodes[checkpoint_id]
        revision, parent = self._without_withdrawn(node.revision), self._parent(node)
        return replace(revision, parent_id=parent, values=values, messages=self.fold.find_messages(message_ids))

    def _without_withdrawn(self, revision: Revision) -> Revision:
        """Return the revision without the questions that a later input has superseded. If no question is left, `next`
        becomes empty, because no node will run; a stateful agent determines its next nodes itself."""
        interrupts = self.fold.interrupts
        questions = tuple(q for q in revision.questions if interrupts[q.task_id, q.interrupt_id].action != "superseded")
        if len(questions) == len(revision.questions):
            return revision
        stays = bool(questions) or self._is_stateful(revision.task_id or "")
        return replace(revision, questions=questions, next=revision.next if stays else ())

    def _state(self, checkpoint_id: str) -> _State:
        """Return the values of a revision and the ids of its messages, by applying its ancestors in order. Revisions of
        removed runs are skipped, unless a later one is stored as its difference to them."""
        line: list[tuple[str, _Node, bool]] = []
        values: JsonObject = {}
        message_ids: dict[str, None] = {}
        at, is_base = checkpoint_id, False
        while (node := self._nodes.get(at)) is not None:
            is_removed = self._is_removed(node)
            cached = None if is_removed else self._cached_state(at)
            if cached is not None:
                values, message_ids = cached[0], dict(cached[1])
                break
            line.append((at, node, is_base or not is_removed))
            if len(line) > len(self._nodes):  # an agent that reuses ids can make a circle of parents
                break
            is_base = node.change is not None
            at = node.revision.parent_id or "" if node.change is None else node.change.since
        for number, (name, node, is_applied) in enumerate(reversed(line), 1):
            if is_applied:
                values = self._apply_node(node, values)
                for message_id in node.message_ids:
                    message_ids[message_id] = None
                for message_id in node.removed_ids:
                    message_ids.pop(message_id, None)
            if number % _CACHE_INTERVAL == 0 and not self._is_removed(node):
                self._cache_state(name, (values, dict(message_ids)))
        return values, message_ids

    @staticmethod
    def _apply_node(node: _Node, before: JsonObject) -> JsonObject:
        if node.change is not None:
            return apply_difference(before, node.change.new)
        return {**before, **node.delta} if node.whole is None else node.whole

    def _cached_state(self, checkpoint_id: str) -> _State | None:
        if self._last_state is not None and self._last_state[0] == checkpoint_id:
            return self._last_state[1]
        return self._cache.get(checkpoint_id)

    def _cache_state(self, checkpoint_id: str, state: _State) -> None:
        self._cache[checkpoint_id] = state
        if len(self._cache) > _CACHE_SIZE:
            del self._cache[next(iter(self._cache))]
