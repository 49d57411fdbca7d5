"""The stream of a run on another server → events: its states, the nodes at work, what is said, and its questions.

LangGraph's agents have a state, so every checkpoint is a revision of the thread, under the upstream's own id. Those of
the Agent Protocol show none: there the answer is what was said, or what the last values hold.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from babelgate.adapters.kit.json import validate
from babelgate.adapters.langchain.codec.approvals import decode_approval
from babelgate.adapters.langchain.codec.caller_tools import decode_call, find_unanswered, question_of
from babelgate.adapters.langchain.codec.content import decode_content
from babelgate.adapters.langchain.codec.interrupts import BREAKPOINT, CALL, Turns, words_of
from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.adapters.langchain.errors.decode import decode_error
from babelgate.adapters.langchain.read.messages import MessageDecoder, is_agents
from babelgate.adapters.langchain.wire import replies as w
from babelgate.canonical import (
    DataPart,
    Event,
    Fault,
    FaultCode,
    FaultError,
    Message,
    Part,
    Record,
    RunReason,
    RunStatus,
    StateHistory,
    TextPart,
)
from babelgate.canonical.difference import StateChange, state_change
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
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
from babelgate.canonical.json import as_list, as_object
from babelgate.canonical.value import Json, JsonObject

_INTERRUPT: Final = "__interrupt__"
_STRUCTURED: Final = "structured_response"
"""Where agents of langchain 1 (`create_agent`) and of langgraph-prebuilt put their structured output."""
_TAKEN_BACK: Final = "what a run had said before its server tried it again stays said"
_TOOL: Final = ["tool"]
"""The triggers by which a gateway like this one tells tools from nodes."""
_ARTIFACT: Final = frozenset({"id", "name", "description", "content", "append", "last"})
"""Members of one, which may have `metadata` besides."""
_QUESTION: Final = frozenset({"id", "interrupt_id", "value", "message", "kind"})

M = TypeVar("M", bound=BaseModel)
Place = tuple[str, ...]


def saved_checkpoints(records: Iterable[Record], run_id: str | None = None) -> set[tuple[Place, str]]:
    """Place and id of the checkpoints that a log has, but for those of one run."""
    return {
        (record.event.ns, record.event.checkpoint_id or "")
        for record in records
        if isinstance(record.event, StateSaved) and (run_id is None or record.run_id != run_id)
    }


@dataclass(slots=True)
class _Question:
    wire: w.Interrupt
    node: str = ""
    ns: Place = ()
    turn: tuple[int, ...] = ()


class EventReader:
    """Of one run. `known` = the checkpoints that were there before, `base` = the revision that it starts from where its
    server has none of it, `outputs` = the members of the state that are the output, None = all. `keeps_last` = of all
    checkpoints the last is kept (`durability: exit`). `is_server` = a server tells it, which may be a gateway like this
    one, with words of its own; not a graph in this process. `log` = the states that the log has of the thread: others
    are told by their difference to one of them. `tools` = names of the caller's."""

    def __init__(
        self,
        dialect: Dialect = "langgraph",
        known: set[tuple[Place, str]] | None = None,
        base: str | None = None,
        outputs: frozenset[str] | None = None,
        *,
        keeps_last: bool = False,
        is_server: bool = True,
        log: StateHistory | None = None,
        tools: frozenset[str] = frozenset(),
    ) -> None:
        self._caller_tools = tools
        self.run_id: str | None = None
        self.fault: Fault | None = None
        """It has failed."""
        self.status: str | None = None
        """As its end was told, by servers that tell it."""
        self.messages = MessageDecoder()
        self._attempt = 0
        """Of the run, as its server counts."""
        self._dialect: Dialect = dialect
        self._known = set(known or ())
        self._told: set[tuple[Place, str]] = set()
        """Checkpoints that the run told of before it was cut off."""
        self._base = base
        self._outputs = outputs
        self._named: Sequence[str] = ()
        """Members of the state that a gateway like this one says to be the output."""
        self._keeps_last = keeps_last
        self._is_server = is_server
        self._held: dict[Place, StateSaved] = {}
        """The newest state of each place, where the last is kept."""
        self._values: Json = None
        self._log = log or StateHistory("")
        self._saved: dict[Place, tuple[str, JsonObject]] = {}
        """The newest state of each place that the log has of this run."""
        self._origins: dict[Place, str] = {}
        """Checkpoints that the run goes on from."""
        self._states: dict[Place, tuple[str, JsonObject]] = {}
        """The newest checkpoint of each place and its values, of those that are told in this run."""
        self._shown: set[Place] = set()
        """Places whose values were told, and not yet the checkpoint that holds them."""
        self._unshown: set[Place] = set()
        """Places whose newest checkpoint was told, and not its values."""
        self._updates: dict[tuple[Place, str], list[Json]] = {}
        self._steps: dict[str, str] = {}
        """Id → name of the nodes that are at work."""
        self._tools: set[str] = set()
        self._has_tasks = False
        self._finished: dict[Place, list[str]] = {}
        """The nodes that ended since the last checkpoint."""
        self._asked: dict[str, _Question] = {}
        self._turns = Turns()
        self._stopped_early = False
        self._next: tuple[str, ...] = ()
        self._head = ""
        self._recalled: JsonObject | None = None
        """The newest state that a reader before this one had told."""

    @property
    def has_questions(self) -> bool:
        return bool(self._asked) or self._stopped_early

    @property
    def has_states(self) -> bool:
        """Those of threads are among its frames."""
        return self._dialect == "langgraph"

    @property
    def has_checkpoints(self) -> bool:
        """Some were among its frames."""
        return bool(self._head)

    @property
    def values(self) -> JsonObject:
        """The state, as it was told last."""
        return as_object(self._values)

    @property
    def is_complete(self) -> bool:
        """It has been told to the end, if its checkpoints can tell."""
        return self.has_questions or not self._head or not self._next

    @property
    def has_ended(self) -> bool:
        """Nothing more will come."""
        return self.fault is not None or self.status is not None

    def read(self, event: str, data: Json) -> Sequence[Event]:
        """One frame. Raises invalid where it breaks the protocol."""
        # langgraph-api 0.16.7: `<mode>|<node>:<task id>|…` of a subgraph.
        name, *rest = event.split("|")
        ns = tuple(rest)
        match name:
            case "metadata":
                return self._begins(as_object(data))
            case "values":
                return self._state(ns, data)
            case "checkpoints" if self._dialect == "langgraph":
                return self._checkpoint(ns, _valid(w.Checkpoint, data), data)
            case "tasks":
                self._has_tasks = True
                return self._task(ns, data)
            # The README's layout has neither `tasks` nor `checkpoints` among its modes.
            case "debug" if self._dialect == "agent-protocol":
                return self._debug(ns, data)
            case "updates":
                return self._update(ns, data)
            case "messages" | "messages/partial" | "messages/complete" | "messages/metadata":
                return self._message(name, ns, data)
            case "custom":
                return self._custom(ns, data)
            case "error":
                return self._error(data)
            # aegra 0.11.0; langgraph-api 0.16.7 closes the stream instead.
            case "end":
                self.status = _valid(w.Ended, data).status if isinstance(data, dict) else None
                return ()
            case _:
                return (Native(protocol="langgraph", event=name, ns=ns, data=data),)

    def _begins(self, data: JsonObject) -> Sequence[Event]:
        run_id, attempt = data.get("run_id"), data.get("attempt")
        self.run_id = self.run_id or (run_id if isinstance(run_id, str) else None)
        # langgraph-api 0.16.7 counts attempts from 1.
        if not isinstance(attempt, int) or attempt <= self._attempt:
            return ()
        again, self._attempt = self._attempt > 0 and self.messages.answered, attempt
        return (*self.messages.close(), LossNoted(feature="text", how=_TAKEN_BACK)) if again else ()

    # States

    def know(self, ns: Place, checkpoint_id: str, *, told: bool = False) -> None:
        """The checkpoint was there before; `told` = the run itself told of it, before it was cut off."""
        (self._told if told else self._known).add((ns, checkpoint_id))

    def note_values(self, ns: Place) -> None:
        """Readers of values are told of the state, which they are not where a step wrote nothing. What it is, its
        checkpoint tells, which comes after it."""
        self._shown.add(ns)

    def _state(self, ns: Place, data: Json) -> Sequence[Event]:
        # langgraph-api 0.16.7: the question comes beside the values.
        if isinstance(data, dict) and _INTERRUPT in data:
            self.ask(data[_INTERRUPT], ns=ns)
            if not ns:
                self._values = {name: value for name, value in data.items() if name != _INTERRUPT}
            return ()
        if not ns:
            self._values = data
        if self._dialect == "agent-protocol":
            return ()
        known = self._states.get(ns)
        # A gateway like this one tells the values after their checkpoint.
        is_late = self._is_server and known is not None and ns in self._unshown and known[1] == data
        if is_late or self._keeps_last:
            self._unshown.discard(ns)
            change = self._change(ns, data)
            told = data if change is None else None
            return (Native(protocol="langgraph", event="values", ns=ns, data=told, change=change),)
        self.note_values(ns)
        return ()

    def _checkpoint(self, ns: Place, told: w.Checkpoint, data: Json) -> Sequence[Event]:
        checkpoint_id = told.config.configurable.checkpoint_id
        values = _state_of(told.values)
        next_ = tuple(told.next or ())
        if checkpoint_id is None:
            raise FaultError(FaultCode.INVALID, "A checkpoint has no id.")
        if not ns:
            self._values, self._next, self._head = values, next_, checkpoint_id
        shown = ns in self._shown
        self._shown.discard(ns)
        if (ns, checkpoint_id) in self._told:
            self._states[ns] = self._saved[ns] = (checkpoint_id, self._log.values_of(checkpoint_id) or values)
            return ()
        if (ns, checkpoint_id) in self._known:
            return self._again(ns, checkpoint_id, values, data, shown)
        self._known.add((ns, checkpoint_id))
        parent_id = None if told.parent_config is None else told.parent_config.configurable.checkpoint_id
        finished = self._finished.pop(ns, [])
        about = told.metadata or w.CheckpointMetadata()
        saved = StateSaved(
            checkpoint_id=checkpoint_id,
            parent_id=parent_id or (self._base if not ns else None),
            source=about.source or "loop",
            step=about.step or 0,
            as_node=finished[0] if len(finished) == 1 else None,
            next=next_,
            ns=ns,
            extra={"langgraph": {"shown": shown}},
            **self._difference(ns, parent_id, checkpoint_id, values),
        )
        if shown:
            self._unshown.discard(ns)
        else:
            self._unshown.add(ns)
        self._base = None if not ns else self._base
        self._states[ns] = (checkpoint_id, values)
        if self._keeps_last:
            self._held[ns] = saved
            return ()
        self._saved[ns] = (checkpoint_id, values)
        return (saved,)

    def read_state(self, state: w.State) -> Sequence[Event]:
        """The state at the end, of a server whose stream tells of no checkpoints."""
        self.note_values(())
        told = w.Checkpoint(
            config=w.Config(configurable=state.checkpoint or w.Configurable()),
            parent_config=None if state.parent_checkpoint is None else w.Config(configurable=state.parent_checkpoint),
            values=state.values,
            metadata=state.metadata,
            next=state.next,
        )
        return self._checkpoint((), told, told.model_dump())

    def _difference(self, ns: Place, parent_id: str | None, checkpoint_id: str, values: JsonObject) -> JsonObject:
        """A state as what is new in it, if the log has one that it is near to."""
        change = self._change(ns, values, parent_id or (self._base if not ns else None))
        return {"values": values} if change is None or change.since == checkpoint_id else {"change": change}

    def _change(self, ns: Place, values: Json, parent_id: str | None = None) -> StateChange | None:
        """Against the state that it comes of, the newest of its place, or that of a place around it, which a graph
        within often begins with."""
        if not isinstance(values, dict):
            return None
        around = [ns[:depth] for depth in range(len(ns), -1, -1)]
        saved = dict(self._saved[place] for place in around if place in self._saved)
        origins = [self._origins[place] for place in around if place in self._origins]
        for since in dict.fromkeys((parent_id, *saved, *origins, self._log.head_id)):
            before = None if since is None else saved.get(since) or self._log.values_of(since)
            change = None if since is None or before is None else state_change(since, before, values)
            if change is not None:
                return change
        return None

    def _change_within(self, ns: Place, value: Json) -> tuple[Json, StateChange | None]:
        """What is told of a value that is a state, or has one as a member, as LangChain's agents give it to their
        tools."""
        change = self._change(ns, value)
        if change is not None:
            return None, change
        for name, member in as_object(value).items():
            change = self._change(ns, member)
            if change is not None:
                rest = {each: kept for each, kept in as_object(value).items() if each != name}
                return rest, change.replace(member=name)
        return value, None

    def _again(self, ns: Place, checkpoint_id: str, values: JsonObject, data: Json, shown: bool) -> Sequence[Event]:
        """The state that the run goes on from: it is known, and only LangGraph's own readers are told once more."""
        self._origins[ns] = checkpoint_id
        change = self._change(ns, values, checkpoint_id)
        told: list[tuple[str, Json, StateChange | None]] = []
        if shown:
            told.append(("values", values if change is None else None, change))
        if change is None:
            told.append(("checkpoints", as_object(data), None))
        else:
            rest = {name: value for name, value in as_object(data).items() if name != "values"}
            told.append(("checkpoints", rest, change.replace(member="values")))
        return [Native(protocol="langgraph", event=event, ns=ns, data=what, change=how) for event, what, how in told]

    # Nodes

    def _task(self, ns: Place, data: Json) -> Sequence[Event]:
        # Both come as `tasks`, and say no kind: what began has an `input`, what ended has a `result`.
        if not any(name in as_object(data) for name in ("result", "error", "interrupts")):
            return self._read_task_start(ns, _valid(w.TaskStart, data))
        return self._result(ns, _valid(w.TaskResult, data))

    def _debug(self, ns: Place, data: Json) -> Sequence[Event]:
        """Tasks and checkpoints in one. Of them only the tools are told nowhere else."""
        payload = as_object(as_object(data).get("payload"))
        is_tool = payload.get("triggers") == _TOOL or str(payload.get("id")) in self._tools
        return self._task(ns, payload) if is_tool else ()

    def _read_task_start(self, ns: Place, task: w.TaskStart) -> Sequence[Event]:
        if task.triggers == _TOOL and self._is_server:
            self._tools.add(task.id)
            return (ToolStarted(call_id=task.id, name=task.name, input=task.input),)
        self._steps[task.id] = task.name
        self._turns.begin(task.id)
        own = {
            name: value
            for name, value in (("triggers", task.triggers), ("metadata", task.metadata))
            if value is not None
        }
        given, change = self._change_within(ns, task.input)
        return (_step(task.id, task.name, ns, input=given, input_change=change, extra={"langgraph": own}),)

    def _result(self, ns: Place, task: w.TaskResult) -> Sequence[Event]:
        fault = None if task.error is None else decode_error(task.error)
        result: Json = _result_of(task.result)
        if task.id in self._tools:
            self._tools.remove(task.id)
            return (ToolEnded(call_id=task.id, name=task.name, output=result, fault=fault),)
        for asked in task.interrupts or ():
            # A graph around the one that asks tells of the question, too, and later.
            self._note(asked, task.name, ns, self._turns.of(ns, task.id))
        events: list[Event] = []
        if self._steps.pop(task.id, None) is None:  # its beginning was not told
            events.append(_step(task.id, task.name, ns))
        events += self.messages.node_ended(task.id)
        updates = self._updates.get((ns, task.name))
        update: Json = updates.pop(0) if updates else result
        own: JsonObject = {"result": result}
        if task.interrupts:
            own["interrupts"] = [asked.model_dump(exclude_unset=True) for asked in task.interrupts]
        elif fault is None:
            self._finished.setdefault(ns, []).append(task.name)
        ended = StepEnded(
            step_id=task.id,
            name=task.name,
            node=task.name,
            ns=ns,
            update=None if task.interrupts or fault else update,
            fault=fault,
            extra={"langgraph": own},
        )
        return (*events, ended)

    def _update(self, ns: Place, data: Json) -> Sequence[Event]:
        events: list[Event] = []
        told = as_object(data)
        for node in told:
            update: Json = told[node]
            if node == _INTERRUPT:
                self.ask(update, ns=ns)
                self._stopped_early = self._stopped_early or (not update and not ns)
            elif self._has_tasks:
                self._updates.setdefault((ns, node), []).append(update)
            elif not isinstance(update, dict) or update.keys() != {"messages"}:
                # Where tasks are not told, this is all that is known of a node; its messages are told by themselves.
                events += [_step(None, node, ns), StepEnded(name=node, node=node, ns=ns, update=update)]
        return events

    # What is said

    def _message(self, name: str, ns: Place, data: Json) -> Sequence[Event]:
        told: list[Any] = data if isinstance(data, list) else []
        if name == "messages" and len(told) == 2 and isinstance(told[0], dict):
            chunked = self._dialect == "agent-protocol"
            return self.messages.hear(as_object(told[0]), as_object(told[1]), ns, chunked=chunked)
        # Cumulative, as LangGraph's mode `messages` is. What else a stream of messages holds is left open by the Agent
        # Protocol: the state tells the same.
        if name not in ("messages/partial", "messages/complete"):
            return ()
        say = self.messages.so_far if name == "messages/partial" else self._complete
        return [event for each in told if is_agents(each) for event in say(as_object(each), ns)]

    def _complete(self, wire: JsonObject, ns: Place) -> Sequence[Event]:
        return self.messages.whole(wire, None, ns)

    def _custom(self, ns: Place, data: Json) -> Sequence[Event]:
        """A gateway like this one tells here what LangGraph has no event for."""
        if not self._is_server:
            return (Custom(ns=ns, value=data),)
        told = as_object(data)
        if told.keys() == {"name", "value"} and isinstance(told["name"], str) and told["name"]:
            return (Custom(name=told["name"], ns=ns, value=told["value"]),)
        if told.keys() == {"progress"} and isinstance(told["progress"], str):
            part = PartAdded(part=TextPart(text=told["progress"]))
            return (MessageStarted(phase="progress", ns=ns), part, MessageEnded())
        artifact = as_object(told.get("artifact"))
        is_one = told.keys() == {"artifact"} and _ARTIFACT <= artifact.keys() <= _ARTIFACT | {"metadata"}
        if is_one and (made := _artifact(artifact)):
            return made
        return (Custom(ns=ns, value=data),)

    def _error(self, data: Json) -> Sequence[Event]:
        self.fault = decode_error(data)
        return self.messages.close()

    # Questions

    def ask(self, told: Json, node: str = "", ns: Place = ()) -> None:
        """`__interrupt__` of a state; the same may be told in several ways."""
        for each in told if isinstance(told, list) else ():
            self._note(_valid(w.Interrupt, each), node, ns)

    def _note(self, told: w.Interrupt, node: str, ns: Place, turn: tuple[int, ...] = ()) -> None:
        key = told.id or told.interrupt_id or ""
        known = self._asked.get(key)
        if known is None and not (key == "" and self._asked):
            self._asked[key] = _Question(told, node, ns, turn)
        elif known is not None and not known.node and node:
            known.node, known.ns, known.turn = node, ns, turn

    # The end

    def close(self) -> Sequence[Event]:
        """It has stopped: nothing is added to what was said, and the last states are the ones that are kept."""
        events: list[Event] = [*self.messages.close(), *self._held.values()]
        self._held.clear()
        return events

    def questions(self) -> Sequence[Event]:
        """Those that are open now that it has stopped."""
        in_turn = sorted(self._asked.items(), key=lambda each: each[1].turn)
        asked = [_decode_interrupt(key, asked) for key, asked in in_turn]
        return [self._breakpoint()] if self._stopped_early and not asked else asked

    def calls(self) -> Sequence[Event]:
        """Of the caller's tools, that a graph has ended on: their results are what it is run with next."""
        if self.has_questions or self._next or not self._caller_tools:
            return ()
        asked: list[Event] = []
        for call in find_unanswered(as_object(self._values).get("messages"), self._caller_tools):
            message, value = question_of(call)
            own = {"call_id": call.call_id, "name": call.name, "ended": True}
            asked.append(
                InterruptRaised(
                    interrupt_id=f"{CALL}{call.call_id}", message=message, value=value, extra={"langchain": own}
                )
            )
        return asked

    def finish(self) -> Sequence[Event]:
        """It has stopped: what no event told, its questions after all else, and its end."""
        events: list[Event] = [*self.close()]
        if not self.has_questions:
            events += self._answer()
        is_untold = not self._head or (self._recalled is not None and self._recalled != self._values)
        if self._dialect == "langgraph" and not self._states and is_untold and isinstance(self._values, dict):
            # A server that tells of no checkpoints has a state all the same; and of a run that ended while nobody
            # followed it nothing but its end can be had.
            next_ = tuple(dict.fromkeys(asked.node for asked in self._asked.values() if asked.node))
            events.append(StateSaved(values=self._values, next=next_))
        calls = self.calls()
        events += (*self.questions(), *calls)
        if self.has_questions or calls:
            return [*events, RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT, usage=self.messages.usage)]
        return [*events, RunEnded(output=self._output(), usage=self.messages.usage)]

    def end_by_cancel(self) -> Sequence[Event]:
        return [*self.messages.close(), RunEnded(status=RunStatus.CANCELLED, usage=self.messages.usage)]

    def end_by_timeout(self) -> Sequence[Event]:
        fault = Fault(code=FaultCode.AGENT_TIMEOUT, message="The agent's server ended the run: it took too long")
        return [*self.messages.close(), RunEnded(status=RunStatus.TIMEOUT, fault=fault, usage=self.messages.usage)]

    def account(self, about: Json) -> Sequence[Event]:
        """What a gateway like this one says of a run beside all else: the usage, what of the state is the output, and
        what got lost before it came here."""
        told = as_object(as_object(about).get("babelgate"))
        self._named = [name for name in as_list(told.get("output")) if isinstance(name, str)]
        self.messages.usage = self.messages.usage or as_object(told.get("usage"))
        losses = as_object(told.get("loss"))
        return [LossNoted(feature=feature, how=how) for feature, how in losses.items() if isinstance(how, str)]

    def settle(self, values: Json, messages: Json = None) -> Sequence[Event]:
        """The state at the end, where not all of the stream was heard: what of it was not told."""
        values = values if isinstance(values, dict) else {}
        self.ask(values.get(_INTERRUPT))
        rest = {name: value for name, value in values.items() if name != _INTERRUPT}
        if messages is not None:
            rest = {**rest, "messages": messages}
        if rest:  # the join of a run that had ended may hold nothing but its questions
            self._values = rest
        return [event for wire in self._last_words() for event in self._read_message(wire)]

    def _read_message(self, wire: JsonObject) -> Sequence[Event]:
        return () if self.messages.is_told(wire) else self.messages.whole(wire)

    def _last_words(self) -> Sequence[JsonObject]:
        """What the agent said since the caller spoke last."""
        said: list[JsonObject] = []
        for each in reversed(as_list(as_object(self._values).get("messages"))):
            if not is_agents(each):
                if as_object(each).get("type", as_object(each).get("role")) in ("tool", "function"):
                    continue
                break
            said.insert(0, as_object(each))
        return said

    def _answer(self) -> Sequence[Event]:
        """Of a server that did not stream what was said, and of an agent that does not converse: its output."""
        if self.messages.answered:
            return ()
        if "messages" in as_object(self._values):
            return [event for wire in self._last_words() for event in self._read_message(wire)]
        output = self._output()
        if not output:
            return ()
        # It is in the agent's state, and no message there: LangGraph's readers are not told of it again.
        started = MessageStarted(extra={"langgraph": {"derived": True}})
        return (started, PartAdded(part=_output_part(output)), MessageEnded())

    def _output(self) -> Json:
        values = as_object(self._values)
        if self._named and all(name in values for name in self._named):
            return {name: values[name] for name in self._named}
        if "messages" not in values:
            if isinstance(self._values, dict) and self._outputs is not None:
                return {name: value for name, value in values.items() if name in self._outputs} or None
            return self._values or None
        if _STRUCTURED in values:
            return values[_STRUCTURED]
        data = self.messages.data
        # Structured output that a gateway like this one has put into the state, too.
        return data if isinstance(data, dict) and data and data.items() <= values.items() else None

    def _breakpoint(self) -> InterruptRaised:
        nodes = ", ".join(self._next)
        where = f" before {nodes}" if nodes else ""
        return InterruptRaised(
            interrupt_id=f"{BREAKPOINT}{self._head or self.run_id}",
            message=Message.of(f"The graph was told to stop{where}. Any answer lets it go on."),
            value={"next": list(self._next)},
            node=self._next[0] if self._next else "",
            extra={"langchain": {"breakpoint": True}},
        )

    # Going on

    def recall(self, records: Iterable[Record]) -> None:
        """What was told of this run before, by a reader that is gone."""
        for record in records:
            event = record.event
            match event:
                case MessageStarted() | PartAdded() | PartDelta() | PartEnded() | MessageEnded():
                    self.messages.recall(event)
                case StepStarted():
                    self._steps[event.step_id or ""] = event.name
                    self._turns.begin(event.step_id or "")
                case StepEnded():
                    self._steps.pop(event.step_id or "", None)
                case ToolStarted():
                    self._tools.add(event.call_id or "")
                case ToolEnded():
                    self._tools.discard(event.call_id or "")
                case StateSaved():
                    self._known.add((event.ns, event.checkpoint_id or ""))
                    if not event.ns:
                        self._recalled = event.values
                        if event.change is not None:
                            self._recalled = as_object(self._log.resolve(event.change, None))
                    self._head = event.checkpoint_id or "" if not event.ns else self._head
                case _:
                    pass


def _valid(model: type[M], data: Json) -> M:
    return validate(model, data)


def _step(step_id: str | None, name: str, ns: Place, **more: Any) -> StepStarted:
    return StepStarted(step_id=step_id, name=name, node=name, ns=ns, **more)


def _state_of(value: Json) -> JsonObject:
    """A state as an object: one that is no object is its only member."""
    return value if isinstance(value, dict) else {"__root__": value}


def _result_of(result: Json) -> Json:
    """Of a task. langgraph before 1.0 told it as pairs of member and value."""
    if isinstance(result, list) and result and all(isinstance(p, list) and len(p) == 2 for p in result):
        made: Json = {str(pair[0]): pair[1] for pair in result if isinstance(pair, list)}
        return made
    return result


def _artifact(told: Mapping[str, Any]) -> Sequence[Event]:
    try:
        parts = decode_content(told["content"])
    except FaultError:
        return ()
    text: Callable[[str], str | None] = lambda name: told[name] if isinstance(told[name], str) else None  # noqa: E731
    append, last = told["append"] is True, told["last"] is not False
    return [
        ArtifactAdded(
            artifact_id=text("id"),
            name=text("name"),
            description=text("description"),
            part=part,
            append=append or index > 0,
            last=last and index == len(parts) - 1,
            metadata=as_object(told.get("metadata")),
        )
        for index, part in enumerate(parts)
    ]


def _decode_interrupt(key: str, asked: _Question) -> InterruptRaised:
    told = asked.wire
    call = decode_call(told.value)
    kind = told.kind if told.kind == "approval" or told.kind == "auth" else "input"
    words = told.message or words_of(told.value)
    message, value = Message.of(words) if words else Message(), None if told.value == words else told.value
    # What the server calls it: the hub gives it another id where the task was asked one of that id before.
    own: JsonObject = {"id": key} if key else {}
    if call is not None:
        message, value = question_of(call)
        own["call_id"] = call.call_id
    approval = decode_approval(told.value)
    if approval is not None:
        own["approval"] = approval[0]
    own |= _beside(told)
    extra: JsonObject = {"langchain": own} if own else {}
    return InterruptRaised(
        interrupt_id=key or None,
        ask=kind if approval is None else "approval",
        message=message,
        value=value,
        answer_schema=told.response_schema,
        node=asked.node,
        ns=asked.ns or tuple(told.ns or ()),
        extra=extra,
    )


def _beside(told: w.Interrupt) -> JsonObject:
    """Members of a question without a canonical place: the `ns`, `when` and `resumable` of LangGraph before 1.0."""
    own = {
        name: value
        for name, value in told.model_dump(exclude_unset=True).items()
        if name not in _QUESTION and (name != "response_schema" or value is None)
    }
    return {"interrupt": own} if own else {}


def _output_part(output: Json) -> Part:
    """Text, if that is all there is."""
    only = next(iter(output.values())) if isinstance(output, dict) and len(output) == 1 else output
    return TextPart(text=only) if isinstance(only, str) else DataPart(data=output)
