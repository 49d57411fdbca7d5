"""Features of runs that ACP carries whole, with a loss, or not at all. The texts of the losses are those that callers
see."""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import FULL, Carry, Feature, dropped, lossy, whole

VERSION: Final = "1.0.3"
"""Version of the SDK, whose behavior defines the protocol where the OpenAPI document 0.2.0 is silent."""

_TRAJECTORY = "OpenAPI 0.2.0, components.schemas.TrajectoryMetadata"
_RUN = "OpenAPI 0.2.0, components.schemas.Run"
_CREATE = "OpenAPI 0.2.0, components.schemas.RunCreateRequest"

_OWN = "docs/protocols/acp.md, What other clients look past"
_EXTENSION = "docs/extension.md, Requests"

CARRIES: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: FULL,
    Feature.FILE_BYTES: whole("a named part, marked as a file of a message", _OWN),
    Feature.FILE_URL: whole("a named part, marked as a file of a message", _OWN),
    Feature.REASONING: whole("a trajectory when it is complete", _TRAJECTORY),
    Feature.REFUSAL: whole("text with a mark", _OWN),
    Feature.CITATION: FULL,
    Feature.TOOL_ACTIVITY: whole("a trajectory when the call has ended, with its id and fault in a mark", _OWN),
    Feature.CALLER_TOOLS: lossy("a caller cannot offer tools; a call of one is a text question", _CREATE),
    Feature.STEP: whole(
        "the start is a trajectory with a mark; the end is a generic event and not part of the run",
        _OWN,
        streamed_only=True,
    ),
    Feature.PROGRESS: whole("a trajectory, distinguished from reasoning by a mark", _OWN),
    Feature.ARTIFACT: whole("a named part, with its description and metadata in a mark", _OWN),
    Feature.ARTIFACT_APPEND: whole(
        "one part when the last piece arrives, with the sizes of the pieces in a mark", _OWN
    ),
    Feature.UPLOAD: dropped("files are sent only with the input", "OpenAPI 0.2.0, paths"),
    Feature.STREAM: FULL,
    Feature.REATTACH: whole(
        "the list of events is standard; following it live is an addition of the gateway",
        "docs/protocols/acp.md, Re-attaching",
    ),
    Feature.QUESTION: FULL,
    Feature.QUESTIONS: whole("the oldest is the await request; a member of the request has all", _OWN),
    Feature.ANSWER_SCHEMA: whole(
        "a part of type application/schema+json in the question", "docs/protocols/acp.md, Questions"
    ),
    Feature.AUTH_REQUEST: whole("an await request with a mark", _OWN),
    Feature.CANCEL: FULL,
    Feature.FAULT: whole("one of three codes, with the fault in its data", _OWN),
    Feature.STRUCTURED_OUTPUT: whole("an application/json part of the output, and a member of the run", _OWN),
    Feature.USAGE: whole("in a member of the run that other clients ignore", _OWN),
    Feature.METADATA: whole("in members of runs and messages that other clients ignore", _OWN),
    Feature.STATE: dropped("the state of a session is opaque", "OpenAPI 0.2.0, components.schemas.Session"),
    Feature.HISTORY: FULL,
    Feature.FORK: dropped("a session cannot branch", "OpenAPI 0.2.0, components.schemas.Session"),
    Feature.CUSTOM: whole(
        "a generic event in streams and in the list of events; not part of the run", _RUN, streamed_only=True
    ),
}

EXTENDED: Final[Mapping[Feature, Carry]] = {
    **dict.fromkeys(Feature, FULL),
    Feature.UPLOAD: whole("in addition to the messages; in an answer or alone, as a file of a message", _EXTENSION),
    Feature.REATTACH: whole("by a header, from any record", "docs/extension.md, Reading"),
    Feature.STATE: whole("the agent's changes are reported; the gateway stores the caller's changes", _EXTENSION),
    Feature.FORK: whole("the request names its starting point", _EXTENSION),
}
"""Features carried with the Babelgate extension, for clients that support it."""
