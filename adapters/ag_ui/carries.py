"""Table of how AG-UI carries each feature. Its texts are those that callers see when a run loses something."""

from collections.abc import Mapping
from typing import Final

from babelgate.adapters.ag_ui import wire as w
from babelgate.canonical import FULL, Carry, Feature, dropped, whole

VERSION: Final = w.VERSION
"""Version of AG-UI for which `CARRIES` declares the carried features."""

_OWN: Final = "docs/protocols/ag-ui.md, What other clients ignore"

CARRIES: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: whole("JSON in the text, with a mark", _OWN),
    Feature.FILE_BYTES: whole("an activity", _OWN),
    Feature.FILE_URL: whole("an activity", _OWN),
    Feature.REASONING: FULL,
    Feature.REFUSAL: whole("text with a mark", _OWN),
    Feature.CITATION: whole("in the metadata of the message", _OWN),
    Feature.TOOL_ACTIVITY: whole("with the fault and the type of a result in its metadata", _OWN),
    Feature.CALLER_TOOLS: FULL,
    Feature.STEP: whole("with input, update and fault in the metadata", _OWN),
    Feature.PROGRESS: whole("an activity", _OWN),
    Feature.ARTIFACT: whole("an activity", _OWN),
    Feature.ARTIFACT_APPEND: whole("a patch of the activity", _OWN),
    Feature.UPLOAD: dropped("files are sent only with messages", "AG-UI 1.0, RunAgentInput"),
    Feature.STREAM: FULL,
    Feature.REATTACH: whole(
        "an operation of the gateway; the protocol has none", "docs/protocols/ag-ui.md, Reattach and resume"
    ),
    Feature.QUESTION: whole("an interrupt, with the question's data in its metadata", _OWN),
    Feature.QUESTIONS: FULL,
    Feature.ANSWER_SCHEMA: FULL,
    Feature.AUTH_REQUEST: whole("an interrupt with a reason of the gateway", _OWN),
    Feature.CANCEL: whole(
        "an operation of the gateway, or a disconnect if the request asks for it",
        "docs/protocols/ag-ui.md, Cancel and disconnect",
    ),
    Feature.FAULT: FULL,
    Feature.STRUCTURED_OUTPUT: FULL,
    Feature.USAGE: FULL,
    Feature.METADATA: whole("of a run in `forwardedProps`; of a message in its metadata", _OWN),
    Feature.STATE: FULL,
    Feature.HISTORY: FULL,
    Feature.FORK: FULL,
    Feature.CUSTOM: FULL,
}
