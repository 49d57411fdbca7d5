"""Feature table of the adapter: how much of the canonical model each dialect carries."""

from collections.abc import Mapping
from typing import Final

from babelgate.canonical import FULL, Carry, Feature, dropped, lossy, whole

_PAGE: Final = "docs/protocols/langgraph.md"
_API: Final = "OpenAPI 0.1.6, components.schemas"

TOO_LARGE: Final = "a file larger than limits.inline is named by its hash"
"""Text with which the header `Babelgate-Loss` reports a file that is larger than `limits.inline`."""

_LANGGRAPH: Final[Mapping[Feature, Carry]] = {
    Feature.TEXT: FULL,
    Feature.DATA: FULL,
    Feature.FILE_BYTES: lossy(TOO_LARGE, f"{_PAGE}, Messages"),
    Feature.FILE_URL: FULL,
    Feature.REASONING: FULL,
    Feature.REFUSAL: FULL,
    Feature.CITATION: FULL,
    Feature.TOOL_ACTIVITY: whole("a task in the modes tasks and debug; not part of the state", f"{_PAGE}, Streams"),
    Feature.CALLER_TOOLS: whole(
        "by conventions of graphs: headless tools, and members of their input", f"{_PAGE}, Tools"
    ),
    Feature.STEP: lossy("a task and an update in streams; not part of the state", f"{_PAGE}, Streams"),
    Feature.PROGRESS: whole("an event of the mode custom; not a message of the state", f"{_PAGE}, Streams"),
    Feature.ARTIFACT: whole("an event of the mode custom; not part of the state", f"{_PAGE}, Streams"),
    Feature.ARTIFACT_APPEND: whole("each piece is an event of the mode custom", f"{_PAGE}, Streams"),
    Feature.UPLOAD: dropped("files are sent only in messages", f"{_PAGE}, What it cannot say"),
    Feature.STREAM: FULL,
    Feature.REATTACH: FULL,
    Feature.QUESTION: FULL,
    Feature.QUESTIONS: FULL,
    Feature.ANSWER_SCHEMA: FULL,
    Feature.AUTH_REQUEST: whole(
        "a question with a `kind`; the run stops as for other questions", f"{_PAGE}, Questions"
    ),
    Feature.CANCEL: lossy(
        "a requested cancel shows as running; a run that asks has ended, and a new input withdraws its question",
        f"{_PAGE}, Runs",
    ),
    Feature.FAULT: whole("a name and a message", f"{_PAGE}, Faults"),
    Feature.STRUCTURED_OUTPUT: whole("its members are members of the state", f"{_PAGE}, State"),
    Feature.USAGE: whole("a message's usage in its stream, a run's in its metadata", f"{_PAGE}, Runs"),
    Feature.METADATA: lossy("a run's metadata, with an id of the gateway; not a message's", f"{_PAGE}, Runs"),
    Feature.STATE: FULL,
    Feature.HISTORY: FULL,
    Feature.FORK: FULL,
    Feature.CUSTOM: whole("an event of the mode custom; not part of the state", f"{_PAGE}, Streams"),
}

_EXTENSION_PAGE: Final = "docs/extension.md"
_WITH_EXTENSION: Final[Mapping[Feature, Carry]] = {
    **dict.fromkeys(Feature, FULL),
    Feature.UPLOAD: whole(
        "in addition to the messages; in an answer or alone, as a file of a message", f"{_EXTENSION_PAGE}, Requests"
    ),
    Feature.CANCEL: whole("a requested cancel shows as running, and is a record", f"{_EXTENSION_PAGE}, Envelopes"),
}
"""Carry of each feature in LangGraph's dialect, for callers that activated the Babelgate extension."""

EXTENDED: Final[Mapping[str, Mapping[Feature, Carry]]] = {
    "langgraph": _WITH_EXTENSION,
    "agent-protocol": {
        **_WITH_EXTENSION,
        Feature.FORK: whole("the request names its starting point", f"{_EXTENSION_PAGE}, Requests"),
    },
}
"""Carry of each feature by dialect, for callers that activated the Babelgate extension."""

CARRIES: Final[Mapping[str, Mapping[Feature, Carry]]] = {
    "langgraph": _LANGGRAPH,
    "agent-protocol": {
        **_LANGGRAPH,
        Feature.TOOL_ACTIVITY: whole("a task in the mode debug; not part of the state", f"{_API}.StreamMode"),
        Feature.STEP: lossy(
            "in streams, the start in the mode debug and the end as an update; not part of the state",
            f"{_API}.StreamMode",
        ),
        Feature.QUESTION: whole("LangGraph's `__interrupt__` in the response of a wait", f"{_API}.RunWaitResponse"),
        Feature.QUESTIONS: whole("LangGraph's `__interrupt__` in the response of a wait", f"{_API}.RunWaitResponse"),
        Feature.ANSWER_SCHEMA: whole("in LangGraph's `__interrupt__`", f"{_API}.RunWaitResponse"),
        Feature.CANCEL: lossy("a requested cancel shows as pending until the run ends", f"{_API}.RunStatus"),
        Feature.FAULT: whole("LangGraph's `__error__` in the response of a wait", f"{_API}.RunWaitResponse"),
        Feature.FORK: lossy("by a change of the thread; a run starts from the newest state", f"{_API}.RunCreate"),
    },
}
