"""Features of the canonical model that each version of A2A carries, with references to the specification.

The references name the normative types: definitions of the JSON schema in 0.3, messages of the protocol buffer in 1.0.
"""

from collections.abc import Mapping
from typing import Final

from babelgate.adapters.a2a.wire.task import SHOWN_IN_METADATA
from babelgate.canonical import FULL, Carry, Feature, dropped, lossy, whole

_PAGE: Final = "docs/protocols/a2a.md"
_WRITTEN: Final = "docs/dialects.md, What is written"
_IN_METADATA: Final = f"{_PAGE}, Metadata"
_LONE_FILE: Final = "an artifact; its metadata marks a file of a message"


def _carries(types: str, request: str) -> dict[Feature, Carry]:
    """Return the features that both versions carry in the same way. `types` and `request` are references to the
    specification of one version: the names of its part type and of its send request."""
    return {
        Feature.TEXT: FULL,
        Feature.DATA: FULL,
        Feature.FILE_BYTES: whole(_LONE_FILE, f"{_PAGE}, Parts"),
        Feature.FILE_URL: whole(_LONE_FILE, f"{_PAGE}, Parts"),
        Feature.REASONING: whole("in a status message when it is complete, marked as in ADK", _WRITTEN),
        Feature.REFUSAL: whole("as text, marked in its metadata", f"{_PAGE}, Parts"),
        Feature.CITATION: whole("in the artifact's metadata, as in AgentStack", _WRITTEN),
        Feature.TOOL_ACTIVITY: whole("in a status message, marked as in ADK", _WRITTEN),
        Feature.CALLER_TOOLS: dropped("a caller cannot offer tools", f"{types}, {request}"),
        Feature.STEP: whole(SHOWN_IN_METADATA, _IN_METADATA, streamed_only=True),
        Feature.PROGRESS: FULL,
        Feature.ARTIFACT: FULL,
        Feature.ARTIFACT_APPEND: FULL,
        Feature.UPLOAD: dropped("files are sent only in messages", f"{types}, {request}"),
        Feature.STREAM: FULL,
        Feature.REATTACH: whole(
            "the current task and later events; a header of the gateway replays missed events",
            f"{_PAGE}, Subscribing",
        ),
        Feature.QUESTION: FULL,
        Feature.QUESTIONS: FULL,
        Feature.ANSWER_SCHEMA: FULL,
        Feature.AUTH_REQUEST: FULL,
        Feature.CANCEL: lossy("a requested cancel shows as working until the run ends", f"{types}, TaskState"),
        Feature.FAULT: FULL,
        Feature.STRUCTURED_OUTPUT: whole("a data part of an artifact, and in the task's metadata", _IN_METADATA),
        Feature.USAGE: whole("in the task's metadata", f"{_PAGE}, Metadata"),
        Feature.METADATA: FULL,
        Feature.STATE: dropped("a context has no state", f"{types}, Task"),
        Feature.HISTORY: FULL,
        Feature.FORK: dropped("a context cannot branch", f"{types}, Message"),
        Feature.CUSTOM: whole(SHOWN_IN_METADATA, _IN_METADATA, streamed_only=True),
    }


_EXTENSION: Final = "docs/extension.md"
EXTENDED: Final[Mapping[Feature, Carry]] = {
    **dict.fromkeys(Feature, FULL),
    Feature.UPLOAD: whole(
        "in addition to the messages; in an answer or alone, as a file of a message", f"{_EXTENSION}, Requests"
    ),
    Feature.REATTACH: whole("by a header, from any record", f"{_EXTENSION}, Reading"),
    Feature.STATE: whole(
        "the agent's changes are reported; the gateway stores the caller's changes", f"{_EXTENSION}, Requests"
    ),
    Feature.CANCEL: whole("a requested cancel shows as working, and is a record", f"{_EXTENSION}, Envelopes"),
    Feature.FORK: whole("the request names its starting point", f"{_EXTENSION}, Requests"),
}
"""Features that both versions carry for callers that have activated the Babelgate extension."""

CARRIES: Final[Mapping[str, Mapping[Feature, Carry]]] = {
    "0.3": {
        **_carries("a2a.json 0.3.0", "MessageSendParams"),
        Feature.DATA: whole("a value that is not an object is wrapped in one", "a2a.json 0.3.0, DataPart"),
    },
    "1.0": _carries("a2a.proto 1.0.1", "SendMessageRequest"),
}
