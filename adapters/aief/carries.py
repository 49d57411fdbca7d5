"""Table of how AIEF carries each feature. Its texts are those that callers see when a step loses something."""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import FULL, Carry, Feature, dropped, lossy, whole

VERSION: Final = "v1"

_STEP = "OpenAPI v1, components.schemas.Step"
_BODY = "OpenAPI v1, components.schemas.StepRequestBody"
_ARTIFACT = "OpenAPI v1, components.schemas.Artifact"
_PATHS = "OpenAPI v1, paths"
_PAGE = "docs/protocols/aief.md"
_OUTPUT = f"{_PAGE}, Additional output"

CARRIES: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: whole("in additional_output; without other text, the output is the JSON text", _OUTPUT),
    Feature.FILE_BYTES: lossy("a file of a message is an artifact of the step", f"{_PAGE}, Artifacts"),
    Feature.FILE_URL: lossy("an artifact whose content is the URL", f"{_PAGE}, Artifacts"),
    Feature.REASONING: whole("in additional_output", _OUTPUT),
    Feature.REFUSAL: lossy("shown as text", _STEP),
    Feature.CITATION: whole("in additional_output", _OUTPUT),
    Feature.TOOL_ACTIVITY: lossy("in additional_output when the step has ended", _OUTPUT),
    Feature.CALLER_TOOLS: dropped("a caller cannot offer tools", _BODY),
    Feature.STEP: lossy("one per call; nested steps are not shown", f"{_PAGE}, Agents that mark steps"),
    Feature.PROGRESS: whole("in additional_output when the step has ended", _OUTPUT),
    Feature.ARTIFACT: lossy("a file whose name indicates its type, without description and metadata", _ARTIFACT),
    Feature.ARTIFACT_APPEND: lossy("all pieces are one file", f"{_PAGE}, Artifacts"),
    Feature.UPLOAD: FULL,
    Feature.STREAM: dropped("a step is answered when it has ended", _PATHS),
    Feature.REATTACH: dropped("no operation can follow a running step", _PATHS),
    Feature.QUESTION: whole("a step that is not the last one, with the question as its output", f"{_PAGE}, Questions"),
    Feature.QUESTIONS: lossy("one at a time, the oldest first", f"{_PAGE}, Questions"),
    Feature.ANSWER_SCHEMA: whole("in additional_output", f"{_PAGE}, Questions"),
    Feature.AUTH_REQUEST: whole("a normal question", f"{_PAGE}, Questions"),
    Feature.CANCEL: dropped("no operation can cancel a step", _PATHS),
    Feature.FAULT: whole("a completed step with additional_output.error", f"{_PAGE}, Faults"),
    Feature.STRUCTURED_OUTPUT: whole("in additional_output", _OUTPUT),
    Feature.USAGE: whole("in additional_output", _OUTPUT),
    Feature.METADATA: dropped("tasks and steps have no metadata", _STEP),
    Feature.STATE: dropped("a task has no state", "OpenAPI v1, components.schemas.Task"),
    Feature.HISTORY: whole("the inputs and outputs of the steps", _STEP),
    Feature.FORK: dropped("a task cannot branch", "OpenAPI v1, components.schemas.Task"),
    Feature.CUSTOM: dropped("a step has no field for it", _STEP),
}

_EXTENSION = "docs/extension.md, On AIEF"
EXTENDED: Final[Mapping[Feature, Carry]] = {
    **dict.fromkeys(Feature, FULL),
    Feature.STREAM: lossy("in the original pieces, but only when the step has ended", _EXTENSION),
    Feature.REATTACH: dropped("no operation can follow a running step", _PATHS),
    Feature.CANCEL: dropped("no operation can cancel a step", _PATHS),
    Feature.STATE: whole("the agent's changes are reported; the gateway stores the caller's changes", _EXTENSION),
    Feature.FORK: whole("the request names its starting point", _EXTENSION),
}
"""Carries of the features for clients that activated the Babelgate extension."""
