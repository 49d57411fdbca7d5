"""Namespaces of a run that are active, with their status: graphs within graphs, and agents called by tools. The channel
`lifecycle` and the command `agent.getTree` report them (CDDL 0.0.13, section 7)."""

from collections.abc import Sequence
from typing import Any

from babelgate.canonical.event import StepEnded, StepStarted
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

Namespace = tuple[str, ...]
"""Position of a nested graph inside an agent: one segment `<node>:<task id>` for each level, outermost first. The
outermost graph is ()."""


class Places:
    """The namespaces of a thread's newest run, each with its status and name."""

    def __init__(self) -> None:
        self._agent = ""
        self._statuses: dict[Namespace, str] = {}
        """Status of each namespace, for example `started`, in the order in which they started. Empty before the first
        run."""
        self._names: dict[Namespace, str] = {}
        """Agent name of each namespace whose agent reported its name."""
        self._causes: dict[str, str] = {}
        """Id of the tool call that a task executes, by task id."""

    def begin(self, agent: str) -> JsonObject:
        """Start a run of `agent`, discard the state of the previous run, and return the `LifecycleData` with the status
        `running`."""
        self._statuses = {(): "running"}
        self._names.clear()
        self._causes.clear()
        self._agent = agent
        return self._data("running", ())

    def end(self, agent: str, status: str, error: str | None) -> JsonObject:
        """Set the status of the whole run, and return its `LifecycleData`. `error` is the text of a failed run. A run
        that ended before it started has no earlier call of `begin`."""
        self._agent = agent
        self._statuses[()] = status
        return self._data(status, (), error)

    def identify(self, event: StepStarted) -> None:
        """Store the agent name of a task's namespace and the id of the tool call that the task executes, both for later
        events.

        LangChain's agents name themselves in the metadata of their tasks. The input of a task that executes a tool is
        the call.
        """
        name: Any = as_object(as_object(event.extra.get("langgraph")).get("metadata")).get("lc_agent_name")
        if event.ns not in self._statuses and isinstance(name, str):
            self._names[event.ns] = name
        if event.step_id and (call_id := _tool_call_id(event.input)):
            self._causes[event.step_id] = call_id

    def enter(self, ns: Namespace) -> Sequence[tuple[Namespace, JsonObject]]:
        """Mark a namespace and the namespaces around it as started. Return the `LifecycleData` of those that were not
        started before, outermost first."""
        if not ns or ns in self._statuses or not self._statuses:
            return ()
        outer = self.enter(ns[:-1])
        self._statuses[ns] = "started"
        return (*outer, (ns, self._data("started", ns)))

    def leave(self, ns: Namespace, status: str, error: str | None = None) -> Sequence[tuple[Namespace, JsonObject]]:
        """End the namespaces at and below `ns` that are started: set their `status`, and return their `LifecycleData`,
        innermost first. `error` is the text of the failure, or None."""
        ended = [
            inner
            for inner, current in reversed(self._statuses.items())
            if current == "started" and inner[: len(ns)] == ns
        ]
        self._statuses |= dict.fromkeys(ended, status)
        return [(place, self._data(status, place, error)) for place in ended]

    def step_ended(self, event: StepEnded) -> Sequence[tuple[Namespace, JsonObject]]:
        """End the namespaces inside a task that has ended, and return their `LifecycleData`, innermost first."""
        asks = bool(as_object(event.extra.get("langgraph")).get("interrupts"))
        error = None if event.fault is None else event.fault.message
        status = "interrupted" if asks else "completed" if error is None else "failed"
        return self.leave((*event.ns, f"{event.name}:{event.step_id}"), status, error)

    @property
    def tree(self) -> JsonObject | None:
        """Tree of the namespaces with their statuses, as an `AgentTreeNode`; None before the first run."""
        return self._tree(()) if self._statuses else None

    def _tree(self, ns: Namespace) -> JsonObject:
        below = [self._tree(place) for place in self._statuses if place and place[:-1] == ns]
        node: JsonObject = {"namespace": list(ns), "status": self._statuses[ns], "graph_name": self._name(ns)}
        return {**node, "children": below} if below else node

    def _data(self, status: str, ns: Namespace, error: str | None = None) -> JsonObject:
        """Return a `LifecycleData` for a namespace, with the members that LangGraph Platform adds, such as
        `trigger_call_id`."""
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
    """Return the call id if a task's input is exactly one tool call, as LangChain's `ToolNode` starts its tasks.
    Otherwise return ""."""
    calls = task_input if isinstance(task_input, list) else [as_object(task_input).get("tool_call")]
    ids = [as_object(call).get("id") for call in calls]
    return ids[0] if len(ids) == 1 and isinstance(ids[0], str) else ""
