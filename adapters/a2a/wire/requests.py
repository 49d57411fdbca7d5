"""Requests of A2A callers in the spelling of no version. Each dialect decodes its requests to these types."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from babelgate.adapters.a2a.wire.task import PROTOCOL
from babelgate.adapters.kit.extension import Start
from babelgate.canonical import Message, TaskState
from babelgate.canonical.value import Extra, JsonObject


def activation_extra(uris: Sequence[str]) -> Extra:
    """Return the entry of the log for the extensions that a request activates on the agent's server."""
    return {PROTOCOL: {"extensions": list(uris)}} if uris else {}


def find_activated(extra: Extra) -> Sequence[str]:
    """Return the extensions in an entry that `activation_extra` has made."""
    members: JsonObject = extra.get(PROTOCOL) or {}
    return members.get("extensions") or ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A caller's URL for push notifications of a task. Token and credentials are secrets."""

    url: str
    task_id: str = ""
    config_id: str | None = None
    token: str | None = None
    schemes: tuple[str, ...] = ()
    credentials: str | None = None


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a caller, for a new or an existing task."""

    message: Message
    context_id: str | None = None
    task_id: str | None = None
    references: tuple[str, ...] = ()
    wait: bool = True
    """True if the response waits for a terminal or interrupted state."""
    history_length: int | None = None
    """Maximum number of messages in the history; None for all."""
    output_modes: tuple[str, ...] = ()
    push: Push | None = None
    metadata: JsonObject = {}
    tools: Sequence[Any] | None = None
    """The caller's tools, by the Babelgate extension, as are all fields below."""
    declined: frozenset[str] = frozenset()
    """Ids of the questions that the caller declines to answer."""
    uploaded: int = 0
    """Number of files at the end of the message that are uploads."""
    start: Start = Start()
    """State to start from, and other settings of the run's start."""


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
    """Id of the config; None for the only or oldest one, because callers of 0.x may omit it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushListing:
    task_id: str
    page_size: int = 100
    page_token: str | None = None
