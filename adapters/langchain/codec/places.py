"""Namespaces (subgraphs): the places inside an agent where its run is at work: graphs within graphs, and agents that
tools call. What the channel `lifecycle` and `agent.getTree` tell of them (CDDL 0.0.13, section 7)."""

from collections.abc import Sequence
from typing import Any

from babelgate.canonical.event import StepEnded, StepStarted
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

Namespace = tuple[str, ...]
"""A place, from the outermost: `node:task` each. The root is ()."""


class Places:
    """Of the newest run."""

    def __init__(self) -> None:
        self._agent = ""
        self._statuses: dict[Namespace, str] = {}
        """None before the first run."""
        self._names: dict[Namespace, str] = {}
        """Of the agents at places that have a name of their own."""
        self._causes: dict[str, str] = {}
        """By the id of a task, the call of a tool that it was made for."""

    def begin(self, agent: str) -> JsonObject:
        """A run is at work."""
        self._statuses = {(): "running"}
        self._names.clear()
        self._causes.clear()
        self._agent = agent
        return self._data("running", ())

    def end(self, agent: str, status: str, error: str | None) -> JsonObject:
        """Of the run, which may never have begun."""
        self._agent = agent
        self._statuses[()] = status
        return self._data(status, (), error)

    def identify(self, event: StepStarted) -> None:
        """What is known of a place before anything of it is told: LangChain's agents name themselves in the metadata of
        their tasks, and the task that calls a tool has the call as its input."""
        name: Any = as_object(as_object(event.extra.get("langgraph")).get("metadata")).get("lc_agent_name")
        if event.ns not in self._statuses and isinstance(name, str):
            self._names[event.ns] = name
        if event.step_id and (call_id := _call_in(event.input)):
            self._causes[event.step_id] = call_id

    def enter(self, ns: Namespace) -> Sequence[tuple[Namespace, JsonObject]]:
        """The places that begin there: where something of them is first told."""
        if not ns or ns in self._statuses or not self._statuses:
            return ()
        outer = self.enter(ns[:-1])
        self._statuses[ns] = "started"
        return (*outer, (ns, self._data("started", ns)))

    def leave(self, ns: Namespace, status: str, error: str | None = None) -> Sequence[tuple[Namespace, JsonObject]]:
        """The places from there on that end now, the innermost first."""
        ended = [ns_ for ns_, now in reversed(self._statuses.items()) if now == "started" and ns_[: len(ns)] == ns]
        self._statuses |= dict.fromkeys(ended, status)
        return [(place, self._data(status, place, error)) for place in ended]

    def step_ended(self, event: StepEnded) -> Sequence[tuple[Namespace, JsonObject]]:
        """The same, of the places below a task."""
        asks = bool(as_object(event.extra.get("langgraph")).get("interrupts"))
        error = None if event.fault is None else event.fault.message
        status = "interrupted" if asks else "completed" if error is None else "failed"
        return self.leave((*event.ns, f"{event.name}:{event.step_id}"), status, error)

    @property
    def tree(self) -> JsonObject | None:
        """`AgentTreeNode`; None before the first run."""
        return self._tree(()) if self._statuses else None

    def _tree(self, ns: Namespace) -> JsonObject:
        below = [self._tree(place) for place in self._statuses if place and place[:-1] == ns]
        node: JsonObject = {"namespace": list(ns), "status": self._statuses[ns], "graph_name": self._name(ns)}
        return {**node, "children": below} if below else node

    def _data(self, status: str, ns: Namespace, error: str | None = None) -> JsonObject:
        """`LifecycleData`, with the members that LangGraph Platform adds."""
        data: JsonObject = {"event": status, "graph_name": self._name(ns)}
        task_id = ns[-1].partition(":")[2] if ns else ""
        if task_id:
            data["trigger_call_id"] = task_id
        if status == "started" and task_id in self._causes:
            data["cause"] = {"type": "toolCall", "tool_call_id": self._causes[task_id]}
        return data if error is None else {**data, "error": error}

    def _name(self, ns: Namespace) -> str:
        return self._names.get(ns) or ns[-1].partition(":")[0] if ns else self._agent


def _call_in(given: Json) -> str:
    """The id of the one call of a tool that a task has been given, by LangChain's `ToolNode`."""
    calls = given if isinstance(given, list) else [as_object(given).get("tool_call")]
    ids = [as_object(call).get("id") for call in calls]
    return ids[0] if len(ids) == 1 and isinstance(ids[0], str) else ""
