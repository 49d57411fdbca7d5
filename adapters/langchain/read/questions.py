"""Decoding of the interrupts that a server reports during a run as `InterruptRaised` events at its end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from babelgate.adapters.kit.json import validate
from babelgate.adapters.langchain.codec.approvals import decode_approval
from babelgate.adapters.langchain.codec.caller_tools import decode_call, encode_question, find_unanswered
from babelgate.adapters.langchain.codec.interrupts import BREAKPOINT, CALL, QuestionOrder, question_text
from babelgate.adapters.langchain.read.messages import Place
from babelgate.adapters.langchain.read.run_state import RunState
from babelgate.adapters.langchain.wire import replies as w
from babelgate.canonical import Event, Message, ToolCallPart
from babelgate.canonical.event import InterruptRaised
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

INTERRUPT: Final = "__interrupt__"
"""Member of the state and of updates in which LangGraph reports interrupts."""
_QUESTION_MEMBERS: Final = frozenset({"id", "interrupt_id", "value", "message", "kind"})
"""Members of an interrupt that are decoded to canonical fields. All others are stored in `extra`."""


@dataclass(slots=True)
class _Question:
    """An interrupt, with the node and namespace of the task that raised it, if known."""

    wire: w.Interrupt
    node: str = ""
    ns: Place = ()
    turn: tuple[int, ...] = ()
    """Sort key of the task, from `QuestionOrder`."""


class QuestionReader:
    """Collector of one run's questions. The same question can arrive several times: in states, in updates and with its
    task.

    `tools` are the names of the caller's tools.
    """

    def __init__(self, run: RunState, tools: frozenset[str]) -> None:
        self._run = run
        self._tools = tools
        self._asked: dict[str, _Question] = {}
        """Questions by their id at the server, in the order of arrival. The key is empty for a question without an
        id."""
        self._order = QuestionOrder()
        self._is_at_breakpoint = False

    @property
    def is_asking(self) -> bool:
        """True if the graph has asked something or has stopped at a breakpoint."""
        return bool(self._asked) or self._is_at_breakpoint

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that ask, without duplicates."""
        return tuple(dict.fromkeys(question.node for question in self._asked.values() if question.node))

    def begin_task(self, task_id: str) -> None:
        """Record that a task has begun. Questions are sorted by the order in which their tasks began."""
        self._order.begin(task_id)

    def ask(self, interrupts: Json, node: str = "", ns: Place = ()) -> None:
        """Add the interrupts of a state, raised by a node in the namespace `ns`. A value that is not a list is ignored.
        Raises invalid for a malformed interrupt."""
        for interrupt in interrupts if isinstance(interrupts, list) else ():
            self._add(validate(w.Interrupt, interrupt), node, ns)

    def ask_in_update(self, interrupts: Json, ns: Place) -> None:
        """Add the interrupts of an update of the graph in the namespace `ns`. An empty list from the outermost graph
        means that it has stopped at a breakpoint. Raises invalid for a malformed interrupt."""
        self.ask(interrupts, ns=ns)
        self._is_at_breakpoint = self._is_at_breakpoint or (not interrupts and not ns)

    def ask_by_task(self, task: w.TaskResult, ns: Place) -> None:
        """Add the interrupts of a task that has stopped. Only the task itself tells which node asks: the enclosing
        graphs report the same interrupts later, without the node."""
        for interrupt in task.interrupts or ():
            self._add(interrupt, task.name, ns, self._order.of(ns, task.id))

    def _add(self, interrupt: w.Interrupt, node: str, ns: Place, turn: tuple[int, ...] = ()) -> None:
        key = interrupt.id or interrupt.interrupt_id or ""
        question = self._asked.get(key)
        if question is None and not (key == "" and self._asked):
            self._asked[key] = _Question(interrupt, node, ns, turn)
        elif question is not None and not question.node and node:
            question.node, question.ns, question.turn = node, ns, turn

    # The end

    def questions(self) -> Sequence[Event]:
        """Return an `InterruptRaised` for each question of the run, in the order of their tasks. If there is none,
        return one for the breakpoint at which the graph stopped, if any."""
        sorted_questions = sorted(self._asked.items(), key=lambda item: item[1].turn)
        questions = [_decode_interrupt(key, question) for key, question in sorted_questions]
        return [self._breakpoint()] if self._is_at_breakpoint and not questions else questions

    def calls(self) -> Sequence[Event]:
        """Return an `InterruptRaised` for each call of a caller's tool in the last message of a graph that has ended.
        The answers go into the next run of the graph as tool messages."""
        if self.is_asking or self._run.next or not self._tools:
            return ()
        messages = as_object(self._run.values).get("messages")
        return [_question_for(call) for call in find_unanswered(messages, self._tools)]

    def _breakpoint(self) -> InterruptRaised:
        run = self._run
        nodes = ", ".join(run.next)
        where = f" before {nodes}" if nodes else ""
        return InterruptRaised(
            interrupt_id=f"{BREAKPOINT}{run.checkpoint_id or run.run_id}",
            message=Message.of(f"The graph stops{where}, as configured. Any answer continues it."),
            value={"next": list(run.next)},
            node=run.next[0] if run.next else "",
            extra={"langchain": {"breakpoint": True}},
        )


def _question_for(call: ToolCallPart) -> InterruptRaised:
    """Return an `InterruptRaised` that asks the caller for the result of a tool call."""
    message, value = encode_question(call)
    extra = {"call_id": call.call_id, "name": call.name, "ended": True}
    return InterruptRaised(
        interrupt_id=f"{CALL}{call.call_id}", message=message, value=value, extra={"langchain": extra}
    )


def _decode_interrupt(key: str, question: _Question) -> InterruptRaised:
    """Return the `InterruptRaised` for an interrupt. `key` is its id at the server, or empty. The hub replaces the id
    if the task has had a question with the same one."""
    wire = question.wire
    text = wire.message or question_text(wire.value)
    message, value = Message.of(text) if text else Message(), None if wire.value == text else wire.value
    extra: JsonObject = {"id": key} if key else {}
    call = decode_call(wire.value)
    if call is not None:
        message, value = encode_question(call)
        extra["call_id"] = call.call_id
    approval = decode_approval(wire.value)
    if approval is not None:
        extra["approval"] = approval[0]
    extra |= _other_members(wire)
    kind = wire.kind if wire.kind == "approval" or wire.kind == "auth" else "input"
    return InterruptRaised(
        interrupt_id=key or None,
        ask=kind if approval is None else "approval",
        message=message,
        value=value,
        answer_schema=wire.response_schema,
        node=question.node,
        ns=question.ns or tuple(wire.ns or ()),
        extra={"langchain": extra} if extra else {},
    )


def _other_members(wire: w.Interrupt) -> JsonObject:
    """Return the members of an interrupt that have no canonical field, such as `when` and `resumable` of LangGraph
    before 1.0."""
    members = {
        name: value
        for name, value in wire.model_dump(exclude_unset=True).items()
        if name not in _QUESTION_MEMBERS and (name != "response_schema" or value is None)
    }
    return {"interrupt": members} if members else {}
