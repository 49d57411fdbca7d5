"""Conversion of the output of a graph in this process to events.

The output of `astream` is encoded as the frames that LangGraph's server would send. So one reader serves graphs in this
process and behind a URL.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage

from babelgate.adapters.langchain.codec.stream_modes import EVENTS
from babelgate.adapters.langchain.read.run_frames import EventReader
from babelgate.canonical import Event, Record, StateHistory
from babelgate.canonical.event import (
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    StateSaved,
    StepEnded,
    StepStarted,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.message import TextPart
from babelgate.canonical.value import Json, JsonObject
from babelgate.gateway.agents.langgraph.jsonable import plain, plain_object

MODES: Final = ("values", "checkpoints", "tasks", "updates", "messages", "custom")
"""Stream modes that are requested from the graph."""

_HIDDEN: Final = "langsmith:hidden"
_INTERRUPT: Final = "__interrupt__"
_ABOUT: Final = "langgraph_"
"""Prefix of the keys that LangGraph adds to the metadata of messages. Keys without it are from the graph's author."""

Namespace = tuple[str, ...]


_UNFINISHED: Final = ("__error__", "__interrupt__", "__resume__")
"""Channels whose writes mark a task that failed or was interrupted and will run again (langgraph 1.2, `PregelLoop`)."""


@dataclass(frozen=True, slots=True)
class PendingWrites:
    """Writes that LangGraph tasks have stored after the checkpoint from which a run continues.

    Tasks that finished do not run again, and do not send their messages again.
    """

    tasks: frozenset[str]
    """Ids of the LangGraph tasks that finished."""
    messages: Sequence[AIMessage]
    """Messages that the finished LangGraph tasks have written to the state."""

    @classmethod
    def of(cls, writes: Iterable[tuple[str, str, Any]]) -> "PendingWrites":
        """Return the writes of the finished tasks. `writes` has the task id, channel and value of each write."""
        finished = [(task, channel, value) for task, channel, value in writes if channel not in _UNFINISHED]
        messages: list[AIMessage] = []
        for _, channel, value in finished:
            values = cast("Sequence[object]", value if isinstance(value, list | tuple) else (value,))
            messages += [each for each in values if channel == "messages" and isinstance(each, AIMessage)]
        return cls(frozenset(task for task, _, _ in finished), messages)


_OfMessage = MessageStarted | PartAdded | PartDelta | PartEnded | MessageEnded


@dataclass(slots=True)
class ResumedRun:
    """Comparison of the log of an interrupted run with the checkpoint from which its graph continues."""

    void: tuple[str, ...]
    """Ids of the messages that interrupted LangGraph tasks have sent. The graph runs these tasks again."""
    recorded: set[str]
    """Ids of the checkpoints and messages that the log has already and that stay valid."""
    unrecorded: Sequence[AIMessage] = ()
    """Messages of finished LangGraph tasks that are missing in the log, or incomplete there."""
    begun: Sequence[_OfMessage] = ()
    """Events in the log of those `unrecorded` messages that are incomplete there.

    The messages continue under their ids, because readers join the events of one id.
    """

    @classmethod
    def of(
        cls,
        records: Sequence[Record],
        run_id: str,
        checkpoint_id: str,
        pending: PendingWrites,
        log: StateHistory,
    ) -> "ResumedRun":
        """Return the comparison of an interrupted run's log with the checkpoint from which its graph continues.

        `records` are those of the task, and `log` has the states of its thread. The checkpoint may be older than the
        newest one in the log, because graphs write their checkpoints in the background.
        """
        recorded_run = _RecordedRun(checkpoint_id, log)
        for record in records:
            if record.run_id == run_id:
                recorded_run.apply(record.event)
        recorded, messages = recorded_run.recorded, recorded_run.messages
        unrecorded = [each for each in pending.messages if each.id not in recorded]
        begun = {each.id or "" for each in unrecorded if _is_beginning(messages.get(each.id or "", ()), each)}
        void = recorded_run.find_void(pending, begun)
        return cls(
            tuple(sorted(void)),
            recorded - void | {str(each.id) for each in unrecorded},
            unrecorded,
            [event for message_id in begun for event in messages[message_id]],
        )


class _RecordedRun:
    """Collector of what the log has of one run. The events of the run are applied in order."""

    def __init__(self, checkpoint_id: str, log: StateHistory) -> None:
        """Create a collector without events. `checkpoint_id` is the checkpoint from which the graph continues, and
        `log` has the states of the thread."""
        self._checkpoint_id = checkpoint_id
        self._log = log
        self.recorded: set[str] = set()
        """Ids of the saved checkpoints and of the complete messages."""
        self.messages: dict[str, list[_OfMessage]] = {}
        """Events of each message in the log, by message id."""
        self._open_tasks: set[str] = set()
        """Ids of the LangGraph tasks that have started and not ended."""
        self._places: dict[str, str] = {}
        """Checkpoint namespace of the LangGraph node that sent each message, by message id."""
        self._redone: set[str] = set()
        """Ids of the messages that began after the checkpoint from which the graph continues."""
        self._has_state = False
        self._is_after = False
        """True once the checkpoint from which the graph continues was applied."""

    def apply(self, event: Event) -> None:
        match event:
            case StepStarted():
                self._open_tasks.add(event.step_id or "")
            case StepEnded():
                self._open_tasks.discard(event.step_id or "")
            case MessageStarted():
                self._begin(event)
            case PartAdded() | PartDelta() | PartEnded():
                self.messages.setdefault(event.message_id or "", []).append(event)
            case MessageEnded():
                self.recorded.add(event.message_id or "")
            case StateSaved(ns=()):
                self._save(event)
            case _:
                pass

    def _begin(self, event: MessageStarted) -> None:
        message_id = event.message_id or ""
        metadata = as_object(event.extra.get("langgraph"))
        self._places[message_id] = str(metadata.get("langgraph_checkpoint_ns", ""))
        self.messages[message_id] = [event]  # replaces the events of a message that an earlier restart made void
        if self._is_after:
            self._redone.add(message_id)

    def _save(self, event: StateSaved) -> None:
        self.recorded.add(event.checkpoint_id or "")
        self._is_after = self._is_after or event.checkpoint_id == self._checkpoint_id
        if not self._has_state:  # the state with which the run began
            messages: Any = (self._log.values_of(event.checkpoint_id or "") or {}).get("messages")
            self.recorded |= {str(as_object(each).get("id")) for each in messages or ()}
        self._has_state = True

    def find_void(self, pending: PendingWrites, begun: Set[str]) -> set[str]:
        """Return the ids of the messages that the graph will send again. `pending` has the finished tasks, and `begun`
        the ids of incomplete messages that will be continued instead."""
        return {
            message_id
            for message_id, place in self._places.items()
            if message_id not in begun and self._is_void(message_id, place, pending)
        }

    def _is_void(self, message_id: str, place: str, pending: PendingWrites) -> bool:
        if message_id not in self.recorded:
            return True
        if place.partition("|")[0].rpartition(":")[2] in pending.tasks:
            return False
        return message_id in self._redone or place.rpartition(":")[2] in self._open_tasks


def _is_beginning(recorded: Sequence[_OfMessage], message: AIMessage) -> bool:
    """Return True if the text of the recorded events is the beginning of the message's text.

    Always False for a message with tool calls: it is stored as a value but was streamed as text, so its rest is
    unknown.
    """
    text: list[str] = []
    for event in recorded:
        match event:
            case PartAdded(part=TextPart() as part) if not text:
                text.append(part.text)
            case PartAdded():
                return False
            case PartDelta():
                text.append(event.text)
            case _:
                pass
    return bool(recorded) and isinstance(message.content, str) and message.content.startswith("".join(text))


async def read_events(events: AsyncIterator[Mapping[str, Any]]) -> AsyncGenerator[tuple[Namespace, str, Any]]:
    """Yield the chunks that `astream` would yield (namespace, mode, data), and the other events of `astream_events`
    (v2) in mode `events`.

    The order is that of langgraph-api 0.16.7. The first event is the start of the graph.
    """
    graph: str | None = None
    async for event in events:
        graph = graph or event["run_id"]
        if event["event"] == "on_chain_stream" and event["run_id"] == graph:
            yield event["data"]["chunk"]
        elif _HIDDEN not in (event.get("tags") or ()):
            yield (), EVENTS, event


class GraphStreamReader:
    """Reader that converts the chunks of one run's `astream` into events."""

    def __init__(
        self,
        loaded: set[tuple[str, str]],
        *,
        base: str | None,
        keeps_last: bool,
        resumed: ResumedRun | None = None,
        log: StateHistory | None = None,
        tools: frozenset[str] = frozenset(),
    ) -> None:
        """Create the reader of one run.

        - `loaded`: namespace and id of the checkpoints that the graph has loaded, which existed before the run
        - `base`: id of the revision that the run starts from, if the graph has no checkpoint of it
        - `keeps_last`: True if the graph stores only its last checkpoint
        - `resumed`: earlier part of a run that continues after a crash
        - `log`: earlier states of the thread
        - `tools`: names of the caller's tools
        """
        self.reader = EventReader(base=base, keeps_last=keeps_last, is_server=False, log=log, tools=tools)
        self._loaded = loaded
        self._keeps_last = keeps_last
        self._resumed = resumed
        for event in () if resumed is None else resumed.begun:
            self.reader.messages.recall(event)

    def read(self, ns: Namespace, mode: str, data: Any) -> Sequence[Event]:
        match mode:
            case "values":
                return self._values(ns, data)
            case "checkpoints":
                return self._checkpoint(ns, data)
            case "tasks":
                return self._read(ns, mode, _encode_task(data))
            case "updates":
                return self._read(ns, mode, _encode_update(data))
            case "messages":
                return self._message(ns, *data)
            case _:
                return self._read(ns, mode, plain(data))

    def _read(self, ns: Namespace, mode: str, data: Json) -> Sequence[Event]:
        return self.reader.read("|".join((mode, *ns)), data)

    def _values(self, ns: Namespace, data: Any) -> Sequence[Event]:
        """Return the events of a chunk in mode `values`, which has the whole state after a step.

        It is read only if the graph stores no checkpoint after each step, because a checkpoint contains the same state.
        """
        if _INTERRUPT in as_object(data):  # the task that asks reports the question
            return ()
        if self._keeps_last:
            return self._read(ns, "values", plain(data))
        self.reader.note_values(ns)
        return ()

    def _checkpoint(self, ns: Namespace, data: Mapping[str, Any]) -> Sequence[Event]:
        events: list[Event] = []
        checkpoint_id: str = data["config"]["configurable"]["checkpoint_id"]
        if ("|".join(ns), checkpoint_id) in self._loaded:
            resumed = self._resumed
            if resumed is None or ns or checkpoint_id in resumed.recorded:
                self.reader.know(ns, checkpoint_id, is_recorded=resumed is not None)
            else:
                events += self._read_unrecorded(resumed, data["values"])
        return [*events, *self._read(ns, "checkpoints", _encode_checkpoint(data))]

    def read_unsaid(self) -> Iterable[Event]:
        """Return the events of messages that finished LangGraph tasks have sent, but that the log lacks because the
        gateway ended."""
        messages = () if self._resumed is None else self._resumed.unrecorded
        return [event for each in messages for event in self._message((), each, {})]

    def _read_unrecorded(self, resumed: ResumedRun, values: Any) -> Iterable[Event]:
        """Return the events of new messages in a checkpoint's values. The log lacks this checkpoint, because the graph
        stored it shortly before the gateway ended."""
        messages = (each for each in as_object(values).get("messages") or () if isinstance(each, AIMessage))
        return [event for each in messages if each.id not in resumed.recorded for event in self._message((), each, {})]

    def _message(self, ns: Namespace, message: BaseMessage, about: Mapping[str, Any]) -> Sequence[Event]:
        message_object = plain_object(message)
        place: JsonObject = {}
        if not self.reader.messages.is_open(message_object):  # only read at the beginning of a message
            place = {name: plain(value) for name, value in about.items() if name.startswith(_ABOUT)}
        return self._read(ns, "messages", [message_object, place])


def _encode_checkpoint(data: Mapping[str, Any]) -> JsonObject:
    frame = _encode(data)
    return {**frame, "values": {} if frame["values"] is None else frame["values"]}


def _encode_task(data: Mapping[str, Any]) -> JsonObject:
    frame = _encode(data)
    return {**frame, "interrupts": _encode_interrupts(frame["interrupts"])} if "interrupts" in frame else frame


def _encode_update(data: Mapping[str, Any]) -> JsonObject:
    frame = _encode(data)
    return {**frame, _INTERRUPT: _encode_interrupts(frame[_INTERRUPT])} if _INTERRUPT in frame else frame


def _encode_interrupts(interrupts: Any) -> list[JsonObject]:
    """Return interrupts without response schemas that are Python types, because LangGraph's clients read only JSON
    Schema."""
    return [each if _has_json_schema(each) else {**each, "response_schema": None} for each in interrupts]


def _has_json_schema(interrupt: JsonObject) -> bool:
    return isinstance(interrupt.get("response_schema", {}), dict | NoneType)


def _encode(data: Mapping[str, Any]) -> JsonObject:
    return {str(name): plain(value) for name, value in data.items()}
