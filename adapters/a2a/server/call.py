"""One call of an A2A method and its answer, in a form that is the same for all bindings, and the check of its
version."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from babelgate.adapters.a2a.agents.card import relayed_extensions
from babelgate.adapters.a2a.agents.interface import MOST_EXTENSIONS
from babelgate.adapters.a2a.codec.dialect import Dialect
from babelgate.adapters.a2a.errors import a2a_error
from babelgate.adapters.a2a.wire.task import PROTOCOL
from babelgate.adapters.kit.extension import START_HEADER, is_named
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller
from babelgate.adapters.kit.server.encoding import LargeJson
from babelgate.adapters.kit.server.fanout import FanoutCache
from babelgate.canonical import AgentInfo, FaultCode, FaultError, Hub, Principal, Task
from babelgate.canonical.value import JsonObject, is_uuid

EXTENSION_HEADERS: Final = ("A2A-Extensions", "X-A2A-Extensions")
"""Headers that activate extensions: the name of 1.0 (3.2.6) and that of 0.3 (topics/extensions). Both versions accept
both names, as the 0.3 side of a2a-sdk 1.3.0 does."""


class Call(msgspec.Struct, frozen=True):
    hub: Hub
    lines: FanoutCache
    caller: Caller
    agent: AgentInfo
    version: str
    """Version that the caller requests; empty if it requests none."""
    replay_from: str | None
    """Value of the header `Babelgate-From`: the seq from which a stream repeats the events. None if the caller sent no
    such header."""
    extension: str | None = None
    """Name of the header by which the caller has activated the Babelgate extension. None if the caller has not
    activated it."""
    activated: tuple[str, ...] = ()
    """URIs of the extensions of the agent's own server that the caller has activated, in the order of the caller's
    header."""
    activates_by: str = EXTENSION_HEADERS[0]
    """Name of the header in which the caller lists extensions. The response lists them in the same header."""

    @property
    def principal(self) -> Principal:
        return self.caller.principal


class Answer(msgspec.Struct, frozen=True):
    result: Any
    headers: Mapping[str, str] = {}
    tasks: AsyncGenerator[bytes | LargeJson] | None = None
    """Tasks, each as JSON, that are streamed into the empty list `tasks` of `result`. None if the result is
    complete."""


class Stream(msgspec.Struct, frozen=True):
    batches: AsyncGenerator[Sequence[bytes | LargeJson]]
    """Events of the stream, each as JSON. A batch contains all events that are ready."""
    headers: Mapping[str, str] = {}


Operation = Callable[[Call, Dialect, JsonObject], Awaitable[Answer | Stream]]


def requested_version(request: AnyRequest) -> str:
    """Return the version in the header `A2A-Version` or in the query parameter of the same name (specification 1.0,
    3.6.1). Return an empty text if the request has none."""
    # a2a-sdk 1.3.0 reads only the header.
    return (request.headers.get("A2A-Version") or request.query_params.get("A2A-Version") or "").strip()


def make_call(hub: Hub, lines: FanoutCache, request: AnyRequest, agent: str) -> Call:
    who = caller(request)
    info = hub.agent(who.principal, agent)
    return Call(
        hub=hub,
        lines=lines,
        caller=who,
        agent=info,
        version=requested_version(request),
        replay_from=request.headers.get(START_HEADER),
        extension=next((name for name in EXTENSION_HEADERS if is_named(request.headers.get(name))), None),
        activated=_find_activated(request, info),
        activates_by=next((name for name in EXTENSION_HEADERS if name in request.headers), EXTENSION_HEADERS[0]),
    )


def _find_activated(request: AnyRequest, agent: AgentInfo) -> tuple[str, ...]:
    """Return the URIs in the extension headers of a request that are on the card of the agent's own server.

    Other URIs are ignored (specification 1.0, 3.2.6).
    """
    uris = [uri.strip() for name in EXTENSION_HEADERS for uri in request.headers.get(name, "").split(",")]
    supported = relayed_extensions(agent) if any(uris) else frozenset[str]()
    return tuple(dict.fromkeys(uri for uri in uris if uri in supported))[:MOST_EXTENSIONS]


def check_version(call: Call, version: str) -> None:
    """Check that the version which a caller requests agrees with the version of the method or path that it calls.

    Every minor version of a served major version is accepted. A request without a version means 0.3 (specification 1.0,
    3.6.2). 0.3 has no error for a wrong version: there the request is invalid. Raises VERSION_NOT_SUPPORTED for another
    version in 1.0, and INVALID_REQUEST in 0.3.
    """
    major = call.version.partition(".")[0]
    if version == "1.0" and major != "1":
        requested = f"version {call.version!r}" if call.version else "no version, which means 0.3"
        raise a2a_error(
            "VERSION_NOT_SUPPORTED",
            f"This is a method of A2A 1.0, but the request has {requested}. Send the header A2A-Version: 1.0.",
        )
    # a2a-sdk 1.3.0 answers -32603 here.
    if version == "0.3" and major not in ("", "0"):
        raise a2a_error(
            "INVALID_REQUEST", f"This is a method of A2A 0.3, but the request has version {call.version!r}."
        )


async def find_task(call: Call, task_id: str) -> Task:
    """Return a task of this caller and this agent.

    Raises TASK_NOT_FOUND for every other task, with the same text as for an unknown one (specification 1.0, 13.1).
    """
    if is_uuid(task_id):
        try:
            task = await call.hub.reads.task(call.principal, task_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
        else:
            if task.agent == call.agent.name:
                return task
    raise a2a_error("TASK_NOT_FOUND", "Task not found.")


async def context_of(call: Call, task: Task) -> str:
    aliases = await call.hub.reads.aliases(call.principal, PROTOCOL, [task.thread_id])
    return aliases.get(task.thread_id, task.thread_id)
