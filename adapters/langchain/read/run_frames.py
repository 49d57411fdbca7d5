"""Stream of a run on another server → events: states, steps, messages and questions.

LangGraph's agents have a state. Each of its checkpoints is a revision of the thread, under the server's own id. Agents
of the Agent Protocol show no revisions: their answer is what was streamed, or what the last values contain.
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
    """Return the place and id of each checkpoint in a log, except those of the run `run_id`. None excludes no run."""
    return {
        (record.event.ns, record.event.checkpoint_id or "")
        for record in records
        if isinstance(record.event, StateSaved) and (run_id is None or record.run_id != run_id)
    }


class EventReader:
    """Reader of one run's frames. It dispatches them to the readers of messages, states, tasks and questions.

    - `known_checkpoints` existed before the run.
    - `base` is the revision that the run starts from, if its server does not have it.
    - `outputs` are the members of the state that are the output. None means all.
    - `keeps_last`: only the last checkpoint of each place is recorded (`durability: exit`).
    - `is_server`: a server sends the frames, possibly another Babelgate, which sends more than LangGraph does. It is
      False for a graph in this process.
    - `log` contains the states of the thread. New states are recorded as differences to them.
    - `tools` are the names of the caller's tools.
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
        """Fault of the run, if it has failed."""
        self.status: str | None = None
        """Status at the end, from servers that send it."""
        self.messages = MessageDecoder()
        self._attempt = 0
        """Number of the attempt, as the server counts."""
        run = self._run = RunState(dialect, is_server)
        changes = StateChanges(log)
        self._questions = QuestionReader(run, tools)
        self._tasks = TaskReader(run, self.messages, changes, self._questions)
        self._states = StateReader(run, changes, known_checkpoints or set(), base, keeps_last=keeps_last)
        self._output = OutputReader(run, self.messages, outputs)

    @property
    def run_id(self) -> str | None:
        """The server's id of the run; None until it is known."""
        return self._run.run_id

    @property
    def has_questions(self) -> bool:
        """True if the graph has asked something or has stopped at a breakpoint."""
        return self._questions.is_asking

    @property
    def has_states(self) -> bool:
        """True if the server sends the states of threads."""
        return self._run.dialect == "langgraph"

    @property
    def has_checkpoints(self) -> bool:
        """True if the frames contained a checkpoint."""
        return bool(self._run.checkpoint_id)

    @property
    def values(self) -> JsonObject:
        """Values of the newest state."""
        return as_object(self._run.values)

    @property
    def is_complete(self) -> bool:
        """True if the frames so far can be all of the run. Only checkpoints show that some are missing."""
        return self.has_questions or not self._run.checkpoint_id or not self._run.next

    @property
    def has_ended(self) -> bool:
        """True if no further frame will arrive."""
        return self.fault is not None or self.status is not None

    # Frames

    def read(self, event: str, data: Json) -> Sequence[Event]:
        """Return the events of one frame. Raises invalid if it breaks the protocol."""
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
        """Read the id of the run and the number of its attempt. The answer of an earlier attempt cannot be taken back,
        which is a loss."""
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
        """Note a checkpoint from before the run or, with `is_recorded`, from before the run was interrupted."""
        self._states.know(ns, checkpoint_id, is_recorded=is_recorded)

    def note_values(self, ns: Place) -> None:
        """Note that a step has changed the values of a place, which are shown then. The next checkpoint contains
        them."""
        self._states.note_values(ns)

    def read_state(self, state: w.State) -> Sequence[Event]:
        """Return the events of the state at the end, from a server whose stream contains no checkpoints. Raises invalid
        if it has no id."""
        return self._states.read_state(state)

    def ask(self, interrupts: Json, node: str = "", ns: Place = ()) -> None:
        """Add the questions of a state, which may have arrived before. Raises invalid if one breaks the protocol."""
        self._questions.ask(interrupts, node, ns)

    # The end

    def close(self) -> Sequence[Event]:
        """Return the events that end the open messages, and the last states if only those are recorded."""
        return [*self.messages.close(), *self._states.close()]

    def questions(self) -> Sequence[Event]:
        """Return the questions that are open, after the run has stopped."""
        return self._questions.questions()

    def calls(self) -> Sequence[Event]:
        """Return the calls of the caller's tools that the graph has ended on, as questions."""
        return self._questions.calls()

    def finish(self) -> Sequence[Event]:
        """Return the last events of a run that has stopped: what was not streamed, the questions, and the end."""
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
        """Return the last events of a run that was cancelled."""
        return [*self.messages.close(), RunEnded(status=RunStatus.CANCELLED, usage=self.messages.usage)]

    def end_by_timeout(self) -> Sequence[Event]:
        """Return the last events of a run that its server has ended because it took too long."""
        fault = Fault(code=FaultCode.AGENT_TIMEOUT, message="The agent's server ended the run: it took too long")
        return [*self.messages.close(), RunEnded(status=RunStatus.TIMEOUT, fault=fault, usage=self.messages.usage)]

    def account(self, metadata: Json) -> Sequence[Event]:
        """Return the losses that another Babelgate reports in the run's metadata, and read the usage and the members of
        the output."""
        return self._output.read_account(metadata)

    def settle(self, values: Json, messages: Json = None) -> Sequence[Event]:
        """Read the state at the end of a run whose stream did not arrive completely, and return the missing messages.
        Raises invalid if a question breaks the protocol."""
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
        """Apply the records of the run that an earlier reader has produced."""
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
