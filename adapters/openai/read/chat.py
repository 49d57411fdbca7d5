"""Chunks of a chat completion, or a whole one → canonical events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pydantic_core import to_json

from babelgate.adapters.kit.json import json_text, validate
from babelgate.adapters.openai.codec.model import arguments_of, decode_usage, encode_usage
from babelgate.adapters.openai.errors.decode import decode_error
from babelgate.adapters.openai.read.messages import Finish, MessageDecoder, decode_annotation
from babelgate.adapters.openai.wire import answers as w
from babelgate.adapters.openai.wire.replies import CHOICE, COMPLETION, USAGE, Beside
from babelgate.canonical import (
    Event,
    FaultCode,
    FaultError,
    Feature,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallPart,
)
from babelgate.canonical.event import Native
from babelgate.canonical.value import Json, JsonObject

_FINISHES: Final[Mapping[str, Finish]] = {"length": "length", "content_filter": "refusal"}
"""All others are a plain stop: whether tools are called is told by the calls, and some servers say `stop` then."""

_OWN: Final = frozenset({"object", "created", "error", "obfuscation"})
_MOST_BYTES: Final = 64_000
"""Bytes of unknown members of a completion; as many of its pieces all together."""
_MOST_LOGPROBS: Final = 256_000
"""Bytes of one piece: an event of the log has a limit."""
_MOST_WORDS: Final = 500
"""Characters of an answer without choices that its caller is told."""
_TOO_LARGE: Final = "members of the completion that are too large to keep"


@dataclass
class _Call:
    call_id: str = ""
    name: str = ""
    kind: str = "function"
    arguments: list[str] = field(default_factory=list[str])
    own: JsonObject = field(default_factory=dict[str, Any])
    """Members that the API does not have: some servers want them back with the result."""
    inner: JsonObject = field(default_factory=dict[str, Any])
    """The same of its function."""

    def extra(self) -> JsonObject:
        told: JsonObject = {"type": self.kind} if self.kind != "function" else {}
        told |= {"own": self.own} if self.own else {}
        told |= {"inner": self.inner} if self.inner else {}
        return {"openai": told} if told else {}


class ChatReader:
    """Of one completion. `run_id` makes ids for calls that a server gave none; `structured` = the answer is JSON."""

    def __init__(self, run_id: str, *, structured: bool = False) -> None:
        self._has_stopped = False
        """Whether a chunk had a `finish_reason`. It does not end the stream: some servers send one in every chunk."""
        self._run_id = run_id
        self._structured = structured
        self._finish: Finish = "stop"
        self._usage: JsonObject = {}
        self._about: JsonObject = {}
        """Members of the completion that canonical has no word for; of those that chunks repeat, the last."""
        self._told: JsonObject | None = None
        """Of these, what the first chunk had."""
        self._choice: JsonObject = {}
        """Members of the choice, as it ended."""
        self._counted: JsonObject | None = None
        """The usage as it was told."""
        self._beside = 0
        """Bytes of unknown members of the pieces."""
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._decoder = MessageDecoder()

    def read(self, value: Json) -> list[Event]:
        """Raises agent_failed where the completion did, invalid where it breaks the protocol."""
        # In the middle of a stream, too: openai-python 3.52.0 raises for any object with this member.
        if value is None:  # one-api and its kin send such a chunk; it says nothing
            return []
        if isinstance(value, dict) and value.get("error"):
            raise FaultError.of(decode_error(validate(w.ErrorBody, value).error))
        completion = validate(w.Completion, value)
        # Null in all chunks but the last, whose choices are empty (SPEC/chat/chat_completion_stream_options_param.py).
        if completion.usage:
            self._usage, self._counted = decode_usage(completion.usage), completion.usage
        self._about |= completion.model_extra or {}
        if self._told is None and completion.choices:
            self._told = self._tell_about({})
        for choice in completion.choices or ():
            # More than one only if `n` asks for it (SPEC/chat/chat_completion_chunk.py, choices): we ask for one.
            if choice.index != 0:
                continue
            said = choice.delta or choice.message
            before = self._decoder.count
            if said is not None:
                self._read(said)
            if choice.finish_reason:  # sglang and ollama have had an empty one in every chunk
                self._finish = _FINISHES.get(choice.finish_reason, "stop")
                self._has_stopped = True
            self._say_beside(choice, said, before)
        return self._decoder.take()

    def _say_beside(self, choice: w.Choice, said: w.Delta | None, before: int) -> None:
        own: JsonObject = dict(choice.model_extra or {})
        beside = Beside()
        logprobs = own.pop("logprobs", None)
        if isinstance(logprobs, dict):
            if len(to_json(logprobs)) > _MOST_LOGPROBS:
                self._decoder.lose(Feature.CUSTOM, "logprobs that are too large to keep")
            else:
                beside["logprobs"] = cast("JsonObject", logprobs)
        unknown = _unknown_of(said, whole=choice.message is not None) if said is not None else {}
        if choice.finish_reason:
            # Of a plain end it follows from the run; a server that calls tools may say `stop`.
            plain = choice.finish_reason in ("stop", "tool_calls")
            ended = own if plain else {**own, "finish_reason": choice.finish_reason}
            self._choice |= ended if self._fits(ended) else {}
        elif (own := _without_nulls(own)) and self._fits(own):
            beside["choice"] = own
        if unknown and self._fits(unknown):
            beside["delta"] = unknown
        if beside:
            self._decoder.say_beside(beside, before)

    def _fits(self, members: JsonObject) -> bool:
        if not members:
            return True
        if self._beside > _MOST_BYTES:
            return False
        size = len(to_json(members))
        self._beside += size
        if self._beside > _MOST_BYTES:
            self._decoder.lose(Feature.CUSTOM, _TOO_LARGE)
            return False
        return True

    def _read(self, said: w.Delta) -> None:
        decoder = self._decoder
        # Neither is in SPEC/chat/chat_completion_chunk.py: servers that are compatible chose one name or the other.
        if said.reasoning_content:
            decoder.say(ReasoningPart, said.reasoning_content, extra={"field": "reasoning_content"})
        elif isinstance(said.reasoning, str):
            decoder.say(ReasoningPart, said.reasoning, extra={"field": "reasoning"})
        if isinstance(said.content, str):
            decoder.say(TextPart, said.content)
        elif said.content is not None:
            self._pieces(said.content)
        if said.refusal:
            decoder.say(RefusalPart, said.refusal)
        for found in said.annotations or ():
            if (part := decode_annotation(found)) is not None:
                decoder.cite(part)
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
                    self._decoder.say(TextPart, piece["text"])
                case "thinking":
                    self._decoder.say(ReasoningPart, _reasoning_text(piece.get("thinking")))
                case kind:
                    self._decoder.lose(Feature.CUSTOM, f"a content part of type {kind}")

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
        call.own |= _without_nulls(found.model_extra)
        if inner is not None:
            call.inner |= _without_nulls(inner.model_extra)
            call.name = call.name or inner.name or ""
            call.arguments.append(inner.input or arguments_of(inner.arguments))

    def end(self, *, done: bool = False) -> list[Event]:
        """The stream is over. `done` = it said so itself. Raises agent_unreachable where it broke off, agent_failed
        where it holds no answer but says something else."""
        if not self._has_stopped and not done:
            unknown = {name: value for name, value in self._about.items() if name not in _OWN and value is not None}
            if unknown and self._decoder.count == 0:  # as MiniMax's `base_resp`, which says why there is no answer
                words = json_text(unknown)[:_MOST_WORDS]
                raise FaultError(FaultCode.AGENT_FAILED, f"The agent's server gave no answer: {words}")
            raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's stream ended before its answer did")
        taken: set[str] = set()
        for number, call in enumerate(self._calls):
            call_id = call.call_id
            if not call_id or call_id in taken:
                call_id = f"call_{self._run_id}_{number}"
            taken.add(call_id)
            self._decoder.calls.append(
                ToolCallPart(
                    call_id=call_id,
                    name=call.name,
                    arguments="".join(call.arguments),
                    side="caller",
                    extra=call.extra(),
                )
            )
        more: JsonObject = {CHOICE: self._choice} if self._choice else {}
        if self._counted is not None and encode_usage(self._usage) != self._counted:
            more[USAGE] = self._counted
        self._tell_about(more)
        self._decoder.stop(self._finish, self._usage, structured=self._structured)
        return self._decoder.take()

    def _tell_about(self, more: JsonObject) -> JsonObject | None:
        about = {name: value for name, value in self._about.items() if name not in _OWN}
        if len(to_json((about, more))) > _MOST_BYTES:
            if about != self._told:
                self._decoder.lose(Feature.CUSTOM, _TOO_LARGE)
        elif more or (about and about != self._told):
            self._decoder.emit(Native(protocol="openai", event=COMPLETION, extra={"openai": about, **more}))
        return about


def _without_nulls(members: JsonObject | None) -> JsonObject:
    return {name: value for name, value in (members or {}).items() if value is not None}


def _unknown_of(said: w.Delta, *, whole: bool) -> JsonObject:
    """Members that are not read. A whole message tells also of what there is nothing of."""
    told = {name: value for name, value in (said.model_extra or {}).items() if name != "role"}
    if whole:
        told |= {n: v for n in ("annotations", "tool_calls") if (v := getattr(said, n)) == []}
    else:
        told = _without_nulls(told)
    if said.reasoning is not None and not isinstance(said.reasoning, str):
        told["reasoning"] = said.reasoning
    strange = [each for each in said.annotations or () if decode_annotation(each) is None]
    if strange:
        told["annotations"] = [each.model_dump(exclude_unset=True) for each in strange]
    return told


def _reasoning_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    pieces = cast("list[Any]", value) if isinstance(value, list) else []
    return "".join(str(piece.get("text") or "") for piece in pieces if isinstance(piece, dict))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
