"""Records of a task → one response: what one of its runs said, whole, or as the events of a stream.

The number of an event follows from the records before it, so a stream that is told again has the same events under the
same numbers, whoever reads it and whenever.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from babelgate.adapters.kit.json import json_text
from babelgate.adapters.openai.carries import RESPONSES
from babelgate.adapters.openai.codec.model import encode_response_usage, object_in
from babelgate.adapters.openai.codec.names import RESPONSE, encode_id, encode_item_id
from babelgate.adapters.openai.codec.questions import (
    called_part,
    encode_question_item,
    is_asked_in_words,
    question_losses,
    question_text,
    text_losses,
)
from babelgate.adapters.openai.wire import replies as w
from babelgate.adapters.openai.wire.replies import (
    ABOUT,
    ANNOTATION,
    ITEM,
    MIRROR,
    MIRRORED,
    PIECE_EXTRAS,
    ItemHead,
    ItemTail,
)
from babelgate.adapters.openai.write.items import ItemWriter, OutputItem
from babelgate.adapters.openai.write.settings import encode_settings
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Event,
    Fault,
    FaultCode,
    Feature,
    FilePart,
    Part,
    ReasoningPart,
    Record,
    RefusalPart,
    RunStatus,
    TaskState,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunCreated,
    RunEnded,
    RunStarted,
    StepEnded,
    StepStarted,
    TaskChanged,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.thread import Loss, losses_by_feature
from babelgate.canonical.value import Json, JsonObject

_FAILED: Final = Fault(code=FaultCode.AGENT_FAILED, message="The agent failed and did not say why.")
_BUSY: Final = frozenset({FaultCode.QUEUE_FULL, FaultCode.SHUTTING_DOWN, FaultCode.UNAVAILABLE})


class _MessageState:
    """A message of the run."""

    def __init__(self, event: MessageStarted) -> None:
        self.phase = "commentary" if event.phase == "progress" else "final_answer"
        self.is_tool = event.role == "tool"
        # What a graph's nodes add that no model says is progress, in the roles that it is given there.
        self.is_shown = event.role == "agent" or (event.phase == "progress" and not self.is_tool)
        self.item: OutputItem | None = None
        """What of it is open: a message, or a thought."""
        self.chars = 0
        """Of its text parts."""
        self.kinds: dict[int, type[Part]] = {}
        """Of its open parts, by index."""
        self.calls: dict[int, str] = {}
        """Ids of the calls among them."""
        self.head: ItemHead = {}
        """The item of another server of this API of which the newest part is."""
        self.told: ItemHead = {}
        """The same of the item that is open."""

    @property
    def is_of_another(self) -> bool:
        return self.head.get("id") != self.told.get("id")


class ResponseWriter:
    """Fed with the records of a task from its first one on. What the run said goes into the response; of the others
    only their questions and calls are looked at."""

    def __init__(self, task_id: str, agent: str, run_id: str) -> None:
        self.has_ended = False
        self.is_over = False
        """Nothing of it will change any more: a question may still be taken back."""
        self.fault: Fault | None = None
        """What the run failed with, once it has ended."""
        self.status = "queued"
        self.finish = "stop"
        self.output: Json = None
        self.created: RunCreated | None = None
        """What the response was asked for."""
        self.metadata: JsonObject | None = None
        """Of the run, where it is known; None = those that it began with."""
        self._task_id = task_id
        self._agent = agent
        self._run_id = run_id
        self._created_at = 0
        self._completed_at: int | None = None
        self._settings: JsonObject = {}
        self._asked: dict[str, InterruptRaised] = {}
        """Open questions of the task."""
        self._names: dict[str, ToolCallPart] = {}
        """The agent's own calls, by id."""
        self._losses: dict[Loss, None] = {}
        self._events: list[JsonObject] = []
        self._number = 0
        self._items = ItemWriter(self._tell)
        self._about: JsonObject = {}
        """Members that only another server of this API tells."""
        self._usage: JsonObject | None = None
        self._reset()

    def _reset(self) -> None:
        self._said: dict[str, _MessageState] = {}
        self._calls: dict[str, OutputItem] = {}
        """That have no result yet."""
        self._data: list[Json] = []
        self._counted: JsonObject = {}
        self._has_refused = False
        self._mirrored: dict[str | int, OutputItem] = {}
        """Items of another server of this API, by its id and index."""

    # Looking

    @property
    def losses(self) -> tuple[Loss, ...]:
        return tuple(self._losses)

    @property
    def text(self) -> str:
        """Of the answer: what has to fit, where something has to."""
        parts = (part for item in self._items.output() if item["type"] == "message" for part in item["content"])
        return "".join(part["text"] for part in parts if part["type"] == "output_text")

    @property
    def has_to_fit(self) -> bool:
        """A refusal, a question, and an answer that was cut off, need not."""
        return self.status == "completed" and self.finish == "stop" and not self._has_refused

    @property
    def has_called(self) -> bool:
        """A tool of the caller's waits for its result."""
        return self.finish == "calls" and any(called_part(asked) for asked in self._asked.values())

    @property
    def own(self) -> Mapping[str, Any]:
        """What only this protocol knows of the request."""
        return {} if self.created is None else self.created.extra.get("openai") or {}

    @property
    def has_failed_there(self) -> bool:
        """Another server of this API has told of a response that failed, and not of an error."""
        details = {} if self.fault is None else self.fault.details
        return details.get("status") == 200 and "message" in object_in(details, "openai")

    def items(self) -> list[tuple[JsonObject, str | None]]:
        """The output items, each with the id of the message that it is of."""
        return [(item.show(), item.message_id) for item in self._items.items if not item.is_void]

    def response(self) -> JsonObject:
        """SPEC/responses/response.py."""
        own, created = self.own, self.created
        began_with = {} if created is None else created.metadata
        metadata = began_with if self.metadata is None else self.metadata
        told = w.response(
            encode_id(RESPONSE, self._run_id),
            created_at=self._created_at,
            completed_at=self._completed_at,
            status=self.status,
            model=self._agent,
            output=self._items.output(),
            usage=self._usage,
            settings=self._settings,
            previous_response_id=own.get("previous_response_id"),
            store=own.get("store") is not False,
            background=own.get("background") is True,
            metadata={name: value for name, value in metadata.items() if isinstance(value, str)},
        )
        told |= {name: value for name, value in self._about.items() if name not in _PLACED}
        if own.get("conversation") is not None:
            told["conversation"] = {"id": own["conversation"]}
        if self.status == "incomplete":
            told["incomplete_details"] = self._about.get("incomplete_details") or {"reason": self.finish}
        if self.status == "failed":
            # SPEC/responses/response_error.py: one of a few codes.
            fault = self.fault or _FAILED
            code = "rate_limit_exceeded" if fault.code in _BUSY else "server_error"
            theirs: JsonObject = fault.details.get("openai") or {}
            told["error"] = {"code": code, **(theirs if "message" in theirs else {"message": fault.message})}
        if self.has_ended and self._losses:
            # Where a stream tells it, too. Clients of both kinds let it pass.
            told["babelgate"] = {"loss": losses_by_feature(self._losses)}
        return told

    # Writing

    def write(self, record: Record) -> list[JsonObject]:
        """The events that the record makes, without the one that ends the response: that is `end`'s."""
        event = record.event
        if self.has_ended:
            self._look_on(event)
            return []
        if isinstance(event, InterruptRaised):
            self._asked[event.interrupt_id or ""] = event
        elif isinstance(event, InterruptAnswered):
            self._asked.pop(event.interrupt_id, None)
        elif isinstance(event, PartAdded) and isinstance(event.part, ToolCallPart):
            self._names[event.part.call_id] = event.part
        if record.run_id != self._run_id:
            return []
        if isinstance(event, RunCreated):
            self._begin(record, event)
        elif (write := self._WRITES.get(type(event))) is not None:
            write(self, event)
        if isinstance(event, RunEnded) and self.status == "completed":
            self._completed_at = record.at // 1_000_000
        return self._take()

    def end(self, fault: Fault | None = None) -> list[JsonObject]:
        """The last event. `fault` = what is wrong with an answer that the agent took for a good one."""
        if fault is not None:
            self.status, self.fault, self._completed_at = "failed", fault, None
        # SPEC/responses/response_stream_event.py has no event for one that was cancelled.
        kind = "incomplete" if self.status == "cancelled" else self.status
        self._tell(f"response.{kind}", {"response": self.response()})
        return self._take()

    def _look_on(self, event: Event) -> None:
        """What became of questions that nobody has answered: no stream is told of it, but whoever looks again."""
        if isinstance(event, RunCreated):
            self.is_over = True
        elif isinstance(event, TaskChanged) and event.state in TERMINAL and not self.is_over:
            self.is_over, self._completed_at = True, None
            self.status, self.fault = "cancelled", event.fault
            if event.state is not TaskState.CANCELLED:
                self.status, self.fault = "failed", event.fault or _FAILED

    def _take(self) -> list[JsonObject]:
        taken, self._events = self._events, []
        return taken

    def _tell(self, kind: str, members: JsonObject) -> None:
        self._events.append({"type": kind, "sequence_number": self._number, **members})
        self._number += 1

    def _lose(self, feature: Feature) -> None:
        if RESPONSES[feature].is_lost():
            self._losses[Loss(feature=feature.value, how=RESPONSES[feature].how)] = None

    # Runs

    def _begin(self, record: Record, event: RunCreated) -> None:
        self.created = event
        self._created_at = record.at // 1_000_000
        self._settings = encode_settings(event.config)
        status = "queued" if self.own.get("background") is True else "in_progress"
        self._tell("response.created", {"response": {**self.response(), "status": status}})

    def _run_started(self, event: RunStarted) -> None:
        if self.status == "queued":
            self.status = "in_progress"
            self._tell("response.in_progress", {"response": self.response()})
        if event.is_restart:
            self._withdraw(event)

    def _withdraw(self, event: RunStarted) -> None:
        """What the agent had said before it was started again is void: a stream has told it, and cannot take it back,
        but ends it as incomplete; in the response it is no more."""
        for item in self._items.items:
            if not item.is_void and event.is_void(item.message_id):
                self._items.finish(item, "incomplete")
                item.is_void = True
        if event.void is None:
            self._reset()
            return
        self._said = {known: said for known, said in self._said.items() if known not in event.void}
        self._calls = {call_id: item for call_id, item in self._calls.items() if not item.is_void}

    def _run_ended(self, event: RunEnded) -> None:
        self.output = event.output
        for item in self._items.items:
            self._items.finish(item, "completed" if item.body["type"] in ("message", "reasoning") else "incomplete")
        self._usage = encode_response_usage(event.usage or self._counted) | (self._about.get("usage") or {})
        match event.status:
            case RunStatus.SUCCESS:
                if event.output is not None and event.output not in self._data:
                    self._end_with_output(event.output)
                self.status = "completed" if self.finish == "stop" else "incomplete"
            case RunStatus.PAUSED:
                self.finish, self.status = "calls", "completed"
                for asked in self._asked.values():
                    self._ask(asked)
            case RunStatus.CANCELLED:
                self.status = "cancelled"
            case _:
                self.status, self.fault = "failed", event.fault or _FAILED
        self.has_ended, self.is_over = True, event.status is not RunStatus.PAUSED

    def _end_with_output(self, output: Json) -> None:
        self._lose(Feature.STRUCTURED_OUTPUT)
        if any(item.body["type"] == "message" and not item.is_void for item in self._items.items):
            return
        item = self._items.add(_message(f"{self._run_id}_output", "final_answer"))
        self._items.begin_part(item, "output_text")
        self._items.say(item, json_text(output))
        self._items.finish(item)

    def _ask(self, asked: InterruptRaised) -> None:
        if called_part(asked) is None and is_asked_in_words(self.created):
            self._ask_in_words(asked)
            return
        for feature in question_losses(asked):
            self._lose(feature)
        body = encode_question_item(self._task_id, asked)
        match body["type"]:
            case "mcp_approval_request":
                # SPEC/responses/response_output_item.py, McpApprovalRequest: it has no status.
                self._items.add_whole({**body, "id": self._items.unique_id(body["id"])})
            case kind:
                name = "custom_tool_call_input" if kind == "custom_tool_call" else "function_call_arguments"
                member = "input" if kind == "custom_tool_call" else "arguments"
                text, body[member] = body[member], ""
                item = self._items.add(body)
                self._items.add_arguments(item, name, text)
                self._items.finish(item)

    def _ask_in_words(self, asked: InterruptRaised) -> None:
        self._losses |= dict.fromkeys(text_losses(asked))
        item = self._items.add(_message(f"{self._run_id}_question", "final_answer"))
        self._items.begin_part(item, "output_text")
        self._items.say(item, question_text(asked))
        self._items.finish(item)

    # Messages

    def _message_started(self, event: MessageStarted) -> None:
        said = self._said[event.message_id or ""] = _MessageState(event)
        if event.metadata:
            self._lose(Feature.METADATA)
        if not (said.is_shown or said.is_tool):
            self._lose(Feature.TOOL_ACTIVITY)

    def _part_added(self, event: PartAdded) -> None:
        message_id = event.message_id or ""
        said, part = self._said.get(message_id), event.part
        if said is None:
            return
        if part.metadata:
            self._lose(Feature.METADATA)
        if isinstance(part, ToolResultPart):
            self._end_call(part.call_id, part.call_id, part.output, failed=part.error)
            return
        if not said.is_shown:
            return
        if event.open:
            said.kinds[event.index or 0] = type(part)
        said.head = event.extra.get(ITEM) or said.head
        match part:
            case TextPart():
                self._say(message_id, said, "output_text", part.text, _tokens_of(event))
                said.chars += len(part.text)
            case RefusalPart():
                self._has_refused = True
                self._say(message_id, said, "refusal", part.text)
            case ReasoningPart():
                self._think(message_id, said, part.text)
            case DataPart():
                self._say_data(message_id, said, part)
            case AnnotationPart():
                self._cite(message_id, said, part)
            case FilePart():
                self._lose(Feature.FILE_BYTES)
            case ToolCallPart():
                self._part_call(message_id, said, part, event)

    def _part_delta(self, event: PartDelta) -> None:
        message_id, index = event.message_id or "", event.index or 0
        said = self._said.get(message_id)
        kind = None if said is None else said.kinds.get(index)
        if said is None or kind is None or not event.text:
            return
        if kind is TextPart:
            self._say(message_id, said, "output_text", event.text, _tokens_of(event))
            said.chars += len(event.text)
        elif kind is RefusalPart:
            self._say(message_id, said, "refusal", event.text)
        elif kind is ReasoningPart and said.item is not None and said.item.open in ("summary_text", "reasoning_text"):
            self._items.say(said.item, event.text)
        elif kind is ToolCallPart and (item := self._calls.get(said.calls.get(index, ""))) is not None:
            self._items.add_arguments(item, _ARGUMENTS, event.text, ends=False)

    def _part_ended(self, event: PartEnded) -> None:
        said = self._said.get(event.message_id or "")
        if said is None:
            return
        kind = said.kinds.pop(event.index or 0, None)
        if kind is ToolCallPart and (item := self._calls.get(said.calls.get(event.index or 0, ""))) is not None:
            self._items.add_arguments(item, _ARGUMENTS, "")

    def _message_item(self, message_id: str, said: _MessageState) -> OutputItem:
        if said.item is not None and (said.item.body["type"] != "message" or said.is_of_another):
            self._close(said)
        if said.item is None:
            body = _message(message_id, said.phase)
            if "id" in said.head:
                body = {name: value for name, value in body.items() if name != "phase"} | dict(said.head)
            said.item = self._begin_item(said, body, message_id)
        return said.item

    def _begin_item(self, said: _MessageState, body: JsonObject, message_id: str) -> OutputItem:
        item, said.told = self._items.add(body, message_id), said.head
        if (theirs := said.head.get("id")) is not None:
            self._mirrored[theirs] = item
        return item

    def _say(self, message_id: str, said: _MessageState, kind: Any, text: str, tokens: list[Any] | None = None) -> None:
        if not text:
            return
        item = self._message_item(message_id, said)
        if item.open != kind:
            self._items.begin_part(item, kind, said.chars)
        self._items.say(item, text, tokens)

    def _say_data(self, message_id: str, said: _MessageState, part: DataPart) -> None:
        """In a part of its own: where citations stand is counted over texts."""
        self._lose(Feature.DATA)
        self._data.append(part.data)
        item = self._message_item(message_id, said)
        self._items.begin_part(item, "output_text", said.chars)
        self._items.say(item, json_text(part.data))
        self._items.end_part(item)

    def _think(self, message_id: str, said: _MessageState, text: str) -> None:
        if said.item is not None and (said.item.body["type"] != "reasoning" or said.is_of_another):
            self._close(said)
        if said.item is None:
            own_id = said.head.get("id") or encode_item_id("rs_", message_id)
            said.item = self._begin_item(said, {"type": "reasoning", "id": own_id}, message_id)
        self._items.begin_part(said.item, "reasoning_text" if "form" in said.head else "summary_text")
        if text:
            self._items.say(said.item, text)

    def _cite(self, message_id: str, said: _MessageState, part: AnnotationPart) -> None:
        item = self._message_item(message_id, said)
        if item.open != "output_text":
            self._items.begin_part(item, "output_text", said.chars)
        start = item.started_at
        # SPEC/responses/response_output_text.py, AnnotationURLCitation: all four are there.
        cited: JsonObject = {
            "type": "url_citation",
            "url": part.url or "",
            "title": part.title or part.description or "",
            "start_index": max((part.start or 0) - start, 0),
            "end_index": max((said.chars if part.end is None else part.end) - start, 0),
        }
        own: JsonObject = part.extra.get("openai") or {}
        self._items.cite(item, {**own.get("own", {}), **cited})

    def _close(self, said: _MessageState) -> None:
        if said.item is not None:
            self._items.finish(said.item)
            said.item = None

    def _message_ended(self, event: MessageEnded) -> None:
        said = self._said.get(event.message_id or "")
        if said is None:
            return
        self._close(said)
        for name, count in event.usage.items():
            if isinstance(count, int):
                self._counted[name] = self._counted.get(name, 0) + count
        # SPEC/responses/response.py, IncompleteDetails.reason.
        if event.finish == "length":
            self.finish = "max_output_tokens"
        elif event.finish == "refusal" and not self._has_refused:
            self.finish = "content_filter"

    # The agent's own tools

    def _part_call(self, message_id: str, said: _MessageState, part: ToolCallPart, event: PartAdded) -> None:
        if part.side == "caller":  # it is asked for when the run stops
            return
        self._close(said)
        said.calls[event.index or 0] = part.call_id
        if part.call_id not in self._calls:
            item = self._begin_call(part.call_id, part.name, message_id)
            self._items.add_arguments(item, _ARGUMENTS, part.arguments, ends=not event.open)

    def _begin_call(self, call_id: str, name: str, message_id: str | None = None) -> OutputItem:
        # SPEC/responses/response_output_item.py, McpCall: a tool that the server calls, and not its caller.
        body: JsonObject = {
            "type": "mcp_call",
            "id": encode_item_id("mcp_", call_id),
            "server_label": self._agent,
            "name": name,
            "arguments": "",
            "output": None,
            "error": None,
            "approval_request_id": None,
        }
        self._lose(Feature.TOOL_ACTIVITY)
        item = self._calls[call_id] = self._items.add(body, message_id)
        self._tell("response.mcp_call.in_progress", {"item_id": item.item_id, "output_index": item.index})
        return item

    def _end_call(self, call_id: str, name: str, output: Json, *, failed: bool, error: str = "") -> None:
        item = self._calls.pop(call_id, None)
        if item is None:
            known = self._names.get(call_id)
            if known is not None and known.side == "caller":
                return
            # The call was made in an earlier run of the task.
            item = self._begin_call(call_id, name if known is None else known.name)
            self._items.add_arguments(item, _ARGUMENTS, "" if known is None else known.arguments)
            self._calls.pop(call_id)
        text = output if isinstance(output, str) else json_text(output)
        if failed:
            item.body["error"] = {"type": "mcp_tool_execution_error", "content": error or text}
        else:
            item.body["output"] = text
        ending = "failed" if failed else "completed"
        self._tell(f"response.mcp_call.{ending}", {"item_id": item.item_id, "output_index": item.index})
        self._items.finish(item, ending)

    def _tool_started(self, event: ToolStarted) -> None:
        call_id = event.call_id or ""
        if call_id in self._calls or MIRRORED in event.extra:  # a message, or an item, has told of it
            return
        item = self._begin_call(call_id, event.name)
        self._items.add_arguments(item, _ARGUMENTS, "{}" if event.input is None else json_text(event.input))

    def _tool_ended(self, event: ToolEnded) -> None:
        if (event.call_id or "") in self._calls:
            words = "" if event.fault is None else event.fault.message
            self._end_call(event.call_id or "", event.name, event.output, failed=event.fault is not None, error=words)

    # What else there is

    def _native(self, event: Native) -> None:
        """What only this protocol has, from a model on another server."""
        if event.protocol != "openai":
            return
        if event.event == ABOUT:
            self._about = dict(event.extra.get("openai") or {})
        elif MIRROR in event.extra:
            self._mirror(event.extra[MIRROR])
        elif ITEM in event.extra:
            self._end_item(event.extra[ITEM])
        elif ANNOTATION in event.extra:
            for said in self._said.values():
                if said.item is not None and said.item.open == "output_text":
                    self._items.cite(said.item, event.extra[ANNOTATION])
        elif event.event == "response.output_item.done":
            self._item_of_before(event)

    def _mirror(self, told: JsonObject) -> None:
        """An event of its stream: of an item that is told as it is there, or of none."""
        kind, index, body = str(told.get("type")), told.get("output_index"), object_in(told, "item")
        if body and kind in ("response.output_item.added", "response.output_item.done"):
            item = self._mirrored.get(str(body.get("id")))
            if item is None:
                for said in self._said.values():
                    self._close(said)
                begun = {**body, "status": "in_progress"} if kind.endswith("done") and "status" in body else body
                item = self._items.begin_mirrored(begun)
                self._mirrored[str(body.get("id"))] = item
                if isinstance(index, int):
                    self._mirrored[index] = item
            if kind.endswith("done"):
                self._items.end_mirrored(item, body)
            return
        place: JsonObject = {}
        item = self._mirrored.get(str(told.get("item_id"))) or self._mirrored.get(
            index if isinstance(index, int) else -1
        )
        if item is not None:
            place = {"output_index": item.index, "item_id": item.item_id}
        more = {name: place.get(name, value) for name, value in told.items() if name not in ("type", "sequence_number")}
        self._tell(kind, more)

    def _end_item(self, tail: ItemTail) -> None:
        item = self._mirrored.get(tail.get("id", ""))
        if item is None or item.is_done:
            return
        item.unknown_members, item.parts = tail.get("own", {}), tail.get("parts", [])
        self._items.finish(item, item.unknown_members.get("status") or "completed")
        for said in self._said.values():
            if said.item is item:
                said.item = None

    def _item_of_before(self, event: Native) -> None:
        """As releases before have kept an item."""
        body = dict(object_in({"item": event.data}, "item"))
        if isinstance(body.get("type"), str) and isinstance(body.get("id"), str):
            body["id"] = self._items.unique_id(body["id"])
            self._items.add_whole(body)

    def _loss_noted(self, event: LossNoted) -> None:
        if MIRRORED in event.extra:
            return
        self._losses[Loss(feature=event.feature, how=event.how)] = None

    def _artifact(self, event: ArtifactAdded) -> None:
        if event.origin == "agent" and MIRRORED not in event.extra:
            self._lose(Feature.ARTIFACT)

    def _custom(self, event: Custom) -> None:
        self._lose(Feature.CUSTOM)

    def _step(self, event: StepStarted | StepEnded) -> None:
        self._lose(Feature.STEP)

    _WRITES: ClassVar[Mapping[type, Any]] = {
        RunStarted: _run_started,
        RunEnded: _run_ended,
        MessageStarted: _message_started,
        PartAdded: _part_added,
        PartDelta: _part_delta,
        PartEnded: _part_ended,
        MessageEnded: _message_ended,
        ToolStarted: _tool_started,
        ToolEnded: _tool_ended,
        Native: _native,
        LossNoted: _loss_noted,
        ArtifactAdded: _artifact,
        Custom: _custom,
        StepStarted: _step,
        StepEnded: _step,
    }


_PLACED: Final = frozenset({"usage", "incomplete_details"})
"""Of the members that another server tells: those that are told where they belong."""
_ARGUMENTS: Final = "mcp_call_arguments"


def _tokens_of(event: PartAdded | PartDelta) -> list[Any] | None:
    """Their `logprobs`, which both APIs tell in the same form."""
    if not event.extra or PIECE_EXTRAS not in event.extra:
        return None
    return event.extra[PIECE_EXTRAS].get("logprobs", {}).get("content")


def _message(own_id: str, phase: str) -> JsonObject:
    return {"type": "message", "id": encode_item_id("msg_", own_id), "role": "assistant", "phase": phase}
