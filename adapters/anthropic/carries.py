"""Features that the Messages API carries. The losses of a run are reported in these words."""

from collections.abc import Mapping
from typing import Final

from babelgate.adapters.anthropic import wire as w
from babelgate.canonical import FULL, Carry, Feature, dropped, whole

VERSION: Final = w.VERSION
"""Version of the API for which `CARRIES` declares the carried features. The later version 2026-10-21 has the same
answers."""

_API: Final = "Messages API, POST /v1/messages"
_PAGE: Final = "docs/protocols/anthropic.md"
_MARKS: Final = f"{_PAGE}, What other clients ignore"

CARRIES: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: whole("JSON in the text, with a mark", _MARKS),
    Feature.FILE_BYTES: whole("a link in the text, with a mark", _MARKS),
    Feature.FILE_URL: whole("a link in the text, with a mark", _MARKS),
    Feature.REASONING: FULL,
    Feature.REFUSAL: whole("text with a mark", _MARKS),
    Feature.CITATION: whole("a separate text block, with a mark", _MARKS),
    Feature.TOOL_ACTIVITY: whole("calls of a tool on an MCP server that is named after the agent", f"{_PAGE}, Tools"),
    Feature.CALLER_TOOLS: whole("for agents that read the run's configuration", f"{_PAGE}, Tools"),
    Feature.STEP: whole("a mark in an event `ping`", _MARKS),
    Feature.PROGRESS: whole("thinking, with a mark", _MARKS),
    Feature.ARTIFACT: whole("text or a link, with a mark", _MARKS),
    Feature.ARTIFACT_APPEND: whole("text or a link, with a mark", _MARKS),
    Feature.UPLOAD: dropped("files are sent only with messages", _API),
    Feature.STREAM: FULL,
    Feature.REATTACH: whole("an operation of the gateway; the API has none", f"{_PAGE}, Reattach and cancel"),
    Feature.QUESTION: whole(
        "a call of `ask_caller` if the caller declares that tool, or text that the next user message answers",
        f"{_PAGE}, Questions of agents",
    ),
    Feature.QUESTIONS: FULL,
    Feature.ANSWER_SCHEMA: whole("among the arguments of the call, and in a mark", f"{_PAGE}, Questions of agents"),
    Feature.AUTH_REQUEST: whole("a normal question, with a mark", f"{_PAGE}, Questions of agents"),
    Feature.CANCEL: whole(
        "an operation of the gateway, or a disconnect if no thread is named", f"{_PAGE}, Reattach and cancel"
    ),
    Feature.FAULT: whole("few types for all faults, with a mark", _MARKS),
    Feature.STRUCTURED_OUTPUT: whole("its JSON as text, with a mark", _MARKS),
    Feature.USAGE: FULL,
    Feature.METADATA: whole("of a run in the request; of a message in a mark", _MARKS),
    Feature.STATE: dropped("a conversation has only messages", _API),
    Feature.HISTORY: FULL,
    Feature.FORK: dropped("a request contains its conversation, and names no starting point", _API),
    Feature.CUSTOM: whole("a mark in an event `ping`", _MARKS),
}
