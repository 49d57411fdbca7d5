"""Subscriptions to a thread's events, by channel and namespace (event streaming of the Agent Protocol, CDDL 0.0.13,
sections 5 and 6).

Names are accepted in camelCase, as in the CDDL, and in snake_case, as LangGraph Platform and its clients send them.
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
"""Prefix of a channel for custom events with one name, such as `custom:progress`."""
_MAX_INTEGER: Final = 2**53 - 1
"""Largest integer that JavaScript clients represent exactly."""
_MAX_ENTRIES: Final = 100
"""Maximum number of channels, and of namespaces, in a subscription. Chosen: every event is compared with each of
them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One subscription of a client: the filter that selects events of a thread."""

    channels: frozenset[str]
    namespaces: tuple[tuple[str, ...], ...] | None = None
    """Prefixes of namespaces. An event matches if its namespace begins with one of them. None: all namespaces match."""
    depth: int | None = None
    """Maximum number of levels between an entry of `namespaces` and the namespace of a matching event. None: no
    limit."""
    since: int = 0
    """Number `seq` of the last event that the client already has; only later events match."""

    def is_subscribed(self, seq: int, channel: str, ns: Sequence[str], name: str = "") -> bool:
        """Return True if the event with these properties matches the subscription. `name` is the name of a custom
        event, else empty."""
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
    """Return True if the namespace `ns` begins with the segments of `path`. A segment of the path without a task id
    matches all tasks of its node."""
    if len(path) > len(ns):
        return False
    return all(
        wanted in (segment, segment.partition(":")[0] if ":" not in wanted else segment)
        for segment, wanted in zip(ns, path, strict=False)
    )


def get_member(params: Mapping[str, Any], name: str) -> Any:
    """Return a member of a request, or None. `name` is its name in snake_case; the same name in camelCase is found,
    too."""
    # CDDL 0.0.13 has `assistantId`; langgraph-api 0.16.7 and langgraph-sdk 0.4.14 send `assistant_id`.
    if name in params:
        return params[name]
    first, *rest = name.split("_")
    return params.get(first + "".join(word.capitalize() for word in rest))


def parse_subscription(params: JsonObject) -> Subscription:
    """Return the subscription in an `EventStreamRequest` or `SubscribeParams`. Raises invalid for malformed members and
    an unknown channel."""
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
    """Return a JSON list of strings as a tuple. `what` names the member in the error. Raises invalid for any other
    value."""
    if not isinstance(value, list) or not all(isinstance(segment, str) for segment in value):
        raise FaultError(FaultCode.INVALID, f"{what}: must be a list of strings")
    return tuple(map(str, value))
