"""Questions of a run → the questions that callers get when the run has stopped."""

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
"""Member of states and updates that contains questions."""
_QUESTION_MEMBERS: Final = frozenset({"id", "interrupt_id", "value", "message", "kind"})
"""Members of a question that have a canonical place."""


@dataclass(slots=True)
class _Question:
    """A question, and the task that asks it, if known."""

    wire: w.Interrupt
    node: str = ""
    ns: Place = ()
    turn: tuple[int, ...] = ()
    """Sort key of the task."""


class QuestionReader:
    """Questions of one run. The same one can arrive in several ways: in states, in updates and with its task.

    `tools` are the names of the caller's tools.
    """

    def __init__(self, run: RunState, tools: frozenset[str]) -> None:
        self._run = run
        self._tools = tools
        self._asked: dict[str, _Question] = {}
        """Questions by id, in the order of arrival."""
        self._order = QuestionOrder()
        self._is_at_breakpoint = False

    @property
    def is_asking(self) -> bool:
        """True if the graph has asked something or has stopped at a breakpoint."""
        return bool(self._asked) or self._is_at_breakpoint

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes that ask, each once."""
        return tuple(dict.fromkeys(question.node for question in self._asked.values() if question.node))

    def begin_task(self, task_id: str) -> None:
        """Note that a task has begun. Questions are sorted by the order in which their tasks begin."""
        self._order.begin(task_id)

    def ask(self, interrupts: Json, node: str = "", ns: Place = ()) -> None:
        """Add the questions of a state that a node in a place of the graph raised. Raises invalid if one breaks the
        protocol."""
        for interrupt in interrupts if isinstance(interrupts, list) else ():
            self._add(validate(w.Interrupt, interrupt), node, ns)

    def ask_in_update(self, interrupts: Json, ns: Place) -> None:
        """Add the questions of an update. An update without any means that the graph has stopped at a breakpoint.
        Raises invalid if one breaks the protocol."""
        self.ask(interrupts, ns=ns)
        self._is_at_breakpoint = self._is_at_breakpoint or (not interrupts and not ns)

    def ask_by_task(self, task: w.TaskResult, ns: Place) -> None:
        """Add the questions of a task. The graphs around it report them, too, and later."""
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
        """Return the questions that are open, or the breakpoint at which the graph has stopped."""
        sorted_questions = sorted(self._asked.items(), key=lambda item: item[1].turn)
        questions = [_decode_interrupt(key, question) for key, question in sorted_questions]
        return [self._breakpoint()] if self._is_at_breakpoint and not questions else questions

    def calls(self) -> Sequence[Event]:
        """Return the calls of the caller's tools that the graph has ended on, as questions. The graph is run again with
        their results."""
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
            message=Message.of(f"The graph was told to stop{where}. Any answer lets it go on."),
            value={"next": list(run.next)},
            node=run.next[0] if run.next else "",
            extra={"langchain": {"breakpoint": True}},
        )


def _question_for(call: ToolCallPart) -> InterruptRaised:
    """Return a call of a caller's tool as a question."""
    message, value = encode_question(call)
    extra = {"call_id": call.call_id, "name": call.name, "ended": True}
    return InterruptRaised(
        interrupt_id=f"{CALL}{call.call_id}", message=message, value=value, extra={"langchain": extra}
    )


def _decode_interrupt(key: str, question: _Question) -> InterruptRaised:
    """Return a question with its id at the server; the hub gives it another id if the task had a question with that id
    before."""
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
    """Return the members of a question without a canonical place: `ns`, `when` and `resumable` of LangGraph before
    1.0."""
    members = {
        name: value
        for name, value in wire.model_dump(exclude_unset=True).items()
        if name not in _QUESTION_MEMBERS and (name != "response_schema" or value is None)
    }
    return {"interrupt": members} if members else {}
