"""Subscriptions to a thread's events: channels, and where in the agent (CDDL 0.0.13 of the Agent Protocol's event
streaming, sections 5 and 6).

Members are taken in both spellings: the CDDL has camelCase, LangGraph Platform and its clients send snake_case.
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
_LARGEST: Final = 2**53 - 1
"""Of the integers that all clients can count."""
_MOST_ENTRIES: Final = 100
"""Channels of a subscription, and namespaces: every event is held against each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    channels: frozenset[str]
    namespaces: tuple[tuple[str, ...], ...] | None = None
    """Paths into the agent, of which an event's begins with one; None = anywhere."""
    depth: int | None = None
    """How far below such a path."""
    since: int = 0
    """The `seq` after which events are told."""

    def is_subscribed(self, seq: int, channel: str, ns: Sequence[str], name: str = "") -> bool:
        """`name` = of a custom event."""
        if seq <= self.since:
            return False
        if channel not in self.channels and not (name and f"{_CUSTOM}{name}" in self.channels):
            return False
        if not self.namespaces:
            return True
        return any(_below(ns, path) and self._near(ns, path) for path in self.namespaces)

    def _near(self, ns: Sequence[str], path: Sequence[str]) -> bool:
        return self.depth is None or len(ns) - len(path) <= self.depth


def _below(ns: Sequence[str], path: Sequence[str]) -> bool:
    """A segment of the path that has no task id stands for all tasks of its node."""
    if len(path) > len(ns):
        return False
    return all(
        asked in (each, each.partition(":")[0] if ":" not in asked else each)
        for each, asked in zip(ns, path, strict=False)
    )


def get_member(params: Mapping[str, Any], name: str) -> Any:
    """A member by its name in snake_case, in whichever spelling it came."""
    # CDDL 0.0.13 has `assistantId`; langgraph-api 0.16.7 and langgraph-sdk 0.4.14 send `assistant_id`.
    if name in params:
        return params[name]
    first, *rest = name.split("_")
    return params.get(first + "".join(word.capitalize() for word in rest))


def parse_subscription(params: JsonObject) -> Subscription:
    """`EventStreamRequest` and `SubscribeParams`. Raises invalid."""
    channels: Any = get_member(params, "channels")
    if not isinstance(channels, list) or not channels:
        # CDDL 0.0.13, section 5; the words are langgraph-api 0.16.7's.
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
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
        raise FaultError(FaultCode.INVALID, f"{name}: must be an integer from 0 to {_LARGEST}")
    return value


def _namespaces(value: Json) -> tuple[tuple[str, ...], ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise FaultError(FaultCode.INVALID, "namespaces: must be a list of lists of strings")
    _check_count(value, "namespaces")
    return tuple(strings(each, "namespaces") for each in value)


def _check_count(given: Sequence[Any], what: str) -> None:
    if len(given) > _MOST_ENTRIES:
        raise FaultError(FaultCode.INVALID, f"{what}: must not have more than {_MOST_ENTRIES} entries")


def strings(value: Json, what: str) -> tuple[str, ...]:
    """A list of strings. Raises invalid."""
    if not isinstance(value, list) or not all(isinstance(segment, str) for segment in value):
        raise FaultError(FaultCode.INVALID, f"{what}: must be a list of strings")
    return tuple(map(str, value))
