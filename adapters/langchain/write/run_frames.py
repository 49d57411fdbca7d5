"""Encoding of records as the frames of a stream, which follows a run or a thread.

Each record has the same numbered frames for all modes, but only frames of the requested modes are encoded. So the id of
a frame does not depend on the requested modes, and a mode that is not requested costs nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from babelgate.adapters.kit.extension import URI, envelope
from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.adapters.kit.server.sse import LargeFrame, TextFrames, frame_of
from babelgate.adapters.langchain.codec.content import encode_block
from babelgate.adapters.langchain.codec.interrupts import encode_graph_questions, encode_interrupts
from babelgate.adapters.langchain.codec.message import encode_agent_protocol_message, encode_message, encode_usage
from babelgate.adapters.langchain.codec.state import (
    encode_metadata,
    encode_tasks,
    encode_values,
    format_time,
    graph_task_id,
    result_of,
    state_messages,
)
from babelgate.adapters.langchain.codec.stream_modes import RECORDS, StreamParameters, base_mode, parse_modes
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
"""Mode of frames that all readers receive, such as `metadata`."""
_CHUNKS: Final = "messages-tuple"

Payload = Callable[[], Any]
"""Function that returns the data of a frame. Called only if the frame is sent."""


class EventWriter:
    """Writer of the frames that show a run or a thread to readers with the same `view`, the parameters of their
    streams. `history` has the revisions of the thread up to some record.

    It must receive every record of the thread that follows `history`, or every one from the first on. A run that it
    shows must not have begun within `history`.
    """

    def __init__(self, view: StreamParameters, history: StateHistory | None = None) -> None:
        self.view = view
        self.done = False
        """True once the end of the run was written. Always False for a stream of a thread."""
        self._history = StateHistory(view.thread_id, view.owner) if history is None else history
        self._modes = frozenset(view.modes)
        self._shown_modes = self._translate_modes(self._modes)
        """Requested stream modes, with the Agent Protocol's `messages` translated."""
        self._shows_run_modes = view.run_id is None and "run_modes" in view.modes
        """True if a stream of a thread also shows each run in the modes with which the run was created."""
        self._run_modes: dict[str, frozenset[str]] = {}
        """Stream modes with which each run of the thread was created, by run id."""
        self._record = Record(0, 0, None, None, 0, Native(protocol="", event=""))
        self._frames: list[tuple[int, bytes | LargeFrame]] = []
        self._n = 0
        """Number of the next frame of the current record."""
        self._task_id: str | None = None
        """Task id of the last record that this stream showed."""
        self._sent_seq = 0
        """Seq of the newest record that was sent in an envelope of the Babelgate extension."""
        self._run: _Run | None = None
        """Run that is active at the current record; None between runs."""
        self._tools: dict[str, ToolStarted] = {}

    def write(self, record: Record) -> list[tuple[int, bytes | LargeFrame]]:
        """Return the frames of a record that the view shows, each with its number among the frames of the record."""
        checkpoint_id = self._history.apply(record)
        self._record, self._frames, self._n = record, [], 0
        event = record.event
        if type(event) is PartDelta:  # most events of a long answer
            if record.run_id is not None and self.view.run_id in (None, record.run_id):
                self._delta(event)
                self._add_envelope()
            return self._frames
        if isinstance(event, RunCreated) and self.view.run_id is None:
            self._run_modes[event.run_id] = self._translate_modes(_modes_of(event))
        if record.run_id is None:
            if isinstance(event, StateSaved) and self.view.run_id is None and not event.pruned:
                self._frame("state_update", "values", lambda: self._values(self._find_revision(checkpoint_id)))
            elif (
                isinstance(event, TaskChanged)
                and event.state is TaskState.CANCELLING
                and record.task_id == self._task_id
            ):
                self._add_envelope()
        elif self.view.run_id is None or record.run_id == self.view.run_id:
            self._task_id = record.task_id
            self._write(record, self._find_revision(checkpoint_id))
            self._add_envelope()
        return self._frames

    def write_passage(self, passage: Sequence[Record], texts: Sequence[str]) -> Sequence[bytes] | None:
        """Return one frame for each record of a passage, a sequence of text deltas
        (`babelgate.adapters.kit.server.passages`). `texts` are the texts of its records.

        Return None, and change nothing, unless each record has exactly one frame, a chunk of plain text. The caller
        then writes the records one by one.
        """
        first, event = passage[0], passage[0].event
        self._record = first
        chunks = (
            None if self._run is None or type(event) is not PartDelta else self._run.open.get(event.message_id or "")
        )
        if (
            chunks is None
            or type(event) is not PartDelta
            or self.view.extended
            or first.run_id is None
            or self.view.run_id not in (None, first.run_id)
            or self._is_progress(chunks.started)
            or not chunks.is_plain(event)
            or (chunks.started.ns and not self.view.subgraphs)
            or self._shows("messages")
            or not self._shows(_CHUNKS)
        ):
            return None
        self._history.add_texts(event, texts, passage[-1].seq)
        # After the frame of the mode `messages`, which is counted.
        return self._text_frames(chunks).write(
            texts, ids=[f"{record.seq}-1" for record in passage], event=_name("messages", chunks.started.ns)
        )

    def _add_envelope(self) -> None:
        """Add a frame with the current record in an envelope, if the Babelgate extension is active."""
        if self.view.extended:
            self._add(RECORDS, {URI: envelope(self._sent_seq, (self._record,))})
            self._sent_seq = self._record.seq

    def _find_revision(self, checkpoint_id: str | None) -> Revision | None:
        return None if checkpoint_id is None else self._history.get(checkpoint_id)

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
                pass  # a pruned state
            case StateSaved():
                self._write_revision(revision, event.ns, shows_values=_shows_values(event))
            case MessageStarted() | PartAdded() | MessageEnded():
                self._write_message(event)
            case StepStarted() | StepEnded() | ToolStarted() | ToolEnded():
                self._write_activity(event)
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
        """Add a frame if the view shows its mode and its namespace. Increase the frame number in any case."""
        if self._shows(mode) and (not ns or self.view.subgraphs):
            self._add(event, payload(), ns)
        self._n += 1

    def _shows(self, mode: str) -> bool:
        if mode == _ALWAYS:
            return self.view.run_id is not None or bool(self._modes & {"run_modes", "lifecycle"})
        return mode in (self._wanted_modes() if self._shows_run_modes else self._shown_modes)

    def _wanted_modes(self) -> frozenset[str]:
        return self._shown_modes | self._run_modes.get(self._record.run_id or "", frozenset())

    def _translate_modes(self, modes: frozenset[str]) -> frozenset[str]:
        """Return the modes with `messages` of the Agent Protocol replaced by `messages-tuple`, because its streams
        contain chunks."""
        if self.view.dialect == "agent-protocol" and "messages" in modes:
            return modes - {"messages"} | {_CHUNKS}
        return modes

    def _add(self, event: str, data: Any, ns: Sequence[str] = ()) -> None:
        self._append(event, encode(data), ns)

    def _append(self, event: str, data: bytes | LargeJson, ns: Sequence[str]) -> None:
        # Always with an id; langgraph-api 0.16.7 sends ids only for runs created with `stream_resumable`.
        frame = frame_of(data, id=f"{self._record.seq}-{self._n}", event=_name(event, ns))
        self._frames.append((self._n, frame))

    # What frames hold

    def _message(self, message: Message) -> JsonObject:
        return encode_message(message) if self.view.dialect == "langgraph" else encode_agent_protocol_message(message)

    def _values(self, revision: Revision | None) -> JsonObject:
        values = encode_values(revision)
        if (
            self.view.dialect == "agent-protocol"
            and revision is not None
            and (messages := state_messages(revision)) is not None
        ):
            values["messages"] = messages
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

    def _write_revision(
        self,
        revision: Revision | None,
        ns: tuple[str, ...] = (),
        values: Payload | None = None,
        *,
        shows_values: bool = True,
    ) -> None:
        """Add the three frames of a revision: `checkpoints`, `debug` and `values`. Without a revision they are only
        counted, so that the numbers of later frames do not change.

        `values` replaces the encoding of the revision's values. Without `shows_values`, the frame `values` is only
        counted.
        """
        if revision is not None and self._run is not None:
            self._run.step = revision.step
        checkpoint = (lambda: None) if revision is None else (lambda: self._checkpoint(revision))
        if revision is None:
            self._n += 2
        else:
            self._frame("checkpoints", "checkpoints", checkpoint, ns)
            self._debug("checkpoint", checkpoint, ns)
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
        """Write the start of an attempt. `revision` is the one that the current record has created, if any. A restart
        is shown like a retry in LangGraph.

        The caller skips attempts that resume an interrupted one, because their readers see no new attempt.
        """
        record, task = self._record, self._history.task(self._record.task_id)
        node = event.node or ("" if task is None else task.agent)
        is_stateful = task is not None and task.stateful
        self._tools.clear()
        previous = self._run if event.void is not None else None
        self._run = _Run(record.run_id or "", node, event.attempt, is_stateful)
        if previous is not None:
            self._run.step = previous.step
            self._run.open = {name: chunks for name, chunks in previous.open.items() if not event.is_void(name)}
        # Always the first frame (langgraph-api 0.16.7), in all modes.
        self._frame(_ALWAYS, "metadata", lambda: {"run_id": record.run_id, "attempt": event.attempt})
        if is_stateful:  # the agent reports its states and nodes itself
            return
        before = revision or self._history.head
        self._run.before = before
        self._write_revision(revision, values=lambda: self._values(before))
        self._run.task = graph_task_id(record.run_id or "" if before is None else before.checkpoint_id, node)
        self._task(self._run.task, node, lambda: self._values(before))

    def _end(self, event: RunEnded, revision: Revision | None) -> None:
        active, record = self._run, self._record
        if active is not None and active.run_id == record.run_id:
            run, active = active, None
        else:  # the run never started: it was cancelled while it waited, perhaps for another run
            run = self._run = _Run(record.run_id or "", "", 1, True)
            self._frame(_ALWAYS, "metadata", lambda: {"run_id": record.run_id, "attempt": 1})
        questions = self._history.fold.open_interrupts(record.task_id) if event.status is RunStatus.PAUSED else []
        has_failed = event.status in (RunStatus.ERROR, RunStatus.TIMEOUT)
        if not run.stateful:
            error = encode_error(event.fault)["message"] if has_failed else None
            written = (lambda: None) if revision is None or has_failed else (lambda: result_of(run.before, revision))
            self._task_result(run.task, run.node, written, error, questions)
        if event.status is RunStatus.PAUSED:
            self._write_interrupts(revision, questions)
        elif has_failed:
            # The stream ends without a last event: langgraph-api 0.16.7 sends no `end` (aegra 0.11.0 does).
            self._frame(_ALWAYS, "error", lambda: encode_error(event.fault))
        elif not run.stateful:
            self._write_revision(revision)
        if self.view.run_id is None:
            # langgraph-api 0.16.7 sends it only on the stream of a thread.
            self._frame(_ALWAYS, "metadata", lambda: {"status": "run_done", "run_id": record.run_id})
        else:
            self.done = True
        self._run = active

    def _write_interrupts(self, revision: Revision | None, questions: Sequence[Interrupt]) -> None:
        """Write the questions of a run that has stopped, with its last revision (None: the thread's newest one).
        Readers receive them even if they requested neither `values` nor `updates`."""
        interrupts = (
            encode_graph_questions(questions) if self.view.dialect == "langgraph" else encode_interrupts(questions)
        )
        # langgraph-api 0.16.7 and aegra 0.11.0 send them in both modes, @langchain/langgraph-api 0.0.40 only in
        # `updates`.
        payload = {"__interrupt__": interrupts}
        self._frame("updates", "updates", lambda: payload)
        if questions and not interrupts:  # a breakpoint
            self._write_revision(revision, shows_values=revision is not None)
            return
        state = revision or self._history.head
        self._write_revision(revision, values=lambda: {**self._values(state), **payload})
        if not self._wanted_modes() & {"updates", "values"} and self._shows(_ALWAYS) and not self._is_lifecycle:
            self._n -= 1
            self._add("values", payload)
            self._n += 1

    @property
    def _is_lifecycle(self) -> bool:
        return self.view.run_id is None and "run_modes" not in self._modes

    # Tasks: LangGraph's term for the activation of a node

    def _task(
        self, task_id: str, name: str, task_input: Payload, ns: Sequence[str] = (), reported: JsonObject | None = None
    ) -> None:
        """Write the start of a task, LangGraph's term for the activation of a node. `reported` has the `triggers` and
        `metadata` that a graph reported; None if the agent is not a graph."""
        # langgraph 1.2 has these triggers for a node that follows another one.
        members: JsonObject = {"triggers": [f"branch:to:{name}"], "metadata": {}, **(reported or {})}

        def task_payload() -> JsonObject:
            return {"id": task_id, "name": name, "input": task_input(), **members}

        self._frame("tasks", "tasks", task_payload, ns)
        self._debug("task", task_payload, ns)

    def _task_result(
        self,
        task_id: str,
        name: str,
        result: Payload,
        error: str | None = None,
        questions: Sequence[Interrupt] | Sequence[JsonObject] = (),
        ns: Sequence[str] = (),
    ) -> None:
        """Write the end of a task. `error` is the text of its failure, or None. `questions` are canonical questions, or
        interrupts as a graph reported them."""

        def result_payload() -> JsonObject:
            members: JsonObject = {"id": task_id, "name": name, "error": error, "result": result()}
            interrupts = [q for q in questions if isinstance(q, Interrupt)]
            return {**members, "interrupts": encode_interrupts(interrupts) if interrupts else list(questions)}

        self._frame("tasks", "tasks", result_payload, ns)
        self._debug("task_result", result_payload, ns)

    def _write_activity(self, event: StepStarted | StepEnded | ToolStarted | ToolEnded) -> None:
        key = event.step_id if isinstance(event, StepStarted | StepEnded) else event.call_id
        is_stateful = self._run is not None and self._run.stateful
        # A graph's tasks have their own ids.
        task_id = key if is_stateful and key else graph_task_id(self._record.run_id or "", key or event.name)
        graph_extra = as_object(event.extra.get("langgraph"))
        match event:
            case StepStarted():
                reported = {name: graph_extra[name] for name in ("triggers", "metadata") if graph_extra.get(name)}

                def step_input() -> Any:
                    return self._history.resolve(event.input_change, event.input)

                self._task(task_id, _node(event, is_stateful), step_input, event.ns, reported)
            case StepEnded():
                node = _node(event, is_stateful)
                error = None if event.fault is None else event.fault.message
                result = graph_extra.get("result", event.update)
                self._task_result(task_id, node, lambda: result, error, graph_extra.get("interrupts", ()), ns=event.ns)
                if graph_extra.get("interrupts") or (is_stateful and error is not None):
                    self._n += 1  # the task wrote nothing
                else:
                    self._frame("updates", "updates", lambda: {node: event.update}, event.ns)
            case ToolStarted():
                self._task(task_id, event.name, lambda: event.input, reported={"triggers": ["tool"]})
            case ToolEnded():
                error = None if event.fault is None else event.fault.message
                self._task_result(task_id, event.name, lambda: event.output, error)

    # Messages

    def _delta(self, event: PartDelta) -> None:
        chunks = None if self._run is None else self._run.open.get(event.message_id or "")
        if chunks is None or self._is_progress(chunks.started):
            return
        ns = chunks.started.ns
        self._frame("messages", "messages/partial", lambda: [self._whole(event.message_id or "")], ns)
        if chunks.is_plain(event):
            self._token(chunks, event.text, ns)
        else:
            self._chunk(chunks, lambda: chunks.delta(event), ns)

    def _write_message(self, event: MessageStarted | PartAdded | MessageEnded) -> None:
        run = self._run
        if run is None:
            return
        message_id = event.message_id or ""
        if isinstance(event, MessageStarted) and not as_object(event.extra.get("langgraph")).get("derived"):
            run.open[message_id] = Chunks(event, event.node or run.node)
        chunks = run.open.get(message_id)
        if chunks is None:
            return
        if self._is_progress(chunks.started):
            self._progress(event, chunks)
            return
        ns = chunks.started.ns
        match event:
            case MessageStarted():
                metadata = self._message_metadata(chunks)
                self._frame("messages", "messages/metadata", lambda: {message_id: {"metadata": metadata}}, ns)
            case PartAdded():
                chunk = chunks.part(event)
                self._frame("messages", "messages/partial", lambda: [self._whole(message_id)], ns)
                self._chunk(chunks, chunk, ns)
            case MessageEnded():
                del run.open[message_id]
                whole = self._whole_with_usage(message_id, event)
                self._frame("messages", "messages/complete", lambda: [whole()], ns)
                self._chunk(chunks, lambda: chunks.end(event) if chunks.is_chunked else whole(), ns, last=True)
                if run.stateful:  # the agent reports its updates itself
                    self._n += 1
                else:
                    self._frame("updates", "updates", lambda: {chunks.node: {"messages": [whole()]}}, ns)

    def _is_progress(self, started: MessageStarted) -> bool:
        """Return True if the message is progress, which is not part of the conversation. Messages of other roles that a
        graph's nodes add count as conversation, even if their phase is progress."""
        is_stateful = self._run is not None and self._run.stateful
        return started.phase == "progress" and not (is_stateful and started.role != "agent")

    def _chunk(self, chunks: Chunks, chunk: Payload, ns: Sequence[str], *, last: bool = False) -> None:
        """Write a chunk of a message. Only the agent's messages are sent in chunks. For others, only the `last` chunk
        is written, which is the whole message."""
        if chunks.is_chunked or last:
            self._frame(
                _CHUNKS, "messages", lambda: [self._shape_chunk(chunk(), chunks), self._message_metadata(chunks)], ns
            )
        else:
            self._n += 1

    def _token(self, chunks: Chunks, text: str, ns: Sequence[str]) -> None:
        """Write a chunk of plain text from the template of its message."""
        if self._shows(_CHUNKS) and (not ns or self.view.subgraphs):
            ids = (f"{self._record.seq}-{self._n}",)
            (frame,) = self._text_frames(chunks).write((text,), ids=ids, event=_name("messages", ns))
            self._frames.append((self._n, frame))
        self._n += 1

    def _text_frames(self, chunks: Chunks) -> TextFrames:
        """Return the template for frames with plain text of a message. It is rebuilt when the step of the run
        changes."""
        step = 0 if self._run is None else self._run.step
        if chunks.template is None or chunks.template[0] != step:
            metadata = self._message_metadata(chunks)
            chunks.template = (step, TextFrames(lambda text: [self._shape_chunk(chunks.text(text), chunks), metadata]))
        return chunks.template[1]

    def _shape_chunk(self, chunk: JsonObject, chunks: Chunks) -> JsonObject:
        """Return a chunk in the dialect's form: LangChain's `AIMessageChunk`, or the Agent Protocol's message with a
        role."""
        if self.view.dialect == "langgraph" or not chunks.is_chunked:
            return chunk
        wire = {"role": "assistant", "content": chunk["content"], "id": chunk["id"] or ""}
        calls = chunk["tool_call_chunks"]
        return {**wire, "metadata": chunk["response_metadata"], **({"tool_call_chunks": calls} if calls else {})}

    def _message_metadata(self, chunks: Chunks) -> JsonObject:
        """Return the metadata that accompany each chunk of a message: its node, step, run and thread, and those that a
        graph reported."""
        run, task = self._run, self._history.task(self._record.task_id)
        return {
            "langgraph_node": chunks.node,
            "langgraph_step": 0 if run is None else run.step,
            "langgraph_checkpoint_ns": "|".join(chunks.started.ns),
            "graph_id": "" if task is None else task.agent,
            "thread_id": self.view.thread_id,
            "run_id": self._record.run_id,
            "run_attempt": self._record.attempt if run is None else run.attempt,
            "tags": [],
            **as_object(chunks.started.extra.get("langgraph")),
        }

    def _whole(self, message_id: str) -> JsonObject:
        return self._message(self._history.fold.message(message_id) or Message(message_id=message_id))

    def _whole_with_usage(self, message_id: str, event: MessageEnded) -> Payload:
        def message_with_usage() -> JsonObject:
            whole = self._whole(message_id)
            return {**whole, "usage_metadata": encode_usage(event.usage)} if event.usage else whole

        return message_with_usage

    def _progress(self, event: MessageStarted | PartAdded | MessageEnded, chunks: Chunks) -> None:
        """Write the text of a progress message as a custom event `{"progress": text}` when the message ends.
        LangGraph's own agents report progress the same way."""
        if isinstance(event, MessageEnded) and self._run is not None:
            del self._run.open[event.message_id or ""]
            message = self._history.fold.message(event.message_id or "")
            self._frame(
                "custom", "custom", lambda: {"progress": "" if message is None else message.text}, chunks.started.ns
            )


class _Run:
    """State of the active run that its frames depend on."""

    def __init__(self, run_id: str, node: str, attempt: int, stateful: bool) -> None:
        self.run_id = run_id
        self.node = node
        self.attempt = attempt
        self.stateful = stateful
        self.task = ""
        """Id of the single task that represents an agent without its own state; empty for a graph."""
        self.step = 0
        self.before: Revision | None = None
        """Revision of the thread before the run."""
        self.open: dict[str, Chunks] = {}
        """Chunk encoders of the open messages, by message id."""


def _name(event: str, ns: Sequence[str]) -> str:
    """Return the name of a frame, with the namespace of its subgraph: `<event>|<node>:<task id>|…` (langgraph-api
    0.16.7)."""
    return "|".join((event, *ns)) if ns else event


def _node(event: StepStarted | StepEnded, is_stateful: bool) -> str:
    """Return the name of the node that a step represents: the name of the step, or for a graph (`is_stateful`) the
    event's `node`, if any."""
    return (event.node if is_stateful else "") or event.name


def _modes_of(created: RunCreated) -> frozenset[str]:
    """Return the stream modes with which a run was created; the default ones for a run of another protocol."""
    kwargs = as_object(as_object(created.extra.get("langgraph")).get("kwargs"))
    try:
        return frozenset(parse_modes(kwargs.get("stream_mode")))
    except FaultError:
        return frozenset(parse_modes(None))


def _shows_values(event: StateSaved) -> bool:
    """Return True if a frame `values` is sent with a state. A graph's server sends one only if a step has changed the
    values, and not with each checkpoint."""
    return as_object(event.extra.get("langgraph")).get("shown") is not False


def encode_artifact(event: ArtifactAdded) -> JsonObject:
    """Return an artifact, or one piece of it, as the JSON object of a custom event."""
    wire: JsonObject = {"id": event.artifact_id, "name": event.name, "description": event.description}
    wire |= {"content": [encode_block(event.part)], "append": event.append, "last": event.last}
    return {**wire, "metadata": event.metadata} if event.metadata else wire
