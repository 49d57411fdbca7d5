"""Features of the canonical model that OpenAI's APIs carry: for agents behind them (`CARRIES`) and for callers (`CHAT`,
`RESPONSES`).

The texts appear in the losses that a run reports.
"""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import FULL, Carry, Feature, dropped, lossy, whole

VERSION: Final = "v1"
"""Version in the paths of the API. The fields are those of the Python SDK 3.52.0."""

_CHAT = "API reference, POST /v1/chat/completions"
_RESPONSES = "API reference, POST /v1/responses"
_OWN = "docs/protocols/openai.md"

CARRIES: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: lossy("its JSON as text", _RESPONSES),
    Feature.FILE_BYTES: lossy(
        "files of an agent, and what is more than 32 MB of those of earlier turns, are named in the text",
        f"{_OWN}, Files",
    ),
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
    Feature.CANCEL: lossy(
        "the server is not asked, but hung up on: neither API cancels outside of the background",
        f"{_OWN}, Cancel and restart",
    ),
    Feature.FAULT: FULL,
    Feature.STRUCTURED_OUTPUT: FULL,
    Feature.USAGE: FULL,
    Feature.METADATA: dropped("it is the gateway's own and not sent", f"{_OWN}, Configuration"),
    Feature.STATE: dropped("a conversation is messages and calls", _CHAT),
    Feature.HISTORY: FULL,
    Feature.FORK: FULL,
    Feature.CUSTOM: dropped("no item has a form for it", _RESPONSES),
}

CHAT_VERSION: Final = "chat-completions"

_ANSWERED: Final = f"{_OWN}, What a completion shows"
_STORED: Final = f"{_OWN}, Stored completions"

CHAT: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: lossy("its JSON as text; in a request, a JSON file without a name", f"{_OWN}, What a request says"),
    Feature.FILE_BYTES: dropped("an answer is text: files come with requests only", _CHAT),
    Feature.FILE_URL: dropped("an answer is text: files come with requests only", _CHAT),
    Feature.REASONING: whole("in a member that is not OpenAI's own", _ANSWERED),
    Feature.REFUSAL: FULL,
    Feature.CITATION: FULL,
    Feature.TOOL_ACTIVITY: dropped("a call that is shown is one that the caller is to make", _ANSWERED),
    Feature.CALLER_TOOLS: whole("for agents that look at the run's configuration", f"{_OWN}, What a request says"),
    Feature.STEP: dropped("a completion is one message", _CHAT),
    Feature.PROGRESS: dropped("a completion is one message, which is the answer", _CHAT),
    Feature.ARTIFACT: dropped("a completion is one message, of text", _CHAT),
    Feature.ARTIFACT_APPEND: dropped("a completion is one message, of text", _CHAT),
    Feature.UPLOAD: dropped("files come with the input only", _CHAT),
    Feature.STREAM: FULL,
    Feature.REATTACH: dropped("a stream cannot be come back to", _CHAT),
    Feature.QUESTION: whole(
        "a call of `ask_caller` if the caller declares that tool, or text that the next user message answers",
        f"{_OWN}, Questions of agents",
    ),
    Feature.QUESTIONS: FULL,
    Feature.ANSWER_SCHEMA: whole("among the arguments of the call; none in a text", f"{_OWN}, Questions of agents"),
    Feature.AUTH_REQUEST: whole("a question like any other", f"{_OWN}, Questions of agents"),
    Feature.CANCEL: dropped(
        "no operation asks for it; that hanging up cancels a run without a thread is the gateway's choice",
        f"{_OWN}, Threads",
    ),
    Feature.FAULT: lossy("few codes for all faults", f"{_OWN}, Errors"),
    Feature.STRUCTURED_OUTPUT: lossy("its JSON as text", _ANSWERED),
    Feature.USAGE: FULL,
    Feature.METADATA: lossy("that of a run, which is strings; not that of a message", _STORED),
    Feature.STATE: dropped("a conversation is messages", _CHAT),
    Feature.HISTORY: FULL,
    Feature.FORK: dropped("threads are the gateway's own here, and one line each by its choice", f"{_OWN}, Threads"),
    Feature.CUSTOM: dropped("a completion has no form for it", _CHAT),
}
"""Features that callers of chat completions can receive or send."""

RESPONSES_VERSION: Final = "responses"

_SHOWN: Final = f"{_OWN}, What a response shows"

RESPONSES: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: lossy("its JSON as text; in a request, a JSON file without a name", f"{_OWN}, What a request says"),
    Feature.FILE_BYTES: dropped("an answer is text: files come with requests only", _SHOWN),
    Feature.FILE_URL: dropped("an answer is text: files come with requests only", _SHOWN),
    Feature.REASONING: FULL,
    Feature.REFUSAL: FULL,
    Feature.CITATION: FULL,
    Feature.TOOL_ACTIVITY: lossy("as calls of tools of a server that is called like the agent", _SHOWN),
    Feature.CALLER_TOOLS: whole("for agents that look at the run's configuration", f"{_OWN}, What a request says"),
    Feature.STEP: dropped("a response has items and no steps", _RESPONSES),
    Feature.PROGRESS: FULL,
    Feature.ARTIFACT: dropped("a response has no files", _SHOWN),
    Feature.ARTIFACT_APPEND: dropped("a response has no files", _SHOWN),
    Feature.UPLOAD: dropped("files come with the input only", _RESPONSES),
    Feature.STREAM: FULL,
    Feature.REATTACH: FULL,
    Feature.QUESTION: whole(
        "a call of `ask_caller` if the caller declares that tool, or text that the next user message answers",
        f"{_OWN}, Questions of agents",
    ),
    Feature.QUESTIONS: FULL,
    Feature.ANSWER_SCHEMA: whole("among the arguments of the call; none in a text", f"{_OWN}, Questions of agents"),
    Feature.AUTH_REQUEST: whole("a question like any other", f"{_OWN}, Questions of agents"),
    Feature.CANCEL: lossy("not of a response that its caller waits for", f"{_OWN}, Background"),
    Feature.FAULT: lossy("few codes for all faults", f"{_OWN}, Errors"),
    Feature.STRUCTURED_OUTPUT: lossy("its JSON as text", _SHOWN),
    Feature.USAGE: lossy("details that nobody has counted are zeros", _RESPONSES),
    Feature.METADATA: lossy("that of a run, which is strings; not that of a message", _SHOWN),
    Feature.STATE: dropped("a conversation is items", _RESPONSES),
    Feature.HISTORY: FULL,
    Feature.FORK: FULL,
    Feature.CUSTOM: dropped("no item has a form for it", _RESPONSES),
}
"""Features that callers of the Responses API can receive or send."""

_EXTENSION: Final = "docs/extension.md"
_WITH_IT: Final[Mapping[Feature, Carry]] = {
    **dict.fromkeys(Feature, FULL),
    Feature.UPLOAD: whole(
        "beside the messages; in an answer, or alone, a file of a message", f"{_EXTENSION}, Requests"
    ),
}
EXTENDED: Final[Mapping[str, Mapping[Feature, Carry]]] = {
    CHAT_VERSION: {
        **_WITH_IT,
        **{feature: CHAT[feature] for feature in (Feature.REATTACH, Feature.CANCEL)},
        Feature.FORK: whole(
            "the request names what it starts from, or tells the messages and the state", f"{_EXTENSION}, Requests"
        ),
    },
    RESPONSES_VERSION: {
        **_WITH_IT,
        Feature.CANCEL: whole(
            "of responses in the background, as a gateway asks for them", f"{_EXTENSION}, On OpenAI's API"
        ),
    },
}
"""Features by API for callers that use the Babelgate extension."""
