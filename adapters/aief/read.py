"""What another AIEF server answers to its steps → events of one run.

The answer to a POST is the truth: what servers say of their steps later is often wrong. Gateways like this one tell in
`additional_output` what their steps have no field for, and mark it with a member `babelgate`; of any other server it is
the structured output, and what AutoGPT's classic agent says in it (`thoughts`, `last_action`, costs) is read, too.
Pure: files are fetched by whoever feeds the reader.
"""

import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

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
from babelgate.canonical.json import as_list, as_object
from babelgate.canonical.value import Json, JsonObject

_NAME_LENGTH: Final = 256
"""Characters of a step's name, and of how something was lost. Chosen, not measured: OpenAPI v1 has no limit."""
_STATES: Final = frozenset({"input-required", "auth-required"})
"""In `additional_output.status`, which is the gateway's own (docs/protocols/aief.md, Questions)."""
_FEATURES: Final = frozenset(feature.value for feature in Feature)
_CITATION: Final = frozenset({"start", "end", "url", "title", "description"})
_AGENT_CODES: Final = frozenset(code for code in FaultCode if code.startswith("agent_"))
_DOCUMENTED: Final = frozenset({"task_id", "input", "additional_input", "created_at"})
"""Members of a step that are not looked at."""
_MOST_BYTES: Final = 64_000
"""Bytes of the members of a step that the document does not have. Chosen, not measured."""
_TYPES: Final = mimetypes.MimeTypes()
"""Those that Python knows itself: what the machine knows differs from one to the next."""


@dataclass(frozen=True, slots=True)
class StepEvents:
    """What one step told. Its files belong between the two."""

    said: Sequence[Event]
    ended: Sequence[Event]
    artifacts: Sequence[w.Artifact]


class StepReader:
    """Feed it the answer to each step, in order."""

    def __init__(self, *, asks: bool = False, extended: bool = False) -> None:
        self.records = RecordReader(of_run=True)
        """What the server tells by the Babelgate extension."""
        self._extended = extended
        """It was asked for."""
        self._final: RunEnded | None = None
        self.stopped = False
        """No step is to follow in this run."""
        self.completed = False
        """It stopped with a last step, after which the task takes another turn."""
        self._asks = asks
        """A step that is not the last one is a question, if the server does not say which it is."""
        self._steps = 0
        self._asked: InterruptRaised | None = None
        self._fault: Fault | None = None
        self._cancelled = False
        self._output: Json = None
        self._usage: JsonObject = {}
        self._lost: set[tuple[str, str]] = set()

    def read(self, answer: Json) -> StepEvents:
        """Raises invalid, agent_failed."""
        step = validate(w.Step, answer)
        more = as_object(step.additional_output)
        if self._extended and (URI in more or self.records.active):
            return StepEvents(self._read_records(step, more.get(URI)), (), ())
        # A POST is answered when the step has completed (OpenAPI v1, executeAgentTaskStep); the Python SDK 1.0.2 leaves
        # a step that failed `running` for ever.
        if step.status == "running" and not step.is_last and not step.output:
            raise FaultError(FaultCode.AGENT_FAILED, "The agent's server answered before its step was over")
        self._steps += 1
        ours = isinstance(more.get("babelgate"), dict)
        # There is no state for failure: a gateway like this one says it beside the step.
        last = bool(step.is_last) or (ours and "error" in more)
        if last:
            self._end(more, ours=ours)
        else:
            self._asked = self._question(step, more, ours=ours)
        self.stopped = last or self._asked is not None
        self.completed = last and self._fault is None and not self._cancelled
        self._count(as_object(more.get("usage")))
        if not ours:
            self._usage |= _cost(more)
        said = [*self._losses(more), *_tools(more, ours=ours), *_progress(more, ours=ours)]
        if more and not ours and self._asked is None:  # for callers of AIEF, as it came
            said.append(Native(protocol="aief", event="additional_output", data=more))
        said += self._beside(step)
        said += _message(self._text(step, more, ours=ours), more, ours=ours)
        if step.name or not (self._steps == 1 and self.stopped):  # else it is the run itself
            name = (step.name or f"step {self._steps}")[:_NAME_LENGTH]
            ended = StepEnded(name=name, update=(more or None) if not ours else None, fault=self._fault)
            return StepEvents([StepStarted(name=name), *said], [ended], step.artifacts or ())
        return StepEvents(said, (), step.artifacts or ())

    def _beside(self, step: w.Step) -> Sequence[Event]:
        """Members that the document does not have, for callers of AIEF."""
        own = {name: value for name, value in (step.model_extra or {}).items() if name not in _DOCUMENTED}
        if not own:
            return ()
        if len(to_json(own)) > _MOST_BYTES:
            return self.note(Feature.CUSTOM, "members of a step that are too large to keep")
        return (Native(protocol="aief", event=STEP, data=own),)

    def _read_records(self, step: w.Step, told: Json) -> Sequence[Event]:
        """What a step shows beside its records is not looked at. How the run ended is told at its end. Raises
        agent_invalid."""
        events: list[Event] = []
        for event in self.records.read(told):
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
        """The server has no step left, and none was the last one."""
        self.stopped = True
        return self.note(Feature.STEP.value, "the agent's server marked no step as the last one")

    def end(self) -> Event | None:
        """None where there is nothing more to tell: what a run was paused by, its records say."""
        if self.records.active:
            return self._final
        if self._asked is not None:
            return self._asked
        if self._cancelled:
            return RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER, usage=self._usage)
        if self._fault is not None:
            return RunEnded(status=RunStatus.ERROR, reason=RunReason.FAULT, fault=self._fault, usage=self._usage)
        return RunEnded(output=self._output, usage=self._usage)

    def note(self, feature: str, how: str) -> Sequence[Event]:
        """A loss, told once a run."""
        if (feature, how) in self._lost:
            return ()
        self._lost.add((feature, how))
        return (LossNoted(feature=str(feature), how=how),)

    def _losses(self, more: JsonObject) -> Iterator[Event]:
        for feature, how in as_object(as_object(more.get("babelgate")).get("loss")).items():
            if feature in _FEATURES and isinstance(how, str):
                yield from self.note(feature, how[:_NAME_LENGTH])

    def _end(self, more: JsonObject, *, ours: bool) -> None:
        error = as_object(more.get("error"))
        if isinstance(error.get("message"), str):
            self._cancelled = ours and error.get("code") == "cancelled"
            if not self._cancelled:
                self._fault = _fault(error)
        elif ours:
            self._output = more.get("output")
        else:
            counted = isinstance(more.get("usage"), dict)
            self._output = {name: value for name, value in more.items() if not (counted and name == "usage")} or None

    def _question(self, step: w.Step, more: JsonObject, *, ours: bool) -> InterruptRaised | None:
        state = more.get("status")
        if isinstance(state, str) and state in _STATES:
            return _decode_interrupt(step, more, auth=state == "auth-required")
        # A question is a completed step that is not the last, and so is a step on the way: the operator says which.
        if self._asks and not ours:
            return InterruptRaised(message=_words(step.output or ""))
        return None

    def _text(self, step: w.Step, more: JsonObject, *, ours: bool) -> str:
        """The output without what is told otherwise: gateways say questions, data and faults there too, for those who
        read nothing else."""
        text = step.output or ""
        if self._asked is not None:
            question = self._asked.message.text
            return text.removesuffix(question).removesuffix("\n") if question and text.endswith(question) else text
        if self._fault is not None and text == self._fault.message:
            return ""
        if ours:
            data = as_list(more.get("data"))
            again = [more[name] for name in ("output", "data") if name in more] + data
            return "" if text in again or _json_in(text) in again else text
        return text

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Of all steps together."""
        for name, value in usage.items():
            before = self._usage.get(name)
            if isinstance(before, int | float) and isinstance(value, int | float):
                value = before + value
            self._usage[name] = value


def _json_in(text: str) -> Json:
    """`text` itself if it is no JSON."""
    value = parse_text(text)
    return text if value is ABSENT else value


def _fault(error: Mapping[str, Any]) -> Fault:
    """In the agent's own words. What is wrong with the other gateway is not wrong with this one."""
    code = error.get("code")
    known = isinstance(code, str) and code in _AGENT_CODES
    return Fault(code=FaultCode(code) if known else FaultCode.AGENT_FAILED, message=error["message"])


# Questions


def _decode_interrupt(step: w.Step, more: JsonObject, *, auth: bool) -> InterruptRaised:
    """The first of them: others that are open come with the next step. Without one by name it is the whole output."""
    asked = as_object(next(iter(as_list(more.get("questions"))), None))
    words, kind, schema = asked.get("message"), asked.get("kind"), asked.get("schema")
    return InterruptRaised(
        ask=kind if kind in ("input", "approval", "auth") else "auth" if auth else "input",
        message=_words(words if isinstance(words, str) else step.output or ""),
        value=asked.get("value"),
        answer_schema=as_object(schema) or None,
        extra={"aief": {"id": asked["id"]}} if isinstance(asked.get("id"), str) else {},
    )


def _words(text: str) -> Message:
    return Message.of(text) if text else Message()


# What was said, and what was done on the way


def _message(text: str, more: JsonObject, *, ours: bool) -> Iterator[Event]:
    parts: list[Part] = []
    reasoning = more.get("reasoning") if ours else _thoughts(more)
    if isinstance(reasoning, str) and reasoning:
        parts.append(ReasoningPart(text=reasoning))
    if text:
        parts.append(TextPart(text=text))
    if ours:
        parts += [DataPart(data=value) for value in as_list(more.get("data"))]
        parts += _citations(as_list(more.get("citations")))
    if parts:
        yield MessageStarted()
        for part in parts:
            yield PartAdded(part=part)
        yield MessageEnded()


def _citations(listed: list[Any]) -> Iterator[AnnotationPart]:
    for each in listed:
        told = {name: value for name, value in as_object(each).items() if name in _CITATION}
        with suppress(msgspec.ValidationError):
            if told:
                yield AnnotationPart.of_members(told)


def _progress(more: JsonObject, *, ours: bool) -> Iterator[Event]:
    text = more.get("progress")
    if ours and isinstance(text, str) and text:
        yield MessageStarted(phase="progress")
        yield PartAdded(part=TextPart(text=text))
        yield MessageEnded()


def _thoughts(more: JsonObject) -> str:
    """AutoGPT classic: a text, or an object with its parts, of which `speak` is in the output."""
    told = more.get("thoughts")
    if isinstance(told, str):
        return told
    said = (as_object(told).get(name) for name in ("text", "reasoning"))
    return "\n".join(each for each in said if isinstance(each, str) and each)


def _cost(more: JsonObject) -> JsonObject:
    """Of the task so far."""
    told = next((more[name] for name in COSTS if name in more), None)
    return {"cost": told} if isinstance(told, int | float) and not isinstance(told, bool) else {}


def _last_action(more: JsonObject) -> Iterator[Event]:
    """The command that AutoGPT's classic agent has carried out in this step."""
    told = as_object(more.get("last_action"))
    name, result = told.get("name"), told.get("result")
    if not isinstance(name, str) or not name:
        return
    yield ToolStarted(name=name, input=told.get("args"))
    error = as_object(result).get("error")
    words = next((each for each in (as_object(result).get("reason"), error) if isinstance(each, str) and each), None)
    fault = None if error is None else Fault(code=FaultCode.AGENT_FAILED, message=words or "The tool failed")
    yield ToolEnded(name=name, output=None if fault is not None else result, fault=fault)


def _tools(more: JsonObject, *, ours: bool) -> Iterator[Event]:
    if not ours:
        yield from _last_action(more)
        return
    for each in as_list(more.get("tools")):
        told = as_object(each)
        name, arguments, error = told.get("name"), told.get("arguments"), told.get("error")
        if not isinstance(name, str) or not name:
            continue
        given = _json_in(arguments) if isinstance(arguments, str) else told.get("input")
        yield ToolStarted(name=name, input=given)
        fault = None
        if error is not None:
            words = as_object(error).get("message", error)
            fault = Fault(code=FaultCode.AGENT_FAILED, message=words if isinstance(words, str) else "The tool failed")
        yield ToolEnded(name=name, output=told.get("output"), fault=fault)


# Files


def decode_artifact(artifact: w.Artifact, content: bytes) -> ArtifactAdded:
    """One file. Its name comes from outside and is made one that leads nowhere; its type follows from it, as the
    protocol tells none (OpenAPI v1, Artifact)."""
    name = clean_name(artifact.file_name, "artifact")
    media_type, packed = _TYPES.guess_type(f"file:///{name}")
    media_type = media_type if media_type and not packed else "application/octet-stream"
    part = FilePart(name=name, media_type=media_type, inline=content, size=len(content))
    return ArtifactAdded(name=name, part=part, folder=clean_folder(artifact.relative_path))
