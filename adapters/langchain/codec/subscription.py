"""Subscriptions to a thread's events: channels, and places in the agent (event streaming of the Agent Protocol, CDDL
0.0.13, sections 5 and 6).

Members are accepted in both spellings: the CDDL has camelCase, LangGraph Platform and its clients send snake_case.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import Json, JsonObject

CHANNELS: Final = (
    "values",
    "updates",
    "messages",
    "tools",
    "lifecycle",
    "input",
    "checkpoints",
    "tasks",
    "custom",
)
_CUSTOM: Final = "custom:"
"""Prefix of a channel that has only the custom events of one name."""
_MAX_INTEGER: Final = 2**53 - 1
"""Largest integer that all clients can represent."""
_MAX_ENTRIES: Final = 100
"""Maximum number of channels, and of namespaces, in a subscription. Every event is compared with each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Filter of a thread's events."""

    channels: frozenset[str]
    namespaces: tuple[tuple[str, ...], ...] | None = None
    """Paths into the agent. An event matches if its namespace begins with one of them. None: all namespaces match."""
    depth: int | None = None
    """Maximum number of levels below such a path. None: no limit."""
    since: int = 0
    """The `seq` after which events are sent."""

    def is_subscribed(self, seq: int, channel: str, ns: Sequence[str], name: str = "") -> bool:
        """Return True if the subscription includes an event. `name` is the name of a custom event."""
        if seq <= self.since:
            return False
        if channel not in self.channels and not (name and f"{_CUSTOM}{name}" in self.channels):
            return False
        if not self.namespaces:
            return True
        return any(_is_below(ns, path) and self._is_near(ns, path) for path in self.namespaces)

    def _is_near(self, ns: Sequence[str], path: Sequence[str]) -> bool:
        return self.depth is None or len(ns) - len(path) <= self.depth


def _is_below(ns: Sequence[str], path: Sequence[str]) -> bool:
    """Return True if a namespace is at or below a path. A segment of the path without a task id matches all tasks of
    its node."""
    if len(path) > len(ns):
        return False
    return all(
        wanted in (segment, segment.partition(":")[0] if ":" not in wanted else segment)
        for segment, wanted in zip(ns, path, strict=False)
    )


def get_member(params: Mapping[str, Any], name: str) -> Any:
    """Return a member by its name in snake_case, in whichever spelling the client sent it."""
    # CDDL 0.0.13 has `assistantId`; langgraph-api 0.16.7 and langgraph-sdk 0.4.14 send `assistant_id`.
    if name in params:
        return params[name]
    first, *rest = name.split("_")
    return params.get(first + "".join(word.capitalize() for word in rest))


def parse_subscription(params: JsonObject) -> Subscription:
    """Return the subscription in an `EventStreamRequest` or `SubscribeParams`. Raises invalid."""
    channels: Any = get_member(params, "channels")
    if not isinstance(channels, list) or not channels:
        # CDDL 0.0.13, section 5. The text is that of langgraph-api 0.16.7.
        raise FaultError(FaultCode.INVALID, "channels is required and must be a non-empty array")
    _check_count(channels, "channels")  # pyright: ignore[reportUnknownArgumentType]
    for channel in channels:  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(channel, str) or not _is_channel(channel):
            raise FaultError(
                FaultCode.INVALID,
                f"channels: {str(channel)[:50]!r} must be one of {', '.join(CHANNELS)}, custom:<name>",  # pyright: ignore[reportUnknownArgumentType]
            )
    depth = _number(params, "depth")
    return Subscription(
        channels=frozenset(channels),  # pyright: ignore[reportUnknownArgumentType]
        namespaces=_namespaces(get_member(params, "namespaces")),
        depth=depth,
        since=_number(params, "since") or 0,
    )


def _is_channel(channel: str) -> bool:
    return channel in CHANNELS or (channel.startswith(_CUSTOM) and channel != _CUSTOM)


def _number(params: JsonObject, name: str) -> int | None:
    value = get_member(params, name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_INTEGER:
        raise FaultError(FaultCode.INVALID, f"{name}: must be an integer from 0 to {_MAX_INTEGER}")
    return value


def _namespaces(value: Json) -> tuple[tuple[str, ...], ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise FaultError(FaultCode.INVALID, "namespaces: must be a list of lists of strings")
    _check_count(value, "namespaces")
    return tuple(strings(each, "namespaces") for each in value)


def _check_count(entries: Sequence[Any], what: str) -> None:
    if len(entries) > _MAX_ENTRIES:
        raise FaultError(FaultCode.INVALID, f"{what}: must not have more than {_MAX_ENTRIES} entries")


def strings(value: Json, what: str) -> tuple[str, ...]:
    """Return a list of strings as a tuple. Raises invalid."""
    if not isinstance(value, list) or not all(isinstance(segment, str) for segment in value):
        raise FaultError(FaultCode.INVALID, f"{what}: must be a list of strings")
    return tuple(map(str, value))
