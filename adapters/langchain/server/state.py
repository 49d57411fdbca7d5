"""The state of a thread and its revisions: look at them, make one."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any, Final

from litestar import Response, get, post
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.aside import Turns
from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import Large, list_response
from babelgate.adapters.kit.server.shared_lists import MARK, SharedList, with_list
from babelgate.adapters.langchain.codec import agent_protocol
from babelgate.adapters.langchain.codec import state as codec
from babelgate.adapters.langchain.codec.message import encode_message
from babelgate.adapters.langchain.server.answers import answer, select_members
from babelgate.adapters.langchain.server.dialect import both, dialect_of
from babelgate.adapters.langchain.server.lookup import read_history, thread_not_found
from babelgate.adapters.langchain.server.parameters import (
    AnyRequest,
    check_selection,
    checkpoint_of,
    flag,
    number,
    owner_of,
    path_id,
    read_body,
    words,
)
from babelgate.adapters.langchain.wire.requests import MAX_PAGE, Checkpoint, HistorySearch, StateAt, StateUpdate
from babelgate.canonical import FaultCode, FaultError, Hub, Revision, StateHistory, Thread
from babelgate.canonical.hub import StateUpdate as HubStateUpdate
from babelgate.canonical.json import as_object, has_members
from babelgate.canonical.value import JsonObject

_FIELDS: Final = frozenset(
    {
        "values",
        "next",
        "tasks",
        "metadata",
        "created_at",
        "checkpoint",
        "parent_checkpoint",
        "interrupts",
        "checkpoint_id",
        "parent_checkpoint_id",
        "messages",
    }
)

_DEPTH: Final = 16
"""Levels of graphs within each other that are shown."""


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    server = States(hub)
    state = "/threads/{thread_id:str}/state"
    history = "/threads/{thread_id:str}/history"
    return [
        get(both(state))(server.get),
        get(both(f"{state}/{{checkpoint_id:str}}"))(server.get),
        post(both(f"{state}/checkpoint"), status_code=200)(server.at),
        post(both(state), status_code=200)(server.update),
        get(both(history))(server.list_history),
        post(both(history), status_code=200)(server.search_history),
    ]


class States(Handlers):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def get(self, request: AnyRequest) -> Response[Any]:
        checkpoint_id = request.path_params.get("checkpoint_id")
        subgraphs = flag(request, "subgraphs")
        return await self._state_response(request, checkpoint_id, (), words(request, "select"), subgraphs=subgraphs)

    async def at(self, request: AnyRequest) -> Response[Any]:
        thread_id = path_id(request, "thread")
        body = await read_body(request, StateAt)
        checkpoint_id, ns = checkpoint_of(body.checkpoint), _ns(body.checkpoint)
        subgraphs, select = bool(body.subgraphs), body.select or ()
        return await self._state_response(request, checkpoint_id, ns, select, thread_id, subgraphs=subgraphs)

    async def _state_response(
        self,
        request: AnyRequest,
        checkpoint_id: str | None,
        ns: tuple[str, ...],
        select: Sequence[str],
        thread_id: str | None = None,
        *,
        subgraphs: bool,
    ) -> Response[Any]:
        thread_id = thread_id or path_id(request, "thread")
        names = check_selection(select, _FIELDS, "select")
        history = await read_history(self._hub, owner_of(request), thread_id)
        if checkpoint_id is not None:
            revision = _revision(history, checkpoint_id)
        else:
            revision = history.head if not ns else next(history.newest(ns), None)
        body = _encode_state(request, thread_id, revision, history, subgraphs=subgraphs)
        return answer(select_members(body, names), headers={"Babelgate-Thread": thread_id})

    async def update(self, request: AnyRequest) -> Response[Any]:
        """Raises invalid, not_found, conflict."""
        owner, thread_id = owner_of(request), path_id(request, "thread")
        body = await read_body(request, StateUpdate)
        history = await read_history(self._hub, owner, thread_id)
        thread = await self._hub.reads.thread(owner, thread_id)
        try:
            checkpoint_id = await self._hub.update_state(owner, decode_update(thread, history, body))
        except FaultError as error:
            raise thread_not_found(error, thread_id) from error
        # Three times the same, as langgraph-api 0.16.7 answers.
        made = {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
        return answer(
            {"checkpoint": made, "configurable": made, "checkpoint_id": checkpoint_id},
            headers={"Babelgate-Thread": thread_id},
        )

    async def list_history(self, request: AnyRequest) -> Response[Any]:
        thread_id = path_id(request, "thread")
        # OpenAPI 0.1.6: 10. langgraph-api 0.16.7 documents 10 and takes 1; its SDK always sends a limit.
        limit = number(request, "limit", 10, 1, MAX_PAGE)
        search = HistorySearch(limit=limit, before=request.query_params.get("before") or None)
        return await self._history(request, thread_id, search)

    async def search_history(self, request: AnyRequest) -> Response[Any]:
        thread_id = path_id(request, "thread")
        return await self._history(request, thread_id, await read_body(request, HistorySearch))

    async def _history(self, request: AnyRequest, thread_id: str, search: HistorySearch) -> Response[Any]:
        names = check_selection(search.select or (), _FIELDS, "select")
        before = _before(search.before)
        history = await read_history(self._hub, owner_of(request), thread_id)
        exactly = checkpoint_of(search.checkpoint)
        seq = None if before is None else _revision(history, before).seq
        revisions = history.newest(_ns(search.checkpoint), seq)
        if exactly is not None:
            revisions = (revision for revision in revisions if revision.checkpoint_id == exactly)

        def tell(revision: Revision, values: JsonObject | None = None) -> JsonObject:
            return _encode_state(request, thread_id, revision, history, values=values)

        shown = _encode_history(revisions, tell, search.metadata or {}, search.limit, names)
        return await list_response(b"[]", shown, headers={"Babelgate-Thread": thread_id})


class _Messages:
    """Those of a thread's states, each encoded once."""

    def __init__(self) -> None:
        self._said = SharedList(encode_message)
        self._held = SharedList[Any](lambda message: message)
        """Of agents with a state of their own."""

    @staticmethod
    def mark(revision: Revision) -> JsonObject | None:
        """Its values, with `MARK` in the place of the messages. None where there are none, or some of both kinds."""
        if bool(revision.messages) == isinstance(revision.values.get("messages"), list):
            return None
        return {**revision.values, "messages": MARK}

    async def encode(self, revision: Revision) -> Sequence[bytes | LargeJson]:
        if revision.messages:
            return await self._said.encode(revision.messages)
        return await self._held.encode(revision.values["messages"])


async def _encode_history(
    revisions: Iterator[Revision],
    tell: Callable[[Revision, JsonObject | None], JsonObject],
    metadata: JsonObject,
    limit: int,
    names: Sequence[str],
) -> AsyncGenerator[bytes | Large]:
    turns, messages = Turns(), _Messages()
    for revision in revisions:
        values = messages.mark(revision)
        body = tell(revision, values)
        if has_members(body.get("metadata") or {}, metadata):
            body, told = select_members(body, names), None
            if values is not None and body.get("values") is values:
                told = with_list(body, await messages.encode(revision))
                body = body if told is not None else select_members(tell(revision, None), names)
            yield encode(body) if told is None else told
            limit -= 1
        if not limit:
            return
        if turns.is_over:  # where many are looked at and few are shown
            await turns.give()


def decode_update(thread: Thread, history: StateHistory, ask: StateUpdate) -> HubStateUpdate:
    """A revision that a caller makes, on top of the one that it names. Raises invalid, not_found."""
    checkpoint_id = checkpoint_of(ask.checkpoint, ask.checkpoint_id)
    base = history.head if checkpoint_id is None else _revision(history, checkpoint_id)
    said: list[Any] = codec.encode_values(base).get("messages") or []
    known = [str(as_object(message)["id"]) for message in said if "id" in as_object(message)]
    update = codec.decode_update(ask.values, known)
    graph = thread.metadata.get("graph_id")
    return HubStateUpdate(
        thread_id=thread.thread_id,
        values=update.values,
        messages=update.messages,
        removed_ids=update.removed_ids,
        checkpoint=checkpoint_id,
        as_node=ask.as_node,
        # langgraph-sdk 0.4.14 marks with it for which graph a thread is made (`threads.create`, graph_id).
        agent=graph if isinstance(graph, str) else None,
    )


def _revision(history: StateHistory, checkpoint_id: str) -> Revision:
    found = history.get(checkpoint_id)
    if found is None:
        raise FaultError(FaultCode.NOT_FOUND, f"Checkpoint {checkpoint_id[:100]!r} not found")
    return found


def _encode_state(
    request: AnyRequest,
    thread_id: str,
    revision: Revision | None,
    history: StateHistory,
    *,
    subgraphs: bool = False,
    values: JsonObject | None = None,
) -> JsonObject:
    """`values` = what LangGraph's own dialect tells of them, where that is not all."""
    if dialect_of(request) == "agent-protocol" and revision is not None:
        return agent_protocol.encode_state(thread_id, revision)
    then = history.then(revision) if revision is not None and revision.next else ()
    inner = None if revision is None else _inner(thread_id, revision, history, whole=subgraphs)
    return codec.encode_state(thread_id, revision, then, inner, values)


def _inner(thread_id: str, outer: Revision, history: StateHistory, *, whole: bool) -> codec.Inner:
    """As langgraph 1.2 has it: where the state within is, or with `whole` that state in its place."""

    def tell(node: str) -> JsonObject:
        found = history.inner(outer, node)
        if found is None or len(found.ns) > _DEPTH:
            return {}
        if not whole:
            return {"checkpoint": {"thread_id": thread_id, "checkpoint_ns": "|".join(found.ns)}}
        then = history.then(found) if found.next else ()
        return {"state": codec.encode_state(thread_id, found, then, _inner(thread_id, found, history, whole=True))}

    return tell


def _ns(checkpoint: Checkpoint | None) -> tuple[str, ...]:
    text = checkpoint.checkpoint_ns if checkpoint is not None else None
    return tuple(text.split("|")) if text else ()


def _before(value: str | JsonObject | None) -> str | None:
    """An id, a checkpoint, or a config that holds one."""
    if isinstance(value, dict):
        inner = value.get("configurable")
        held: JsonObject = inner if isinstance(inner, dict) else value  # pyright: ignore[reportUnknownVariableType]
        value = held.get("checkpoint_id")
        if not isinstance(value, str):
            raise FaultError(FaultCode.INVALID, "before: must hold a checkpoint_id")
    return value
