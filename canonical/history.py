"""State and checkpoints of a thread: what LangGraph calls values and checkpoints, as revisions, for every agent.

An agent with a state of its own saves its revisions (`StateSaved`). For all others they follow from the log: the input
of a run makes one, and so does each stop. Their values are the members of the caller's inputs, the last structured
output, and beside them the messages, each once, by id. Callers make revisions too (`Hub.update_state`). A revision has
a parent, so a run from an older one begins a branch; the newest revision is the thread's state.
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
"""Among the ids of a copy's origin: whose upstream they are of."""
_REVISION: Final = 1000
"""Bytes of one without its values."""
_STRIDE: Final = 32
"""Revisions of one line of which one is kept put together: to look at any takes this many steps at most."""
_FRAMES: Final = 64
"""Revisions that are kept so."""
_State = tuple[JsonObject, dict[str, None]]
"""The values of a revision, and the ids of its messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """The thread's state at one moment."""

    checkpoint_id: str
    parent_id: str | None
    seq: int
    """Of the record that made it."""
    at: int
    task_id: str | None
    run_id: str | None
    source: str
    """`input`, `loop`, `update` or `fork`."""
    step: int
    node: str
    """Who made it: the agent, or in whose place the caller did."""
    ns: tuple[str, ...] = ()
    """Of a state inside the agent; () = the thread's own."""
    values: JsonObject = field(default_factory=dict[str, object])
    messages: tuple[Message, ...] = ()
    """Not those that an agent with a state of its own keeps in `values`."""
    next: tuple[str, ...] = ()
    """Who is to go on: the agent, from its input to its end."""
    questions: tuple[Interrupt, ...] = ()
    """Those that were open when it was made."""
    fault: Fault | None = None
    origin: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of a copy (`StateSaved.origin`)."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What the upstream of an agent knows of a state."""

    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the upstream's run that ended with it, as they were bound; none = it never had just these messages."""
    changed: JsonObject = field(default_factory=dict[str, object])
    """Members of it that callers have changed since."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A revision as the difference to its parent."""

    made: Revision
    whole: JsonObject | None
    delta: JsonObject
    said: tuple[str, ...]
    removed_ids: tuple[str, ...]
    change: StateChange | None = None
    pruned: bool = False
    """What was in it is gone."""


def members(data: Json) -> JsonObject:
    """An input or an output that is no message, as members of the state: an object is its own members."""
    if data is None:
        return {}
    return dict(data) if isinstance(data, dict) else {"input": data}


class StateHistory:
    """Feed it all records of a thread in order; `fold` has seen the same ones."""

    def __init__(self, thread_id: str, owner: str = "", records: Iterable[Record] = ()) -> None:
        self.fold = Fold(thread_id, owner)
        self._nodes: dict[str, _Node] = {}
        self._tips: dict[str, str] = {}
        """The newest revision of each task."""
        self._inputs: dict[str, RunCreated] = {}
        self._agents: dict[str, TaskCreated] = {}
        self._heard: list[str] = []
        """Messages that belong to no run and to no revision yet: they were said elsewhere, or by an update."""
        self._spoken: dict[str, list[str]] = {}
        """Ids of what each running run said."""
        self._pruned = 0
        """The seq before which revisions are shown no more."""
        self._size = 0
        """Bytes of what is in the revisions, without what they have of their parents."""
        self._known: tuple[str, _State] | None = None
        """The state of one revision, most likely the parent of the next that is asked for."""
        self._frames: dict[str, _State] = {}
        """Those of some others."""
        self._children: dict[str | None, list[str]] | None = None
        """What came of each revision; None until somebody asks."""
        for record in records:
            self.apply(record)

    @property
    def seq(self) -> int:
        """Of the last record."""
        return self.fold.seq

    @property
    def size(self) -> int:
        return self.fold.size + self._size

    def copy(self) -> "StateHistory":
        made = StateHistory(self.fold.thread_id)
        made.fold = self.fold.copy()
        made._nodes, made._tips = dict(self._nodes), dict(self._tips)
        made._inputs, made._agents = dict(self._inputs), dict(self._agents)
        made._heard = list(self._heard)
        made._spoken = {run_id: list(said) for run_id, said in self._spoken.items()}
        made._known, made._frames, made._size = self._known, dict(self._frames), self._size
        made._pruned = self._pruned
        return made

    def apply(self, record: Record) -> str | None:
        """The id of the revision that the record makes, if it makes one. What is in it is put together for those who
        ask for it (`get`): of a long thread that is everything that was ever said."""
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
                self._speak(event, run_id)
            case RunStarted():
                return self._start(record, event)
            case RunEnded():
                return self._stop(record, event)
            case StateSaved():
                return self._save(record, event)
            case RunRemoved():
                self._known = None
                self._frames.clear()
            case StatesPruned(checkpoint_id=kept) if kept in self._nodes:
                self._pruned = self._nodes[kept].made.seq
            case _:
                pass
        return None

    def add_texts(self, event: PartDelta, texts: Sequence[str], seq: int) -> None:
        """As of a `Fold`."""
        self.fold.add_texts(event, texts, seq)

    # What makes a revision

    def _speak(self, event: MessageStarted, run_id: str | None) -> None:
        if run_id is None:
            self._heard.append(event.message_id or "")
        elif event.phase == "answer":
            self._spoken.setdefault(run_id, []).append(event.message_id or "")

    def _start(self, record: Record, event: RunStarted) -> str | None:
        run_id, task_id = record.run_id or "", record.task_id or ""
        if not event.resumed:
            self._spoken[run_id] = []
        given = self._inputs.get(run_id)
        if given is None or event.attempt > 1 or given.cause == "answer" or self._is_stateful(task_id):
            return None
        heard, self._heard = self._heard, []
        said = (*heard, *(message.message_id or "" for message in given.messages))
        parent = given.checkpoint if given.checkpoint in self._nodes else None
        node = event.node or self._agent(task_id)
        return self._add(record, "input", node, said, delta=members(given.data), parent=parent, next_=(node,))

    def _stop(self, record: Record, event: RunEnded) -> str | None:
        run_id, task_id = record.run_id or "", record.task_id or ""
        spoken = self._spoken.pop(run_id, None)
        if self._is_stateful(task_id):
            return self._rest(run_id, task_id, event)
        if spoken is None:
            return None
        node = self._agent(task_id)
        is_unfinished = event.status in (RunStatus.PAUSED, RunStatus.ERROR, RunStatus.TIMEOUT)
        questions = tuple(self.fold.open_interrupts(task_id)) if event.status is RunStatus.PAUSED else ()
        output = {"output": event.output} if not isinstance(event.output, dict | None) else members(event.output)
        return self._add(
            record,
            "loop",
            node,
            tuple(spoken),
            delta=output,
            parent=self._tips.get(task_id),
            next_=(node,) if is_unfinished else (),
            questions=questions,
            fault=event.fault,
        )

    def _rest(self, run_id: str, task_id: str, event: RunEnded) -> None:
        """Add the questions or the fault of a run to the last state that its agent saved.

        The agent saves a state before it asks or fails. A run without an input may ask in the state that it continues,
        and save none.
        """
        tip = self._tips.get(task_id)
        if tip is None:
            given = self._inputs.get(run_id)
            tip = (given and given.checkpoint) or self._head() or ""
            if tip not in self._nodes or not self._nodes[tip].made.next:
                return
            self._tips[task_id] = tip
        if (node := self._nodes.get(tip)) is not None:
            questions = tuple(self.fold.open_interrupts(task_id)) if event.status is RunStatus.PAUSED else ()
            self._nodes[tip] = replace(node, made=replace(node.made, questions=questions, fault=event.fault))

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
        """A caller's revision. Whoever waits for an answer goes on from it."""
        heard, self._heard = tuple(self._heard), []
        parent = event.parent_id or self._head()
        questions = tuple(self.fold.open_interrupts())
        before = self._nodes.get(parent or "")
        made = self._add(
            record,
            event.source,
            event.as_node or ("" if before is None else before.made.node),
            heard,
            whole=event.values,
            delta=event.delta or {},
            change=event.change,
            parent=parent,
            next_=event.next or (before.made.next if before is not None and questions else ()),
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
                self._tips[task_id] = made
        return made

    def _add(
        self,
        record: Record,
        source: str,
        node: str,
        said: tuple[str, ...],
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
        # The id follows from the record: whoever folds the log again finds the same.
        checkpoint_id = checkpoint_id or str(uuid5(NAMESPACE_OID, f"{self.fold.thread_id}/{record.seq}"))
        if step is None:
            step = -1 if before is None else before.made.step + 1
        made = Revision(
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
        self._size += _REVISION
        self._nodes[checkpoint_id] = _Node(made, whole, delta, said, removed_ids, change, pruned)
        if record.task_id is not None and not ns:
            self._tips[record.task_id] = checkpoint_id
        return checkpoint_id

    def _share_values(
        self, parent: str | None, whole: JsonObject | None, delta: JsonObject
    ) -> tuple[JsonObject | None, JsonObject]:
        """The same values, sharing with the parent's what is in both: an agent that tells its whole state each time
        would else fill the memory with copies of its first message."""
        given = delta if whole is None else whole
        before: JsonObject = {}
        if parent is not None and given:
            before, said = self._state(parent)
            self._known = (parent, (before, said))  # the next one is the child of this one, most likely
        shared: JsonObject = {}
        for name, value in given.items():
            known = before.get(name)
            if name in before and is_identical(known, value):
                shared[name] = known
            elif isinstance(known, list) and isinstance(value, list):
                shared[name] = self._share_list(cast("list[Json]", known), cast("list[Json]", value))
            else:
                shared[name] = value
                self._size += len(msgspec.json.encode(value))
        return (None, shared) if whole is None else (shared, delta)

    def _share_list(self, before: list[Json], now: list[Json]) -> list[Json]:
        kept = sum(1 for _ in takewhile(bool, map(is_identical, before, now)))
        self._size += len(msgspec.json.encode(now[kept:])) + 8 * kept
        return [*before[:kept], *now[kept:]]

    def _is_stateful(self, task_id: str) -> bool:
        return task_id in self._agents and self._agents[task_id].stateful

    def _agent(self, task_id: str) -> str:
        return self._agents[task_id].agent if task_id in self._agents else ""

    # Differences

    def difference(self, since: str | None, values: JsonObject) -> StateChange | None:
        """How values differ from those of a revision; None where these are not known, or it is no shorter to tell."""
        before = None if since is None else self.values_of(since)
        return None if since is None or before is None else state_change(since, before, values)

    def values_of(self, checkpoint_id: str) -> JsonObject | None:
        """Those of a revision, also where its run was removed since."""
        if checkpoint_id not in self._nodes:
            return None
        values, said = self._state(checkpoint_id)
        self._known = (checkpoint_id, (values, said))
        return values

    def resolve(self, change: StateChange | None, rest: Json) -> Json:
        """What is told by a difference; `rest` = what is told beside it, or all of it."""
        if change is None:
            return rest
        values = apply_difference(self.values_of(change.since), change.new)
        return {**members(rest), change.member: values} if change.member else values

    # Pruning

    def find_needed(self) -> tuple[str, dict[int, JsonObject | None]] | None:
        """What has to stay where only the newest revision does: its id, and by the seq of its record each revision that
        the state is told by, with its values where these are to be told whole from then on. So have those of graphs
        within that are to go on from it, and those of tasks that have not ended, which may start again from the log.
        None where there is nothing to forget."""
        head = self._head()
        if head is None:
            return None
        seq = self._nodes[head].made.seq
        if all(self._is_hidden(node) or node.made.seq >= seq for node in self._nodes.values()):
            return None
        needed: dict[int, JsonObject | None] = {}
        for checkpoint_id, node in self._nodes.items():
            task = self.fold.tasks.get(node.made.task_id or "")
            is_open = task is not None and not task.is_terminal
            is_later = node.made.seq > seq and not self._is_removed(node)
            if checkpoint_id == head or is_open or is_later:
                self._note_needed(checkpoint_id, needed)
        return head, needed

    def _note_needed(self, checkpoint_id: str, needed: dict[int, JsonObject | None]) -> None:
        """It, and what its state is told by: up to one that is told whole, or can be."""
        node = self._nodes.get(checkpoint_id)
        while node is not None and node.made.seq not in needed:
            is_told = not self._is_removed(node)
            values = self.values_of(node.made.checkpoint_id) if is_told and node.change is not None else None
            needed[node.made.seq] = values
            if values is not None or (is_told and node.whole is not None):
                return
            node = self._nodes.get((node.made.parent_id if node.change is None else node.change.since) or "")

    def revision_seq(self, checkpoint_id: str) -> int:
        """Of the record that made it; 0 where it is not known."""
        node = self._nodes.get(checkpoint_id)
        return 0 if node is None else node.made.seq

    # Looking

    def task(self, task_id: str | None) -> TaskCreated | None:
        """How a task began."""
        return self._agents.get(task_id or "")

    @property
    def head(self) -> Revision | None:
        """The thread's state; None before the first input."""
        newest = self._head()
        return None if newest is None else self._build_revision(newest)

    @property
    def head_id(self) -> str | None:
        return self._head()

    def get(self, checkpoint_id: str) -> Revision | None:
        node = self._nodes.get(checkpoint_id)
        return None if node is None or self._is_hidden(node) else self._build_revision(checkpoint_id)

    def of_run(self, run_id: str) -> Revision | None:
        """The last one that a run made of the thread's own state."""
        for checkpoint_id, node in reversed(self._nodes.items()):
            if node.made.run_id == run_id and not node.made.ns:
                return None if self._is_hidden(node) else self._build_revision(checkpoint_id)
        return None

    def origin(self, revision: Revision, agent: str) -> Origin:
        """What an agent's own server knows of a revision: up to the changes of callers, what a run of the agent ended
        with is known there."""
        at = revision
        while at.run_id is None and not at.origin and at.parent_id is not None:
            parent = self.get(at.parent_id)
            if parent is None:
                break
            at = parent
        known: JsonObject = {} if at.run_id is None and not at.origin else at.values
        changed = {
            name: value
            for name, value in revision.values.items()
            if name != "messages" and (name not in known or not is_identical(known[name], value))
        }
        # What was said elsewhere since stands in none of them yet.
        same = not self._heard and at.messages == revision.messages and known.keys() <= revision.values.keys()
        return Origin(self._upstream_of(at, agent) if same else {}, changed)

    def _upstream_of(self, revision: Revision, agent: str) -> Mapping[str, str]:
        """The ids of the upstream's run that ended with a revision, if one of the agent did."""
        if revision.origin:
            ids = {name: value for name, value in revision.origin.items() if name != ORIGIN_AGENT}
            return ids if revision.origin.get(ORIGIN_AGENT) == agent else {}
        run, task = self.fold.runs.get(revision.run_id or ""), self.task(revision.task_id)
        if run is None or task is None or task.agent != agent or run.status is not RunStatus.SUCCESS:
            return {}
        last = self.of_run(run.run_id)
        return run.upstream if last is not None and last.checkpoint_id == revision.checkpoint_id else {}

    def all(self, ns: tuple[str, ...] = ()) -> list[Revision]:
        """Newest first; without those of removed runs, and those that were pruned."""
        found = [n.made.checkpoint_id for n in self._nodes.values() if n.made.ns == ns and not self._is_hidden(n)]
        return [self._build_revision(checkpoint_id) for checkpoint_id in found][::-1]

    def newest(self, ns: tuple[str, ...] = (), before: int | None = None) -> Iterator[Revision]:
        """The same, made one by one as they are asked for: those that were made before a seq."""
        for checkpoint_id, node in reversed(self._nodes.items()):
            if node.made.ns == ns and (before is None or node.made.seq < before) and not self._is_hidden(node):
                yield self._build_revision(checkpoint_id)

    def then(self, revision: Revision) -> list[Revision]:
        """The revisions of the same state that came of one, newest first."""
        if self._children is None:
            self._children = {}
            for checkpoint_id, node in self._nodes.items():
                if not self._is_hidden(node):
                    self._children.setdefault(self._parent(node), []).append(checkpoint_id)
        found = [
            each for each in self._children.get(revision.checkpoint_id, ()) if self._nodes[each].made.ns == revision.ns
        ]
        return [self._build_revision(checkpoint_id) for checkpoint_id in reversed(found)]

    def inner(self, revision: Revision, node: str) -> Revision | None:
        """The newest state of the graph within a node that is to go on from a revision."""
        depth = len(revision.ns)
        for checkpoint_id, each in reversed(self._nodes.items()):
            made = each.made
            if made.seq <= revision.seq:
                return None
            within = len(made.ns) == depth + 1 and made.ns[:depth] == revision.ns
            if within and made.ns[-1].partition(":")[0] == node and not self._is_hidden(each):
                return self._build_revision(checkpoint_id)
        return None

    def _parent(self, node: _Node) -> str | None:
        """The next ancestor that there is still."""
        parent = node.made.parent_id
        while parent is not None and parent in self._nodes and self._is_hidden(self._nodes[parent]):
            parent = self._nodes[parent].made.parent_id
        return parent

    def _head(self) -> str | None:
        for checkpoint_id, node in reversed(self._nodes.items()):
            if not node.made.ns and not self._is_removed(node):
                return checkpoint_id if node.made.seq >= self._pruned else None
        return None

    def _is_hidden(self, node: _Node) -> bool:
        return node.pruned or node.made.seq < self._pruned or self._is_removed(node)

    def _is_removed(self, node: _Node) -> bool:
        run = self.fold.runs.get(node.made.run_id or "")
        return run is not None and run.removed

    def _build_revision(self, checkpoint_id: str) -> Revision:
        values, said = self._state(checkpoint_id)
        self._known = (checkpoint_id, (values, said))
        node = self._nodes[checkpoint_id]
        made, parent = self._without_withdrawn(node.made), self._parent(node)
        return replace(made, parent_id=parent, values=values, messages=self.fold.find_messages(said))

    def _without_withdrawn(self, made: Revision) -> Revision:
        """A question that was taken back is asked no more, and who asked it does not go on. An agent with a state of
        its own knows that better."""
        asked = self.fold.interrupts
        left = tuple(q for q in made.questions if asked[q.task_id, q.interrupt_id].action != "superseded")
        if len(left) == len(made.questions):
            return made
        stays = bool(left) or self._is_stateful(made.task_id or "")
        return replace(made, questions=left, next=made.next if stays else ())

    def _state(self, checkpoint_id: str) -> _State:
        """The values of a revision and the ids of its messages: those of its ancestors, one after the other. What tells
        its difference to a revision has what that has, also where its run was removed since."""
        line: list[tuple[str, _Node, bool]] = []
        values: JsonObject = {}
        said: dict[str, None] = {}
        at, counts = checkpoint_id, False
        while (node := self._nodes.get(at)) is not None:
            is_removed = self._is_removed(node)
            known = None if is_removed else self._cached_state(at)
            if known is not None:
                values, said = known[0], dict(known[1])
                break
            line.append((at, node, counts or not is_removed))
            if len(line) > len(self._nodes):  # an agent that gives ids twice can make a circle of them
                break
            counts = node.change is not None
            at = node.made.parent_id or "" if node.change is None else node.change.since
        for number, (name, node, is_told) in enumerate(reversed(line), 1):
            if is_told:
                values = self._apply_node(node, values)
                for message_id in node.said:
                    said[message_id] = None
                for message_id in node.removed_ids:
                    said.pop(message_id, None)
            if number % _STRIDE == 0 and not self._is_removed(node):
                self._keep_frame(name, (values, dict(said)))
        return values, said

    @staticmethod
    def _apply_node(node: _Node, before: JsonObject) -> JsonObject:
        if node.change is not None:
            return apply_difference(before, node.change.new)
        return {**before, **node.delta} if node.whole is None else node.whole

    def _cached_state(self, checkpoint_id: str) -> _State | None:
        if self._known is not None and self._known[0] == checkpoint_id:
            return self._known[1]
        return self._frames.get(checkpoint_id)

    def _keep_frame(self, checkpoint_id: str, state: _State) -> None:
        self._frames[checkpoint_id] = state
        if len(self._frames) > _FRAMES:
            del self._frames[next(iter(self._frames))]
