"""Reading of the tool calls, steps and changes of state that another A2A server reports. Each is read once, even if the
server sends it several times."""

from collections.abc import Sequence
from json import dumps

from babelgate.adapters.a2a.frameworks.framework import ToolUse
from babelgate.adapters.a2a.read.mirror import MOST, TOO_LARGE
from babelgate.adapters.a2a.read.run_state import RunState
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import PROTOCOL, SHOWN_IN_STATUS, derived_id
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.event import Custom, StepEnded, StepStarted, ToolEnded, ToolStarted
from babelgate.canonical.value import Json, JsonObject


class Activity:
    """Reader of the tool calls, steps and changes of state of one run. It adds their events to the run."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self.is_relayed = False
        """True if the server is another gateway, which sends the steps of its run as events. Then `add_steps`,
        `set_author` and `add_groups` add nothing, so that no step is read twice."""
        self._calls: dict[str, str] = {}
        """Names of all tools that were called, by call id."""
        self._running: list[str] = []
        """Ids of the calls that have not ended."""
        self._results: set[tuple[str, str]] = set()
        """Ids of the calls that have ended, each with its result as JSON."""
        self._steps: list[str] = []
        """Names of the running steps that the server reports without ids."""
        self._authors: dict[str, tuple[str, str]] = {}
        """Inner agent that currently writes in each branch: its name and the id of its step, by branch."""
        self._groups: set[str] = set()
        self._step_count = 0
        """Number of steps of this run that have an id. New ids are derived from it."""
        self._states = set[tuple[str, str, str]]()
        """Changes of state that were read: the id of the message or artifact, the name, and the value as JSON."""

    def recall(self, event: ToolStarted | ToolEnded, *, is_own: bool) -> None:
        """Restore a tool call from a recorded event. `is_own` is True if the event belongs to this run, and not to an
        earlier one."""
        call_id = event.call_id or ""
        if isinstance(event, ToolStarted):
            self._calls[call_id] = event.name
            if is_own:
                self._running.append(call_id)
        else:
            self._results.add((call_id, _as_key(event.output)))
            if call_id in self._running:
                self._running.remove(call_id)

    def recall_step(self, event: StepStarted | StepEnded) -> None:
        """Restore a step from a recorded event of this run."""
        members: JsonObject = event.extra.get(PROTOCOL) or {}
        branch, group = members.get("branch"), members.get("group")
        is_start = isinstance(event, StepStarted)
        if isinstance(branch, str) and is_start:
            self._authors[branch] = (event.name, event.step_id or "")
            self._step_count += 1
        elif isinstance(branch, str):
            self._authors.pop(branch, None)
        elif isinstance(group, str):  # it ends with the run
            self._groups.add(group)
            self._step_count += 1
        elif is_start:
            self._steps.append(event.name)
        elif event.name in self._steps:
            self._steps.remove(event.name)

    def use(self, tools: Sequence[ToolUse], message: w.Message | None = None) -> None:
        """Add the events for the starts and ends of tool calls. If `message` has an id, the events store it: callers of
        A2A then receive the server's message, and not a form of these events."""
        extra: JsonObject = {PROTOCOL: {"messageId": message.messageId}} if message and message.messageId else {}
        for use in tools:
            call_id = use.call_id or self._find_call(use)
            if not use.ended:
                if call_id not in self._calls:
                    self._begin(call_id, use.name, use.value, extra)
                continue
            result = (call_id, _as_key(use.value))
            if result in self._results:
                continue
            if call_id not in self._running:  # the server sent no begin, or the call was a question in between
                self._begin(call_id, use.name or self._calls.get(call_id, "tool"), None, extra)
            fault = None if use.error is None else Fault(code=FaultCode.AGENT_FAILED, message=use.error)
            name = self._calls[call_id]
            self._run.events.append(ToolEnded(call_id=call_id, name=name, output=use.value, fault=fault, extra=extra))
            self._running.remove(call_id)
            self._results.add(result)

    def _find_call(self, use: ToolUse) -> str:
        """Return an id for a start or end of a call that has none. An end gets the id of the last running call of the
        same tool, and a start a new id."""
        if use.ended:
            call_id = next((running for running in reversed(self._running) if self._calls[running] == use.name), None)
            if call_id is not None:
                return call_id
        return derived_id(self._run.run_id, "tool", str(len(self._calls) + 1))

    def _begin(self, call_id: str, name: str, arguments: Json, extra: JsonObject) -> None:
        self._calls[call_id] = name
        self._running.append(call_id)
        self._run.events.append(ToolStarted(call_id=call_id, name=name, input=arguments, extra=extra))

    def add_steps(self, steps: Sequence[tuple[str, str]]) -> None:
        """Add the events for the starts and ends of steps. Each entry is the name of a step, and `started`, `completed`
        or `error`."""
        for name, phase in () if self.is_relayed else steps:
            if phase == "started":
                self._steps.append(name)
                self._run.events.append(StepStarted(name=name))
            elif name in self._steps:
                self._steps.remove(name)
                fault = Fault(code=FaultCode.AGENT_FAILED, message=f"{name} failed") if phase == "error" else None
                self._run.events.append(StepEnded(name=name, fault=fault))

    def set_author(self, author: str, branch: str) -> None:
        """Begin a step for the inner agent that now writes in a branch. An empty `author` means the called agent, which
        has no step.

        The step ends when another agent writes in the same branch, in a branch below it, or in a branch above it.
        """
        current = self._authors.get(branch)
        if self.is_relayed or (current is not None and current[0] == author):
            return
        for other in [other for other in self._authors if _is_within(other, branch) or _is_within(branch, other)]:
            name, step_id = self._authors.pop(other)
            extra: JsonObject = {PROTOCOL: {"branch": other}}
            self._run.events.append(StepEnded(step_id=step_id, name=name, node=name, extra=extra))
        if author:
            step_id = self._begin_step(author, {"branch": branch}, node=author)
            self._authors[branch] = (author, step_id)

    def add_groups(self, groups: Sequence[tuple[str, str]]) -> None:
        """Begin a step for each new group of progress reports, named by the group's title. The step ends with the
        run."""
        for group, title in groups:
            if group not in self._groups and not self.is_relayed:
                self._groups.add(group)
                self._begin_step(title, {"group": group})

    def _begin_step(self, name: str, members: JsonObject, *, node: str = "") -> str:
        self._step_count += 1
        step_id = derived_id(self._run.run_id, "step", str(self._step_count))
        self._run.events.append(StepStarted(step_id=step_id, name=name, node=node, extra={PROTOCOL: members}))
        return step_id

    def recall_state(self, event: Custom) -> None:
        """Restore a change of the agent's state from a recorded event, so that it is not added again."""
        members: JsonObject = event.extra.get(PROTOCOL) or {}
        source_id = members.get("of")
        if source_id is not None:
            self._states.add((source_id, event.name, _as_key(event.value)))

    def add_states(self, states: Sequence[tuple[str, Json]], source_id: str | None, *, is_shown: bool) -> None:
        """Add the events for changes of the agent's state, each once. A change that is too large becomes a loss.

        `source_id` is the id of the message or artifact that reports the changes, or None for an update, which comes
        once. `is_shown` is True if callers of A2A receive the metadata with the changes anyway.
        """
        for name, value in states:
            key = (source_id or "", name, _as_key(value))
            if source_id and key in self._states:
                continue
            self._states.add(key)
            if len(key[-1]) > MOST:
                self._run.lose("custom", TOO_LARGE)
                continue
            extra: JsonObject = {PROTOCOL: {"of": source_id}} if source_id else {}
            shown_mark: JsonObject = {SHOWN_IN_STATUS: {}} if is_shown else {}
            self._run.events.append(Custom(name=name, value=value, extra={**extra, **shown_mark}))


def _is_within(branch: str, other: str) -> bool:
    """Return True if `branch` equals `other` or is a branch of it, as `a.b` is of `a`. An empty `other` contains every
    branch."""
    return not other or branch == other or branch.startswith(f"{other}.")


def _as_key(value: Json) -> str:
    """Return a JSON text that is the same for equal values (`babelgate.canonical.json.is_equal`).

    a2a-sdk 1.3.0 does not sort the members of an object. It also keeps data as a `google.protobuf.Struct`, whose
    numbers are all floating-point, so that 1 may come again as 1.0.
    """
    return dumps(_with_integers(value), sort_keys=True)


def _with_integers(value: Json) -> Json:
    """Return a JSON value in which each floating-point number without a fraction is an integer."""
    if isinstance(value, dict):
        return {name: _with_integers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
