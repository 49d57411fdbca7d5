"""Table of how MCP carries each feature to and from callers."""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import FULL, Carry, Feature, dropped, lossy, whole

VERSION: Final = "2026-07-28"
"""Newest version of MCP that the gateway supports. Earlier versions carry the same features."""

_OWN: Final = "docs/protocols/mcp.md"
_RESULT: Final = "2025-11-25, Tools, Tool Result"

CARRIES: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: whole("its JSON as text, with a mark", f"{_OWN}, Marks"),
    Feature.FILE_BYTES: whole(
        "a file larger than `limits.inline` is a link, which `resources/read` reads", f"{_OWN}, Results"
    ),
    Feature.FILE_URL: FULL,
    Feature.REASONING: whole("in `_meta.babelgate` of the result", f"{_OWN}, Marks"),
    Feature.REFUSAL: whole("text with a mark", f"{_OWN}, Marks"),
    Feature.CITATION: whole("in a mark of the text", f"{_OWN}, Marks"),
    Feature.TOOL_ACTIVITY: whole(
        "in `_meta.babelgate` of the result; the names also as progress notifications", f"{_OWN}, Marks"
    ),
    Feature.CALLER_TOOLS: whole("in `_meta.babelgate` of the request, and in a mark of the question", f"{_OWN}, Marks"),
    Feature.STEP: whole(
        "in `_meta.babelgate` of the result; the names also as progress notifications", f"{_OWN}, Marks"
    ),
    Feature.PROGRESS: whole(
        "as notifications for callers that request them, and in `_meta.babelgate` of the result",
        f"{_OWN}, Progress and cancel",
    ),
    Feature.ARTIFACT: whole("normal content, with a mark", f"{_OWN}, Marks"),
    Feature.ARTIFACT_APPEND: whole(
        "all pieces joined, with their sizes in a mark; a large file is one piece", f"{_OWN}, Marks"
    ),
    Feature.UPLOAD: dropped("files are sent only with the arguments", f"{_OWN}, Tools"),
    Feature.STREAM: dropped("the result of a call is not streamed", _RESULT),
    Feature.REATTACH: dropped("a client cannot reconnect to a call", f"{_OWN}, Progress and cancel"),
    Feature.QUESTION: FULL,
    Feature.QUESTIONS: FULL,
    Feature.ANSWER_SCHEMA: whole(
        "in the structured content; a form has flat schemas, and its text names any other",
        f"{_OWN}, Questions of agents",
    ),
    Feature.AUTH_REQUEST: whole("a question of another kind", f"{_OWN}, Questions of agents"),
    Feature.CANCEL: lossy(
        "a disconnect looks like a cancel, and cancels by choice of the gateway",
        f"{_OWN}, Progress and cancel",
    ),
    Feature.FAULT: FULL,
    Feature.STRUCTURED_OUTPUT: FULL,
    Feature.USAGE: whole("in `_meta.babelgate` of the result", f"{_OWN}, Marks"),
    Feature.METADATA: whole("in `_meta.babelgate` of the request, and in a mark of each message", f"{_OWN}, Marks"),
    Feature.STATE: dropped("a tool has no state", _RESULT),
    Feature.HISTORY: FULL,
    Feature.FORK: dropped("threads are an addition of the gateway, and cannot branch by its choice", f"{_OWN}, Tools"),
    Feature.CUSTOM: whole("in `_meta.babelgate` of the result", f"{_OWN}, Marks"),
}

_EXTENSION: Final = "docs/extension.md, On MCP"
EXTENDED: Final[Mapping[Feature, Carry]] = {
    **{feature: whole("in the result's records, up to 64 KiB", _EXTENSION) for feature in Feature},
    **{
        feature: CARRIES[feature]
        for feature in (
            *(Feature.TEXT, Feature.FILE_BYTES, Feature.REATTACH, Feature.CANCEL, Feature.FAULT),
            *(Feature.QUESTION, Feature.QUESTIONS, Feature.ANSWER_SCHEMA, Feature.AUTH_REQUEST),
            Feature.HISTORY,
        )
    },
    Feature.STREAM: lossy("in the original pieces, but only with the result", _EXTENSION),
    **{
        feature: whole("in the request, and in the result's records", _EXTENSION)
        for feature in (Feature.CALLER_TOOLS, Feature.UPLOAD, Feature.METADATA)
    },
    Feature.FORK: whole("the request names its starting point", _EXTENSION),
}
"""Carries of the features for clients that activated the Babelgate extension."""
