"""What agents of other frameworks put on the wire beside A2A → thoughts, calls of tools, citations, usage.

A2A has text, data and files. Frameworks say more in metadata, each under keys of its own; every entry of the tables
names who writes it. What bears no mark is not touched.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from babelgate.adapters.a2a.codec.asks import TOOL_MARKS, is_waiting
from babelgate.adapters.a2a.wire.task import TYPED
from babelgate.canonical import AnnotationPart, DataPart, Part, ReasoningPart, TextPart
from babelgate.canonical.json import as_object, as_text, objects_in
from babelgate.canonical.value import Json, JsonObject

_MOST_CITATIONS: Final = 1000
"""Of one message: each is an event of the log."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The begin or, with `ended`, the end of a call that the agent makes itself."""

    call_id: str | None
    """None where the framework says none: an end belongs to the last call of the same name."""
    name: str
    ended: bool = False
    value: Json = None
    """What it is called with, or what it gave."""
    error: str | None = None


@dataclass(slots=True)
class DecodedContent:
    """What an object on the wire says, by kind."""

    parts: list[Part] = field(default_factory=list[Part])
    """Text, data, files, and thoughts among them."""
    tools: list[ToolUse] = field(default_factory=list[ToolUse])
    citations: list[AnnotationPart] = field(default_factory=list[AnnotationPart])
    progress: list[Part] = field(default_factory=list[Part])
    """Said on the way, whatever the parts are."""
    says: Literal["answer", "progress", None] = None
    """What the framework declares the parts to be; None where it does not."""
    is_marked: bool = False
    """Its parts tell of thoughts or calls: what a trajectory says of these is the same again."""
    steps: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Name and `started`, `completed` or `error`."""
    groups: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Id and title of what the agent says on the way together: a step, of which nobody says the end."""
    output: Json = None
    """What the framework declares to be the structured output: it is among the parts."""
    states: list[tuple[str, Json]] = field(default_factory=list[tuple[str, Json]])
    """What the agent says that it has changed in its state, by the name of who says so."""

    @property
    def is_thought(self) -> bool:
        """Whether nothing else is in it."""
        return bool(self.parts) and all(isinstance(part, ReasoningPart) for part in self.parts)

    def think(self) -> None:
        """All its text is thought."""
        self.parts = [_as_thought(part) if isinstance(part, TextPart) else part for part in self.parts]


def decode_marks(parts: Sequence[Part], scope: str, *metadata: JsonObject | None) -> DecodedContent:
    """`metadata`: of the message or artifact, and of the update that brought it; `scope` = its id, for calls that have
    none."""
    decoded = DecodedContent()
    for part in parts:
        _decode_marked_part(decoded, part, scope)
    decoded.is_marked = bool(decoded.tools) or any(isinstance(part, ReasoningPart) for part in decoded.parts)
    for each in metadata:
        for key, value in (each or {}).items():
            read = _KEYS.get(key) or next((read for path, read in _PATHS.items() if key.endswith(path)), None)
            if read is not None:
                read(decoded, value, each or {})
    del decoded.citations[_MOST_CITATIONS:]
    return decoded


_REASONING: Final = ":reasoning"
"""How opencode-a2a and codex-a2a 1.4.0 end the id of an artifact that is thought, also where nothing else says so."""


def decode_artifact(
    parts: Sequence[Part], artifact_id: str, metadata: JsonObject | None, task_id: str | None = None
) -> DecodedContent:
    decoded = decode_marks(parts, artifact_id, metadata)
    if artifact_id.endswith(_REASONING):
        decoded.think()
    # crewai 1.15.30 names the artifact of its structured output so.
    if task_id and artifact_id == f"result_{task_id}" and len(decoded.parts) == 1 and decoded.output is None:
        [part] = decoded.parts
        decoded.output = part.data if isinstance(part, DataPart) else None
    return decoded


# Parts

_THOUGHTS: Final[Mapping[str, Sequence[Json]]] = {
    "adk_thought": (True,),  # google-adk 2.13.0
    "kagent_thought": (True,),  # kagent before 1.0
    "thought": (True,),
    "type": ("thinking", "reasoning"),  # fasta2a 2.1.1, extended-a2a
}
"""Keys of a part's metadata, and their values, that make its text a thought."""
_CALLS: Final = frozenset({"function_call", "tool_call", "executable_code"})
_RESULTS: Final = frozenset({"function_response", "tool_response", "code_execution_result"})
"""Values of `TOOL_MARKS`. google-adk 2.13.0: the model's calls, those that its host executes, and code."""
_CODE: Final = "code_execution"


def _decode_marked_part(decoded: DecodedContent, part: Part, scope: str) -> None:
    match part:
        case TextPart() if is_thought(part):
            decoded.parts.append(_as_thought(part))
        case DataPart() if isinstance(part.data, dict):
            if is_waiting(part):
                return
            if set(part.data) == {"result"} and isinstance(part.metadata.get("json_schema"), dict):  # fasta2a 2.1.1
                decoded.output = part.data["result"]
                decoded.parts.append(part.replace(data=decoded.output, extra={**part.extra, TYPED: {}}))
                return
            marks = [part.metadata[key] for key in TOOL_MARKS if key in part.metadata]
            uses = (
                _genai(str(marks[0]), part.data, part.metadata, decoded, scope) if marks else list(_by_data(part.data))
            )
            decoded.tools += uses
            if not uses:
                decoded.parts.append(part)
        case _:
            decoded.parts.append(part)


def is_thought(part: Part) -> bool:
    """Whether its marks say so."""
    told = part.metadata if isinstance(part, TextPart) else {}
    return any(told[key] in values for key, values in _THOUGHTS.items() if key in told)


def _as_thought(part: TextPart) -> ReasoningPart:
    """Without the mark: it is one."""
    unread = {key: value for key, value in part.metadata.items() if value not in _THOUGHTS.get(key, ())}
    return ReasoningPart(text=part.text, metadata=unread, extra=part.extra)


def _genai(mark: str, data: JsonObject, own: JsonObject, decoded: DecodedContent, scope: str) -> list[ToolUse]:
    """google-adk 2.13.0 and kagent 1.0.0a17."""
    call_id, name = as_text(data.get("id")), as_text(data.get("name")) or as_text(data.get("tool_type"))
    if mark in ("executable_code", "code_execution_result"):
        number = sum(use.name == _CODE and use.ended == (mark not in _CALLS) for use in decoded.tools)
        call_id, name = call_id or f"{scope}/{number}", _CODE
    if not name:
        return []
    if mark in _CALLS:
        given = data if name == _CODE else _unwrap(data.get("args"), own)
        return [ToolUse(call_id or None, name, value=cast("Json", given))]
    if mark in _RESULTS:
        given = data if name == _CODE else data.get("response")
        outcome = as_text(data.get("outcome"))
        error = _error_in(given) if name != _CODE else (outcome if outcome not in ("", "OUTCOME_OK") else None)
        return [ToolUse(call_id or None, name, ended=True, value=_unwrap(cast("Json", given), own), error=error)]
    return []


def _unwrap(given: Json, own: JsonObject) -> Json:
    """What a gateway like this one has put into an object, because these have nothing else."""
    name = as_text(as_object(own.get("babelgate")).get("value"))
    return given.get(name) if name and isinstance(given, dict) else given


def _by_data(data: JsonObject) -> Iterator[ToolUse]:
    # @ag-ui/a2a 0.0.6.
    if data.get("type") == "tool-call" and as_text(data.get("id")) and as_text(data.get("name")):
        yield ToolUse(data["id"], data["name"], value=data.get("arguments"))
    elif data.get("type") == "tool-result" and as_text(data.get("toolCallId")):
        yield ToolUse(
            data["toolCallId"], "", ended=True, value=data.get("payload"), error=_error_in(data.get("payload"))
        )
    # langgraph-api 0.16.7: results alone.
    elif set(data) == {"tool_results"}:
        for each in objects_in(data["tool_results"]):
            error = _words(each.get("content")) if each.get("status") == "error" else None
            name, call_id = as_text(each.get("name")), as_text(each.get("toolCallId"))
            if call_id:
                yield ToolUse(call_id, name, ended=True, value=each.get("content"), error=error)


def _error_in(value: Json) -> str | None:
    """`error` is what google-adk 2.13.0 gives the model of a tool that failed, `isError` what MCP's tools say."""
    if isinstance(value, dict):
        if value.get("error"):
            return _words(value["error"])
        if value.get("isError") is True:
            return _words(value.get("content") or value.get("result"))
    return None


# Metadata of messages, artifacts and updates

_TRAJECTORY: Final = "/ui/trajectory/v1"


def _trajectory(decoded: DecodedContent, value: Json, _: JsonObject) -> None:
    for each in objects_in(value if isinstance(value, list) else [value]):
        title, content = as_text(each.get("title")), as_text(each.get("content"))
        name, _space, what = title.rpartition(" ")
        while name.startswith(("--> ", "<-- ")):  # beeai-framework: of an agent within
            name = name[4:]
        match what:
            case "(request)" | "(response)" | "(error)" if decoded.is_marked:
                pass
            case "(request)" if name:
                decoded.tools.append(ToolUse(None, name, value=_parse(content)))
            case "(response)" if name:
                decoded.tools.append(ToolUse(None, name, ended=True, value=_parse(content)))
            case "(error)" if name:
                decoded.tools.append(ToolUse(None, name, ended=True, error=content or title))
            case _ if title.lower() == "thought":
                if decoded.is_marked:
                    continue
                decoded.parts.append(ReasoningPart(text=content))
            case _ if title or content:
                if group := as_text(each.get("group_id")):
                    decoded.groups.append((group, title or group))
                decoded.progress.append(TextPart(text=": ".join(filter(None, (title, content)))))
            case _:
                pass


def is_trajectory(key: str) -> bool:
    """Whether a key of metadata has one."""
    return key.endswith(_TRAJECTORY)


_TRACES: Final = ("/extensions/traceability/v1", "/extensions/traceability/v1/traceability")
"""How the key ends of the trace that goes with an answer by the extension of a2a-samples."""


def _trace(decoded: DecodedContent, value: Json, _: JsonObject) -> None:
    """Calls of tools and of other agents, told when they are over: their results are not."""
    if decoded.is_marked:
        return
    for step in objects_in(as_object(value).get("steps")):
        action = as_object(step.get("step_action"))
        tool, agent = as_object(action.get("tool_invocation")), as_object(action.get("agent_invocation"))
        name = as_text(tool.get("tool_name")) or as_text(agent.get("agent_name")) or as_text(agent.get("agent_url"))
        call_id = as_text(step.get("step_id"))
        if not name or not call_id:
            continue
        decoded.tools.append(ToolUse(call_id, name, value=tool.get("parameters") if tool else agent))
        if step.get("end_time") is not None:
            decoded.tools.append(ToolUse(call_id, name, ended=True))


def tokens_of_trace(metadata: JsonObject | None) -> JsonObject:
    """What the steps of a trace used together: of each it is told apart."""
    traces = [as_object(value) for key, value in (metadata or {}).items() if key.endswith(_TRACES)]
    counts = [_count(step.get("total_tokens")) for trace in traces for step in objects_in(trace.get("steps"))]
    total = sum(count for count in counts if count is not None)
    return {"total_tokens": total} if total else {}


def _citations(decoded: DecodedContent, value: Json, _: JsonObject) -> None:
    told = value.get("citations") if isinstance(value, dict) else value
    for each in objects_in(told):
        _cite(decoded, each, "start_index", "end_index", "url")


def _adk_citations(decoded: DecodedContent, value: Json, metadata: JsonObject) -> None:
    if not as_object(metadata.get("adk_grounding_metadata")).get("groundingSupports"):  # the same again, in bytes
        for each in objects_in(as_object(value).get("citations")):
            _cite(decoded, each, "startIndex", "endIndex", "uri")


def _cite(decoded: DecodedContent, each: JsonObject, start: str, end: str, url: str) -> None:
    decoded.citations.append(
        AnnotationPart(
            start=_count(each.get(start)),
            end=_count(each.get(end)),
            url=as_text(each.get(url)) or None,
            title=as_text(each.get("title")) or None,
            description=as_text(each.get("description")) or None,
        )
    )


def _grounding(decoded: DecodedContent, value: Json, _: JsonObject) -> None:
    """Of genai: places are UTF-8 bytes within one part."""
    told = as_object(value)
    chunks = [as_object(each.get("web")) for each in objects_in(told.get("groundingChunks"))]
    texts = [part.text for part in decoded.parts if isinstance(part, TextPart)]
    for support in objects_in(told.get("groundingSupports")):
        segment = as_object(support.get("segment"))
        at = _count(segment.get("partIndex")) or 0
        if at >= len(texts):
            continue
        before, text = sum(map(len, texts[:at])), texts[at].encode()
        start, end = _count(segment.get("startIndex")) or 0, _count(segment.get("endIndex")) or 0
        places = (before + len(text[:byte].decode(errors="ignore")) for byte in (start, end))
        first, last = places
        for index in support.get("groundingChunkIndices") or ():
            number = _count(index)
            if number is not None and number < len(chunks):
                web = chunks[number]
                url, title = as_text(web.get("uri")) or None, as_text(web.get("title")) or None
                decoded.citations.append(AnnotationPart(start=first, end=last, url=url, title=title))


def _agno_content(decoded: DecodedContent, value: Json, _: JsonObject) -> None:
    if value == "reasoning":
        decoded.think()
    elif value == "content":
        decoded.says = "answer"


def _agno_event(decoded: DecodedContent, value: Json, metadata: JsonObject) -> None:
    kind = as_text(value)
    if kind in ("tool_call_started", "tool_call_completed", "tool_call_error"):
        name, call_id = as_text(metadata.get("tool_name")), as_text(metadata.get("tool_call_id"))
        # No result is told.
        ended = kind != "tool_call_started"
        given = None if ended else _parse(as_text(metadata.get("tool_args")))
        error = (_error_words(metadata.get("error")) or f"{name} failed") if kind == "tool_call_error" else None
        if name:
            decoded.tools.append(ToolUse(call_id or None, name, ended=ended, value=given, error=error))
    elif "_" in kind and as_text(metadata.get("step_name")):
        _name, _, what = kind.rpartition("_")
        if what in ("started", "completed", "error"):
            decoded.steps.append((as_text(metadata["step_name"]), what))


def _gemini(decoded: DecodedContent, value: Json, _: JsonObject) -> None:
    match as_object(value).get("kind"):
        case "thought":
            data = [as_object(part.data) for part in decoded.parts if isinstance(part, DataPart)]
            thoughts = [
                ": ".join(filter(None, (as_text(d.get("subject")), as_text(d.get("description"))))) for d in data
            ]
            decoded.parts = [ReasoningPart(text=text) for text in thoughts if text]
        case "text-content":
            decoded.says = "answer"
        case "tool-call-update":
            calls = [as_object(part.data) for part in decoded.parts if isinstance(part, DataPart)]
            decoded.parts = [part for part in decoded.parts if not isinstance(part, DataPart)]
            for call in calls:
                _gemini_call(decoded, call)
        case "citation":
            cited = [
                each for part in decoded.parts if isinstance(part, TextPart) for each in _gemini_citations(part.text)
            ]
            decoded.says = "progress"
            if cited:
                decoded.citations += cited
                decoded.parts = [part for part in decoded.parts if not isinstance(part, TextPart)]
        case str():  # its state and the like
            decoded.says = "progress"
        case _:
            pass


def _gemini_citations(text: str) -> Iterator[AnnotationPart]:
    """A line each, after one that announces them: `(title) URL`, or the URL alone."""
    for line in text.splitlines():
        title, _, url = line.strip().rpartition(" ")
        if "://" in url:
            yield AnnotationPart(url=url, title=title.removeprefix("(").removesuffix(")") or None)


def _gemini_call(decoded: DecodedContent, call: JsonObject) -> None:
    asked, status = as_object(call.get("request")), call.get("status")
    call_id, name = as_text(asked.get("callId")), as_text(asked.get("name"))
    if not call_id or not name:
        return
    decoded.tools.append(ToolUse(call_id, name, value=asked.get("args")))
    if status in ("success", "error", "cancelled"):
        error = None if status == "success" else _words(call.get("response") or status)
        decoded.tools.append(ToolUse(call_id, name, ended=True, value=call.get("response"), error=error))


_ENDS: Final = ("complete", "end", "error", "fail")
"""How phases of a call begin that is over, whether or not its result is told."""


def _protolabs(decoded: DecodedContent, value: Json, _: JsonObject) -> None:
    call = as_object(value)
    call_id, name, phase = as_text(call.get("toolCallId")), as_text(call.get("name")), as_text(call.get("phase"))
    if not call_id or not name:
        return
    if phase.startswith("start"):
        decoded.tools.append(ToolUse(call_id, name, value=call.get("args")))
    elif "result" in call or call.get("error") or phase.startswith(_ENDS):
        error = _words(call["error"]) if call.get("error") else None
        if error is None and phase.startswith(("error", "fail")):
            error = f"{name} failed"
        decoded.tools.append(ToolUse(call_id, name, ended=True, value=call.get("result"), error=error))


def _opencode(decoded: DecodedContent, value: Json, _: JsonObject) -> None:
    shared = as_object(value)
    kind = as_object(shared.get("stream")).get("block_type")
    told = shared.get("progress")
    line = [told] if isinstance(told, str) else [as_text(as_object(told).get(key)) for key in ("type", "status")]
    if any(line):
        decoded.progress.append(TextPart(text=": ".join(filter(None, line))))
    if kind == "reasoning":
        decoded.think()
    elif kind == "tool_call":
        calls = [as_object(part.data) for part in decoded.parts if isinstance(part, DataPart)]
        decoded.parts = [part for part in decoded.parts if not isinstance(part, DataPart)]
        for call in calls:
            _opencode_call(decoded, call)


def _opencode_call(decoded: DecodedContent, call: JsonObject) -> None:
    call_id, name, status = as_text(call.get("call_id")), as_text(call.get("tool")), call.get("status")
    if not call_id or not name:
        return
    decoded.tools.append(ToolUse(call_id, name, value=call.get("input")))
    if status in ("completed", "error"):
        error = _words(call.get("error") or status) if status == "error" else None
        decoded.tools.append(ToolUse(call_id, name, ended=True, value=call.get("output"), error=error))


def _ag2_state(decoded: DecodedContent, value: Json, _: JsonObject) -> None:
    _add_state(decoded, "ag2.context_update", value)


def _adk_actions(decoded: DecodedContent, value: Json, _: JsonObject) -> None:
    _add_state(decoded, "adk_actions.stateDelta", as_object(value).get("stateDelta"))


def _world_state(decoded: DecodedContent, value: Json, _: JsonObject) -> None:
    _add_state(decoded, _WORLD_STATE, value)


def _add_state(decoded: DecodedContent, name: str, value: Json) -> None:
    if value:
        decoded.states.append((name, value))


_WORLD_STATE: Final = "https://proto-labs.ai/a2a/ext/worldstate-delta-v1"
_KEYS: Final[Mapping[str, Callable[[DecodedContent, Json, JsonObject], None]]] = {
    "adk_actions": _adk_actions,  # google-adk 2.13.0
    "adk_citation_metadata": _adk_citations,  # google-adk 2.13.0, its newer executor
    "adk_grounding_metadata": _grounding,  # google-adk 2.13.0
    "ag2.context_update": _ag2_state,  # ag2 1.2.1
    "agno_content_category": _agno_content,  # agno 3.1.10
    "agno_event_type": _agno_event,  # agno 3.1.10
    "coderAgent": _gemini,  # the a2a-server of gemini-cli 0.25.2
    "https://proto-labs.ai/a2a/ext/tool-call-v1": _protolabs,  # protolabs-a2a
    _WORLD_STATE: _world_state,  # protolabs-a2a
    "shared": _opencode,  # opencode-a2a, codex-a2a 1.4.0
}
_PATHS: Final[Mapping[str, Callable[[DecodedContent, Json, JsonObject], None]]] = {
    # agentstack-sdk 0.7.1 (objects), kagenti-adk 0.8.1 (lists), beeai-sdk 0.3.7: three origins, and the same paths.
    _TRAJECTORY: _trajectory,
    "/ui/citation/v1": _citations,
    **dict.fromkeys(_TRACES, _trace),  # traceability of a2a-samples
}
"""Keys of metadata, or their ends, and how they are read."""


def author_of(metadata: JsonObject | None) -> tuple[str, str] | None:
    """Which agent within one of google-adk 2.13.0 speaks, empty = the one that is called, and in which of its branches:
    those side by side are at work at the same time. None where nobody is named."""
    told = metadata or {}
    author = as_text(told.get("adk_author"))
    if author in ("", "user"):
        return None
    return "" if author == told.get("adk_app_name") else author, as_text(told.get("adk_branch"))


# Faults


def error_of(*metadata: JsonObject | None) -> tuple[str, JsonObject]:
    """The words of a failure that are not in its message, and what else is told of it."""
    words, details = "", dict[str, Any]()
    for beside, key, value in ((told, key, value) for told in metadata for key, value in (told or {}).items()):
        if key == "adk_error_code" and isinstance(value, str):  # google-adk 2.13.0
            details["error_code"] = value
        elif key.endswith("/ui/error/v1"):  # agentstack-sdk 0.7.1
            error = as_object(as_object(value).get("error"))
            inner = [as_text(each.get("message")) for each in objects_in(error.get("errors"))]
            words = ": ".join(filter(None, (as_text(error.get("title")), as_text(error.get("message")), *inner)))
        elif key in ("coderAgent", "shared"):  # the a2a-server of gemini-cli 0.25.2; opencode-a2a, codex-a2a 1.4.0
            words = _error_words(as_object(value).get("error")) or words
        elif key == "error" and "agno_event_type" in (beside or {}):  # agno 3.1.10
            words = _error_words(value) or words
    return words, details


def _error_words(error: Json) -> str:
    """Of an error that is text, or an object with a message."""
    return as_text(error) or as_text(as_object(error).get("message"))


# Usage

_TOKENS: Final[Mapping[str, str]] = {
    "promptTokenCount": "input_tokens",
    "candidatesTokenCount": "output_tokens",
    "totalTokenCount": "total_tokens",
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "totalTokens": "total_tokens",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "total_tokens": "total_tokens",
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
}
_CACHED: Final = ("cachedContentTokenCount", "cachedInputTokens", "cache_read_input_tokens")
_THOUGHT: Final = ("thoughtsTokenCount", "reasoningTokens", "reasoning_tokens")

_OF_THE_TASK: Final = (
    "usage",  # without a name of whose it is: redpanda's, and whoever writes what models answer
    "https://kagent.dev/extensions/usage/v1",  # kagent 1.0.0a17, of the terminal status
    "https://proto-labs.ai/a2a/ext/cost-v1",  # protolabs-a2a
)
_OF_A_MESSAGE: Final = (
    "usage",
    "adk_usage_metadata",  # google-adk 2.13.0
    "kagent.dev/a2a/usage",
    "kagent_usage_metadata",  # kagent 1.0.0a17, and before
)


def has_task_after_end(metadata: JsonObject | None) -> bool:
    """Whether the agent tells its usage, and files, in a task after the status that ends it: agno 3.1.10."""
    return any(key in (metadata or {}) for key in ("agno_content_category", "agno_event_type"))


def usage_of_task(metadata: JsonObject | None) -> JsonObject:
    """Of the whole task, in the words of the Responses API; empty where none is told."""
    told = metadata or {}
    for key in _OF_THE_TASK:
        own = as_object(told.get(key))
        if usage := _usage(as_object(own.get("usage")) or own):
            return usage
    gemini = as_object(told.get("coderAgent"))
    metrics = as_object(told.get("metrics"))  # agno 3.1.10, of the message in the task that a send is answered with
    return _usage(as_object(gemini.get("usageMetadata"))) or usage_so_far(told) or _usage(metrics)


def usage_so_far(metadata: JsonObject | None, *, of_update: bool = False) -> JsonObject:
    """Of the task as far as it has come, of which the last counts: opencode-a2a and codex-a2a 1.4.0 tell it anywhere,
    the same at each artifact. `of_update`: a server keeps the last of each key of an update's metadata as the task's
    (a2a-sdk 1.3.0), so what has no other name is the task's there."""
    told = metadata or {}
    shared = _usage(as_object(as_object(told.get("shared")).get("usage")))
    return shared or (_usage(as_object(told.get("usage"))) if of_update else {})


def usage_of_message(metadata: JsonObject | None) -> JsonObject:
    """Of one call of a model: those of a task add up."""
    told = metadata or {}
    found = (_usage(as_object(told.get(key))) for key in _OF_A_MESSAGE)
    return next(filter(None, found), dict[str, Any]())


def add_usage(first: JsonObject, second: JsonObject) -> JsonObject:
    total = dict(first)
    for name, value in second.items():
        if isinstance(value, dict):
            total[name] = add_usage(as_object(first.get(name)), cast("JsonObject", value))
        else:
            total[name] = first.get(name, 0) + value
    return total


def _usage(told: JsonObject) -> JsonObject:
    usage: JsonObject = {}
    if not told:
        return usage
    for name, ours in _TOKENS.items():
        count = _count(told.get(name))
        if count is not None:
            usage[ours] = count
    for names, ours, detail in (
        (_CACHED, "input_tokens_details", "cached_tokens"),
        (_THOUGHT, "output_tokens_details", "reasoning_tokens"),
    ):
        count = next((count for name in names if (count := _count(told.get(name))) is not None), None)
        if count is not None:
            usage[ours] = {detail: count}
    return usage


# Values


def _count(value: object) -> int | None:
    """a2a-sdk 1.3.0 keeps metadata as a Struct of protobuf, which makes 1.0 of 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != value // 1:
        return None
    return int(value)


def _parse(text: str) -> Json:
    """Content that is JSON, else the text."""
    try:
        return json.loads(text) if text[:1] in ("{", "[") else text
    except (ValueError, RecursionError):
        return text


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
