"""Chunks of a chat completion, or a whole one → canonical events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pydantic_core import to_json

from adapters._json import validate
from adapters.openai.codec.model import arguments_of, decode_usage
from adapters.openai.errors.decode import decode_error
from adapters.openai.read.messages import Finish, MessageDecoder, decode_annotation
from adapters.openai.wire import answers as w
from adapters.openai.wire.replies import COMPLETION
from canonical import Event, FaultCode, FaultError, Feature, ReasoningPart, RefusalPart, TextPart, ToolCallPart
from canonical.event import Native
from canonical.value import Json, JsonObject

_FINISHES: Final[Mapping[str, Finish]] = {"length": "length", "content_filter": "refusal"}
"""All others are a plain stop: whether tools are called is told by the calls, and some servers say `stop` then."""

_OWN: Final = frozenset({"object", "created", "error"})
_MOST: Final = 64_000
"""Bytes."""
_TOO_LARGE: Final = "members of the completion that are too large to keep"


@dataclass
class _Call:
    call_id: str = ""
    name: str = ""
    kind: str = "function"
    arguments: list[str] = field(default_factory=list[str])


class ChatReader:
    """Of one completion. `run_id` makes ids for calls that a server gave none; `structured` = the answer is JSON."""

    def __init__(self, run_id: str, *, structured: bool = False) -> None:
        self.finished = False
        """The model has stopped; what may follow is a count of tokens."""
        self._run_id = run_id
        self._structured = structured
        self._finish: Finish = "stop"
        self._usage: JsonObject = {}
        self._about: JsonObject = {}
        """Members of the completion that canonical has no word for; of those that chunks repeat, the last."""
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._speech = MessageDecoder()

    def read(self, value: Json) -> list[Event]:
        """Raises agent_failed where the completion did, invalid where it breaks the protocol."""
        # In the middle of a stream, too: openai-python 3.52.0 raises for any object with this member.
        if isinstance(value, dict) and value.get("error"):
            raise FaultError.of(decode_error(validate(w.ErrorBody, value).error))
        completion = validate(w.Completion, value)
        # Null in all chunks but the last, whose choices are empty (SPEC/chat/chat_completion_stream_options_param.py).
        if completion.usage:
            self._usage = decode_usage(completion.usage)
        self._about |= completion.model_extra or {}
        for choice in completion.choices:
            # More than one only if `n` asks for it (SPEC/chat/chat_completion_chunk.py, choices): we ask for one.
            if choice.index != 0:
                continue
            said = choice.delta or choice.message
            if said is not None:
                self._read(said)
            if choice.finish_reason is not None:
                self._finish = _FINISHES.get(choice.finish_reason, "stop")
                self.finished = True
        return self._speech.take()

    def _read(self, said: w.Delta) -> None:
        speech = self._speech
        # Neither is in SPEC/chat/chat_completion_chunk.py: servers that are compatible chose one name or the other.
        if said.reasoning_content:
            speech.say(ReasoningPart, said.reasoning_content, extra={"field": "reasoning_content"})
        elif isinstance(said.reasoning, str):
            speech.say(ReasoningPart, said.reasoning, extra={"field": "reasoning"})
        if isinstance(said.content, str):
            speech.say(TextPart, said.content)
        elif said.content is not None:
            self._pieces(said.content)
        if said.refusal:
            speech.say(RefusalPart, said.refusal)
        for found in said.annotations or ():
            part = decode_annotation(found)
            if part is None:
                speech.lose(Feature.CITATION, f"a {found.type or 'nameless'} annotation")
            else:
                speech.cite(part)
        for call in said.tool_calls or ():
            self._call(call)
        # "Deprecated and replaced by tool_calls" (SPEC/chat/chat_completion_chunk.py); older servers send it alone.
        if said.function_call is not None:
            self._call(w.ToolCall(index=0, function=said.function_call))

    def _pieces(self, content: list[JsonObject]) -> None:
        """Content in parts, as some servers give it."""
        for piece in content:
            match piece.get("type"):
                case "text" if isinstance(piece.get("text"), str):
                    self._speech.say(TextPart, piece["text"])
                case "thinking":
                    self._speech.say(ReasoningPart, _reasoning_text(piece.get("thinking")))
                case kind:
                    self._speech.lose(Feature.CUSTOM, f"a content part of type {kind}")

    def _call(self, found: w.ToolCall) -> None:
        index = found.index
        call = self._by_index.get(index) if index is not None else (self._calls[-1] if self._calls else None)
        if call is None or (found.id and call.call_id and found.id != call.call_id) or (index is None and found.id):
            # Some servers count no calls, or give each the index 0: another id is another call.
            call = _Call()
            self._calls.append(call)
            if index is not None:
                self._by_index[index] = call
        call.call_id = call.call_id or found.id or ""
        inner = found.custom or found.function
        if found.custom is not None or found.type == "custom":
            call.kind = "custom"
        if inner is not None:
            call.name = call.name or inner.name or ""
            call.arguments.append(inner.input or arguments_of(inner.arguments))

    def end(self, *, done: bool = False) -> list[Event]:
        """The stream is over. `done` = it said so itself. Raises agent_unreachable where it broke off."""
        if not self.finished and not done:
            raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's stream ended before its answer did")
        taken: set[str] = set()
        for number, call in enumerate(self._calls):
            call_id = call.call_id
            if not call_id or call_id in taken:
                call_id = f"call_{self._run_id}_{number}"
            taken.add(call_id)
            self._speech.calls.append(
                ToolCallPart(
                    call_id=call_id,
                    name=call.name,
                    arguments="".join(call.arguments),
                    side="caller",
                    extra={"openai": {"type": call.kind}} if call.kind != "function" else {},
                )
            )
        about = {name: value for name, value in self._about.items() if name not in _OWN}
        if len(to_json(about)) > _MOST:
            self._speech.lose(Feature.CUSTOM, _TOO_LARGE)
        elif about:
            self._speech.emit(Native(protocol="openai", event=COMPLETION, extra={"openai": about}))
        self._speech.stop(self._finish, self._usage, structured=self._structured)
        return self._speech.take()


def _reasoning_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    pieces = cast("list[Any]", value) if isinstance(value, list) else []
    return "".join(str(piece.get("text") or "") for piece in pieces if isinstance(piece, dict))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
