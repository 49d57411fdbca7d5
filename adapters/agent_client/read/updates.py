"""Updates of one turn of an agent → canonical events. A turn begins with a `session/prompt`, and ends with the result
of that request.

Reading is lenient. Unknown updates are passed on to clients of this protocol. If an agent omits the end of a message, a
tool call or a step, the reader adds it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.codec.content import PROTOCOL, own_members
from babelgate.adapters.agent_client.errors import decode_fault
from babelgate.adapters.agent_client.read.messages import MessageReader
from babelgate.adapters.agent_client.read.questions import OpenRequest, decode_mark, decode_request
from babelgate.adapters.agent_client.read.tools import ToolCallReader
from babelgate.canonical import Event, RunReason, RunStatus
from babelgate.canonical.event import (
    Custom,
    InterruptRaised,
    LossNoted,
    Native,
    RunEnded,
    StepEnded,
    StepStarted,
)
from babelgate.canonical.json import as_list, as_object, as_text, objects_in
from babelgate.canonical.value import JsonObject

_USAGE: Final = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "totalTokens": "total_tokens",
}
"""Counts in the `usage` of a prompt's result: the canonical name by the name on the wire."""
_DETAILS: Final = {
    "cachedReadTokens": ("input_tokens_details", "cached_tokens"),
    "cachedWriteTokens": ("input_tokens_details", "cache_write_tokens"),
    "thoughtTokens": ("output_tokens_details", "reasoning_tokens"),
}
"""Counts that canonical usage has in a nested object: its name, and the name of the count in it."""


class UpdateReader:
    """Decoder of one turn, which may extend over several runs if the agent asks questions in between."""

    def __init__(
        self,
        new_id: Callable[[], str],
        terminal_text: Callable[[str], str | None],
        answered: Iterable[str] = (),
        folder: str = "",
    ) -> None:
        """Create a decoder. `new_id` returns unique ids, and `terminal_text` the output of a terminal by its id.
        `answered` are the ids of the questions that the prompt of the turn answers. `folder` is the working directory
        of the agent."""
        self._new_id = new_id
        self._folder = folder
        self._events: list[Event] = []
        self._messages = MessageReader(self._add, new_id)
        self._tools = ToolCallReader(self._add, terminal_text, folder)
        self._plan: dict[str, str] = {}
        """Status of each entry of the newest plan, by the step id of the entry."""
        self._steps: dict[str, str] = {}
        """Name of each open step, by its id."""
        self._question_ids = set(answered)
        """Ids of all questions of the turn, open or answered. Another Babelgate reports the answer to a question as the
        end of a tool call with the same id, which the reader ignores."""
        self.questions: dict[str, InterruptRaised] = {}
        """Open questions by id."""

    def _add(self, event: Event) -> None:
        self._events.append(event)

    def _take(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def read(self, update: w.Update) -> list[Event]:
        """Return the events for one update. Raises invalid for a malformed one."""
        kind = as_text(update.get("sessionUpdate"))
        if kind not in ("agent_message_chunk", "agent_thought_chunk"):
            self._messages.interrupt()
        mark = as_object(own_members(update).get("question"))
        if mark:
            self._raise(decode_mark(mark))
            return self._take()
        read = self._READS.get(kind)
        if read is not None:
            read(self, update)
        elif kind:
            self._add(Native(protocol=PROTOCOL, event=kind, data=update))
        return self._take()

    def ask(self, request_id: int | str, method: str, params: JsonObject) -> tuple[OpenRequest, list[Event]]:
        """Return a request of the agent to its user, and the events that raise its question."""
        call = as_object(params.get("toolCall"))
        if call and not own_members(params).get("question"):  # a gateway asks a question of any kind by a tool call
            call = self._tools.describe(call)
        question = decode_request(method, params, call, self._new_id(), self._folder)
        self._raise(question)
        return OpenRequest(request_id, method, params, question), self._take()

    def _raise(self, question: InterruptRaised) -> None:
        if question.interrupt_id is None:
            question = question.replace(interrupt_id=self._new_id())
        if question.interrupt_id is not None and question.interrupt_id not in self._question_ids:
            self._question_ids.add(question.interrupt_id)
            self.questions[question.interrupt_id] = question
            self._messages.close()
            self._add(question)

    def pause(self, requests: Iterable[OpenRequest]) -> list[Event]:
        """Return the events before the run pauses for the open requests of the agent. The next run answers them."""
        self._messages.close()
        self._tools.pause({each.call_id for each in requests})
        self._close_steps()
        return self._take()

    def end(self, result: JsonObject) -> list[Event]:
        """Return the events for the result of the prompt."""
        marks = own_members(result)
        self.close(marks)
        usage = as_object(marks.get("usage")) or _decode_usage(as_object(result.get("usage")))
        for feature, how in as_object(marks.get("loss")).items():
            self._add(LossNoted(feature=feature, how=as_text(how)))
        if result.get("stopReason") == "cancelled":
            self._add(RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER, usage=usage))
        elif self.questions:
            if usage:
                self._add(RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT, usage=usage))
        elif usage or marks.get("output") is not None:
            self._add(RunEnded(output=marks.get("output"), usage=usage))
        return self._take()

    def finish(self) -> list[Event]:
        """Return the events of the end of a turn after which the run continues with another prompt."""
        self.close({})
        return self._take()

    def close(self, marks: JsonObject) -> None:
        """End everything that is open at the end of the turn. `marks` is `_meta.babelgate` of its result: only the
        questions that it names are open."""
        self._messages.close()
        self._tools.close()
        self._close_steps()
        named = as_list(marks.get("questions"))
        self.questions = {name: each for name, each in self.questions.items() if name in named}

    def close_questions(self, question_ids: Iterable[str]) -> None:
        """Remove answered questions from the open ones."""
        for question_id in question_ids:
            self.questions.pop(question_id, None)

    # Updates

    def _chunk(self, update: w.Update) -> None:
        self._messages.read(update)

    def _tool(self, update: w.Update) -> None:
        if update.get("toolCallId") not in self._question_ids:
            self._tools.read(update)

    def _skip(self, update: w.Update) -> None:
        """Ignore an update that only repeats what the gateway has sent."""

    def _info(self, update: w.Update) -> None:
        marks = own_members(update)
        custom = as_object(marks.get("custom"))
        if custom:
            self._add(Custom(name=as_text(custom.get("name")), value=custom.get("value")))
        elif not marks:
            self._session(update)

    def _session(self, update: w.Update) -> None:
        """Pass on a change of the session, such as its title or its commands."""
        kind = as_text(update.get("sessionUpdate"))
        value: JsonObject = {key: value for key, value in update.items() if key not in ("sessionUpdate", "_meta")}
        extra = {PROTOCOL: {"update": kind}} if kind in w.SHOWN_UPDATES else {}
        self._add(Custom(name=kind.removesuffix("_update"), value=value, extra=extra))

    # Plans

    def _read_plan(self, update: w.Update) -> None:
        marks = own_members(update)
        if "step" in marks:
            self._read_step(marks)
            return
        entries = objects_in(update.get("entries"))
        statuses: dict[str, str] = {}
        for entry in entries:
            name, step_id, number = as_text(entry.get("content")), as_text(entry.get("content")), 1
            while step_id in statuses:
                number += 1
                step_id = f"{name} {number}"
            statuses[step_id] = as_text(entry.get("status"))
            if statuses[step_id] in ("in_progress", "completed") and self._plan.get(step_id) != "completed":
                self._start_step(step_id, name)
        for step_id in list(self._steps):
            if statuses.get(step_id) != "in_progress":
                self._end_step(step_id)
        self._plan = statuses
        value: JsonObject = {"entries": entries}
        self._add(Custom(name="plan", value=value))

    def _start_step(self, step_id: str, name: str) -> None:
        if step_id not in self._steps:
            self._steps[step_id] = name
            self._add(StepStarted(step_id=step_id, name=name))

    def _end_step(self, step_id: str, **members: Any) -> None:
        name = self._steps.pop(step_id, None)
        if name is not None:
            self._add(StepEnded(step_id=step_id, name=name, **members))

    def _close_steps(self) -> None:
        for step_id in list(self._steps):
            self._end_step(step_id)

    def _read_step(self, marks: JsonObject) -> None:
        """Read the start or the end of a step of another gateway."""
        step_id, name = as_text(marks.get("step")), as_text(marks.get("name"))
        if marks.get("state") == "started":
            if step_id not in self._steps:
                self._steps[step_id] = name
                self._add(StepStarted(step_id=step_id, name=name, input=marks.get("input")))
            return
        fault = as_object(marks.get("fault"))
        self._end_step(step_id, update=marks.get("update"), fault=decode_fault(fault) if fault else None)

    _READS: ClassVar[Mapping[str, Any]] = {
        "agent_message_chunk": _chunk,
        "agent_thought_chunk": _chunk,
        "user_message_chunk": _skip,
        "tool_call": _tool,
        "tool_call_update": _tool,
        "plan": _read_plan,
        "session_info_update": _info,
        "available_commands_update": _session,
        "current_mode_update": _session,
        "config_option_update": _session,
        "usage_update": _session,
        "notice": _session,
    }


def _decode_usage(usage: JsonObject) -> JsonObject:
    total: JsonObject = {name: usage[wire] for wire, name in _USAGE.items() if _is_count(usage.get(wire))}
    for wire, (name, member) in _DETAILS.items():
        if _is_count(usage.get(wire)):
            total[name] = {**as_object(total.get(name)), member: usage[wire]}
    return total


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
