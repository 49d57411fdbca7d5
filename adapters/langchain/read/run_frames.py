"""Decoding of the frames of a run's stream on another server as events: states, steps, messages and questions.

LangGraph's agents have a state. Each of its checkpoints becomes a revision of the thread, under the server's own id.
Streams of the Agent Protocol contain no checkpoints: the answer is in the streamed messages, or else in the last
values.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from babelgate.adapters.kit.json import validate
from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.adapters.langchain.errors.decode import decode_error
from babelgate.adapters.langchain.read.custom import decode_custom
from babelgate.adapters.langchain.read.messages import MessageDecoder, Place, is_agents
from babelgate.adapters.langchain.read.output import OutputReader
from babelgate.adapters.langchain.read.questions import INTERRUPT, QuestionReader
from babelgate.adapters.langchain.read.run_state import RunState
from babelgate.adapters.langchain.read.state_changes import StateChanges
from babelgate.adapters.langchain.read.states import StateReader
from babelgate.adapters.langchain.read.tasks import TaskReader
from babelgate.adapters.langchain.wire import replies as w
from babelgate.canonical import Event, Fault, FaultCode, Record, RunReason, RunStatus, StateHistory
from babelgate.canonical.event import (
    Custom,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    StateSaved,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

_ANSWER_KEPT: Final = "the output from before a retry by the server remains"


def saved_checkpoints(records: Iterable[Record], run_id: str | None = None) -> set[tuple[Place, str]]:
    """Return the namespace and id of each checkpoint in a log, except those of the run `run_id`. None excludes no
    run."""
    return {
        (record.event.ns, record.event.checkpoint_id or "")
        for record in records
        if isinstance(record.event, StateSaved) and (run_id is None or record.run_id != run_id)
    }


class EventReader:
    """Reader of one run's frames. It passes them to the readers of messages, states, tasks and questions, and returns
    their events.

    - `known_checkpoints`: namespace and id of each checkpoint that existed before the run.
    - `base`: id of the revision that the run starts from, if the server does not have it.
    - `outputs`: names of the state's members that are the output. None means all.
    - `keeps_last`: only the last checkpoint of each namespace is recorded (`durability: exit`).
    - `is_server`: a server sends the frames, possibly another Babelgate, which sends more than LangGraph does. It is
      False for a graph in this process.
    - `log`: states of the thread so far. New states are recorded as differences to them.
    - `tools`: names of the caller's tools.
    """

    def __init__(
        self,
        dialect: Dialect = "langgraph",
        known_checkpoints: set[tuple[Place, str]] | None = None,
        base: str | None = None,
        outputs: frozenset[str] | None = None,
        *,
        keeps_last: bool = False,
        is_server: bool = True,
        log: StateHistory | None = None,
        tools: frozenset[str] = frozenset(),
    ) -> None:
        self.fault: Fault | None = None
        """Fault of the run, from a frame `error`. None: the run has not failed."""
        self.status: str | None = None
        """Final status of the run, from servers whose last frame contains it. None: not received."""
        self.messages = MessageDecoder()
        self._attempt = 0
        """Number of the run's current attempt, as the server counts; 0 until it is reported."""
        run = self._run = RunState(dialect, is_server)
        changes = StateChanges(log)
        self._questions = QuestionReader(run, tools)
        self._tasks = TaskReader(run, self.messages, changes, self._questions)
        self._states = StateReader(run, changes, known_checkpoints or set(), base, keeps_last=keeps_last)
        self._output = OutputReader(run, self.messages, outputs)

    @property
    def run_id(self) -> str | None:
        """The server's id of the run; None until a frame contains it."""
        return self._run.run_id

    @property
    def has_questions(self) -> bool:
        """True if the graph has asked a question or has stopped at a breakpoint."""
        return self._questions.is_asking

    @property
    def has_states(self) -> bool:
        """True if the dialect's streams contain checkpoints of the thread's state, as LangGraph's do."""
        return self._run.dialect == "langgraph"

    @property
    def has_checkpoints(self) -> bool:
        """True if a frame contained a checkpoint of the outermost graph."""
        return bool(self._run.checkpoint_id)

    @property
    def values(self) -> JsonObject:
        """Values of the newest state of the outermost graph; {} before the first one."""
        return as_object(self._run.values)

    @property
    def is_complete(self) -> bool:
        """False if the newest checkpoint has next nodes and no question explains the stop, so that frames are missing.
        Without checkpoints it is always True."""
        return self.has_questions or not self._run.checkpoint_id or not self._run.next

    @property
    def has_ended(self) -> bool:
        """True if a frame has reported the run's error or final status, so that no further frame will arrive."""
        return self.fault is not None or self.status is not None

    # Frames

    def read(self, event: str, data: Json) -> Sequence[Event]:
        """Return the events of one frame. `event` is its name, such as `updates|node:id`, and `data` its JSON. Raises
        invalid for a malformed frame."""
        # langgraph-api 0.16.7: `<mode>|<node>:<task id>|…` of a subgraph.
        name, *rest = event.split("|")
        ns = tuple(rest)
        match name:
            case "metadata":
                return self._begin(as_object(data))
            case "values":
                return self._read_values(ns, data)
            case "checkpoints" if self._run.dialect == "langgraph":
                return self._states.read_checkpoint(ns, validate(w.Checkpoint, data), data)
            case "tasks":
                return self._tasks.read(ns, data)
            # The README's layout has neither `tasks` nor `checkpoints` among its modes.
            case "debug" if self._run.dialect == "agent-protocol":
                return self._tasks.read_debug(ns, data)
            case "updates":
                return self._tasks.read_updates(ns, data)
            case "messages" | "messages/partial" | "messages/complete" | "messages/metadata":
                return self._read_messages(name, ns, data)
            case "custom":
                return decode_custom(ns, data) if self._run.is_server else (Custom(ns=ns, value=data),)
            case "error":
                self.fault = decode_error(data)
                return self.messages.close()
            # aegra 0.11.0; langgraph-api 0.16.7 closes the stream instead.
            case "end":
                self.status = validate(w.Ended, data).status if isinstance(data, dict) else None
                return ()
            case _:
                return (Native(protocol="langgraph", event=name, ns=ns, data=data),)

    def _begin(self, metadata: JsonObject) -> Sequence[Event]:
        """Read the run's id and the number of its attempt from a frame `metadata`. If a new attempt begins after output
        was sent, end the open messages and return a `LossNoted`, because that output remains."""
        run_id, attempt = metadata.get("run_id"), metadata.get("attempt")
        self._run.run_id = self._run.run_id or (run_id if isinstance(run_id, str) else None)
        # langgraph-api 0.16.7 counts attempts from 1.
        if not isinstance(attempt, int) or attempt <= self._attempt:
            return ()
        is_retry, self._attempt = self._attempt > 0 and self.messages.has_answer, attempt
        return (*self.messages.close(), LossNoted(feature="text", how=_ANSWER_KEPT)) if is_retry else ()

    def _read_values(self, ns: Place, data: Json) -> Sequence[Event]:
        # langgraph-api 0.16.7 sends the questions together with the values.
        if not isinstance(data, dict) or INTERRUPT not in data:
            return self._states.read_values(ns, data)
        self._questions.ask(data[INTERRUPT], ns=ns)
        if not ns:
            self._run.values = _without_questions(data)
        return ()

    def _read_messages(self, name: str, ns: Place, data: Json) -> Sequence[Event]:
        wires: list[Any] = data if isinstance(data, list) else []
        if name == "messages" and len(wires) == 2 and isinstance(wires[0], dict):
            chunked = self._run.dialect == "agent-protocol"
            return self.messages.decode(as_object(wires[0]), as_object(wires[1]), ns, chunked=chunked)
        # These are cumulative, like LangGraph's mode `messages`. The Agent Protocol does not define the other contents
        # of a stream of messages; the state contains the same.
        if name == "messages/partial":
            return [event for wire in wires if is_agents(wire) for event in self.messages.so_far(as_object(wire), ns)]
        if name == "messages/complete":
            return [
                event for wire in wires if is_agents(wire) for event in self.messages.whole(as_object(wire), None, ns)
            ]
        return ()

    # States and questions from outside the stream

    def know(self, ns: Place, checkpoint_id: str, *, is_recorded: bool = False) -> None:
        """Record a checkpoint that is not new: one from before the run or, with `is_recorded`, one that this run saved
        before it was interrupted."""
        self._states.know(ns, checkpoint_id, is_recorded=is_recorded)

    def note_values(self, ns: Place) -> None:
        """Record that callers see the values of a namespace now, because a step has changed them. The next checkpoint
        has the same values and is marked as shown."""
        self._states.note_values(ns)

    def read_state(self, state: w.State) -> Sequence[Event]:
        """Return the events of the thread's state after the run, for a server whose stream contains no checkpoints.
        Raises invalid for a state without a checkpoint id."""
        return self._states.read_state(state)

    def ask(self, interrupts: Json, node: str = "", ns: Place = ()) -> None:
        """Add the interrupts of a state. Those that arrived before are ignored. Raises invalid for a malformed
        interrupt."""
        self._questions.ask(interrupts, node, ns)

    # The end

    def close(self) -> Sequence[Event]:
        """Return the events that end the open messages. With `keeps_last`, add the last state of each namespace."""
        return [*self.messages.close(), *self._states.close()]

    def questions(self) -> Sequence[Event]:
        """Return the run's questions as `InterruptRaised` events. Call it after the run has stopped."""
        return self._questions.questions()

    def calls(self) -> Sequence[Event]:
        """Return an `InterruptRaised` for each call of a caller's tool in the last message of a graph that has
        ended."""
        return self._questions.calls()

    def finish(self) -> Sequence[Event]:
        """Return the last events of a run that succeeded or stopped for questions: messages that were not streamed, the
        questions, and `RunEnded`."""
        events: list[Event] = [*self.close()]
        if not self.has_questions:
            events += self._output.answer()
        events += self._states.save_last(self._questions.nodes)
        calls = self.calls()
        events += (*self.questions(), *calls)
        if self.has_questions or calls:
            return [*events, RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT, usage=self.messages.usage)]
        return [*events, RunEnded(output=self._output.value, usage=self.messages.usage)]

    def end_by_cancel(self) -> Sequence[Event]:
        """Return the last events of a run that was cancelled: the ends of its open messages, and `RunEnded`."""
        return [*self.messages.close(), RunEnded(status=RunStatus.CANCELLED, usage=self.messages.usage)]

    def end_by_timeout(self) -> Sequence[Event]:
        """Return the last events of a run that its server ended because it took too long: the ends of its open
        messages, and `RunEnded`."""
        fault = Fault(code=FaultCode.AGENT_TIMEOUT, message="The agent's server ended the run: it took too long")
        return [*self.messages.close(), RunEnded(status=RunStatus.TIMEOUT, fault=fault, usage=self.messages.usage)]

    def account(self, metadata: Json) -> Sequence[Event]:
        """Read the usage and the output members that another Babelgate reports in the run's metadata. Return its losses
        as events."""
        return self._output.read_account(metadata)

    def settle(self, values: Json, messages: Json = None) -> Sequence[Event]:
        """Read the state after a run whose stream did not arrive completely, and return the events of the messages that
        are missing. `messages` replaces those in `values`, unless it is None. Raises invalid for a malformed
        interrupt."""
        members = values if isinstance(values, dict) else {}
        self.ask(members.get(INTERRUPT))
        members = _without_questions(members)
        if messages is not None:
            members["messages"] = messages
        if members:  # the join of a run that had ended may contain only its questions
            self._run.values = members
        return self._output.read_messages()

    # Resuming

    def recall(self, records: Iterable[Record]) -> None:
        """Update the readers by records of the run that are in the log already, before they continue the run."""
        for record in records:
            event = record.event
            match event:
                case MessageStarted() | PartAdded() | PartDelta() | PartEnded() | MessageEnded():
                    self.messages.recall(event)
                case StepStarted() | StepEnded() | ToolStarted() | ToolEnded():
                    self._tasks.recall(event)
                case StateSaved():
                    self._states.recall(event)
                case _:
                    pass


def _without_questions(values: JsonObject) -> JsonObject:
    return {name: value for name, value in values.items() if name != INTERRUPT}
