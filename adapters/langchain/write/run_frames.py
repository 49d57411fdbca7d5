"""Records → the frames of a run's stream, or of a thread's.

Every record has its frames in all modes, in one order, and each frame its number among them; only those that were asked
for are encoded. So a frame's id does not depend on what else was asked for, and a mode that nobody asked for costs
nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from babelgate.adapters.kit.extension import URI, envelope
from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.adapters.kit.server.sse import LargeFrame, TextFrames, frame_of
from babelgate.adapters.langchain.codec.content import encode_block
from babelgate.adapters.langchain.codec.interrupts import encode_asked, encode_interrupts
from babelgate.adapters.langchain.codec.message import encode_message, encode_said, encode_usage
from babelgate.adapters.langchain.codec.state import (
    encode_metadata,
    encode_tasks,
    encode_values,
    format_time,
    graph_task_id,
    result_of,
    state_messages,
)
from babelgate.adapters.langchain.codec.stream_modes import RECORDS, View, base_mode, parse_modes
from babelgate.adapters.langchain.errors.encode import encode_error
from babelgate.adapters.langchain.write.message_chunks import Chunks
from babelgate.canonical import FaultError, Message, Record, Revision, RunStatus, StateHistory, TaskState
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    RunCreated,
    RunEnded,
    RunStarted,
    StateSaved,
    StepEnded,
    StepStarted,
    TaskChanged,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.thread import Interrupt
from babelgate.canonical.value import JsonObject

_ALWAYS: Final = ""
"""The mode of frames that all get."""
_CHUNKS: Final = "messages-tuple"

Payload = Callable[[], Any]


class EventWriter:
    """Fed with every record of a thread: from its first one on, or from where a history of it ends, as long as none of
    the runs that are shown had begun by then."""

    def __init__(self, view: View, history: StateHistory | None = None) -> None:
        self.view = view
        self.done = False
        """The run's end has been written. Never so of a whole thread."""
        self._history = StateHistory(view.thread_id, view.owner) if history is None else history
        self._modes = frozenset(view.modes)
        self._shown = self._translate_modes(self._modes)
        self._own_modes = view.run_id is None and "run_modes" in view.modes
        """Whether each run of the thread is also shown in the modes that it was created with."""
        self._asked: dict[str, frozenset[str]] = {}
        """By run, these."""
        self._record = Record(0, 0, None, None, 0, Native(protocol="", event=""))
        self._frames: list[tuple[int, bytes | LargeFrame]] = []
        self._n = 0
        self._task_id: str | None = None
        """Of the record that was shown last."""
        self._told = 0
        """The seq of the last record of the run, for the extension."""
        self._run: _Run | None = None
        self._tools: dict[str, ToolStarted] = {}

    def write(self, record: Record) -> list[tuple[int, bytes | LargeFrame]]:
        """The frames that the record becomes, each with its number."""
        made = self._history.apply(record)
        self._record, self._frames, self._n = record, [], 0
        event = record.event
        if type(event) is PartDelta:  # most events of a long answer
            if record.run_id is not None and self.view.run_id in (None, record.run_id):
                self._delta(event)
                self._record_beside()
            return self._frames
        if isinstance(event, RunCreated) and self.view.run_id is None:
            self._asked[event.run_id] = self._translate_modes(_modes_of(event))
        if record.run_id is None:
            if isinstance(event, StateSaved) and self.view.run_id is None and not event.pruned:
                self._frame("state_update", "values", lambda: self._values(self._find_revision(made)))
            elif (
                isinstance(event, TaskChanged)
                and event.state is TaskState.CANCELLING
                and record.task_id == self._task_id
            ):
                self._record_beside()
        elif self.view.run_id is None or record.run_id == self.view.run_id:
            self._task_id = record.task_id
            self._write(record, self._find_revision(made))
            self._record_beside()
        return self._frames

    def write_passage(self, passage: Sequence[Record], texts: Sequence[str]) -> Sequence[bytes] | None:
        """A frame for each record of a passage (`babelgate.adapters.kit.server.passages`). None where not each has
        one frame, with a chunk of plain text: then nothing is done, and they are written one by one."""
        first, event = passage[0], passage[0].event
        self._record = first
        said = None if self._run is None or type(event) is not PartDelta else self._run.open.get(event.message_id or "")
        if (
            said is None
            or type(event) is not PartDelta
            or self.view.extended
            or first.run_id is None
            or self.view.run_id not in (None, first.run_id)
            or self._is_aside(said.started)
            or not said.is_plain(event)
            or (said.started.ns and not self.view.subgraphs)
            or self._shows("messages")
            or not self._shows(_CHUNKS)
        ):
            return None
        self._history.add_texts(event, texts, passage[-1].seq)
        # Behind the frame of the mode `messages`, which is counted.
        return self._text_frames(said).write(
            texts, ids=[f"{record.seq}-1" for record in passage], event=_name("messages", said.started.ns)
        )

    def _record_beside(self) -> None:
        """By the extension."""
        if self.view.extended:
            self._add(RECORDS, {URI: envelope(self._told, (self._record,))})
            self._told = self._record.seq

    def _find_revision(self, made: str | None) -> Revision | None:
        return None if made is None else self._history.get(made)

    def _write(self, record: Record, revision: Revision | None) -> None:
        event = record.event
        match event:
            case RunStarted() if not event.resumed:
                self._start(event, revision)
            case RunEnded():
                self._end(event, revision)
            case StateSaved(pruned=True):
                if self._run is not None:
                    self._run.step = event.step
            case Native(data=None, change=None):
                pass  # a state that was pruned
            case StateSaved():
                self._revision(revision, event.ns, shows_values=_is_shown(event))
            case MessageStarted() | PartAdded() | MessageEnded():
                self._write_message(event)
            case StepStarted() | StepEnded() | ToolStarted() | ToolEnded():
                self._work(event)
            case ArtifactAdded():
                self._artifact(event)
            case Custom():
                self._custom(event)
            case Native(protocol="langgraph"):
                self._frame(
                    base_mode(event.event),
                    event.event,
                    lambda: self._history.resolve(event.change, event.data),
                    event.ns,
                )
            case _:
                pass

    # Frames

    def _frame(self, mode: str, event: str, payload: Payload, ns: Sequence[str] = ()) -> None:
        if self._shows(mode) and (not ns or self.view.subgraphs):
            self._add(event, payload(), ns)
        self._n += 1

    def _shows(self, mode: str) -> bool:
        if mode == _ALWAYS:
            return self.view.run_id is not None or bool(self._modes & {"run_modes", "lifecycle"})
        return mode in (self._wanted_modes() if self._own_modes else self._shown)

    def _wanted_modes(self) -> frozenset[str]:
        return self._shown | self._asked.get(self._record.run_id or "", frozenset())

    def _translate_modes(self, modes: frozenset[str]) -> frozenset[str]:
        """In the Agent Protocol, messages come in chunks."""
        if self.view.dialect == "agent-protocol" and "messages" in modes:
            return modes - {"messages"} | {_CHUNKS}
        return modes

    def _add(self, event: str, data: Any, ns: Sequence[str] = ()) -> None:
        self._append(event, encode(data), ns)

    def _append(self, event: str, data: bytes | LargeJson, ns: Sequence[str]) -> None:
        # With an id always: langgraph-api 0.16.7 sends them only where `stream_resumable` was said.
        made = frame_of(data, id=f"{self._record.seq}-{self._n}", event=_name(event, ns))
        self._frames.append((self._n, made))

    # What frames hold

    def _message(self, message: Message) -> JsonObject:
        return encode_message(message) if self.view.dialect == "langgraph" else encode_said(message)

    def _values(self, revision: Revision | None) -> JsonObject:
        values = encode_values(revision)
        if (
            self.view.dialect == "agent-protocol"
            and revision is not None
            and (said := state_messages(revision)) is not None
        ):
            values["messages"] = said
        return values

    def _checkpoint(self, revision: Revision) -> JsonObject:
        return {
            "config": self._config(revision.checkpoint_id, revision.ns),
            "metadata": encode_metadata(self.view.thread_id, revision),
            "values": self._values(revision),
            "next": list(revision.next),
            "parent_config": None if revision.parent_id is None else self._config(revision.parent_id, revision.ns),
            "tasks": encode_tasks(revision),
        }

    def _config(self, checkpoint_id: str, ns: tuple[str, ...]) -> JsonObject:
        place = {"checkpoint_id": checkpoint_id, "checkpoint_ns": "|".join(ns), "thread_id": self.view.thread_id}
        return {"configurable": place}

    def _debug(self, kind: str, payload: Payload, ns: Sequence[str] = ()) -> None:
        time = format_time(self._record.at)
        step = 0 if self._run is None else self._run.step
        self._frame("debug", "debug", lambda: {"step": step, "timestamp": time, "type": kind, "payload": payload()}, ns)

    def _revision(
        self,
        revision: Revision | None,
        ns: tuple[str, ...] = (),
        values: Payload | None = None,
        *,
        shows_values: bool = True,
    ) -> None:
        """The three frames of a state; they are counted also where it has none."""
        if revision is not None and self._run is not None:
            self._run.step = revision.step
        made = (lambda: None) if revision is None else (lambda: self._checkpoint(revision))
        if revision is None:
            self._n += 2
        else:
            self._frame("checkpoints", "checkpoints", made, ns)
            self._debug("checkpoint", made, ns)
        if shows_values:
            self._frame("values", "values", values or (lambda: self._values(revision)), ns)
        else:
            self._n += 1

    def _artifact(self, event: ArtifactAdded) -> None:
        self._frame("custom", "custom", lambda: {"artifact": encode_artifact(event)})

    def _custom(self, event: Custom) -> None:
        value = {"name": event.name, "value": event.value} if event.name else event.value
        self._frame("custom", "custom", lambda: value, event.ns)

    # Runs

    def _start(self, event: RunStarted, revision: Revision | None) -> None:
        """Not of an attempt that goes on: whoever follows the run is told of no new one. One that starts over is shown
        as LangGraph shows a run that it tries again."""
        record, task = self._record, self._history.task(self._record.task_id)
        node = event.node or ("" if task is None else task.agent)
        stateful = task is not None and task.stateful
        self._tools.clear()
        former = self._run if event.void is not None else None
        self._run = _Run(record.run_id or "", node, event.attempt, stateful)
        if former is not None:
            self._run.step = former.step
            self._run.open = {name: chunks for name, chunks in former.open.items() if not event.is_void(name)}
        # Always the first (langgraph-api 0.16.7), whatever modes were asked for.
        self._frame(_ALWAYS, "metadata", lambda: {"run_id": record.run_id, "attempt": event.attempt})
        if stateful:  # it tells of its states and nodes itself
            return
        before = revision or self._history.head
        self._run.before = before
        self._revision(revision, values=lambda: self._values(before))
        self._run.task = graph_task_id(record.run_id or "" if before is None else before.checkpoint_id, node)
        self._task(self._run.task, node, lambda: self._values(before))

    def _end(self, event: RunEnded, revision: Revision | None) -> None:
        at_work, record = self._run, self._record
        if at_work is not None and at_work.run_id == record.run_id:
            run, at_work = at_work, None
        else:  # it never started: it was cancelled while it waited, for another one perhaps
            run = self._run = _Run(record.run_id or "", "", 1, True)
            self._frame(_ALWAYS, "metadata", lambda: {"run_id": record.run_id, "attempt": 1})
        questions = self._history.fold.open_interrupts(record.task_id) if event.status is RunStatus.PAUSED else []
        failed = event.status in (RunStatus.ERROR, RunStatus.TIMEOUT)
        if not run.stateful:
            error = encode_error(event.fault)["message"] if failed else None
            wrote = (lambda: None) if revision is None or failed else (lambda: result_of(run.before, revision))
            self._result(run.task, run.node, wrote, error, questions)
        if event.status is RunStatus.PAUSED:
            self._write_interrupts(revision, questions)
        elif failed:
            # The end of a stream is its closing: langgraph-api 0.16.7 sends no `end` (aegra 0.11.0 does).
            self._frame(_ALWAYS, "error", lambda: encode_error(event.fault))
        elif not run.stateful:
            self._revision(revision)
        if self.view.run_id is None:
            # langgraph-api 0.16.7, on the stream of a thread alone.
            self._frame(_ALWAYS, "metadata", lambda: {"status": "run_done", "run_id": record.run_id})
        else:
            self.done = True
        self._run = at_work

    def _write_interrupts(self, revision: Revision | None, questions: Sequence[Interrupt]) -> None:
        """Whoever asked for neither values nor updates is told all the same."""
        told = encode_asked(questions) if self.view.dialect == "langgraph" else encode_interrupts(questions)
        # langgraph-api 0.16.7 and aegra 0.11.0 tell it in both modes; @langchain/langgraph-api 0.0.40 in `updates`
        # alone.
        asked = {"__interrupt__": told}
        self._frame("updates", "updates", lambda: asked)
        if questions and not told:  # it was told to stop there
            self._revision(revision, shows_values=revision is not None)
            return
        state = revision or self._history.head
        self._revision(revision, values=lambda: {**self._values(state), **asked})
        if not self._wanted_modes() & {"updates", "values"} and self._shows(_ALWAYS) and not self._is_lifecycle:
            self._n -= 1
            self._add("values", asked)
            self._n += 1

    @property
    def _is_lifecycle(self) -> bool:
        return self.view.run_id is None and "run_modes" not in self._modes

    # Tasks: what LangGraph calls the activation of a node

    def _task(
        self, task_id: str, name: str, given: Payload, ns: Sequence[str] = (), own: JsonObject | None = None
    ) -> None:
        """`own` = its `triggers` and `metadata`, of a graph that tells of them."""
        # What langgraph 1.2 has for a node that another one leads to.
        about: JsonObject = {"triggers": [f"branch:to:{name}"], "metadata": {}, **(own or {})}

        def task_payload() -> JsonObject:
            return {"id": task_id, "name": name, "input": given(), **about}

        self._frame("tasks", "tasks", task_payload, ns)
        self._debug("task", task_payload, ns)

    def _result(
        self,
        task_id: str,
        name: str,
        result: Payload,
        error: str | None = None,
        questions: Sequence[Interrupt] | Sequence[JsonObject] = (),
        ns: Sequence[str] = (),
    ) -> None:
        """`questions`, or what a graph told of them."""

        def result_payload() -> JsonObject:
            told: JsonObject = {"id": task_id, "name": name, "error": error, "result": result()}
            asked = [q for q in questions if isinstance(q, Interrupt)]
            return {**told, "interrupts": encode_interrupts(asked) if asked else list(questions)}

        self._frame("tasks", "tasks", result_payload, ns)
        self._debug("task_result", result_payload, ns)

    def _work(self, event: StepStarted | StepEnded | ToolStarted | ToolEnded) -> None:
        key = event.step_id if isinstance(event, StepStarted | StepEnded) else event.call_id
        stateful = self._run is not None and self._run.stateful
        # A graph's tasks have ids of their own.
        task_id = key if stateful and key else graph_task_id(self._record.run_id or "", key or event.name)
        own = as_object(event.extra.get("langgraph"))
        match event:
            case StepStarted():
                told = {name: own[name] for name in ("triggers", "metadata") if own.get(name)}

                def step_input() -> Any:
                    return self._history.resolve(event.input_change, event.input)

                self._task(task_id, _node(event, stateful), step_input, event.ns, told)
            case StepEnded():
                node = _node(event, stateful)
                error = None if event.fault is None else event.fault.message
                result = own.get("result", event.update)
                self._result(task_id, node, lambda: result, error, own.get("interrupts", ()), ns=event.ns)
                if own.get("interrupts") or (stateful and error is not None):
                    self._n += 1  # it wrote nothing
                else:
                    self._frame("updates", "updates", lambda: {node: event.update}, event.ns)
            case ToolStarted():
                self._task(task_id, event.name, lambda: event.input, own={"triggers": ["tool"]})
            case ToolEnded():
                error = None if event.fault is None else event.fault.message
                self._result(task_id, event.name, lambda: event.output, error)

    # Messages

    def _delta(self, event: PartDelta) -> None:
        said = None if self._run is None else self._run.open.get(event.message_id or "")
        if said is None or self._is_aside(said.started):
            return
        ns = said.started.ns
        self._frame("messages", "messages/partial", lambda: [self._whole(event.message_id or "")], ns)
        if said.is_plain(event):
            self._token(said, event.text, ns)
        else:
            self._chunk(said, lambda: said.delta(event), ns)

    def _write_message(self, event: MessageStarted | PartAdded | MessageEnded) -> None:
        run = self._run
        if run is None:
            return
        message_id = event.message_id or ""
        if isinstance(event, MessageStarted) and not as_object(event.extra.get("langgraph")).get("derived"):
            run.open[message_id] = Chunks(event, event.node or run.node)
        said = run.open.get(message_id)
        if said is None:
            return
        if self._is_aside(said.started):
            self._progress(event, said)
            return
        ns = said.started.ns
        match event:
            case MessageStarted():
                about = self._about(said)
                self._frame("messages", "messages/metadata", lambda: {message_id: {"metadata": about}}, ns)
            case PartAdded():
                chunk = said.part(event)
                self._frame("messages", "messages/partial", lambda: [self._whole(message_id)], ns)
                self._chunk(said, chunk, ns)
            case MessageEnded():
                del run.open[message_id]
                whole = self._whole_with_usage(message_id, event)
                self._frame("messages", "messages/complete", lambda: [whole()], ns)
                self._chunk(said, lambda: said.end(event) if said.is_chunked else whole(), ns, last=True)
                if run.stateful:  # it tells of its updates itself
                    self._n += 1
                else:
                    self._frame("updates", "updates", lambda: {said.node: {"messages": [whole()]}}, ns)

    def _is_aside(self, started: MessageStarted) -> bool:
        """Said on the way. But what a graph's nodes put into its conversation is part of it, also where it is no
        answer."""
        stateful = self._run is not None and self._run.stateful
        return started.phase == "progress" and not (stateful and started.role != "agent")

    def _chunk(self, said: Chunks, chunk: Payload, ns: Sequence[str], *, last: bool = False) -> None:
        """What an agent says comes in chunks; what it repeats of others, when it is whole."""
        if said.is_chunked or last:
            self._frame(_CHUNKS, "messages", lambda: [self._shape_chunk(chunk(), said), self._about(said)], ns)
        else:
            self._n += 1

    def _token(self, said: Chunks, text: str, ns: Sequence[str]) -> None:
        """A chunk of plain text."""
        if self._shows(_CHUNKS) and (not ns or self.view.subgraphs):
            ids = (f"{self._record.seq}-{self._n}",)
            (made,) = self._text_frames(said).write((text,), ids=ids, event=_name("messages", ns))
            self._frames.append((self._n, made))
        self._n += 1

    def _text_frames(self, said: Chunks) -> TextFrames:
        """What is around the text stays the same as long as the run is at the same step."""
        step = 0 if self._run is None else self._run.step
        if said.template is None or said.template[0] != step:
            about = self._about(said)
            said.template = (step, TextFrames(lambda text: [self._shape_chunk(said.text(text), said), about]))
        return said.template[1]

    def _shape_chunk(self, chunk: JsonObject, said: Chunks) -> JsonObject:
        if self.view.dialect == "langgraph" or not said.is_chunked:
            return chunk
        made = {"role": "assistant", "content": chunk["content"], "id": chunk["id"] or ""}
        calls = chunk["tool_call_chunks"]
        return {**made, "metadata": chunk["response_metadata"], **({"tool_call_chunks": calls} if calls else {})}

    def _about(self, said: Chunks) -> JsonObject:
        """The metadata of a message: where it comes from."""
        run, task = self._run, self._history.task(self._record.task_id)
        return {
            "langgraph_node": said.node,
            "langgraph_step": 0 if run is None else run.step,
            "langgraph_checkpoint_ns": "|".join(said.started.ns),
            "graph_id": "" if task is None else task.agent,
            "thread_id": self.view.thread_id,
            "run_id": self._record.run_id,
            "run_attempt": self._record.attempt if run is None else run.attempt,
            "tags": [],
            **as_object(said.started.extra.get("langgraph")),
        }

    def _whole(self, message_id: str) -> JsonObject:
        return self._message(self._history.fold.message(message_id) or Message(message_id=message_id))

    def _whole_with_usage(self, message_id: str, event: MessageEnded) -> Payload:
        def message_with_usage() -> JsonObject:
            whole = self._whole(message_id)
            return {**whole, "usage_metadata": encode_usage(event.usage)} if event.usage else whole

        return message_with_usage

    def _progress(self, event: MessageStarted | PartAdded | MessageEnded, said: Chunks) -> None:
        """No message of the conversation: LangGraph's agents, too, tell of their progress in events of their own."""
        if isinstance(event, MessageEnded) and self._run is not None:
            del self._run.open[event.message_id or ""]
            found = self._history.fold.message(event.message_id or "")
            self._frame("custom", "custom", lambda: {"progress": "" if found is None else found.text}, said.started.ns)


class _Run:
    """The run that is at work."""

    def __init__(self, run_id: str, node: str, attempt: int, stateful: bool) -> None:
        self.run_id = run_id
        self.node = node
        self.attempt = attempt
        self.stateful = stateful
        self.task = ""
        self.step = 0
        self.before: Revision | None = None
        self.open: dict[str, Chunks] = {}


def _name(event: str, ns: Sequence[str]) -> str:
    """langgraph-api 0.16.7: `<mode>|<node>:<task id>|…` of a subgraph."""
    return "|".join((event, *ns)) if ns else event


def _node(event: StepStarted | StepEnded, stateful: bool) -> str:
    """A step is shown as a node of its name. Only a graph's own nodes may be called otherwise."""
    return (event.node if stateful else "") or event.name


def _modes_of(created: RunCreated) -> frozenset[str]:
    kwargs = as_object(as_object(created.extra.get("langgraph")).get("kwargs"))
    try:
        return frozenset(parse_modes(kwargs.get("stream_mode")))
    except FaultError:
        return frozenset(parse_modes(None))


def _is_shown(event: StateSaved) -> bool:
    """A graph tells its values where a step has changed them, and not of each checkpoint."""
    return as_object(event.extra.get("langgraph")).get("shown") is not False


def encode_artifact(event: ArtifactAdded) -> JsonObject:
    told: JsonObject = {"id": event.artifact_id, "name": event.name, "description": event.description}
    told |= {"content": [encode_block(event.part)], "append": event.append, "last": event.last}
    return {**told, "metadata": event.metadata} if event.metadata else told
