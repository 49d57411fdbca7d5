"""Features that MCP carries to callers."""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import FULL, Carry, Feature, dropped, lossy, whole

VERSION: Final = "2026-07-28"
"""Newest supported version; earlier versions carry the same features."""

_OWN: Final = "docs/protocols/mcp.md"
_RESULT: Final = "2025-11-25, Tools, Tool Result"

CARRIES: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: lossy("its JSON as text, and a single object as structured content, too", f"{_OWN}, Results"),
    Feature.FILE_BYTES: lossy("a link that names them where they are larger than `limits.inline`", f"{_OWN}, Results"),
    Feature.FILE_URL: FULL,
    Feature.REASONING: dropped("a result is what a tool has to say, not what it thought", _RESULT),
    Feature.REFUSAL: lossy("text like any other", _RESULT),
    Feature.CITATION: dropped("content has no form for it", _RESULT),
    Feature.TOOL_ACTIVITY: lossy("the names, as progress, for callers that ask for it", f"{_OWN}, Progress and cancel"),
    Feature.CALLER_TOOLS: lossy(
        "a caller cannot offer tools; a call of one is a question in words", f"{_OWN}, Questions of agents"
    ),
    Feature.STEP: lossy("the names, as progress, for callers that ask for it", f"{_OWN}, Progress and cancel"),
    Feature.PROGRESS: whole(
        "as notifications, for callers that ask for them", f"{_OWN}, Progress and cancel", streamed_only=True
    ),
    Feature.ARTIFACT: lossy("content like any other: an embedded resource, or the JSON of data", f"{_OWN}, Results"),
    Feature.ARTIFACT_APPEND: lossy("a result comes whole: the pieces are one", f"{_OWN}, Results"),
    Feature.UPLOAD: dropped("files come with the arguments only", f"{_OWN}, Tools"),
    Feature.STREAM: dropped("the result of a call comes in one piece", _RESULT),
    Feature.REATTACH: dropped("a call cannot be come back to", f"{_OWN}, Progress and cancel"),
    Feature.QUESTION: FULL,
    Feature.QUESTIONS: FULL,
    Feature.ANSWER_SCHEMA: whole(
        "in the structured content; in forms flat ones, and any other is named in the words",
        f"{_OWN}, Questions of agents",
    ),
    Feature.AUTH_REQUEST: whole("a question like any other, of another kind", f"{_OWN}, Questions of agents"),
    Feature.CANCEL: lossy(
        "leaving is not told from cancelling: that hanging up cancels is the gateway's choice",
        f"{_OWN}, Progress and cancel",
    ),
    Feature.FAULT: FULL,
    Feature.STRUCTURED_OUTPUT: FULL,
    Feature.USAGE: dropped("a result has no form for it", _RESULT),
    Feature.METADATA: dropped("that of a request is the transport's", "2025-11-25, Base Protocol, _meta"),
    Feature.STATE: dropped("a tool has no state", _RESULT),
    Feature.HISTORY: FULL,
    Feature.FORK: dropped("threads are the gateway's own here, and one line each by its choice", f"{_OWN}, Tools"),
    Feature.CUSTOM: dropped("content has no form for it", _RESULT),
}

_EXTENSION: Final = "docs/extension.md, On MCP"
EXTENDED: Final[Mapping[Feature, Carry]] = {
    **{feature: whole("in the result's records, up to 64 KiB of them", _EXTENSION) for feature in Feature},
    **{
        feature: CARRIES[feature]
        for feature in (
            *(Feature.TEXT, Feature.FILE_BYTES, Feature.REATTACH, Feature.CANCEL, Feature.FAULT),
            *(Feature.QUESTION, Feature.QUESTIONS, Feature.ANSWER_SCHEMA, Feature.AUTH_REQUEST),
            Feature.HISTORY,
        )
    },
    Feature.STREAM: lossy("in the pieces in which it was said, when the result is there", _EXTENSION),
    **{
        feature: whole("in the request, and in the result's records", _EXTENSION)
        for feature in (Feature.CALLER_TOOLS, Feature.UPLOAD, Feature.METADATA)
    },
    Feature.FORK: whole("the request names what it starts from", _EXTENSION),
}
"""Features carried with the Babelgate extension, for clients that support it."""
