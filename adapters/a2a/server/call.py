"""Version negotiation and errors of A2A: one call of a method, whichever binding it came in by, and what it is answered
with."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from litestar import Request

from babelgate.adapters.a2a.agents.card import relayed_extensions
from babelgate.adapters.a2a.agents.interface import MOST_EXTENSIONS
from babelgate.adapters.a2a.codec.dialect import Dialect
from babelgate.adapters.a2a.errors import a2a_error
from babelgate.adapters.a2a.wire.task import PROTOCOL
from babelgate.adapters.kit.extension import START_HEADER, is_named
from babelgate.adapters.kit.server.caller import Caller, caller
from babelgate.adapters.kit.server.encoding import LargeJson
from babelgate.adapters.kit.server.fanout import FanoutCache
from babelgate.canonical import AgentInfo, FaultCode, FaultError, Hub, Task
from babelgate.canonical.value import JsonObject, is_uuid

EXTENSION_HEADERS: Final = ("A2A-Extensions", "X-A2A-Extensions")
"""Specification 1.0, 3.2.6; that of 0.3 has the other name (topics/extensions). Either version takes either, as the
0.3 side of a2a-sdk 1.3.0 does."""


class Call(msgspec.Struct, frozen=True):
    hub: Hub
    lines: FanoutCache
    caller: Caller
    agent: AgentInfo
    version: str
    """What the caller says it speaks; empty if it says nothing."""
    replay_from: str | None
    """Of the header `Babelgate-From`."""
    extension: str | None = None
    """The header by which the caller has activated the extension, if it has."""
    activated: tuple[str, ...] = ()
    """URIs of extensions of the agent's own server that the caller has activated, in the order of its header."""
    activates_by: str = EXTENSION_HEADERS[0]
    """The header in which it names extensions."""

    @property
    def owner(self) -> str:
        return self.caller.owner


class Answer(msgspec.Struct, frozen=True):
    result: Any
    headers: Mapping[str, str] = {}
    tasks: AsyncGenerator[bytes | LargeJson] | None = None
    """Each as JSON, for the empty list `tasks` of the result."""


class Stream(msgspec.Struct, frozen=True):
    batches: AsyncGenerator[Sequence[bytes | LargeJson]]
    """Of events as JSON, as many at a time as are there."""
    headers: Mapping[str, str] = {}


Operation = Callable[[Call, Dialect, JsonObject], Awaitable[Answer | Stream]]


def requested_version(request: Request[Any, Any, Any]) -> str:
    """The header, or the query parameter of the same name (specification 1.0, 3.6.1)."""
    # a2a-sdk 1.3.0 reads the header alone.
    return (request.headers.get("A2A-Version") or request.query_params.get("A2A-Version") or "").strip()


def make_call(hub: Hub, lines: FanoutCache, request: Request[Any, Any, Any], agent: str) -> Call:
    info = hub.agent(agent)
    return Call(
        hub=hub,
        lines=lines,
        caller=caller(request),
        agent=info,
        version=requested_version(request),
        replay_from=request.headers.get(START_HEADER),
        extension=next((name for name in EXTENSION_HEADERS if is_named(request.headers.get(name))), None),
        activated=_find_activated(request, info),
        activates_by=next((name for name in EXTENSION_HEADERS if name in request.headers), EXTENSION_HEADERS[0]),
    )


def _find_activated(request: Request[Any, Any, Any], agent: AgentInfo) -> tuple[str, ...]:
    """Unknown URIs are ignored (specification 1.0, 3.2.6): known are those on the card of the agent's own server."""
    named = [each.strip() for name in EXTENSION_HEADERS for each in request.headers.get(name, "").split(",")]
    known = relayed_extensions(agent) if any(named) else frozenset[str]()
    return tuple(dict.fromkeys(each for each in named if each in known))[:MOST_EXTENSIONS]


def check_version(call: Call, version: str) -> None:
    """The method or the path says which generation is spoken; what the caller claims must agree.

    Major and minor count, and every minor version of a major one is served. Nothing said means 0.3 (specification 1.0,
    3.6.2), which has no error for this: there it is an invalid request. Raises VERSION_NOT_SUPPORTED, INVALID_REQUEST.
    """
    major = call.version.partition(".")[0]
    if version == "1.0" and major != "1":
        said = f"version {call.version!r}" if call.version else "no version, which means 0.3"
        raise a2a_error(
            "VERSION_NOT_SUPPORTED",
            f"This is a method of A2A 1.0, and the request says {said}. Send the header A2A-Version: 1.0.",
        )
    # a2a-sdk 1.3.0 answers -32603 here.
    if version == "0.3" and major not in ("", "0"):
        raise a2a_error(
            "INVALID_REQUEST", f"This is a method of A2A 0.3, and the request says version {call.version!r}."
        )


async def find_task(call: Call, task_id: str) -> Task:
    """A task of this caller and this agent: any other is not found, in the same words (specification 1.0, 13.1). Raises
    TASK_NOT_FOUND."""
    if is_uuid(task_id):
        try:
            task = await call.hub.reads.task(call.owner, task_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
        else:
            if task.agent == call.agent.name:
                return task
    raise a2a_error("TASK_NOT_FOUND", "Task not found.")


async def context_of(call: Call, task: Task) -> str:
    aliases = await call.hub.reads.aliases(call.owner, PROTOCOL, [task.thread_id])
    return aliases.get(task.thread_id, task.thread_id)
