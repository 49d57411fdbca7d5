"""What each version of A2A carries of the canonical model, and where the specification says so."""

from collections.abc import Mapping
from typing import Final

from canonical import FULL, Carry, Feature, dropped, lossy

__all__ = ("CARRIES",)

_OWN = "docs/protocols/a2a.md"
_NO_PART = "there is no such part"

_BOTH: Final[dict[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.FILE_BYTES: FULL,
    Feature.FILE_URL: FULL,
    Feature.ARTIFACT: FULL,
    Feature.ARTIFACT_APPEND: FULL,
    Feature.STREAM: FULL,
    Feature.PROGRESS: FULL,
    Feature.QUESTION: FULL,
    Feature.QUESTIONS: FULL,
    Feature.ANSWER_SCHEMA: FULL,
    Feature.AUTH_REQUEST: FULL,
    Feature.FAULT: FULL,
    Feature.METADATA: FULL,
    Feature.HISTORY: FULL,
    Feature.REATTACH: lossy(
        "the task and what comes; what was missed only with the header Babelgate-From", "specification 1.0, 3.1.6"
    ),
    Feature.CANCEL: lossy("asking for the end shows as working until it is there", "specification 1.0, 4.1.3"),
    Feature.STRUCTURED_OUTPUT: lossy("as a data part of an artifact", "specification 1.0, 3.7"),
    Feature.USAGE: lossy("in the task's metadata", f"{_OWN}, Metadata"),
    Feature.REFUSAL: lossy("as text, marked in its metadata", f"{_OWN}, Parts"),
    Feature.REASONING: dropped(_NO_PART, "specification 1.0, 4.1.6"),
    Feature.CITATION: dropped(_NO_PART, "specification 1.0, 4.1.6"),
    Feature.TOOL_ACTIVITY: dropped(_NO_PART, "specification 1.0, 4.1.6"),
    Feature.CALLER_TOOLS: dropped("a caller offers no tools", "specification 1.0, 3.2"),
    Feature.STEP: dropped("a task has no stages", "specification 1.0, 4.1.1"),
    Feature.UPLOAD: dropped("files come in messages only", "specification 1.0, 3.1"),
    Feature.STATE: dropped("a context has no state to be read or changed", "specification 1.0, 3.4.1"),
    Feature.FORK: dropped("a context is one line of tasks", "specification 1.0, 3.4.1"),
    Feature.CUSTOM: dropped("events are status and artifact updates only", "specification 1.0, 3.2.3"),
}

CARRIES: Final[Mapping[str, Mapping[Feature, Carry]]] = {
    "0.3": {
        **_BOTH,
        Feature.DATA: lossy("what is no object is wrapped as {value: …}", "specification 0.3, 6.5.3"),
        # In REST the protocol buffer of 0.3 has no place for a file's name in its first edition.
        Feature.FILE_BYTES: FULL,
    },
    "1.0": {**_BOTH, Feature.DATA: FULL},
}
