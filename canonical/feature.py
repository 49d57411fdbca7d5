"""Capabilities of protocols: what each can carry. An adapter declares it once in `CARRIES`; docs, loss headers and test
skips follow from it."""

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
    """Whether a feature survives a protocol: whole, with a loss (`how` says which), or not at all (`how` says why).
    It is measured: what a server says of it is read back by the same protocol's client (`tests/fidelity`)."""

    level: Literal["full", "lossy", "dropped"]
    how: str = ""
    source: str = ""
    """Specification and section, or a heading of a page below `docs/`, that says so."""
    streamed_only: bool = False
    """Streams have it whole. An answer that is a run, a task or a result has no place for it, and names it as lost."""

    def is_lost(self, *, in_stream: bool = False) -> bool:
        """Whether a caller is told that something was lost: never of what arrives, be it by a mark."""
        return self.level != "full" or (self.streamed_only and not in_stream)


FULL = Carry("full")


def whole(how: str, source: str, *, streamed_only: bool = False) -> Carry:
    """Whole for who reads all that is told; `how` says where and in which form, as the protocol has none of its own."""
    return Carry("full", how, source, streamed_only)


def lossy(how: str, source: str) -> Carry:
    return Carry("lossy", how, source)


def dropped(why: str, source: str) -> Carry:
    return Carry("dropped", why, source)
