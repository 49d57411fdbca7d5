"""Decoding of the steps of another AIEF server as the events of one run.

Only the response to the POST of a step counts, because later responses about a step are often wrong. Another Babelgate
puts what a step has no field for into `additional_output`, and marks it with a member `babelgate`.

On any other server, `additional_output` is the structured output; members of AutoGPT's classic agent (`thoughts`,
`last_action`, costs) are also decoded. The reader does no I/O: its caller fetches the files.
"""

import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec
from pydantic_core import to_json

from babelgate.adapters.aief.codec import COSTS, clean_folder, clean_name
from babelgate.adapters.aief.wire import replies as w
from babelgate.adapters.aief.wire.types import STEP
from babelgate.adapters.kit.extension import URI, RecordReader, named_question
from babelgate.adapters.kit.json import ABSENT, parse_text, validate
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Event,
    Fault,
    FaultCode,
    FaultError,
    Feature,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    RunReason,
    RunStatus,
    TextPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    RunEnded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.fault import RELAYED
from babelgate.canonical.json import as_list, as_object
from babelgate.canonical.value import Json, JsonObject

_NAME_LENGTH: Final = 256
"""Maximum length of a step's name, and of a loss's text, in characters. Chosen, not measured: OpenAPI v1 has no
limit."""
_STATES: Final = frozenset({"input-required", "auth-required"})
"""Values of `additional_output.status` with which another Babelgate reports a question (docs/protocols/aief.md,
Questions)."""
_FEATURES: Final = frozenset(feature.value for feature in Feature)
"""Names of all features, for losses that a server reports."""
_CITATION: Final = frozenset({"start", "end", "url", "title", "description"})
"""Members of a citation that are decoded."""
_DOCUMENTED: Final = frozenset({"task_id", "input", "additional_input", "created_at"})
"""Members of a step that OpenAPI v1 defines and that are not needed."""
_MOST_BYTES: Final = 64_000
"""Maximum size of a step's stored undocumented members, in bytes. Chosen, not measured."""
_TYPES: Final = mimetypes.MimeTypes()
"""Table of media types by file suffix that is built into Python. The operating system's table differs between
machines."""


@dataclass(frozen=True, slots=True)
class StepEvents:
    """Events of one step, and the files that it reports. The events of the files go between `content` and `ended`."""

    content: Sequence[Event]
    ended: Sequence[Event]
    artifacts: Sequence[w.Artifact]


class StepReader:
    """Reader of the steps of one run. It must receive the response to each step, in order."""

    def __init__(self, *, asks: bool = False, extended: bool = False) -> None:
        self.records = RecordReader(of_run=True)
        """Reader of the records that the server sends with the Babelgate extension."""
        self._extended = extended
        """True if the client requested the Babelgate extension."""
        self._final: RunEnded | None = None
        self.stopped = False
        """True if the run has ended or asks a question, so that no further step is to be requested."""
        self.completed = False
        """True if the run ended with a successful last step, so that the task accepts another turn."""
        self._asks_by_default = asks
        """True if a step that is not the last one counts as a question (the client's setting `steps: ask`), unless the
        server reports whether it is one."""
        self._steps = 0
        self._open_question: InterruptRaised | None = None
        self._fault: Fault | None = None
        self._cancelled = False
        self._output: Json = None
        self._usage: JsonObject = {}
        self._lost: set[tuple[str, str]] = set()

    def read(self, response: Json) -> StepEvents:
        """Return the events of a response with a step. Raises invalid for a malformed step, agent_invalid, and
        agent_failed."""
        step = validate(w.Step, response)
        more = as_object(step.additional_output)
        if self._extended and (URI in more or self.records.active):
            return StepEvents(self._read_records(step, more.get(URI)), (), ())
        # A POST is answered when the step has completed (OpenAPI v1, executeAgentTaskStep). The Python SDK 1.0.2 leaves
        # a failed step `running` permanently.
        if step.status == "running" and not step.is_last and not step.output:
            raise FaultError(FaultCode.AGENT_FAILED, "The agent's server answered before its step was over")
        self._steps += 1
        is_gateway = isinstance(more.get("babelgate"), dict)
        # The protocol has no state for failure; a gateway reports it in `additional_output`.
        last = bool(step.is_last) or (is_gateway and "error" in more)
        if last:
            self._end(more, is_gateway=is_gateway)
        else:
            self._open_question = self._question(step, more, is_gateway=is_gateway)
        self.stopped = last or self._open_question is not None
        self.completed = last and self._fault is None and not self._cancelled
        self._count(as_object(more.get("usage")))
        if not is_gateway:
            self._usage |= _cost(more)
        events = [*self._losses(more), *_tools(more, is_gateway=is_gateway), *_progress(more, is_gateway=is_gateway)]
        if more and not is_gateway and self._open_question is None:  # unchanged, for callers of AIEF
            events.append(Native(protocol="aief", event="additional_output", data=more))
        events += self._native_events(step)
        events += _message(self._text(step, more, is_gateway=is_gateway), more, is_gateway=is_gateway)
        if step.name or not (self._steps == 1 and self.stopped):  # otherwise the step represents the whole run
            name = (step.name or f"step {self._steps}")[:_NAME_LENGTH]
            ended = StepEnded(name=name, update=(more or None) if not is_gateway else None, fault=self._fault)
            return StepEvents([StepStarted(name=name), *events], [ended], step.artifacts or ())
        return StepEvents(events, (), step.artifacts or ())

    def _native_events(self, step: w.Step) -> Sequence[Event]:
        """Return a `Native` event with the members of the step that OpenAPI v1 does not define, for callers of AIEF; or
        a loss if they are too large."""
        members = {name: value for name, value in (step.model_extra or {}).items() if name not in _DOCUMENTED}
        if not members:
            return ()
        if len(to_json(members)) > _MOST_BYTES:
            return self.note(Feature.CUSTOM, "members of a step that are too large to keep")
        return (Native(protocol="aief", event=STEP, data=members),)

    def _read_records(self, step: w.Step, envelope: Json) -> Sequence[Event]:
        """Return the events of the records in a step from another Babelgate; the step's other members are ignored. The
        `RunEnded` is stored for `end`. Raises agent_invalid if the last step came without the end of the run."""
        events: list[Event] = []
        for event in self.records.read(envelope):
            if isinstance(event, RunEnded):
                self._final = event
            else:
                events.append(named_question(event) if isinstance(event, InterruptRaised) else event)
        self.stopped = self.records.stopped
        self.completed = self._final is not None and self._final.status is RunStatus.SUCCESS
        if step.is_last and not self.stopped and not self.records.behind:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server leaves out records of its run")
        return events

    def run_out(self) -> Sequence[Event]:
        """Stop the run, because the server has no steps left although none was marked as the last one. Return a loss
        that reports this."""
        self.stopped = True
        return self.note(Feature.STEP.value, "the agent's server marked no step as the last one")

    def end(self) -> Event | None:
        """Return the event that ends the run: a question or a `RunEnded`. Return None if the records had the question
        already."""
        if self.records.active:
            return self._final
        if self._open_question is not None:
            return self._open_question
        if self._cancelled:
            return RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER, usage=self._usage)
        if self._fault is not None:
            return RunEnded(status=RunStatus.ERROR, reason=RunReason.FAULT, fault=self._fault, usage=self._usage)
        return RunEnded(output=self._output, usage=self._usage)

    def note(self, feature: str, how: str) -> Sequence[Event]:
        """Return a `LossNoted`, or nothing if the same loss was noted before in this run."""
        if (feature, how) in self._lost:
            return ()
        self._lost.add((feature, how))
        return (LossNoted(feature=str(feature), how=how),)

    def _losses(self, more: JsonObject) -> Iterator[Event]:
        for feature, how in as_object(as_object(more.get("babelgate")).get("loss")).items():
            if feature in _FEATURES and isinstance(how, str):
                yield from self.note(feature, how[:_NAME_LENGTH])

    def _end(self, more: JsonObject, *, is_gateway: bool) -> None:
        error = as_object(more.get("error"))
        if isinstance(error.get("message"), str):
            self._cancelled = is_gateway and error.get("code") == "cancelled"
            if not self._cancelled:
                self._fault = _fault(error)
        elif is_gateway:
            self._output = more.get("output")
        else:
            has_usage = isinstance(more.get("usage"), dict)
            self._output = {name: value for name, value in more.items() if not (has_usage and name == "usage")} or None

    def _question(self, step: w.Step, more: JsonObject, *, is_gateway: bool) -> InterruptRaised | None:
        state = more.get("status")
        if isinstance(state, str) and state in _STATES:
            return _decode_interrupt(step, more, auth=state == "auth-required")
        # Both a question and an intermediate step are completed steps that are not the last one. The operator
        # configures which one is meant.
        if self._asks_by_default and not is_gateway:
            return InterruptRaised(message=_words(step.output or ""))
        return None

    def _text(self, step: w.Step, more: JsonObject, *, is_gateway: bool) -> str:
        """Return the step's output without texts that its events also contain. `is_gateway` is True if the server is
        another Babelgate. It repeats questions, data and faults in the output, for clients that read only the
        output."""
        text = step.output or ""
        if self._open_question is not None:
            question = self._open_question.message.text
            return text.removesuffix(question).removesuffix("\n") if question and text.endswith(question) else text
        if self._fault is not None and text == self._fault.message:
            return ""
        if is_gateway:
            data = as_list(more.get("data"))
            repeated = [more[name] for name in ("output", "data") if name in more] + data
            return "" if text in repeated or _json_in(text) in repeated else text
        return text

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Add the usage of one step to that of the run, member by member."""
        for name, value in usage.items():
            before = self._usage.get(name)
            if isinstance(before, int | float) and isinstance(value, int | float):
                value = before + value
            self._usage[name] = value


def _json_in(text: str) -> Json:
    """Return a text parsed as JSON, or the text itself if it is not JSON."""
    value = parse_text(text)
    return text if value is ABSENT else value


def _fault(error: Mapping[str, Any]) -> Fault:
    """Return the fault for the member `error` of a step. A code that does not blame the agent becomes agent_failed: if
    the server is another Babelgate that failed, this gateway counts that as a failure of the agent."""
    code = error.get("code")
    is_agent_code = isinstance(code, str) and code in RELAYED
    return Fault(code=FaultCode(code) if is_agent_code else FaultCode.AGENT_FAILED, message=error["message"])


# Questions


def _decode_interrupt(step: w.Step, more: JsonObject, *, auth: bool) -> InterruptRaised:
    """Return the first question of a step; other open questions are repeated with the next step. Without `questions` in
    `additional_output`, the output is the question. `auth`: a question without a kind is a request for
    authentication."""
    question = as_object(next(iter(as_list(more.get("questions"))), None))
    words, kind, schema = question.get("message"), question.get("kind"), question.get("schema")
    return InterruptRaised(
        ask=kind if kind in ("input", "approval", "auth") else "auth" if auth else "input",
        message=_words(words if isinstance(words, str) else step.output or ""),
        value=question.get("value"),
        answer_schema=as_object(schema) or None,
        extra={"aief": {"id": question["id"]}} if isinstance(question.get("id"), str) else {},
    )


def _words(text: str) -> Message:
    return Message.of(text) if text else Message()


# Output and activity


def _message(text: str, more: JsonObject, *, is_gateway: bool) -> Iterator[Event]:
    parts: list[Part] = []
    reasoning = more.get("reasoning") if is_gateway else _thoughts(more)
    if isinstance(reasoning, str) and reasoning:
        parts.append(ReasoningPart(text=reasoning))
    if text:
        parts.append(TextPart(text=text))
    if is_gateway:
        parts += [DataPart(data=value) for value in as_list(more.get("data"))]
        parts += _citations(as_list(more.get("citations")))
    if parts:
        yield MessageStarted()
        for part in parts:
            yield PartAdded(part=part)
        yield MessageEnded()


def _citations(listed: list[Any]) -> Iterator[AnnotationPart]:
    for each in listed:
        citation = {name: value for name, value in as_object(each).items() if name in _CITATION}
        with suppress(msgspec.ValidationError):
            if citation:
                yield AnnotationPart.of_members(citation)


def _progress(more: JsonObject, *, is_gateway: bool) -> Iterator[Event]:
    text = more.get("progress")
    if is_gateway and isinstance(text, str) and text:
        yield MessageStarted(phase="progress")
        yield PartAdded(part=TextPart(text=text))
        yield MessageEnded()


def _thoughts(more: JsonObject) -> str:
    """Return the thoughts of AutoGPT's classic agent in `additional_output`: a string, or an object of which `text` and
    `reasoning` are used."""
    thoughts = more.get("thoughts")
    if isinstance(thoughts, str):
        return thoughts
    texts = (as_object(thoughts).get(name) for name in ("text", "reasoning"))
    return "\n".join(each for each in texts if isinstance(each, str) and each)


def _cost(more: JsonObject) -> JsonObject:
    """Return the cost of the task so far as a member of the run's usage, or {} if `additional_output` has none."""
    cost = next((more[name] for name in COSTS if name in more), None)
    return {"cost": cost} if isinstance(cost, int | float) and not isinstance(cost, bool) else {}


def _last_action(more: JsonObject) -> Iterator[Event]:
    """Yield the events of a tool call for the command that AutoGPT's classic agent executed in this step."""
    action = as_object(more.get("last_action"))
    name, result = action.get("name"), action.get("result")
    if not isinstance(name, str) or not name:
        return
    yield ToolStarted(name=name, input=action.get("args"))
    error = as_object(result).get("error")
    words = next((each for each in (as_object(result).get("reason"), error) if isinstance(each, str) and each), None)
    fault = None if error is None else Fault(code=FaultCode.AGENT_FAILED, message=words or "The tool failed")
    yield ToolEnded(name=name, output=None if fault is not None else result, fault=fault)


def _tools(more: JsonObject, *, is_gateway: bool) -> Iterator[Event]:
    if not is_gateway:
        yield from _last_action(more)
        return
    for each in as_list(more.get("tools")):
        call = as_object(each)
        name, arguments, error = call.get("name"), call.get("arguments"), call.get("error")
        if not isinstance(name, str) or not name:
            continue
        tool_input = _json_in(arguments) if isinstance(arguments, str) else call.get("input")
        yield ToolStarted(name=name, input=tool_input)
        fault = None
        if error is not None:
            words = as_object(error).get("message", error)
            fault = Fault(code=FaultCode.AGENT_FAILED, message=words if isinstance(words, str) else "The tool failed")
        yield ToolEnded(name=name, output=call.get("output"), fault=fault)


# Files


def decode_artifact(artifact: w.Artifact, content: bytes) -> ArtifactAdded:
    """Return the event of one file. Its name is made safe, and its media type is guessed from the name, because the
    protocol has none (OpenAPI v1, Artifact)."""
    name = clean_name(artifact.file_name, "artifact")
    media_type, packed = _TYPES.guess_type(f"file:///{quote(name)}")
    media_type = media_type if media_type and not packed else "application/octet-stream"
    part = FilePart(name=name, media_type=media_type, inline=content, size=len(content))
    return ArtifactAdded(name=name, part=part, folder=clean_folder(artifact.relative_path))
