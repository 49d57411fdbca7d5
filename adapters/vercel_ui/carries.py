"""Features that a UI message stream carries to callers."""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import FULL, Carry, Feature, dropped, whole

VERSION: Final = "ui-message-stream-v1"
"""Name of the stream format's only version. A response names it in the header `x-vercel-ai-ui-message-stream: v1`."""

_OWN: Final = "docs/protocols/vercel-ui.md"
_CHUNKS: Final = "ui-message-chunks.ts"

CARRIES: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: whole("as a data part", f"{_OWN}, What a stream contains"),
    Feature.FILE_BYTES: whole("a file larger than `limits.inline` is a URL of the gateway", f"{_OWN}, Files"),
    Feature.FILE_URL: whole("with its name in the provider metadata", f"{_OWN}, Files"),
    Feature.REASONING: FULL,
    Feature.REFUSAL: whole("text with a mark in the provider metadata", f"{_OWN}, What a stream contains"),
    Feature.CITATION: whole("with its place in the provider metadata", f"{_OWN}, What a stream contains"),
    Feature.TOOL_ACTIVITY: FULL,
    Feature.CALLER_TOOLS: whole("for agents that read the run's configuration", f"{_OWN}, Tools of the page"),
    Feature.STEP: whole("as a data part, for callers that request it", f"{_OWN}, What a stream contains"),
    Feature.PROGRESS: whole("as a data part", f"{_OWN}, What a stream contains"),
    Feature.ARTIFACT: whole("as a data part", f"{_OWN}, Files"),
    Feature.ARTIFACT_APPEND: whole("as one data part for each piece", f"{_OWN}, Files"),
    Feature.UPLOAD: dropped("files are sent only with the messages", f"{_OWN}, What a request says"),
    Feature.STREAM: FULL,
    Feature.REATTACH: FULL,
    Feature.QUESTION: whole("a call of `ask_caller` if the page declares that tool", f"{_OWN}, Questions of agents"),
    Feature.QUESTIONS: FULL,
    Feature.ANSWER_SCHEMA: whole("among the arguments of the call", f"{_OWN}, Questions of agents"),
    Feature.AUTH_REQUEST: whole("a question of another kind", f"{_OWN}, Questions of agents"),
    Feature.CANCEL: whole("by a route of the gateway", f"{_OWN}, Stop and resume"),
    Feature.FAULT: whole("with its code in the metadata", f"{_OWN}, Errors"),
    Feature.STRUCTURED_OUTPUT: whole("as a data part", f"{_OWN}, What a stream contains"),
    Feature.USAGE: whole("in the metadata", f"{_OWN}, What a stream contains"),
    Feature.METADATA: whole("in the request, and in the provider metadata of parts", f"{_OWN}, Metadata"),
    Feature.STATE: dropped("a chat has only messages", _CHUNKS),
    Feature.HISTORY: FULL,
    Feature.FORK: FULL,
    Feature.CUSTOM: whole("as a data part", f"{_OWN}, What a stream contains"),
}
