"""Calls of tools, and steps, that another A2A server tells of: each once, however often it is told."""

from collections.abc import Sequence
from json import dumps

from babelgate.adapters.a2a.frameworks.framework import ToolUse
from babelgate.adapters.a2a.read.mirror import MOST
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import PROTOCOL, SHOWN, derived_id
from babelgate.canonical import Event, Fault, FaultCode
from babelgate.canonical.event import Custom, StepEnded, StepStarted, ToolEnded, ToolStarted
from babelgate.canonical.value import Json, JsonObject


class Activity:
    """Of one run."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.is_relayed = False
        """A gateway like this one tells it, and the steps that it has read as events of their own."""
        self._calls: dict[str, str] = {}
        """Tools that were begun, by id: their names."""
        self._running: list[str] = []
        """Ids of those that have not ended."""
        self._results: set[tuple[str, str]] = set()
        """Ids and outputs of those that have."""
        self._steps: list[str] = []
        """Names of those that are known by nothing else, and have not ended."""
        self._authors: dict[str, tuple[str, str]] = {}
        """By branch, the agent within that speaks, and the id of its step."""
        self._groups: set[str] = set()
        self._numbered = 0
        """Steps of this run that were given an id."""
        self._states = set[tuple[str, str, str]]()
        """What was told of the agent's state: the id of the message or artifact, the name, and the value."""

    def recall(self, event: ToolStarted | ToolEnded, *, mine: bool) -> None:
        call_id = event.call_id or ""
        if isinstance(event, ToolStarted):
            self._calls[call_id] = event.name
            if mine:
                self._running.append(call_id)
        else:
            self._results.add((call_id, _as_key(event.output)))
            if call_id in self._running:
                self._running.remove(call_id)

    def recall_step(self, event: StepStarted | StepEnded) -> None:
        """Of this run."""
        own: JsonObject = event.extra.get(PROTOCOL) or {}
        branch, group = own.get("branch"), own.get("group")
        is_start = isinstance(event, StepStarted)
        if isinstance(branch, str) and is_start:
            self._authors[branch] = (event.name, event.step_id or "")
            self._numbered += 1
        elif isinstance(branch, str):
            self._authors.pop(branch, None)
        elif isinstance(group, str):  # which ends with the run
            self._groups.add(group)
            self._numbered += 1
        elif is_start:
            self._steps.append(event.name)
        elif event.name in self._steps:
            self._steps.remove(event.name)

    def use(self, events: list[Event], tools: Sequence[ToolUse], said: w.Message | None = None) -> None:
        """Calls that the agent makes itself."""
        extra: JsonObject = {PROTOCOL: {"messageId": said.messageId}} if said is not None and said.messageId else {}
        for use in tools:
            call_id = use.call_id or self._call_id(use)
            if not use.ended:
                if call_id not in self._calls:
                    self._begin(events, call_id, use.name, use.value, extra)
                continue
            done = (call_id, _as_key(use.value))
            if done in self._results:
                continue
            if call_id not in self._running:  # its begin was not told, or it was asked about meanwhile
                self._begin(events, call_id, use.name or self._calls.get(call_id, "tool"), None, extra)
            fault = None if use.error is None else Fault(code=FaultCode.AGENT_FAILED, message=use.error)
            name = self._calls[call_id]
            events.append(ToolEnded(call_id=call_id, name=name, output=use.value, fault=fault, extra=extra))
            self._running.remove(call_id)
            self._results.add(done)

    def _call_id(self, use: ToolUse) -> str:
        """Where the server says none: that of the last call of the name that has not ended, or a new one."""
        if use.ended:
            found = next((each for each in reversed(self._running) if self._calls[each] == use.name), None)
            if found is not None:
                return found
        return derived_id(self._run_id, "tool", str(len(self._calls) + 1))

    def _begin(self, events: list[Event], call_id: str, name: str, given: Json, extra: JsonObject) -> None:
        self._calls[call_id] = name
        self._running.append(call_id)
        events.append(ToolStarted(call_id=call_id, name=name, input=given, extra=extra))

    def tell_steps(self, events: list[Event], steps: Sequence[tuple[str, str]]) -> None:
        for name, what in () if self.is_relayed else steps:
            if what == "started":
                self._steps.append(name)
                events.append(StepStarted(name=name))
            elif name in self._steps:
                self._steps.remove(name)
                fault = Fault(code=FaultCode.AGENT_FAILED, message=f"{name} failed") if what == "error" else None
                events.append(StepEnded(name=name, fault=fault))

    def tell_author(self, events: list[Event], author: str, branch: str) -> None:
        """An agent within speaks, empty = the one that is called: what it does is a step, until another one speaks in
        its branch, in one that it left, or in one that left it."""
        known = self._authors.get(branch)
        if self.is_relayed or (known is not None and known[0] == author):
            return
        for each in [each for each in self._authors if _is_within(each, branch) or _is_within(branch, each)]:
            name, step_id = self._authors.pop(each)
            extra: JsonObject = {PROTOCOL: {"branch": each}}
            events.append(StepEnded(step_id=step_id, name=name, node=name, extra=extra))
        if author:
            step_id = self._begin_step(events, author, {"branch": branch}, node=author)
            self._authors[branch] = (author, step_id)

    def tell_groups(self, events: list[Event], groups: Sequence[tuple[str, str]]) -> None:
        """Each once; it ends with the run."""
        for group, title in groups:
            if group not in self._groups and not self.is_relayed:
                self._groups.add(group)
                self._begin_step(events, title, {"group": group})

    def _begin_step(self, events: list[Event], name: str, own: JsonObject, *, node: str = "") -> str:
        self._numbered += 1
        step_id = derived_id(self._run_id, "step", str(self._numbered))
        events.append(StepStarted(step_id=step_id, name=name, node=node, extra={PROTOCOL: own}))
        return step_id

    def recall_state(self, event: Custom) -> None:
        own: JsonObject = event.extra.get(PROTOCOL) or {}
        of = own.get("of")
        if of is not None:
            self._states.add((of, event.name, _as_key(event.value)))

    def tell_states(
        self, events: list[Event], states: Sequence[tuple[str, Json]], of: str | None, *, is_shown: bool
    ) -> bool:
        """Each once. `of` = the id of what tells it; without one it is an update, which comes once. `is_shown`: callers
        of A2A see the metadata in which it stands. False, if one is too large."""
        fits = True
        for name, value in states:
            key = (of or "", name, _as_key(value))
            if of and key in self._states:
                continue
            self._states.add(key)
            if len(key[-1]) > MOST:
                fits = False
                continue
            extra: JsonObject = {PROTOCOL: {"of": of}} if of else {}
            events.append(Custom(name=name, value=value, extra={**extra, **({SHOWN: {}} if is_shown else {})}))
        return fits


def _is_within(branch: str, other: str) -> bool:
    """Whether it is the other one, or has left it."""
    return not other or branch == other or branch.startswith(f"{other}.")


def _as_key(value: Json) -> str:
    """Equal for values that are; a2a-sdk 1.3.0 makes 1.0 of 1, and sorts no members."""
    return dumps(value, sort_keys=True)
