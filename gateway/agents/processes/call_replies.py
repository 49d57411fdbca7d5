"""Answers of the gateway to the requests of an agent's process, for the data of one call.

A process can reach only the thread and the owner of the call: the gateway takes both from the call, and not from the
request.
"""

from typing import Final, TypeGuard, TypeVar

from babelgate.canonical.agent import Invocation
from babelgate.canonical.event import StateSaved
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.agents.call_data import CallCheckpoints, CallItems, GraphData
from babelgate.gateway.agents.processes import frames as f

T = TypeVar("T")

_MAX_PAGE: Final = 50
"""Maximum number of checkpoints in one reply. Chosen: the page size of the checkpointer."""


class CallReplies:
    """Answers to the requests of one call."""

    def __init__(self, call: Invocation, data: GraphData | None) -> None:
        """Create the answers for a call. `data` is None for an agent that stores nothing in the gateway."""
        self._call = call
        self._checkpoints = None if data is None else data.checkpoints(call)
        self._items = None if data is None else data.items(call)

    async def answer(self, request: f.DataRequest) -> f.DataReply:
        """Execute a request, and return the reply. If the gateway refuses it, the reply holds the fault."""
        try:
            reply = await self._execute(request.ask)
        except FaultError as error:
            reply = f.DataReply(0, fault=error.fault)
        reply.number = request.number
        return reply

    async def _execute(self, ask: f.Ask) -> f.DataReply:
        match ask:
            case f.AskPast():
                return f.DataReply(0, records=tuple(await self._call.past()))
            case f.AskFiles():
                return f.DataReply(0, message=await self._call.with_files(ask.message))
            case f.AskStates():
                return f.DataReply(0, states=await self._known_states())
            case f.FindCheckpoints() | f.PutCheckpoint() | f.PutWrites():
                return await _access_checkpoints(_require(self._checkpoints), ask)
            case _:
                return await _access_items(_require(self._items), ask)

    async def _known_states(self) -> f.KnownStates:
        """Return the states to which the call can send a new state as a difference.

        They are the newest state, and the one that the caller starts from. A run that continues after a restart also
        needs the state with which it began.
        """
        call, history = self._call, await self._call.states()
        needed = {history.head_id, call.input.checkpoint}
        if call.attempt > 1:
            saved = (record for record in await call.past() if record.run_id == call.run_id)
            ids = (record.event.checkpoint_id for record in saved if _is_own_state(record.event))
            needed.add(next(ids, None))
        values = {each: history.values_of(each) for each in needed if each is not None}
        return f.KnownStates(history.head_id, {each: found for each, found in values.items() if found is not None})


def _is_own_state(event: object) -> TypeGuard[StateSaved]:
    """Return True for a state of the graph itself, and False for one of a subgraph and all other events."""
    return isinstance(event, StateSaved) and not event.ns


async def _access_checkpoints(
    checkpoints: CallCheckpoints, ask: f.FindCheckpoints | f.PutCheckpoint | f.PutWrites
) -> f.DataReply:
    match ask:
        case f.FindCheckpoints(ns=str() as ns, before=None, limit=1):
            found = await checkpoints.find(ns, ask.checkpoint_id)
            return f.DataReply(0, checkpoints=() if found is None else (found,))
        case f.FindCheckpoints():
            limit = min(ask.limit, _MAX_PAGE)
            page = await checkpoints.page(ask.ns, checkpoint_id=ask.checkpoint_id, before=ask.before, limit=limit)
            return f.DataReply(0, checkpoints=tuple(page))
        case f.PutCheckpoint():
            await checkpoints.put(ask.checkpoint)
        case f.PutWrites():
            await checkpoints.put_writes(ask.ns, ask.checkpoint_id, ask.writes)
    return f.DataReply(0)


async def _access_items(items: CallItems, ask: f.GetItem | f.PutItem | f.SearchItems | f.ListNamespaces) -> f.DataReply:
    match ask:
        case f.GetItem():
            found = await items.get(ask.namespace, ask.key, refresh=ask.refresh)
            return f.DataReply(0, items=() if found is None else (found,))
        case f.PutItem(value=None):
            await items.delete(ask.namespace, ask.key)
        case f.PutItem(value=dict() as value):
            await items.put(ask.namespace, ask.key, value, ask.ttl)
        case f.SearchItems():
            return f.DataReply(0, items=tuple(await items.search(ask.query)))
        case f.ListNamespaces():
            return f.DataReply(0, namespaces=tuple(await items.namespaces(ask.query)))
        case _:
            pass
    return f.DataReply(0)


def _require(access: T | None) -> T:
    """Return the access to the gateway's database. Raises internal if the agent has none: no hub was started, or the
    agent is no graph."""
    if access is None:
        raise FaultError(FaultCode.INTERNAL, "The agent has no database: it is no graph, or no hub was started")
    return access
