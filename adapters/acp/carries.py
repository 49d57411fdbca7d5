"""What ACP carries of the canonical model. The losses of a run are told in these words."""

from collections.abc import Mapping
from typing import Final

from canonical import FULL, Carry, Feature, dropped, lossy, whole

VERSION: Final = "1.0.3"
"""Of the SDK, whose behaviour is the protocol wherever the OpenAPI document 0.2.0 is silent."""

_PART = "OpenAPI 0.2.0, components.schemas.MessagePart"
_TRAJECTORY = "OpenAPI 0.2.0, components.schemas.TrajectoryMetadata"
_RUN = "OpenAPI 0.2.0, components.schemas.Run"
_CREATE = "OpenAPI 0.2.0, components.schemas.RunCreateRequest"

_EXTENSION = "docs/extension.md, Requests"

CARRIES: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: FULL,
    Feature.FILE_BYTES: lossy("a file that was said is an artifact, as its part has a name", _PART),
    Feature.FILE_URL: lossy("a file that was said is an artifact, as its part has a name", _PART),
    Feature.REASONING: whole("a thought is shown when it is complete, as a trajectory", _TRAJECTORY),
    Feature.REFUSAL: lossy("shown as text", _PART),
    Feature.CITATION: FULL,
    Feature.TOOL_ACTIVITY: lossy(
        "told when it has ended, without its call id; a failure is an output with `error`", _TRAJECTORY
    ),
    Feature.CALLER_TOOLS: lossy("a caller cannot offer tools; a call of one is a question in words", _CREATE),
    Feature.STEP: lossy("the start is a trajectory, the end is not shown", _TRAJECTORY),
    Feature.PROGRESS: lossy("a trajectory, told from reasoning by nothing", _TRAJECTORY),
    Feature.ARTIFACT: lossy("a named part has neither description nor metadata", _PART),
    Feature.ARTIFACT_APPEND: lossy(
        "the pieces are shown as one part with the last of them", "docs/protocols/acp.md, Artifacts"
    ),
    Feature.UPLOAD: dropped("files come with the input only", "OpenAPI 0.2.0, paths"),
    Feature.STREAM: FULL,
    Feature.REATTACH: lossy(
        "the list of events is standard, following it live is the gateway's own", "docs/protocols/acp.md, Re-attaching"
    ),
    Feature.QUESTION: FULL,
    Feature.QUESTIONS: lossy("one at a time, the oldest first", "OpenAPI 0.2.0, components.schemas.AwaitRequest"),
    Feature.ANSWER_SCHEMA: whole(
        "a part of type application/schema+json in the question", "docs/protocols/acp.md, Questions"
    ),
    Feature.AUTH_REQUEST: lossy("an await like any other", "OpenAPI 0.2.0, components.schemas.RunStatus"),
    Feature.CANCEL: FULL,
    Feature.FAULT: lossy("three codes for all faults", "OpenAPI 0.2.0, components.schemas.Error"),
    Feature.STRUCTURED_OUTPUT: lossy("an application/json part of the output", _RUN),
    Feature.USAGE: dropped("a run has no place for it", _RUN),
    Feature.METADATA: dropped("neither runs nor messages have any", _RUN),
    Feature.STATE: dropped("the state of a session is opaque", "OpenAPI 0.2.0, components.schemas.Session"),
    Feature.HISTORY: FULL,
    Feature.FORK: dropped("a session is one line", "OpenAPI 0.2.0, components.schemas.Session"),
    Feature.CUSTOM: whole("a generic event of streams and of the list of events, and no part of a run", _RUN),
}

EXTENDED: Final[Mapping[Feature, Carry]] = {
    **dict.fromkeys(Feature, FULL),
    Feature.UPLOAD: whole("beside the messages; in an answer, or alone, a file of a message", _EXTENSION),
    Feature.REATTACH: whole("by a header, from any record on", "docs/extension.md, Reading"),
    Feature.STATE: whole("the agent's revisions are told; what a caller changes is the gateway's", _EXTENSION),
    Feature.FORK: dropped("a session is one line", _EXTENSION),
}
"""With the Babelgate extension, which is for those who read it."""
