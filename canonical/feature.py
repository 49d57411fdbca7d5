"""Capabilities of protocols: the features of a run that each protocol can carry.

An adapter declares them once in `CARRIES`. The docs, the loss headers and the skips of tests follow from it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Feature(StrEnum):
    TEXT = "text"
    DATA = "data"
    FILE_BYTES = "file-bytes"
    FILE_URL = "file-url"
    REASONING = "reasoning"
    REFUSAL = "refusal"
    CITATION = "citation"
    TOOL_ACTIVITY = "tool-activity"
    CALLER_TOOLS = "caller-tools"
    STEP = "step"
    PROGRESS = "progress"
    ARTIFACT = "artifact"
    ARTIFACT_APPEND = "artifact-append"
    UPLOAD = "upload"
    STREAM = "stream"
    REATTACH = "reattach"
    QUESTION = "question"
    QUESTIONS = "questions"
    """Several open questions at once."""
    ANSWER_SCHEMA = "answer-schema"
    AUTH_REQUEST = "auth-request"
    CANCEL = "cancel"
    FAULT = "fault"
    STRUCTURED_OUTPUT = "structured-output"
    USAGE = "usage"
    METADATA = "metadata"
    STATE = "state"
    HISTORY = "history"
    FORK = "fork"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class Carry:
    """Degree to which one protocol carries a feature: whole, with a loss (`how` names it), or not at all (`how` gives
    the reason).

    `tests/fidelity` measures it: the same protocol's client reads back what a server has sent.
    """

    level: Literal["full", "lossy", "dropped"]
    how: str = ""
    source: str = ""
    """Evidence for the level: specification and section, or a heading of a page below `docs/`."""
    streamed_only: bool = False
    """True if only streams carry the feature whole. A response that is one run, task or result has no place for it and
    reports it as lost."""

    def is_lost(self, *, in_stream: bool = False) -> bool:
        """Return True if the gateway has to report to a caller that a run's use of this feature was lost, in whole or
        in part. `in_stream` is true if the caller reads a stream, in which features that are `streamed_only` are not
        lost."""
        return self.level != "full" or (self.streamed_only and not in_stream)


FULL = Carry("full")


def whole(how: str, source: str, *, streamed_only: bool = False) -> Carry:
    """Return the Carry of a feature that arrives without loss in a form of the gateway's own, because the protocol has
    none. `how` describes that form and its place in the protocol. `source` and `streamed_only` are the fields of
    Carry."""
    return Carry("full", how, source, streamed_only)


def lossy(how: str, source: str) -> Carry:
    return Carry("lossy", how, source)


def dropped(why: str, source: str) -> Carry:
    return Carry("dropped", why, source)
