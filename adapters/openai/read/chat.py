"""Reader that converts chat completions, streamed or whole, to canonical events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from pydantic_core import to_json

from babelgate.adapters.kit.json import json_text, validate
from babelgate.adapters.openai.codec.model import arguments_of, decode_usage, encode_usage
from babelgate.adapters.openai.errors.decode import decode_error
from babelgate.adapters.openai.read.messages import AnswerDecoder, Finish, decode_annotation
from babelgate.adapters.openai.wire import answers as w
from babelgate.adapters.openai.wire.replies import CHOICE, COMPLETION, USAGE, PieceExtras
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
"""Canonical finish by `finish_reason`; any other reason means `stop`. Tool calls do not depend on it, because some
servers report `stop` with them."""

_NOT_KEPT: Final = frozenset({"object", "created", "error", "obfuscation"})
"""Members of a server's completion that are dropped, because the gateway writes these members itself."""
_MOST_BYTES: Final = 64_000
"""Maximum size of the stored unknown members of a completion, in bytes. The unknown members of its choices and deltas
have a second limit of this size. Chosen."""
_MOST_LOGPROBS: Final = 256_000
"""Maximum size of the stored `logprobs` of one chunk, in bytes. Chosen, because the size of one event in the log is
limited."""
_MOST_QUOTED: Final = 500
"""Maximum number of characters that the fault for a completion without choices quotes from it. Chosen."""
_TOO_LARGE: Final = "members of the completion that are too large to keep"


@dataclass
class _Call:
    """Tool call of the model, assembled from chunks."""

    call_id: str = ""
    name: str = ""
    kind: str = "function"
    arguments: list[str] = field(default_factory=list[str])
    members: JsonObject = field(default_factory=dict[str, Any])
    """Members of the call that the API does not define. Some servers require them back with the call's result."""
    function_members: JsonObject = field(default_factory=dict[str, Any])
    """Members of the call's function that the API does not define."""

    def extra(self) -> JsonObject:
        """Return the members without a canonical form, as the `extra` of the tool call's part."""
        extra: JsonObject = {"type": self.kind} if self.kind != "function" else {}
        extra |= {"own": self.members} if self.members else {}
        extra |= {"inner": self.function_members} if self.function_members else {}
        return {"openai": extra} if extra else {}


class ChatReader:
    """Reader of one chat completion, streamed or whole.

    `run_id` begins the ids of calls that the server sent without an id. `structured`: the caller requested JSON.
    """

    def __init__(self, run_id: str, *, structured: bool = False) -> None:
        self._has_stopped = False
        """True if a chunk had a `finish_reason`. It does not end the stream: some servers send one in every chunk."""
        self._run_id = run_id
        self._structured = structured
        self._finish: Finish = "stop"
        self._usage: JsonObject = {}
        self._members: JsonObject = {}
        """Unknown members of the completion, merged over all chunks."""
        self._emitted: JsonObject | None = None
        """Value of `_members` when the first event with it was emitted. None: no such event yet."""
        self._choice: JsonObject = {}
        """Unknown members of the choice in the chunk that ends it."""
        self._raw_usage: JsonObject | None = None
        """Token counts as the server reported them; None: not reported."""
        self._extra_bytes = 0
        """Size of the unknown members of choices and deltas so far, in bytes."""
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._decoder = AnswerDecoder()

    def read(self, value: Json) -> list[Event]:
        """Return the events of one chunk, or of a whole completion.

        Raises agent_failed if the server reports an error, and invalid for a malformed chunk.
        """
        if value is None:  # one-api and its relatives send such a chunk, without a meaning
            return []
        # An error can come in the middle of a stream: openai-python 3.52.0 raises for any object with this member.
        if isinstance(value, dict) and value.get("error"):
            raise FaultError.of(decode_error(validate(w.ErrorBody, value).error))
        completion = validate(w.Completion, value)
        # Null in all chunks but the last, whose choices are empty (SPEC/chat/chat_completion_stream_options_param.py).
        if completion.usage:
            self._usage, self._raw_usage = decode_usage(completion.usage), completion.usage
        self._members |= completion.model_extra or {}
        if self._emitted is None and completion.choices:
            self._emitted = self._emit_members({})
        for choice in completion.choices or ():
            # `n` requests more than one choice (SPEC/chat/chat_completion_chunk.py, choices); the gateway requests one.
            if choice.index != 0:
                continue
            delta = choice.delta or choice.message
            before = self._decoder.count
            if delta is not None:
                self._read(delta)
            if choice.finish_reason:  # sglang and ollama have sent an empty one in every chunk
                self._finish = _FINISHES.get(choice.finish_reason, "stop")
                self._has_stopped = True
            self._attach_unknown(choice, delta, before)
        return self._decoder.take()

    def _attach_unknown(self, choice: w.Choice, delta: w.Delta | None, before: int) -> None:
        """Store the logprobs and unknown members of a chunk's choice and delta in the last event of this chunk.
        `before` is the number of events from before the chunk."""
        members: JsonObject = dict(choice.model_extra or {})
        additions = PieceExtras()
        logprobs = members.pop("logprobs", None)
        if isinstance(logprobs, dict):
            if len(to_json(logprobs)) > _MOST_LOGPROBS:
                self._decoder.lose(Feature.CUSTOM, "logprobs that are too large to keep")
            else:
                additions["logprobs"] = cast("JsonObject", logprobs)
        unknown = _unread_members(delta, whole=choice.message is not None) if delta is not None else {}
        if choice.finish_reason:
            # A plain finish follows from the run's end. A server that calls tools may report `stop`.
            plain = choice.finish_reason in ("stop", "tool_calls")
            ended = members if plain else {**members, "finish_reason": choice.finish_reason}
            self._choice |= ended if self._fits(ended) else {}
        elif (members := _without_nulls(members)) and self._fits(members):
            additions["choice"] = members
        if unknown and self._fits(unknown):
            additions["delta"] = unknown
        if additions:
            self._decoder.attach(additions, before)

    def _fits(self, members: JsonObject) -> bool:
        """Return True if unknown members are within the limit on stored members, and count their size. The first time
        that they exceed it, note a loss."""
        if not members:
            return True
        if self._extra_bytes > _MOST_BYTES:
            return False
        size = len(to_json(members))
        self._extra_bytes += size
        if self._extra_bytes > _MOST_BYTES:
            self._decoder.lose(Feature.CUSTOM, _TOO_LARGE)
            return False
        return True

    def _read(self, delta: w.Delta) -> None:
        decoder = self._decoder
        # SPEC/chat/chat_completion_chunk.py has neither name: compatible servers chose one or the other.
        if delta.reasoning_content:
            decoder.add_text(ReasoningPart, delta.reasoning_content, extra={"field": "reasoning_content"})
        elif isinstance(delta.reasoning, str):
            decoder.add_text(ReasoningPart, delta.reasoning, extra={"field": "reasoning"})
        if isinstance(delta.content, str):
            decoder.add_text(TextPart, delta.content)
        elif delta.content is not None:
            self._content_parts(delta.content)
        if delta.refusal:
            decoder.add_text(RefusalPart, delta.refusal)
        for annotation in delta.annotations or ():
            if (part := decode_annotation(annotation)) is not None:
                decoder.cite(part)
        for call in delta.tool_calls or ():
            self._call(call)
        # "Deprecated and replaced by tool_calls" (SPEC/chat/chat_completion_chunk.py); older servers send it alone.
        if delta.function_call is not None:
            self._call(w.ToolCall(index=0, function=delta.function_call))

    def _content_parts(self, content: list[JsonObject]) -> None:
        """Emit the events of content that is a list of parts, which some servers send instead of a string."""
        for piece in content:
            match piece.get("type"):
                case "text" if isinstance(piece.get("text"), str):
                    self._decoder.add_text(TextPart, piece["text"])
                case "thinking":
                    self._decoder.add_text(ReasoningPart, _reasoning_text(piece.get("thinking")))
                case kind:
                    self._decoder.lose(Feature.CUSTOM, f"a content part of type {kind}")

    def _call(self, delta: w.ToolCall) -> None:
        index = delta.index
        call = self._by_index.get(index) if index is not None else (self._calls[-1] if self._calls else None)
        if call is None or (delta.id and call.call_id and delta.id != call.call_id) or (index is None and delta.id):
            # Some servers omit the index, or send 0 for every call: another id then means another call.
            call = _Call()
            self._calls.append(call)
            if index is not None:
                self._by_index[index] = call
        call.call_id = call.call_id or delta.id or ""
        function = delta.custom or delta.function
        if delta.custom is not None or delta.type == "custom":
            call.kind = "custom"
        call.members |= _without_nulls(delta.model_extra)
        if function is not None:
            call.function_members |= _without_nulls(function.model_extra)
            call.name = call.name or function.name or ""
            call.arguments.append(function.input or arguments_of(function.arguments))

    def end(self, *, done: bool = False) -> list[Event]:
        """Return the last events after the end of the stream: questions for tool calls, and `RunEnded`. `done`: the
        server sent the marker `[DONE]`.

        Raises agent_unreachable if the stream broke off, and agent_failed if the completion had only unknown members.
        """
        if not self._has_stopped and not done:
            unknown = {
                name: value for name, value in self._members.items() if name not in _NOT_KEPT and value is not None
            }
            if unknown and self._decoder.count == 0:  # such as MiniMax's `base_resp`, the reason for a missing answer
                words = json_text(unknown)[:_MOST_QUOTED]
                raise FaultError(FaultCode.AGENT_FAILED, f"The agent's server sent no answer: {words}")
            raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's stream ended before its answer did")
        call_ids: set[str] = set()
        for number, call in enumerate(self._calls):
            call_id = call.call_id
            if not call_id or call_id in call_ids:
                call_id = f"call_{self._run_id}_{number}"
            call_ids.add(call_id)
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
        if self._raw_usage is not None and encode_usage(self._usage) != self._raw_usage:
            more[USAGE] = self._raw_usage
        self._emit_members(more)
        self._decoder.stop(self._finish, self._usage, structured=self._structured)
        return self._decoder.take()

    def _emit_members(self, more: JsonObject) -> JsonObject:
        """Emit an event with the unknown members of the completion and `more`, if they are new and not too large.
        Return the unknown members, without `_NOT_KEPT`."""
        about = {name: value for name, value in self._members.items() if name not in _NOT_KEPT}
        if len(to_json((about, more))) > _MOST_BYTES:
            if about != self._emitted:
                self._decoder.lose(Feature.CUSTOM, _TOO_LARGE)
        elif more or (about and about != self._emitted):
            self._decoder.emit(Native(protocol="openai", event=COMPLETION, extra={"openai": about, **more}))
        return about


def _without_nulls(members: JsonObject | None) -> JsonObject:
    return {name: value for name, value in (members or {}).items() if value is not None}


def _unread_members(delta: w.Delta, *, whole: bool) -> JsonObject:
    """Return the members of a delta that have no canonical form. `whole`: the delta is a complete message, so nulls and
    empty lists are included."""
    unknown = {name: value for name, value in (delta.model_extra or {}).items() if name != "role"}
    if whole:
        unknown |= {n: v for n in ("annotations", "tool_calls") if (v := getattr(delta, n)) == []}
    else:
        unknown = _without_nulls(unknown)
    if delta.reasoning is not None and not isinstance(delta.reasoning, str):
        unknown["reasoning"] = delta.reasoning
    undecoded = [each for each in delta.annotations or () if decode_annotation(each) is None]
    if undecoded:
        unknown["annotations"] = [each.model_dump(exclude_unset=True) for each in undecoded]
    return unknown


def _reasoning_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    pieces = cast("list[Any]", value) if isinstance(value, list) else []
    return "".join(str(piece.get("text") or "") for piece in pieces if isinstance(piece, dict))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
