"""What A2A callers ask for, in no version's spelling: each dialect decodes its requests to these."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from babelgate.adapters.a2a.wire.task import PROTOCOL
from babelgate.adapters.kit.extension import Start
from babelgate.canonical import Message, TaskState
from babelgate.canonical.value import Extra, JsonObject


def activation_extra(uris: Sequence[str]) -> Extra:
    """What the log keeps of the extensions that a request has activated, for the agent's server."""
    return {PROTOCOL: {"extensions": list(uris)}} if uris else {}


def find_activated(extra: Extra) -> Sequence[str]:
    """The same, as it is read from the log."""
    own: JsonObject = extra.get(PROTOCOL) or {}
    return own.get("extensions") or ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """Where a caller wants a task's updates pushed. Token and credentials are secrets."""

    url: str
    task_id: str = ""
    config_id: str | None = None
    token: str | None = None
    schemes: tuple[str, ...] = ()
    credentials: str | None = None


class Send(msgspec.Struct, frozen=True, kw_only=True):
    message: Message
    context_id: str | None = None
    task_id: str | None = None
    references: tuple[str, ...] = ()
    wait: bool = True
    """For a terminal or interrupted state, before the answer goes out."""
    history_length: int | None = None
    """None = all."""
    output_modes: tuple[str, ...] = ()
    push: Push | None = None
    metadata: JsonObject = {}
    tools: Sequence[Any] | None = None
    """Of the caller, by the extension; and the questions that it declines to answer."""
    declined: frozenset[str] = frozenset()
    uploaded: int = 0
    """How many files at the end of the message are uploads, by the extension."""
    start: Start = Start()
    """By the extension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Get:
    task_id: str
    history_length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    context_id: str | None = None
    states: frozenset[TaskState] | None = None
    changed_after: int | None = None
    """Microseconds since 1970, UTC."""
    page_size: int = 50
    page_token: str | None = None
    history_length: int | None = None
    artifacts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PushName:
    task_id: str
    config_id: str | None = None
    """None = the only one, or the oldest: 0.x callers may leave it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushListing:
    task_id: str
    page_size: int = 100
    page_token: str | None = None
