"""Features that a run has used, found in its records. Servers compare them with what their protocol carries, to report
losses."""

from collections.abc import Iterator, Mapping
from typing import Final

from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    Event,
    InterruptRaised,
    MessageStarted,
    PartAdded,
    PartDelta,
    Record,
    RunCreated,
    RunEnded,
    StateSaved,
    StepStarted,
    ToolStarted,
)
from babelgate.canonical.feature import Feature
from babelgate.canonical.message import (
    AnnotationPart,
    DataPart,
    FilePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

_BY_PART: Final = {
    TextPart: Feature.TEXT,
    DataPart: Feature.DATA,
    ReasoningPart: Feature.REASONING,
    RefusalPart: Feature.REFUSAL,
    AnnotationPart: Feature.CITATION,
    ToolResultPart: Feature.TOOL_ACTIVITY,
}
_BY_EVENT: Final[Mapping[type[object], Feature]] = {
    StateSaved: Feature.STATE,
    StepStarted: Feature.STEP,
    ToolStarted: Feature.TOOL_ACTIVITY,
}


class UsedFeatures:
    """Features that the records of a run show. Its user applies every record, in order.

    Features that belong to a request and not to a run, such as a cancel or a fork, are not included.
    """

    __slots__ = ("_features", "_has_question", "seq")

    def __init__(self, seq: int = 0) -> None:
        """Create the view without features. `seq` is the number of the record before the first one that will be
        applied."""
        self._features: set[Feature] = set()
        self._has_question = False
        self.seq = seq
        """Number of the last applied record."""

    def apply(self, record: Record) -> None:
        self.seq = record.seq
        if type(record.event) is not PartDelta:  # the frequent event; `PartAdded` has announced its kind
            self._features.update(self._features_of(record.event))

    def value(self) -> frozenset[Feature]:
        return frozenset(self._features)

    def _features_of(self, event: Event) -> Iterator[Feature]:
        """Yield the features that one event shows. A second question yields `QUESTIONS` instead of `QUESTION`."""
        match event:
            case PartAdded():
                yield _feature_of_part(event.part)
                yield from _metadata(event.part.metadata)
            case MessageStarted():
                if event.phase == "progress":
                    yield Feature.PROGRESS
                yield from _metadata(event.metadata)
            case ArtifactAdded() if event.origin == "agent":
                yield Feature.ARTIFACT
                if event.append or not event.last:
                    yield Feature.ARTIFACT_APPEND
                yield from _metadata(event.metadata)
            case InterruptRaised():
                yield from self._question_features(event)
            case RunCreated():
                yield from _metadata(event.metadata)
            case RunEnded():
                yield from _end_features(event)
            case Custom():
                yield Feature.CUSTOM
            case _ if (feature := _BY_EVENT.get(type(event))) is not None:
                yield feature
            case _:
                pass

    def _question_features(self, event: InterruptRaised) -> Iterator[Feature]:
        yield Feature.QUESTIONS if self._has_question else Feature.QUESTION
        self._has_question = True
        if event.answer_schema is not None:
            yield Feature.ANSWER_SCHEMA
        if event.ask == "auth":
            yield Feature.AUTH_REQUEST
        for part in event.message.parts:
            yield _feature_of_part(part)


def _end_features(event: RunEnded) -> Iterator[Feature]:
    if event.output is not None:
        yield Feature.STRUCTURED_OUTPUT
    if event.usage:
        yield Feature.USAGE
    if event.fault is not None:
        yield Feature.FAULT


def _feature_of_part(part: Part) -> Feature:
    match part:
        case FilePart():
            return Feature.FILE_BYTES if part.url is None else Feature.FILE_URL
        case ToolCallPart():
            return Feature.TOOL_ACTIVITY if part.side == "agent" else Feature.CALLER_TOOLS
        case _:
            return _BY_PART[type(part)]


def _metadata(metadata: object) -> Iterator[Feature]:
    if metadata:
        yield Feature.METADATA
