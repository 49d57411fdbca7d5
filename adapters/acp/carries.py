"""Features that ACP carries. The losses of a run are reported in these words."""

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
    Feature.FILE_BYTES: whole("a named part, and a mark that it was said and is no artifact", _OWN),
    Feature.FILE_URL: whole("a named part, and a mark that it was said and is no artifact", _OWN),
    Feature.REASONING: whole("a thought is shown when it is complete, as a trajectory", _TRAJECTORY),
    Feature.REFUSAL: whole("text, with a mark", _OWN),
    Feature.CITATION: FULL,
    Feature.TOOL_ACTIVITY: whole("a trajectory when it has ended, and a mark with the call's id and fault", _OWN),
    Feature.CALLER_TOOLS: lossy("a caller cannot offer tools; a call of one is a question in words", _CREATE),
    Feature.STEP: whole(
        "the start is a trajectory with a mark, the end a generic event and no part of a run", _OWN, streamed_only=True
    ),
    Feature.PROGRESS: whole("a trajectory, told from reasoning by a mark", _OWN),
    Feature.ARTIFACT: whole("a named part, and a mark with its description and metadata", _OWN),
    Feature.ARTIFACT_APPEND: whole("one part with the last of the pieces, and a mark with their sizes", _OWN),
    Feature.UPLOAD: dropped("files come with the input only", "OpenAPI 0.2.0, paths"),
    Feature.STREAM: FULL,
    Feature.REATTACH: whole(
        "the list of events is standard, following it live is the gateway's own", "docs/protocols/acp.md, Re-attaching"
    ),
    Feature.QUESTION: FULL,
    Feature.QUESTIONS: whole("the oldest is the await request, and all are beside it", _OWN),
    Feature.ANSWER_SCHEMA: whole(
        "a part of type application/schema+json in the question", "docs/protocols/acp.md, Questions"
    ),
    Feature.AUTH_REQUEST: whole("an await like any other, with a mark", _OWN),
    Feature.CANCEL: FULL,
    Feature.FAULT: whole("one of three codes, and which fault it was in its data", _OWN),
    Feature.STRUCTURED_OUTPUT: whole("an application/json part of the output, and a member of the run", _OWN),
    Feature.USAGE: whole("in a member of the run that others look past", _OWN),
    Feature.METADATA: whole("in members of runs and messages that others look past", _OWN),
    Feature.STATE: dropped("the state of a session is opaque", "OpenAPI 0.2.0, components.schemas.Session"),
    Feature.HISTORY: FULL,
    Feature.FORK: dropped("a session is one line", "OpenAPI 0.2.0, components.schemas.Session"),
    Feature.CUSTOM: whole(
        "a generic event of streams and of the list of events, and no part of a run", _RUN, streamed_only=True
    ),
}

EXTENDED: Final[Mapping[Feature, Carry]] = {
    **dict.fromkeys(Feature, FULL),
    Feature.UPLOAD: whole("beside the messages; in an answer, or alone, a file of a message", _EXTENSION),
    Feature.REATTACH: whole("by a header, from any record on", "docs/extension.md, Reading"),
    Feature.STATE: whole("the agent's revisions are told; what a caller changes is the gateway's", _EXTENSION),
    Feature.FORK: whole("the request names what it starts from", _EXTENSION),
}
"""Features carried with the Babelgate extension, for clients that support it."""
