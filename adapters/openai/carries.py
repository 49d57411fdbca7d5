"""Tables of how OpenAI's APIs carry the features of the canonical model: for agents behind the gateway (`CARRIES`), and
for callers of each API (`CHAT`, `RESPONSES`).

The texts appear in the losses that a run reports.
"""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import FULL, Carry, Feature, dropped, lossy, whole

VERSION: Final = "v1"
"""Version of the API in its paths. The fields are those of OpenAI's Python SDK 3.52.0."""

_CHAT = "API reference, POST /v1/chat/completions"
_RESPONSES = "API reference, POST /v1/responses"
_OWN = "docs/protocols/openai.md"

CARRIES: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: lossy("its JSON as text", _RESPONSES),
    Feature.FILE_BYTES: lossy(
        "files of an agent, and those of earlier turns above 32 MB in total, are named in the text",
        f"{_OWN}, Files",
    ),
    Feature.FILE_URL: lossy("images, and files in responses; other files are named in the text", f"{_OWN}, Files"),
    Feature.REASONING: lossy("chat completions have no standard field for it; servers use two", f"{_OWN}, Answers"),
    Feature.REFUSAL: FULL,
    Feature.CITATION: lossy("citations of pages; not of files in the server's store", f"{_OWN}, Answers"),
    Feature.TOOL_ACTIVITY: lossy("the server's tools, in responses, when a call has ended", f"{_OWN}, Answers"),
    Feature.CALLER_TOOLS: FULL,
    Feature.STEP: dropped("a response has items and no steps", _RESPONSES),
    Feature.PROGRESS: lossy("messages of the phase `commentary`, in responses", _RESPONSES),
    Feature.ARTIFACT: lossy("generated images, in responses", f"{_OWN}, Answers"),
    Feature.ARTIFACT_APPEND: dropped("an image is sent whole", _RESPONSES),
    Feature.UPLOAD: dropped("files are sent only with the input", _RESPONSES),
    Feature.STREAM: FULL,
    Feature.REATTACH: dropped("only background responses can be followed again", f"{_OWN}, Cancel and restart"),
    Feature.QUESTION: lossy("a call of a caller's tool, or a request to approve one", f"{_OWN}, Questions"),
    Feature.QUESTIONS: FULL,
    Feature.ANSWER_SCHEMA: dropped("the result of a tool has no schema", f"{_OWN}, Questions"),
    Feature.AUTH_REQUEST: dropped("a model cannot ask its caller to log in", _RESPONSES),
    Feature.CANCEL: lossy(
        "the gateway disconnects; neither API can cancel outside of the background",
        f"{_OWN}, Cancel and restart",
    ),
    Feature.FAULT: FULL,
    Feature.STRUCTURED_OUTPUT: FULL,
    Feature.USAGE: FULL,
    Feature.METADATA: dropped("the gateway stores it and does not send it", f"{_OWN}, Configuration"),
    Feature.STATE: dropped("a conversation has only messages and calls", _CHAT),
    Feature.HISTORY: FULL,
    Feature.FORK: FULL,
    Feature.CUSTOM: dropped("no item type exists for it", _RESPONSES),
}

CHAT_VERSION: Final = "chat-completions"

_ANSWERED: Final = f"{_OWN}, What a completion shows"
_STORED: Final = f"{_OWN}, Stored completions"

CHAT: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: lossy("its JSON as text; in a request, a JSON file without a name", f"{_OWN}, What a request says"),
    Feature.FILE_BYTES: dropped("an answer is text; files are sent only with requests", _CHAT),
    Feature.FILE_URL: dropped("an answer is text; files are sent only with requests", _CHAT),
    Feature.REASONING: whole("in a member that OpenAI does not define", _ANSWERED),
    Feature.REFUSAL: FULL,
    Feature.CITATION: FULL,
    Feature.TOOL_ACTIVITY: dropped("a visible call is one that the caller must execute", _ANSWERED),
    Feature.CALLER_TOOLS: whole("for agents that read the run's configuration", f"{_OWN}, What a request says"),
    Feature.STEP: dropped("a completion is one message", _CHAT),
    Feature.PROGRESS: dropped("a completion is one message, the answer", _CHAT),
    Feature.ARTIFACT: dropped("a completion is one text message", _CHAT),
    Feature.ARTIFACT_APPEND: dropped("a completion is one text message", _CHAT),
    Feature.UPLOAD: dropped("files are sent only with the input", _CHAT),
    Feature.STREAM: FULL,
    Feature.REATTACH: dropped("a client cannot reconnect to a stream", _CHAT),
    Feature.QUESTION: whole(
        "a call of `ask_caller` if the caller declares that tool, or text that the next user message answers",
        f"{_OWN}, Questions of agents",
    ),
    Feature.QUESTIONS: FULL,
    Feature.ANSWER_SCHEMA: whole(
        "among the arguments of the call; not in a text question", f"{_OWN}, Questions of agents"
    ),
    Feature.AUTH_REQUEST: whole("a normal question", f"{_OWN}, Questions of agents"),
    Feature.CANCEL: dropped(
        "no operation can cancel; a disconnect cancels a run without a thread, by choice of the gateway",
        f"{_OWN}, Threads",
    ),
    Feature.FAULT: lossy("few codes for all faults", f"{_OWN}, Errors"),
    Feature.STRUCTURED_OUTPUT: lossy("its JSON as text", _ANSWERED),
    Feature.USAGE: FULL,
    Feature.METADATA: lossy("a run's metadata, as strings; not a message's", _STORED),
    Feature.STATE: dropped("a conversation has only messages", _CHAT),
    Feature.HISTORY: FULL,
    Feature.FORK: dropped(
        "threads are an addition of the gateway, and cannot branch by its choice", f"{_OWN}, Threads"
    ),
    Feature.CUSTOM: dropped("a completion has no field for it", _CHAT),
}
"""Carry of each feature in chat completions, to and from callers."""

RESPONSES_VERSION: Final = "responses"

_SHOWN: Final = f"{_OWN}, What a response shows"

RESPONSES: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: lossy("its JSON as text; in a request, a JSON file without a name", f"{_OWN}, What a request says"),
    Feature.FILE_BYTES: dropped("an answer is text; files are sent only with requests", _SHOWN),
    Feature.FILE_URL: dropped("an answer is text; files are sent only with requests", _SHOWN),
    Feature.REASONING: FULL,
    Feature.REFUSAL: FULL,
    Feature.CITATION: FULL,
    Feature.TOOL_ACTIVITY: lossy("as calls of tools of a server named after the agent", _SHOWN),
    Feature.CALLER_TOOLS: whole("for agents that read the run's configuration", f"{_OWN}, What a request says"),
    Feature.STEP: dropped("a response has items and no steps", _RESPONSES),
    Feature.PROGRESS: FULL,
    Feature.ARTIFACT: dropped("a response has no files", _SHOWN),
    Feature.ARTIFACT_APPEND: dropped("a response has no files", _SHOWN),
    Feature.UPLOAD: dropped("files are sent only with the input", _RESPONSES),
    Feature.STREAM: FULL,
    Feature.REATTACH: FULL,
    Feature.QUESTION: whole(
        "a call of `ask_caller` if the caller declares that tool, or text that the next user message answers",
        f"{_OWN}, Questions of agents",
    ),
    Feature.QUESTIONS: FULL,
    Feature.ANSWER_SCHEMA: whole(
        "among the arguments of the call; not in a text question", f"{_OWN}, Questions of agents"
    ),
    Feature.AUTH_REQUEST: whole("a normal question", f"{_OWN}, Questions of agents"),
    Feature.CANCEL: lossy("not for a response that its caller waits for", f"{_OWN}, Background"),
    Feature.FAULT: lossy("few codes for all faults", f"{_OWN}, Errors"),
    Feature.STRUCTURED_OUTPUT: lossy("its JSON as text", _SHOWN),
    Feature.USAGE: lossy("token details that were not counted are zero", _RESPONSES),
    Feature.METADATA: lossy("a run's metadata, as strings; not a message's", _SHOWN),
    Feature.STATE: dropped("a conversation has only items", _RESPONSES),
    Feature.HISTORY: FULL,
    Feature.FORK: FULL,
    Feature.CUSTOM: dropped("no item type exists for it", _RESPONSES),
}
"""Carry of each feature in the Responses API, to and from callers."""

_EXTENSION: Final = "docs/extension.md"
_WITH_IT: Final[Mapping[Feature, Carry]] = {
    **dict.fromkeys(Feature, FULL),
    Feature.UPLOAD: whole(
        "in addition to the messages; in an answer or alone, as a file of a message", f"{_EXTENSION}, Requests"
    ),
}
EXTENDED: Final[Mapping[str, Mapping[Feature, Carry]]] = {
    CHAT_VERSION: {
        **_WITH_IT,
        **{feature: CHAT[feature] for feature in (Feature.REATTACH, Feature.CANCEL)},
        Feature.FORK: whole(
            "the request names its starting point, or contains the messages and the state", f"{_EXTENSION}, Requests"
        ),
    },
    RESPONSES_VERSION: {
        **_WITH_IT,
        Feature.CANCEL: whole("for background responses, which a gateway requests", f"{_EXTENSION}, On OpenAI's API"),
    },
}
"""Carries of the features for callers that activated the Babelgate extension, by API."""
