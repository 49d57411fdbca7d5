"""Requests of A2A callers in a form that is the same for all versions. Each dialect decodes its requests to these
types."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from babelgate.adapters.a2a.wire.task import PROTOCOL
from babelgate.adapters.kit.extension import Start
from babelgate.canonical import Message, TaskState
from babelgate.canonical.value import Extra, JsonObject


def activation_extra(uris: Sequence[str]) -> Extra:
    """Return the `extra` of a run's input that stores the extensions which the caller activates on the agent's
    server."""
    return {PROTOCOL: {"extensions": list(uris)}} if uris else {}


def find_activated(extra: Extra) -> Sequence[str]:
    """Return the URIs of the extensions in an `extra` that `activation_extra` has created. Return none for any other
    `extra`."""
    members: JsonObject = extra.get(PROTOCOL) or {}
    return members.get("extensions") or ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A push notification config: a URL that a caller registers for the updates of a task. Token and credentials are
    secrets."""

    url: str
    task_id: str = ""
    config_id: str | None = None
    token: str | None = None
    schemes: tuple[str, ...] = ()
    credentials: str | None = None


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """A request that sends a message to an agent, for a new or an existing task."""

    message: Message
    context_id: str | None = None
    task_id: str | None = None
    references: tuple[str, ...] = ()
    wait: bool = True
    """True if the response is sent only when the task is in a terminal or interrupted state. False if it is sent at
    once."""
    history_length: int | None = None
    """Maximum number of messages in the history of the returned task; None for all."""
    output_modes: tuple[str, ...] = ()
    push: Push | None = None
    metadata: JsonObject = {}
    tools: Sequence[Any] | None = None
    """Declarations of the caller's tools; None if there are none. This field and those below come from the Babelgate
    extension."""
    declined: frozenset[str] = frozenset()
    """Ids of the questions that the caller declines to answer."""
    uploaded: int = 0
    """Number of parts at the end of the message that are uploads."""
    start: Start = Start()
    """State from which the run starts, if that is not the current state of its thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Get:
    task_id: str
    history_length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    context_id: str | None = None
    states: frozenset[TaskState] | None = None
    changed_after: int | None = None
    """Time after which the listed tasks must have changed, in microseconds since 1970, UTC. None for all tasks."""
    page_size: int = 50
    page_token: str | None = None
    history_length: int | None = None
    artifacts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PushName:
    task_id: str
    config_id: str | None = None
    """Id of the config. Callers of 0.x may omit it: None means the only config of the task, or the oldest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushListing:
    task_id: str
    page_size: int = 100
    page_token: str | None = None
