"""What `astream` of a graph yields → the frames that LangGraph's server sends of it → events.

A graph in this process and one behind a URL are read by the same reader.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
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
"""What is asked of the graph."""

_HIDDEN: Final = "langsmith:hidden"
_INTERRUPT: Final = "__interrupt__"
_ABOUT: Final = "langgraph_"
"""Begins the names of what LangGraph says of the place of a message; the rest is the author's."""

Namespace = tuple[str, ...]


_UNFINISHED: Final = ("__error__", "__interrupt__", "__resume__")
"""Channels of what a task writes that is done again (langgraph 1.2, `PregelLoop`)."""


@dataclass(frozen=True, slots=True)
class PendingWrites:
    """What tasks of the step that a run goes on with have written: those that finished are not done again, and say
    nothing of it a second time."""

    tasks: frozenset[str]
    """Ids of those that finished."""
    messages: Sequence[AIMessage]
    """What they said."""

    @classmethod
    def of(cls, writes: Iterable[tuple[str, str, Any]]) -> "PendingWrites":
        """`writes` = (task id, channel, value)."""
        finished = [(task, channel, value) for task, channel, value in writes if channel not in _UNFINISHED]
        said: list[AIMessage] = []
        for _, channel, value in finished:
            values = cast("Sequence[object]", value if isinstance(value, list | tuple) else (value,))
            said += [each for each in values if channel == "messages" and isinstance(each, AIMessage)]
        return cls(frozenset(task for task, _, _ in finished), said)


_OfMessage = MessageStarted | PartAdded | PartDelta | PartEnded | MessageEnded


@dataclass(slots=True)
class ResumedRun:
    """What the log tells of a run that a graph goes on with."""

    void: tuple[str, ...]
    """Ids of the messages of tasks that were cut off: the graph does these again."""
    told: set[str]
    """Ids of the checkpoints and of the messages that it holds."""
    unsaid: Sequence[AIMessage] = ()
    """Of tasks that finished, what the log does not hold, or not to the end."""
    begun: Sequence[_OfMessage] = ()
    """What the log holds of those of which it has the beginning: they go on under their ids, since readers add up what
    comes under one."""

    @classmethod
    def of(
        cls,
        records: Sequence[Record],
        run_id: str,
        checkpoint_id: str,
        pending: PendingWrites,
        log: StateHistory,
    ) -> "ResumedRun":
        """`records` = of the run's task; `log` = the states of its thread; `checkpoint_id` = of what the graph goes on
        from, which may be older than the newest that the log has: graphs keep their checkpoints in the background."""
        tasks: set[str] = set()
        places: dict[str, str] = {}
        told: set[str] = set()
        said: dict[str, list[_OfMessage]] = {}
        redone: set[str] = set()
        """What was said after that checkpoint."""
        saved = is_after = False
        for event in (record.event for record in records if record.run_id == run_id):
            match event:
                case StepStarted():
                    tasks.add(event.step_id or "")
                case StepEnded():
                    tasks.discard(event.step_id or "")
                case MessageStarted():
                    own = as_object(event.extra.get("langgraph"))
                    places[event.message_id or ""] = str(own.get("langgraph_checkpoint_ns", ""))
                    said[event.message_id or ""] = [event]  # of an id that was void, only what was said anew
                    if is_after:
                        redone.add(event.message_id or "")
                case PartAdded() | PartDelta() | PartEnded():
                    said.setdefault(event.message_id or "", []).append(event)
                case MessageEnded():
                    told.add(event.message_id or "")
                case StateSaved(ns=()):
                    told.add(event.checkpoint_id or "")
                    is_after = is_after or event.checkpoint_id == checkpoint_id
                    if not saved:  # what the run began with
                        messages: Any = (log.values_of(event.checkpoint_id or "") or {}).get("messages")
                        told |= {str(as_object(each).get("id")) for each in messages or ()}
                    saved = True
                case _:
                    pass

        unsaid = [each for each in pending.messages if each.id not in told]
        begun = {each.id or "" for each in unsaid if _is_beginning(said.get(each.id or "", ()), each)}

        def is_void(name: str, place: str) -> bool:
            if name in begun:
                return False
            if name in told and place.partition("|")[0].rpartition(":")[2] in pending.tasks:
                return False
            return name not in told or name in redone or place.rpartition(":")[2] in tasks

        void = {name for name, place in places.items() if is_void(name, place)}
        return cls(
            tuple(sorted(void)),
            told - void | {str(each.id) for each in unsaid},
            unsaid,
            [event for name in begun for event in said[name]],
        )


def _is_beginning(said: Sequence[_OfMessage], message: AIMessage) -> bool:
    """Whether what was said is text with which the message begins. Of a tool call nobody knows how it goes on: it is
    kept as a value, and was said as text."""
    text: list[str] = []
    for event in said:
        match event:
            case PartAdded(part=TextPart() as part) if not text:
                text.append(part.text)
            case PartAdded():
                return False
            case PartDelta():
                text.append(event.text)
            case _:
                pass
    return bool(said) and isinstance(message.content, str) and message.content.startswith("".join(text))


async def read_events(events: AsyncIterator[Mapping[str, Any]]) -> AsyncGenerator[tuple[Namespace, str, Any]]:
    """Yield the parts of `astream`, read from the events of `astream_events` (v2), and the other events between them.

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
    """Of one run. Feed it what `astream` yields."""

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
        """`loaded` = place and id of the checkpoints that were there before. `base` = the revision that the run starts
        from where the graph has no checkpoint of it. `keeps_last` = of all checkpoints the graph keeps the last."""
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
        """They are the whole state, at every step, and their checkpoint tells it, too: only where no checkpoint comes
        they are made plain."""
        if _INTERRUPT in as_object(data):  # told by the task that asks
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
            if resumed is None or ns or checkpoint_id in resumed.told:
                self.reader.know(ns, checkpoint_id, is_recorded=resumed is not None)
            else:
                events += self._read_unrecorded(resumed, data["values"])
        return [*events, *self._read(ns, "checkpoints", _encode_checkpoint(data))]

    def read_unsaid(self) -> Iterable[Event]:
        """What tasks of the run said that finished, and the log does not hold: the gateway ended just then."""
        unsaid = () if self._resumed is None else self._resumed.unsaid
        return [event for each in unsaid for event in self._message((), each, {})]

    def _read_unrecorded(self, resumed: ResumedRun, values: Any) -> Iterable[Event]:
        """What the agent says in a state that was kept so shortly before the gateway ended that the log has neither."""
        said = (each for each in as_object(values).get("messages") or () if isinstance(each, AIMessage))
        return [event for each in said if each.id not in resumed.told for event in self._message((), each, {})]

    def _message(self, ns: Namespace, message: BaseMessage, about: Mapping[str, Any]) -> Sequence[Event]:
        made = plain_object(message)
        place: JsonObject = {}
        if not self.reader.messages.is_open(made):  # it is read at the beginning of a message, not with each piece
            place = {name: plain(value) for name, value in about.items() if name.startswith(_ABOUT)}
        return self._read(ns, "messages", [made, place])


def _encode_checkpoint(data: Mapping[str, Any]) -> JsonObject:
    made = _encode(data)
    return {**made, "values": {} if made["values"] is None else made["values"]}


def _encode_task(data: Mapping[str, Any]) -> JsonObject:
    made = _encode(data)
    return {**made, "interrupts": _encode_asked(made["interrupts"])} if "interrupts" in made else made


def _encode_update(data: Mapping[str, Any]) -> JsonObject:
    made = _encode(data)
    return {**made, _INTERRUPT: _encode_asked(made[_INTERRUPT])} if _INTERRUPT in made else made


def _encode_asked(asked: Any) -> list[JsonObject]:
    """The schema of an answer may be a Python type to LangGraph; to its readers it is a JSON Schema or nothing."""
    return [each if _has_json_schema(each) else {**each, "response_schema": None} for each in asked]


def _has_json_schema(asked: JsonObject) -> bool:
    return isinstance(asked.get("response_schema", {}), dict | NoneType)


def _encode(data: Mapping[str, Any]) -> JsonObject:
    return {str(name): plain(value) for name, value in data.items()}
