"""Features that the Agent Client Protocol carries to and from its clients."""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import FULL, Carry, Feature, dropped, lossy, whole

VERSION: Final = "1"
"""Version of the Agent Client Protocol that the gateway serves."""

_OWN: Final = "docs/protocols/agent-client.md"
_SCHEMA: Final = "schema 1.7"
_SENT: Final = f"{_OWN}, What a turn contains"
_ASKED: Final = f"{_OWN}, Questions of agents"

CARRIES: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: whole("its JSON as text, with a mark in `_meta`", _SENT),
    Feature.FILE_BYTES: whole("a file larger than `limits.inline` is a link to the gateway", f"{_OWN}, Files"),
    Feature.FILE_URL: FULL,
    Feature.REASONING: FULL,
    Feature.REFUSAL: whole("text with a mark in `_meta`, and a stop reason", _SENT),
    Feature.CITATION: whole("a link with its place in `_meta`", _SENT),
    Feature.TOOL_ACTIVITY: FULL,
    Feature.CALLER_TOOLS: lossy("a caller cannot offer tools; a call of one is a text question", _ASKED),
    Feature.STEP: whole("an entry of the plan, with its input and update in `_meta`", _SENT),
    Feature.PROGRESS: whole("a thought with a mark in `_meta`", _SENT),
    Feature.ARTIFACT: whole("a block with its name and metadata in `_meta`", f"{_OWN}, Files"),
    Feature.ARTIFACT_APPEND: whole("a block for each piece", f"{_OWN}, Files"),
    Feature.UPLOAD: dropped("files are sent only with a prompt", _SCHEMA),
    Feature.STREAM: FULL,
    Feature.REATTACH: whole("by a method of the gateway, `_babelgate/attach`", f"{_OWN}, Reconnect"),
    Feature.QUESTION: whole("a permission request, a form, or text with its data in `_meta`", _ASKED),
    Feature.QUESTIONS: FULL,
    Feature.ANSWER_SCHEMA: whole("in `_meta`; a form has flat schemas", _ASKED),
    Feature.AUTH_REQUEST: whole("text, or a page if the gateway itself asks", _ASKED),
    Feature.CANCEL: FULL,
    Feature.FAULT: whole("with its code in the data of the error", f"{_OWN}, Errors"),
    Feature.STRUCTURED_OUTPUT: whole("in the `_meta` of the prompt's result", _SENT),
    Feature.USAGE: whole("in the `_meta` of the prompt's result", _SENT),
    Feature.METADATA: whole("in `_meta`", f"{_OWN}, Metadata"),
    Feature.STATE: dropped("a session has only messages", _SCHEMA),
    Feature.HISTORY: FULL,
    Feature.FORK: dropped("a session cannot branch", _SCHEMA),
    Feature.CUSTOM: whole("in the `_meta` of an update", _SENT),
}
