"""Records → updates of a session. Content for which the protocol has no form is in `_meta.babelgate`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.codec.content import PROTOCOL, encode_file, encode_parts, text_block
from babelgate.adapters.agent_client.codec.questions import (
    Question,
    can_be_asked,
    encode_call,
    options_of,
    question_members,
    question_text,
)
from babelgate.adapters.kit.json import ABSENT, json_text, parse_text
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Fault,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    Record,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject, is_uuid

_PLAN: Final = 100
"""Maximum number of steps in a plan, because each plan update repeats the whole list. Chosen."""


@dataclass(slots=True)
class _OpenMessage:
    """Message of the agent that has begun but not ended."""

    chunk: str
    """Value of `sessionUpdate` for the message's texts, for example `agent_message_chunk`."""
    is_hidden: bool
    marks: JsonObject
    """Members of `_meta.babelgate` in each chunk of the message."""
    first: JsonObject
    """Members of `_meta.babelgate` that only the next chunk has, for example the metadata of the message."""
    kinds: dict[int, str] = field(default_factory=dict[int, str])
    """Kind of each part that has another kind than plain text, by the index of the part: `reasoning` or `refusal`."""


class UpdateWriter:
    """Writer of the updates of a session. Feed it the records of a task or of a thread, in order."""

    def __init__(self, url_of: Callable[[str], str], elicitation: w.Elicitations | None, *, is_replay: bool) -> None:
        """Create a writer.

        Args:
            url_of: Function that returns the URL of a stored file by its hash.
            elicitation: Capability of the client to show forms and open pages; None if it has none.
            is_replay: True if a stored session is repeated. All questions are then text.
        """
        self._url_of = url_of
        self._elicitation = elicitation
        self._is_replay = is_replay
        self._messages: dict[str, _OpenMessage] = {}
        self._calls: set[str] = set()
        """Ids of the tool calls for which a `tool_call` update was sent, as `_scoped_id` returns them."""
        self._plan: dict[str, JsonObject] = {}
        self._asked: dict[str, InterruptRaised] = {}
        """Open questions that were sent as tool calls, by question id."""
        self._scope = ""

    def write(self, record: Record) -> list[w.Update]:
        """Return the updates for a record; empty for an event that has none."""
        write = self._WRITES.get(type(record.event))
        if write is None:
            return []
        self._scope = record.run_id or ""
        return list(write(self, record.event))

    def user_updates(self, message: Message) -> list[w.Update]:
        """Return the updates that show a message of the user, one for each content block."""
        message_id: JsonObject = {} if message.message_id is None else {"messageId": message.message_id}
        blocks = encode_parts(message, self._url_of)
        return [{"sessionUpdate": "user_message_chunk", "content": block, **message_id} for block in blocks]

    def begin(self) -> None:
        """Discard the open messages and the plan of the turn before."""
        self._messages.clear()
        self._plan.clear()

    def _scoped_id(self, item_id: str | None) -> str:
        """Return the id of a message or tool call for the client: `<run id>/<id>`, or the id itself if it is a UUID.
        Agents may use an id again in another run."""
        if item_id is None or is_uuid(item_id):
            return item_id or ""
        return f"{self._scope}/{item_id}"

    # Messages

    def _message_started(self, event: MessageStarted) -> Iterator[w.Update]:
        marks: JsonObject = {"phase": "progress"} if event.phase == "progress" else {}
        chunk = "agent_thought_chunk" if marks else "agent_message_chunk"
        first: JsonObject = {"metadata": event.metadata} if event.metadata else {}
        if event.name is not None:
            first["name"] = event.name
        self._messages[event.message_id or ""] = _OpenMessage(
            chunk="user_message_chunk" if event.role == "user" else chunk,
            is_hidden=event.role == "system" and event.phase == "answer",
            marks=marks,
            first=first,
        )
        return iter(())

    def _part_added(self, event: PartAdded) -> Iterator[w.Update]:
        message = self._messages.get(event.message_id or "")
        if message is None or message.is_hidden:
            return
        match event.part:
            case TextPart(text=text):
                if text or message.first:
                    yield self._chunk(message, event.message_id, text_block(text))
            case ReasoningPart(text=text):
                message.kinds[event.index or 0] = "reasoning"
                if text:
                    yield self._chunk(message, event.message_id, text_block(text), "reasoning")
            case RefusalPart(text=text):
                message.kinds[event.index or 0] = "refusal"
                if text:
                    yield self._chunk(message, event.message_id, text_block(text), "refusal")
            case part:
                yield from self._other_part(message, event.message_id, part)

    def _other_part(self, message: _OpenMessage, message_id: str | None, part: Part) -> Iterator[w.Update]:
        match part:
            case DataPart():
                yield self._chunk(message, message_id, text_block(json_text(part.data)), "data")
            case FilePart():
                yield self._chunk(message, message_id, encode_file(part, self._url_of))
            case AnnotationPart():
                yield self._citation(message, message_id, part)
            case ToolCallPart(side="agent"):
                arguments = parse_text(part.arguments) if part.arguments else None
                yield from self._call(part.call_id, part.name, part.arguments if arguments is ABSENT else arguments)
            case ToolResultPart() if self._scoped_id(part.call_id) in self._calls:
                yield self._result(part.call_id, part.output, is_error=part.error)
            case _:
                pass

    def _part_delta(self, event: PartDelta) -> Iterator[w.Update]:
        message = self._messages.get(event.message_id or "")
        if message is None or message.is_hidden or not event.text:
            return
        kind = message.kinds.get(event.index or 0, "")
        yield self._chunk(message, event.message_id, text_block(event.text), kind)

    def _message_ended(self, event: MessageEnded) -> Iterator[w.Update]:
        self._messages.pop(event.message_id or "", None)
        return iter(())

    def _chunk(self, message: _OpenMessage, message_id: str | None, block: JsonObject, kind: str = "") -> w.Update:
        """Return the update for one content block of a message. `kind` is `reasoning`, `refusal`, `data` or `citation`,
        and empty for a text or a file."""
        marks: JsonObject = {**message.marks, **message.first}
        message.first = {}
        if kind and kind != "reasoning":
            marks["kind"] = kind
        chunk = message.chunk
        if kind == "reasoning" and chunk == "agent_message_chunk":
            chunk = "agent_thought_chunk"
        update: w.Update = {"sessionUpdate": chunk, "content": block, "messageId": self._scoped_id(message_id)}
        return {**update, "_meta": {w.OWN: marks}} if marks else update

    def _citation(self, message: _OpenMessage, message_id: str | None, part: AnnotationPart) -> w.Update:
        """Return the update for a citation: a link, or an empty text if the citation has no URL. `_meta.babelgate` has
        its range, title and description."""
        names = ("start", "end", "url", "title", "description")
        members = {name: getattr(part, name) for name in names if getattr(part, name) is not None}
        block = text_block("")
        if part.url is not None:
            block = {"type": "resource_link", "uri": part.url, "name": part.title or part.url}
        message.first = {**message.first, "citation": members}
        return self._chunk(message, message_id, block, "citation")

    # Tools

    def _tool_started(self, event: ToolStarted) -> Iterator[w.Update]:
        yield from self._call(event.call_id, event.name, event.input)

    def _tool_ended(self, event: ToolEnded) -> Iterator[w.Update]:
        if self._scoped_id(event.call_id) not in self._calls:
            yield from self._call(event.call_id, event.name, None)
        if event.fault is None:
            yield self._result(event.call_id, event.output)
        else:
            result = self._result(event.call_id, event.fault.message, is_error=True)
            yield {**result, "_meta": {w.OWN: {"fault": encode_item_fault(event.fault)}}}

    def _call(self, call_id: str | None, name: str, value: Json) -> Iterator[w.Update]:
        scoped = self._scoped_id(call_id)
        if scoped in self._calls:
            return
        self._calls.add(scoped)
        call: w.Update = {"sessionUpdate": "tool_call", "toolCallId": scoped, "title": name, "name": name}
        call |= {"kind": "other", "status": "in_progress"}
        yield call if value is None else {**call, "rawInput": value}

    def _result(self, call_id: str | None, output: Json, *, is_error: bool = False) -> w.Update:
        update: w.Update = {"sessionUpdate": "tool_call_update", "toolCallId": self._scoped_id(call_id)}
        update["status"] = "failed" if is_error else "completed"
        if output is None:
            return update
        text = output if isinstance(output, str) else json_text(output)
        return {**update, "content": [{"type": "content", "content": text_block(text)}], "rawOutput": output}

    # Steps

    def _step_started(self, event: StepStarted) -> Iterator[w.Update]:
        marks: JsonObject = {"step": event.step_id or event.name, "state": "started"}
        if event.input is not None:
            marks["input"] = event.input
        if len(self._plan) >= _PLAN:
            done = next((key for key, each in self._plan.items() if each["status"] == "completed"), None)
            self._plan.pop(done or next(iter(self._plan)))
        entry = {"content": event.name, "priority": "medium", "status": "in_progress"}
        self._plan[event.step_id or event.name] = entry
        yield self._plan_update(marks | {"name": event.name})

    def _step_ended(self, event: StepEnded) -> Iterator[w.Update]:
        marks: JsonObject = {"step": event.step_id or event.name, "name": event.name, "state": "ended"}
        if event.update is not None:
            marks["update"] = event.update
        if event.fault is not None:
            marks["fault"] = encode_item_fault(event.fault)
        entry = self._plan.get(event.step_id or event.name)
        if entry is not None:
            self._plan[event.step_id or event.name] = {**entry, "status": "completed"}
        yield self._plan_update(marks)

    def _plan_update(self, marks: JsonObject) -> w.Update:
        return {"sessionUpdate": "plan", "entries": list(self._plan.values()), "_meta": {w.OWN: marks}}

    # Artifacts and others

    def _artifact(self, event: ArtifactAdded) -> Iterator[w.Update]:
        if event.origin != "agent":
            return
        marks: JsonObject = {"id": event.artifact_id or "", "last": event.last}
        members = {"name": event.name, "description": event.description, "metadata": event.metadata or None}
        marks |= {name: value for name, value in members.items() if value is not None}
        if event.append:
            marks["append"] = True
        match event.part:
            case FilePart() as part:
                block = encode_file(part, self._url_of)
            case DataPart() as part:
                block, marks["kind"] = text_block(json_text(part.data)), "data"
            case part:
                block = text_block(getattr(part, "text", ""))
        update: w.Update = {"sessionUpdate": "agent_message_chunk", "content": block}
        yield {**update, "messageId": self._scoped_id(event.artifact_id), "_meta": {w.OWN: {"artifact": marks}}}

    def _custom(self, event: Custom) -> Iterator[w.Update]:
        kind = as_object(event.extra.get(PROTOCOL)).get("update")
        if kind in w.SHOWN_UPDATES and isinstance(event.value, dict):
            meta: JsonObject = {w.OWN: {"custom": {"name": event.name}}}
            yield {**as_object(event.value), "sessionUpdate": kind, "_meta": meta}
            return
        # The only update whose members are all optional, so that clients which do not read `_meta` show nothing.
        marks: JsonObject = {"name": event.name, "value": event.value}
        yield {"sessionUpdate": "session_info_update", "_meta": {w.OWN: {"custom": marks}}}

    def _native(self, event: Native) -> Iterator[w.Update]:
        """Yield an update that a coding agent sent and that the gateway does not know, without its `_meta`."""
        if event.protocol == PROTOCOL and (update := as_object(event.data)).get("sessionUpdate"):
            yield {name: value for name, value in update.items() if name != "_meta"}

    # Questions

    def _raise_question(self, event: InterruptRaised) -> Iterator[w.Update]:
        yield from self._attachments(event)
        marks: JsonObject = {"question": question_members(event)}
        if self._is_replay or not can_be_asked(event, self._elicitation):
            yield self._question_chunk(event, marks)
        elif options_of(event):
            self._asked[event.interrupt_id or ""] = event
            yield {"sessionUpdate": "tool_call", **encode_call(event), "_meta": {w.OWN: marks}}
        else:
            # The text of the question is in the form, so this update shows nothing.
            yield {"sessionUpdate": "session_info_update", "_meta": {w.OWN: marks}}

    def _question_chunk(self, event: Question, marks: JsonObject) -> w.Update:
        block = text_block(question_text(event))
        update: w.Update = {"sessionUpdate": "agent_message_chunk", "content": block}
        return {**update, "messageId": event.interrupt_id or "", "_meta": {w.OWN: marks}}

    def _attachments(self, event: InterruptRaised) -> Iterator[w.Update]:
        """Yield the updates for the files and data in the message of a question. Data that equals the question's value
        is left out."""
        message = _OpenMessage(chunk="agent_message_chunk", is_hidden=False, marks={}, first={})
        for part in event.message.parts:
            if isinstance(part, FilePart) or (isinstance(part, DataPart) and part.data != event.value):
                yield from self._other_part(message, event.interrupt_id, part)

    def _answer_question(self, event: InterruptAnswered) -> Iterator[w.Update]:
        if self._asked.pop(event.interrupt_id, None) is None:
            return
        status = "completed" if event.action == "answer" else "failed"
        update: w.Update = {"sessionUpdate": "tool_call_update", "toolCallId": event.interrupt_id, "status": status}
        yield update if event.value is None else {**update, "rawOutput": event.value}

    _WRITES: ClassVar[Mapping[type, Any]] = {
        MessageStarted: _message_started,
        PartAdded: _part_added,
        PartDelta: _part_delta,
        MessageEnded: _message_ended,
        ToolStarted: _tool_started,
        ToolEnded: _tool_ended,
        StepStarted: _step_started,
        StepEnded: _step_ended,
        ArtifactAdded: _artifact,
        Custom: _custom,
        Native: _native,
        InterruptRaised: _raise_question,
        InterruptAnswered: _answer_question,
    }


def encode_item_fault(fault: Fault) -> JsonObject:
    """Return the fault of a tool call, a step or a run as an object with its code and message, for
    `_meta.babelgate`."""
    return {"code": str(fault.code), "message": fault.message}
