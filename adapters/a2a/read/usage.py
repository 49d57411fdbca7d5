"""Token usage that another A2A server reports: of the whole task, or of model calls, which add up.

Usage has the names of the Responses API: `input_tokens`, `output_tokens`, `total_tokens` and their details.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from babelgate.adapters.a2a.codec.marks import event_id_of
from babelgate.adapters.a2a.frameworks import FRAMEWORKS
from babelgate.adapters.a2a.frameworks.a2a_samples import tokens_of_trace
from babelgate.adapters.a2a.frameworks.framework import as_count
from babelgate.adapters.a2a.frameworks.opencode import SHARED
from babelgate.canonical.json import as_object
from babelgate.canonical.value import JsonObject

_TOKENS: Final[Mapping[str, str]] = {
    "promptTokenCount": "input_tokens",
    "candidatesTokenCount": "output_tokens",
    "totalTokenCount": "total_tokens",
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "totalTokens": "total_tokens",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "total_tokens": "total_tokens",
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
}
_CACHED: Final = ("cachedContentTokenCount", "cachedInputTokens", "cache_read_input_tokens")
_THOUGHT: Final = ("thoughtsTokenCount", "reasoningTokens", "reasoning_tokens")
_USAGE: Final = "usage"
"""Key of metadata for usage that names no framework. It is used by agents of Redpanda, and by agents that copy the
usage of a model's response."""

_OF_TASK: Final[Sequence[Sequence[str]]] = (
    (_USAGE,),
    *(path for framework in FRAMEWORKS for path in framework.task_usage),
)
_OF_MESSAGE: Final = (_USAGE, *(key for framework in FRAMEWORKS for key in framework.message_usage))


def usage_of_task(metadata: JsonObject | None) -> JsonObject:
    """Return the token usage of the whole task from the metadata of its final status. Return an empty object if they
    contain no usage."""
    for path in _OF_TASK:
        value = metadata or {}
        for key in path:
            value = as_object(value.get(key))
        if usage := _usage(as_object(value.get(_USAGE)) or value):
            return usage
    return usage_so_far(metadata)


def usage_so_far(metadata: JsonObject | None, *, of_update: bool = False) -> JsonObject:
    """Return the token usage of the task until now, from the metadata of a message, an artifact or an update. Return an
    empty object if they contain no such usage.

    opencode-a2a and codex-a2a 1.4.0 repeat it in every artifact, so the last one counts. With `of_update`, usage under
    `_USAGE` counts, too: servers keep the last value of each key of an update's metadata as the task's (a2a-sdk 1.3.0).
    """
    members = metadata or {}
    shared = _usage(as_object(as_object(members.get(SHARED)).get(_USAGE)))
    return shared or (_usage(as_object(members.get(_USAGE))) if of_update else {})


def usage_of_message(metadata: JsonObject | None) -> JsonObject:
    """Return the token usage of one model call from the metadata of a message. Return an empty object if there is none.
    The usages of all calls of a task add up."""
    members = metadata or {}
    return next(filter(None, (_usage(as_object(members.get(key))) for key in _OF_MESSAGE)), dict[str, Any]())


def add_usage(first: JsonObject, second: JsonObject) -> JsonObject:
    """Return the sum of two usages."""
    total = dict(first)
    for name, value in second.items():
        if isinstance(value, dict):
            total[name] = add_usage(as_object(first.get(name)), cast("JsonObject", value))
        else:
            total[name] = first.get(name, 0) + value
    return total


def _usage(counts: JsonObject) -> JsonObject:
    usage: JsonObject = {}
    if not counts:
        return usage
    for name, canonical_name in _TOKENS.items():
        count = as_count(counts.get(name))
        if count is not None:
            usage[canonical_name] = count
    for names, canonical_name, detail in (
        (_CACHED, "input_tokens_details", "cached_tokens"),
        (_THOUGHT, "output_tokens_details", "reasoning_tokens"),
    ):
        count = next((count for name in names if (count := as_count(counts.get(name))) is not None), None)
        if count is not None:
            usage[canonical_name] = {detail: count}
    return usage


class UsageCounter:
    """Counter of the token usage of one run, from the metadata of everything that its server sends."""

    def __init__(self) -> None:
        self._sum: JsonObject = {}
        self._counted: set[str] = set()
        """Ids of the events or messages whose usage was added to the sum."""
        self._so_far: JsonObject = {}
        """Usage of the whole task until now, as the server last reported it."""
        self._traced: JsonObject = {}
        """Usage in the trace of an answer (`frameworks.a2a_samples`): only the total number of tokens."""

    @property
    def total(self) -> JsonObject:
        """Most exact usage of the run that is known: of the whole task, else the sum of the messages, else that of a
        trace. Empty if the server reports none."""
        return self._so_far or self._sum or self._traced

    def count(self, metadata: JsonObject | None, message_id: str | None, *, of_update: bool = False) -> None:
        """Count the usage in the metadata of a message, an artifact or an update.

        The usage of one model call is counted once for each id: the framework's id of the event, or else `message_id`.
        `of_update` is True for the metadata of an update.
        """
        if not metadata:  # as with most pieces of an answer
            return
        so_far = usage_so_far(metadata, of_update=of_update)
        self._so_far = so_far or self._so_far
        self._traced = tokens_of_trace(metadata) or self._traced
        usage = {} if so_far else usage_of_message(metadata)
        event = event_id_of(metadata) or message_id or ""
        if usage and event not in self._counted:
            self._counted.add(event)
            self._sum = add_usage(self._sum, usage)

    def count_history(self, metadata: JsonObject | None, message_id: str | None) -> None:
        """Count the usage in the metadata of a message in the task's history, which may have been sent while no stream
        was open."""
        self.count(metadata, message_id)
        self._sum = self._sum or usage_of_task(metadata)
