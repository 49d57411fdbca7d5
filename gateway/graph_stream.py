"""What a running graph tells of itself → events: its states, the nodes at work, what is said, and its questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from adapters.langchain.content import json_text, members_of
from adapters.langchain.question import BREAKPOINT, Turns
from canonical import Event, Fault, FaultCode, Message
from canonical.event import Custom, InterruptRaised, Native, StateSaved, StepEnded, StepStarted
from canonical.value import Json, JsonObject, same
from gateway.graph_speech import Speech
from gateway.graph_value import plain, plain_object

__all__ = ("MODES", "Telling")

MODES: Final = ("values", "checkpoints", "tasks", "updates", "messages", "custom")
"""What is asked of the graph."""

_QUESTIONS: Final = ("question", "message", "prompt", "text", "description", "action")
"""Members of a question's value that hold its words."""
_INTERRUPT: Final = "__interrupt__"

Namespace = tuple[str, ...]


@dataclass(slots=True)
class _Question:
    value: Json
    schema: JsonObject | None
    node: str
    ns: Namespace
    turn: tuple[int, ...]


class Telling:
    """Of one run. Feed it what `astream` yields."""

    def __init__(self, loaded: set[tuple[str, str]], *, base: str | None, keeps_last: bool) -> None:
        """`loaded` = place and id of the checkpoints that were there before. `base` = the revision that the run starts
        from where the graph has no checkpoint of it. `keeps_last` = of all checkpoints the graph keeps the last."""
        self.speech = Speech()
        self.values: JsonObject = {}
        """The graph's state."""
        self.paused = False
        self._loaded = loaded
        self._base = base
        self._keeps_last = keeps_last
        self._shown: set[Namespace] = set()
        """Where values were told since the last checkpoint: those of that checkpoint, which comes after them."""
        self._held: dict[Namespace, StateSaved] = {}
        self._states: dict[Namespace, tuple[str, JsonObject]] = {}
        """The newest checkpoint of each place and its values, of those that are told in this run."""
        self._updates: dict[tuple[Namespace, str], list[Json]] = {}
        self._finished: dict[Namespace, list[str]] = {}
        """The nodes that ended since the last checkpoint."""
        self._asked: dict[str, _Question] = {}
        self._turns = Turns()
        self._next: tuple[str, ...] = ()
        self._head = ""

    def tell(self, ns: Namespace, mode: str, data: Any) -> Sequence[Event]:
        match mode:
            case "values":
                return self._values(ns, data)
            case "checkpoints":
                return self._checkpoint(ns, data)
            case "tasks":
                return self._result(ns, data) if "result" in data else self._task(ns, data)
            case "updates":
                self._update(ns, data)
                return ()
            case "messages":
                message, about = data
                return self.speech.hear(message, about, ns)
            case "custom":
                return (Custom(ns=ns, value=plain(data)),)
            case _:
                return ()

    def close(self, *, failed: bool = False) -> list[Event]:
        """It has stopped: the last states, and its questions after all else."""
        events: list[Event] = [*self.speech.close(), *self._held.values()]
        self._held.clear()
        if failed:
            return events
        if self._asked:
            in_turn = sorted(self._asked.items(), key=lambda each: each[1].turn)
            events += [_raised(interrupt_id, asked) for interrupt_id, asked in in_turn]
        elif self.paused:
            events.append(self._breakpoint())
        self.paused = self.paused or bool(self._asked)
        return events

    # States

    def _values(self, ns: Namespace, data: Any) -> Sequence[Event]:
        """A state is told with its checkpoint; here it is only noted that readers of values are told of it, which they
        are not where a step wrote nothing."""
        if _INTERRUPT in members_of(data):
            return ()
        if self._keeps_last:
            return (Native(protocol="langgraph", event="values", ns=ns, data=plain(data)),)
        self._shown.add(ns)
        return ()

    def _checkpoint(self, ns: Namespace, data: Mapping[str, Any]) -> Sequence[Event]:
        checkpoint_id = data["config"]["configurable"]["checkpoint_id"]
        values = plain_object(data["values"])
        if not ns:
            self.values, self._next, self._head = values, tuple(data["next"]), checkpoint_id
        shown = ns in self._shown
        self._shown.discard(ns)
        if ("|".join(ns), checkpoint_id) in self._loaded:
            return self._again(ns, data, values, shown)
        parent = data["parent_config"]
        parent_id = None if parent is None else parent["configurable"]["checkpoint_id"]
        metadata: Mapping[str, Any] = data["metadata"]
        finished = self._finished.pop(ns, [])
        saved = StateSaved(
            checkpoint_id=checkpoint_id,
            parent_id=parent_id or (self._base if not ns else None),
            source=metadata["source"],
            step=metadata["step"],
            as_node=finished[0] if len(finished) == 1 else None,
            next=tuple(data["next"]),
            ns=ns,
            extra={"langgraph": {"shown": shown}},
            **self._difference(ns, parent_id, values),
        )
        self._base = None if not ns else self._base
        self._states[ns] = (checkpoint_id, values)
        if self._keeps_last:
            self._held[ns] = saved
            return ()
        return (saved,)

    def _difference(self, ns: Namespace, parent_id: str | None, values: JsonObject) -> JsonObject:
        """A state as what is new in it, if its parent was told in this run and has nothing that it has not."""
        known = self._states.get(ns)
        if ns or self._keeps_last or known is None or known[0] != parent_id or not known[1].keys() <= values.keys():
            return {"values": values}
        before = known[1]
        changed = {name: value for name, value in values.items() if name not in before or not same(before[name], value)}
        return {"delta": changed}

    def _again(self, ns: Namespace, data: Mapping[str, Any], values: JsonObject, shown: bool) -> Sequence[Event]:
        """The state that the run goes on from: it is known, and only LangGraph's own readers are told once more."""
        told = [("values", values)] if shown else []
        told.append(("checkpoints", plain_object(data)))
        return [Native(protocol="langgraph", event=event, ns=ns, data=what) for event, what in told]

    # Nodes

    def _task(self, ns: Namespace, data: Mapping[str, Any]) -> Sequence[Event]:
        self._turns.begin(data["id"])
        own = {name: plain(data[name]) for name in ("triggers", "metadata") if name in data}
        return (
            StepStarted(
                step_id=data["id"],
                name=data["name"],
                node=data["name"],
                ns=ns,
                input=plain(data["input"]),
                extra={"langgraph": own},
            ),
        )

    def _result(self, ns: Namespace, data: Mapping[str, Any]) -> Sequence[Event]:
        name, error = data["name"], data["error"]
        turn = self._turns.of(ns, data["id"])
        for asked in data["interrupts"]:
            # A graph around the one that asks tells of the question, too, and later.
            known = _Question(plain(asked["value"]), _schema(asked.get("response_schema")), name, ns, turn)
            self._asked.setdefault(asked["id"], known)
        updates = self._updates.get((ns, name))
        result = plain(data["result"])
        update = updates.pop(0) if updates else result
        own: JsonObject = {"result": result}
        if data["interrupts"]:
            own["interrupts"] = plain(data["interrupts"])
        if error is None and not data["interrupts"]:
            self._finished.setdefault(ns, []).append(name)
        fault = None if error is None else Fault(code=FaultCode.AGENT_FAILED, message=str(plain(error)))
        ended = StepEnded(
            step_id=data["id"],
            name=name,
            node=name,
            ns=ns,
            update=None if data["interrupts"] or fault else update,
            fault=fault,
            extra={"langgraph": own},
        )
        return (*self.speech.node_ended(data["id"]), ended)

    def _update(self, ns: Namespace, data: Mapping[str, Any]) -> None:
        for node, update in data.items():
            if node != _INTERRUPT:
                self._updates.setdefault((ns, node), []).append(plain(update))
            elif not update and not ns:  # nobody asks: it was told to stop here
                self.paused = True

    # Questions

    def _breakpoint(self) -> InterruptRaised:
        nodes = ", ".join(self._next)
        return InterruptRaised(
            interrupt_id=f"{BREAKPOINT}{self._head}",
            message=Message.of(f"The graph was told to stop before {nodes}. Any answer lets it go on."),
            value={"next": list(self._next)},
            node=self._next[0] if self._next else "",
        )


def _raised(interrupt_id: str, asked: _Question) -> InterruptRaised:
    return InterruptRaised(
        interrupt_id=interrupt_id,
        message=Message.of(_words(asked.value)),
        value=None if isinstance(asked.value, str) else asked.value,
        answer_schema=asked.schema,
        node=asked.node,
        ns=asked.ns,
    )


def _words(value: Json) -> str:
    """The question for people."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for name in _QUESTIONS:
            if isinstance(value.get(name), str):
                return str(value[name])
    return "" if value is None else json_text(value)


def _schema(value: Any) -> JsonObject | None:
    made = plain(value)
    return made if isinstance(made, dict) else None
