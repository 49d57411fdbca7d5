"""Namespaces (subgraphs) of a run: the places inside an agent that are running, such as graphs within graphs and agents
called by tools. They are reported by the channel `lifecycle` and by `agent.getTree` (CDDL 0.0.13, section 7)."""

from collections.abc import Sequence
from typing import Any

from babelgate.canonical.event import StepEnded, StepStarted
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

Namespace = tuple[str, ...]
"""A place inside an agent: one segment `node:task` for each level, outermost first. The root is ()."""


class Places:
    """The places of a thread's newest run, with their status."""

    def __init__(self) -> None:
        self._agent = ""
        self._statuses: dict[Namespace, str] = {}
        """Status by place, in the order in which the places started. Empty before the first run."""
        self._names: dict[Namespace, str] = {}
        """Agent name by place, for agents that report their own name."""
        self._causes: dict[str, str] = {}
        """Id of the tool call that a task was created for, by task id."""

    def begin(self, agent: str) -> JsonObject:
        """Start a new run and return its `running` event."""
        self._statuses = {(): "running"}
        self._names.clear()
        self._causes.clear()
        self._agent = agent
        return self._data("running", ())

    def end(self, agent: str, status: str, error: str | None) -> JsonObject:
        """End the run and return its lifecycle event, which has `error` if the run failed. The run may have ended
        before it started."""
        self._agent = agent
        self._statuses[()] = status
        return self._data(status, (), error)

    def identify(self, event: StepStarted) -> None:
        """Store the agent name and the tool call of a place before its first event is reported. LangChain's agents name
        themselves in the metadata of their tasks. The task that calls a tool has the call as its input."""
        name: Any = as_object(as_object(event.extra.get("langgraph")).get("metadata")).get("lc_agent_name")
        if event.ns not in self._statuses and isinstance(name, str):
            self._names[event.ns] = name
        if event.step_id and (call_id := _tool_call_id(event.input)):
            self._causes[event.step_id] = call_id

    def enter(self, ns: Namespace) -> Sequence[tuple[Namespace, JsonObject]]:
        """Return a `started` event for the place and each enclosing place that this is the first event of."""
        if not ns or ns in self._statuses or not self._statuses:
            return ()
        outer = self.enter(ns[:-1])
        self._statuses[ns] = "started"
        return (*outer, (ns, self._data("started", ns)))

    def leave(self, ns: Namespace, status: str, error: str | None = None) -> Sequence[tuple[Namespace, JsonObject]]:
        """End the open places at and below a namespace, and return their events, innermost first. The places fail with
        `error`, unless it is None."""
        ended = [
            inner
            for inner, current in reversed(self._statuses.items())
            if current == "started" and inner[: len(ns)] == ns
        ]
        self._statuses |= dict.fromkeys(ended, status)
        return [(place, self._data(status, place, error)) for place in ended]

    def step_ended(self, event: StepEnded) -> Sequence[tuple[Namespace, JsonObject]]:
        """End the places below a task that has ended, and return their events, innermost first."""
        asks = bool(as_object(event.extra.get("langgraph")).get("interrupts"))
        error = None if event.fault is None else event.fault.message
        status = "interrupted" if asks else "completed" if error is None else "failed"
        return self.leave((*event.ns, f"{event.name}:{event.step_id}"), status, error)

    @property
    def tree(self) -> JsonObject | None:
        """The places with their statuses, as an `AgentTreeNode`; None before the first run."""
        return self._tree(()) if self._statuses else None

    def _tree(self, ns: Namespace) -> JsonObject:
        below = [self._tree(place) for place in self._statuses if place and place[:-1] == ns]
        node: JsonObject = {"namespace": list(ns), "status": self._statuses[ns], "graph_name": self._name(ns)}
        return {**node, "children": below} if below else node

    def _data(self, status: str, ns: Namespace, error: str | None = None) -> JsonObject:
        """Return a `LifecycleData` with the status of a place and the error of a failed one, and with the members that
        LangGraph Platform adds."""
        data: JsonObject = {"event": status, "graph_name": self._name(ns)}
        task_id = ns[-1].partition(":")[2] if ns else ""
        if task_id:
            data["trigger_call_id"] = task_id
        if status == "started" and task_id in self._causes:
            data["cause"] = {"type": "toolCall", "tool_call_id": self._causes[task_id]}
        return data if error is None else {**data, "error": error}

    def _name(self, ns: Namespace) -> str:
        return self._names.get(ns) or ns[-1].partition(":")[0] if ns else self._agent


def _tool_call_id(task_input: Json) -> str:
    """Return the call id of a task whose input is exactly one tool call, as LangChain's `ToolNode` starts it; else an
    empty string."""
    calls = task_input if isinstance(task_input, list) else [as_object(task_input).get("tool_call")]
    ids = [as_object(call).get("id") for call in calls]
    return ids[0] if len(ids) == 1 and isinstance(ids[0], str) else ""
