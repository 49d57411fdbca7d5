"""Decoding of a graph's tasks in a run's frames as steps, and as calls of an agent's own tools."""

from collections.abc import Sequence
from typing import Any, Final

from babelgate.adapters.kit.json import validate
from babelgate.adapters.langchain.errors.decode import decode_error
from babelgate.adapters.langchain.read.messages import MessageDecoder, Place
from babelgate.adapters.langchain.read.questions import INTERRUPT, QuestionReader
from babelgate.adapters.langchain.read.run_state import RunState
from babelgate.adapters.langchain.read.state_changes import StateChanges
from babelgate.adapters.langchain.wire import replies as w
from babelgate.canonical import Event
from babelgate.canonical.event import StepEnded, StepStarted, ToolEnded, ToolStarted
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

_TOOL: Final = ["tool"]
"""Member `triggers` of tasks that are tool calls, in the streams of another Babelgate."""


class TaskReader:
    """Reader of the tasks in one run's frames: nodes become steps, and the tools of another Babelgate's agents become
    tool calls."""

    def __init__(
        self, run: RunState, messages: MessageDecoder, changes: StateChanges, questions: QuestionReader
    ) -> None:
        self._run = run
        self._messages = messages
        self._changes = changes
        self._questions = questions
        self._steps: set[str] = set()
        """Task ids of the nodes that are running."""
        self._tools: set[str] = set()
        """Task ids of the tools that are running."""
        self._has_tasks = False
        """True if a frame `tasks` has arrived. Frames `updates` then start no steps."""
        self._updates: dict[tuple[Place, str], list[Json]] = {}
        """Writes from frames `updates` that wait for the end of their node's task, by namespace and node name."""

    def recall(self, event: StepStarted | StepEnded | ToolStarted | ToolEnded) -> None:
        """Update the reader by an event that an earlier reader of this run saved in the log."""
        match event:
            case StepStarted():
                self._steps.add(event.step_id or "")
                self._questions.begin_task(event.step_id or "")
            case StepEnded():
                self._steps.discard(event.step_id or "")
            case ToolStarted():
                self._tools.add(event.call_id or "")
            case ToolEnded():
                self._tools.discard(event.call_id or "")

    def read(self, ns: Place, data: Json) -> Sequence[Event]:
        """Return the events of a task that begins or ends, from a frame `tasks` in the namespace `ns`. Raises invalid
        for a malformed task."""
        self._has_tasks = True
        return self._read_task(ns, data)

    def read_debug(self, ns: Place, data: Json) -> Sequence[Event]:
        """Return the events of a tool call, from a frame `debug` of another Babelgate. Other items give nothing,
        because other modes contain them, too. Raises invalid for a malformed task."""
        payload = as_object(as_object(data).get("payload"))
        is_tool = payload.get("triggers") == _TOOL or str(payload.get("id")) in self._tools
        return self._read_task(ns, payload) if is_tool else ()

    def read_updates(self, ns: Place, data: Json) -> Sequence[Event]:
        """Return the events of a frame `updates`: an object with what each node wrote, by the node's name.

        `ns` is the namespace of the graph. If the stream contains tasks, the update is stored until its task ends.
        Otherwise it becomes a step, unless it consists of messages only. Raises invalid for a malformed interrupt.
        """
        events: list[Event] = []
        updates = as_object(data)
        for node in updates:
            update: Json = updates[node]
            if node == INTERRUPT:
                self._questions.ask_in_update(update, ns)
            elif self._has_tasks:
                self._updates.setdefault((ns, node), []).append(update)
            elif not isinstance(update, dict) or update.keys() != {"messages"}:
                # Without tasks in the stream, nothing else reports the node. Its messages have their own frames.
                events += [_start_step(None, node, ns), StepEnded(name=node, node=node, ns=ns, update=update)]
        return events

    def _read_task(self, ns: Place, data: Json) -> Sequence[Event]:
        # Starts and ends have the same mode and no type. Only an end has one of these members.
        if not any(name in as_object(data) for name in ("result", "error", "interrupts")):
            return self._start(ns, validate(w.TaskStart, data))
        return self._end(ns, validate(w.TaskResult, data))

    def _start(self, ns: Place, task: w.TaskStart) -> Sequence[Event]:
        if task.triggers == _TOOL and self._run.is_server:
            self._tools.add(task.id)
            return (ToolStarted(call_id=task.id, name=task.name, input=task.input),)
        self._steps.add(task.id)
        self._questions.begin_task(task.id)
        extra = {
            name: value
            for name, value in (("triggers", task.triggers), ("metadata", task.metadata))
            if value is not None
        }
        value, change = self._changes.find_within(ns, task.input)
        return (_start_step(task.id, task.name, ns, input=value, input_change=change, extra={"langgraph": extra}),)

    def _end(self, ns: Place, task: w.TaskResult) -> Sequence[Event]:
        fault = None if task.error is None else decode_error(task.error)
        result = _result_of(task.result)
        if task.id in self._tools:
            self._tools.remove(task.id)
            return (ToolEnded(call_id=task.id, name=task.name, output=result, fault=fault),)
        self._questions.ask_by_task(task, ns)
        events: list[Event] = []
        if task.id in self._steps:
            self._steps.remove(task.id)
        else:  # the start did not arrive
            events.append(_start_step(task.id, task.name, ns))
        events += self._messages.node_ended(task.id)
        updates = self._updates.get((ns, task.name))
        update: Json = updates.pop(0) if updates else result
        extra: JsonObject = {"result": result}
        if task.interrupts:
            extra["interrupts"] = [interrupt.model_dump(exclude_unset=True) for interrupt in task.interrupts]
        elif fault is None:
            self._run.ended_nodes.setdefault(ns, []).append(task.name)
        ended = StepEnded(
            step_id=task.id,
            name=task.name,
            node=task.name,
            ns=ns,
            update=None if task.interrupts or fault else update,
            fault=fault,
            extra={"langgraph": extra},
        )
        return (*events, ended)


def _start_step(step_id: str | None, name: str, ns: Place, **more: Any) -> StepStarted:
    return StepStarted(step_id=step_id, name=name, node=name, ns=ns, **more)


def _result_of(result: Json) -> Json:
    """Return the result of a task as an object. langgraph before 1.0 sends a list of pairs of member and value."""
    if isinstance(result, list) and result and all(isinstance(pair, list) and len(pair) == 2 for pair in result):
        members: Json = {str(pair[0]): pair[1] for pair in result if isinstance(pair, list)}
        return members
    return result
