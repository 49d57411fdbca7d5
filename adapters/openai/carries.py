"""What OpenAI's two APIs carry of the canonical model. The losses of a run are told in these words."""

from collections.abc import Mapping
from typing import Final

from canonical import FULL, Carry, Feature, dropped, lossy

VERSION: Final = "v1"
"""Of the paths; the fields are those of the Python SDK 3.52.0."""

_CHAT = "API reference, POST /v1/chat/completions"
_RESPONSES = "API reference, POST /v1/responses"
_OWN = "docs/protocols/openai.md"

CARRIES: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: lossy("its JSON as text", _RESPONSES),
    Feature.FILE_BYTES: lossy("files of earlier turns, and files of an agent, are named in the text", f"{_OWN}, Files"),
    Feature.FILE_URL: lossy("images, and files in responses; named in the text elsewhere", f"{_OWN}, Files"),
    Feature.REASONING: lossy("chat completions have no field for it; two are in use", f"{_OWN}, Answers"),
    Feature.REFUSAL: FULL,
    Feature.CITATION: lossy("of pages; not of files in the server's own store", f"{_OWN}, Answers"),
    Feature.TOOL_ACTIVITY: lossy("the server's own tools, in responses, when they have ended", f"{_OWN}, Answers"),
    Feature.CALLER_TOOLS: FULL,
    Feature.STEP: dropped("a response has items and no steps", _RESPONSES),
    Feature.PROGRESS: lossy("messages of the phase `commentary`, in responses", _RESPONSES),
    Feature.ARTIFACT: lossy("generated images, in responses", f"{_OWN}, Answers"),
    Feature.ARTIFACT_APPEND: dropped("an image is given whole", _RESPONSES),
    Feature.UPLOAD: dropped("files come with the input only", _RESPONSES),
    Feature.STREAM: FULL,
    Feature.REATTACH: dropped("only background responses can be followed again", f"{_OWN}, Cancel and restart"),
    Feature.QUESTION: lossy("a call of a caller's tool, or a request to approve one", f"{_OWN}, Questions"),
    Feature.QUESTIONS: FULL,
    Feature.ANSWER_SCHEMA: dropped("the result of a tool has no schema", f"{_OWN}, Questions"),
    Feature.AUTH_REQUEST: dropped("a model cannot ask its caller to log in", _RESPONSES),
    Feature.CANCEL: lossy("hanging up is the cancel", f"{_OWN}, Cancel and restart"),
    Feature.FAULT: FULL,
    Feature.STRUCTURED_OUTPUT: FULL,
    Feature.USAGE: FULL,
    Feature.METADATA: dropped("it is the gateway's own and not sent", f"{_OWN}, Configuration"),
    Feature.STATE: dropped("a conversation is messages and calls", _CHAT),
    Feature.HISTORY: FULL,
    Feature.FORK: FULL,
    Feature.CUSTOM: dropped("no item has a form for it", _RESPONSES),
}
