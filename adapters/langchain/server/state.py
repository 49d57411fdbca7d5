"""Routes for the state of a thread and its revisions: read them, create one."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any, Final

from litestar import Response, get, post
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.aside import TimeSlice
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import Large, list_response
from babelgate.adapters.kit.server.shared_lists import MARK, SharedList, with_list
from babelgate.adapters.langchain.codec import agent_protocol
from babelgate.adapters.langchain.codec import state as codec
from babelgate.adapters.langchain.codec.message import encode_message
from babelgate.adapters.langchain.server.answers import answer, select_members
from babelgate.adapters.langchain.server.dialect import both, dialect_of
from babelgate.adapters.langchain.server.encoded_messages import encoded_messages
from babelgate.adapters.langchain.server.lookup import read_history, thread_not_found
from babelgate.adapters.langchain.server.parameters import (
    check_selection,
    checkpoint_of,
    flag,
    number,
    path_id,
    principal_of,
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

_MAX_DEPTH: Final = 16
"""Maximum depth of nested graphs in a state; deeper ones are left out. Chosen."""


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    server = StateHandlers(hub)
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


class StateHandlers(Handlers):
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
        history = await read_history(self._hub, principal_of(request), thread_id)
        if checkpoint_id is not None:
            revision = _revision(history, checkpoint_id)
        else:
            revision = history.head if not ns else next(history.newest(ns), None)
        shows_values = dialect_of(request) != "agent-protocol" and "values" in (names or _FIELDS)
        values = await encoded_messages.encode_values(revision) if shows_values else None
        body = _encode_state(request, thread_id, revision, history, subgraphs=subgraphs, values=values)
        return answer(select_members(body, names), headers={"Babelgate-Thread": thread_id})

    async def update(self, request: AnyRequest) -> Response[Any]:
        """Change the thread's state, and return the checkpoint of the new revision. Raises invalid for a malformed
        body, not_found for an unknown thread or checkpoint, and conflict if a run is active."""
        principal, thread_id = principal_of(request), path_id(request, "thread")
        body = await read_body(request, StateUpdate)
        history = await read_history(self._hub, principal, thread_id)
        thread = await self._hub.reads.thread(principal, thread_id)
        try:
            checkpoint_id = await self._hub.update_state(principal, decode_update(thread, history, body))
        except FaultError as error:
            raise thread_not_found(error, thread_id) from error
        # The same checkpoint in three members, as in langgraph-api 0.16.7.
        checkpoint = {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
        return answer(
            {"checkpoint": checkpoint, "configurable": checkpoint, "checkpoint_id": checkpoint_id},
            headers={"Babelgate-Thread": thread_id},
        )

    async def list_history(self, request: AnyRequest) -> Response[Any]:
        thread_id = path_id(request, "thread")
        # OpenAPI 0.1.6: 10. langgraph-api 0.16.7 documents 10 but uses 1; its SDK always sends a limit.
        limit = number(request, "limit", 10, 1, MAX_PAGE)
        search = HistorySearch(limit=limit, before=request.query_params.get("before") or None)
        return await self._history(request, thread_id, search)

    async def search_history(self, request: AnyRequest) -> Response[Any]:
        thread_id = path_id(request, "thread")
        return await self._history(request, thread_id, await read_body(request, HistorySearch))

    async def _history(self, request: AnyRequest, thread_id: str, search: HistorySearch) -> Response[Any]:
        names = check_selection(search.select or (), _FIELDS, "select")
        before = _before(search.before)
        history = await read_history(self._hub, principal_of(request), thread_id)
        checkpoint_id = checkpoint_of(search.checkpoint)
        seq = None if before is None else _revision(history, before).seq
        revisions = history.newest(_ns(search.checkpoint), seq)
        if checkpoint_id is not None:
            revisions = (revision for revision in revisions if revision.checkpoint_id == checkpoint_id)

        def encode_revision(revision: Revision, values: JsonObject | None = None) -> JsonObject:
            return _encode_state(request, thread_id, revision, history, values=values)

        items = _encode_history(revisions, encode_revision, search.metadata or {}, search.limit, names)
        return await list_response(b"[]", items, headers={"Babelgate-Thread": thread_id})


class _Messages:
    """Encoder for the messages in a list of states, which mostly have the same messages. Each message is encoded
    once."""

    def __init__(self) -> None:
        self._log_messages = SharedList(encode_message)
        """Messages of the thread's log."""
        self._state_messages = SharedList[Any](lambda message: message)
        """Messages that a graph stores in the values of its state, already in LangChain's form."""

    @staticmethod
    def mark(revision: Revision) -> JsonObject | None:
        """Return the values of a revision with the placeholder `MARK` as their `messages`. Return None if the revision
        has no messages, or if it has some in the log and others in its values."""
        if bool(revision.messages) == isinstance(revision.values.get("messages"), list):
            return None
        return {**revision.values, "messages": MARK}

    async def encode(self, revision: Revision) -> Sequence[bytes | LargeJson]:
        """Return the JSON of each message of a revision for which `mark` has returned values."""
        if revision.messages:
            return await self._log_messages.encode(revision.messages)
        return await self._state_messages.encode(revision.values["messages"])


async def _encode_history(
    revisions: Iterator[Revision],
    encode_revision: Callable[[Revision, JsonObject | None], JsonObject],
    metadata: JsonObject,
    limit: int,
    names: Sequence[str],
) -> AsyncGenerator[bytes | Large]:
    """Yield the JSON of each state whose metadata contain `metadata`, at most `limit` of them. `names` are the members
    to show; empty means all."""
    time_slice, messages = TimeSlice(), _Messages()
    for revision in revisions:
        values = messages.mark(revision)
        body = encode_revision(revision, values)
        if has_members(body.get("metadata") or {}, metadata):
            body, item = select_members(body, names), None
            if values is not None and body.get("values") is values:
                item = with_list(body, await messages.encode(revision))
                body = body if item is not None else select_members(encode_revision(revision, None), names)
            yield encode(body) if item is None else item
            limit -= 1
        if not limit:
            return
        if time_slice.is_used_up:  # many revisions may be examined and few sent
            await time_slice.pause()


def decode_update(thread: Thread, history: StateHistory, body: StateUpdate) -> HubStateUpdate:
    """Return the hub's form of a state change that a caller requests. It changes the revision that `body` names, or the
    newest one. Raises invalid for malformed values, and not_found for an unknown checkpoint."""
    checkpoint_id = checkpoint_of(body.checkpoint, body.checkpoint_id)
    base = history.head if checkpoint_id is None else _revision(history, checkpoint_id)
    messages: list[Any] = codec.encode_values(base).get("messages") or []
    message_ids = [str(as_object(message)["id"]) for message in messages if "id" in as_object(message)]
    update = codec.decode_update(body.values, message_ids)
    graph = thread.metadata.get("graph_id")
    return HubStateUpdate(
        thread_id=thread.thread_id,
        values=update.values,
        messages=update.messages,
        removed_ids=update.removed_ids,
        checkpoint=checkpoint_id,
        as_node=body.as_node,
        # langgraph-sdk 0.4.14 stores there which graph the thread is for (`threads.create`, graph_id).
        agent=graph if isinstance(graph, str) else None,
    )


def _revision(history: StateHistory, checkpoint_id: str) -> Revision:
    """Return the revision with a checkpoint id. Raises not_found."""
    revision = history.get(checkpoint_id)
    if revision is None:
        raise FaultError(FaultCode.NOT_FOUND, f"Checkpoint {checkpoint_id[:100]!r} not found")
    return revision


def _encode_state(
    request: AnyRequest,
    thread_id: str,
    revision: Revision | None,
    history: StateHistory,
    *,
    subgraphs: bool = False,
    values: JsonObject | None = None,
) -> JsonObject:
    """Return a state in the request's dialect. None gives the empty state of a thread without runs.

    In LangGraph's dialect, `subgraphs` adds the complete states of nested graphs, and `values` replaces the revision's
    values.
    """
    if dialect_of(request) == "agent-protocol" and revision is not None:
        return agent_protocol.encode_state(thread_id, revision)
    then = history.then(revision) if revision is not None and revision.next else ()
    inner = None if revision is None else _inner(thread_id, revision, history, whole=subgraphs)
    return codec.encode_state(thread_id, revision, then, inner, values)


def _inner(thread_id: str, outer: Revision, history: StateHistory, *, whole: bool) -> codec.Inner:
    """Return a function that describes the nested graph in a node of the revision `outer`, for the node's task, as
    langgraph 1.2 does.

    It returns the nested graph's namespace in `checkpoint` or, with `whole`, its complete state in `state`. It returns
    {} if the nested graph has no checkpoint after `outer`.
    """

    def describe(node: str) -> JsonObject:
        revision = history.inner(outer, node)
        if revision is None or len(revision.ns) > _MAX_DEPTH:
            return {}
        if not whole:
            return {"checkpoint": {"thread_id": thread_id, "checkpoint_ns": "|".join(revision.ns)}}
        then = history.then(revision) if revision.next else ()
        return {
            "state": codec.encode_state(thread_id, revision, then, _inner(thread_id, revision, history, whole=True))
        }

    return describe


def _ns(checkpoint: Checkpoint | None) -> tuple[str, ...]:
    """Return the namespace of a checkpoint, outermost first. It is empty for the outermost graph, and for None."""
    text = checkpoint.checkpoint_ns if checkpoint is not None else None
    return tuple(text.split("|")) if text else ()


def _before(value: str | JsonObject | None) -> str | None:
    """Return the checkpoint id in the member `before`, which is an id, a checkpoint or a config; None stays None.
    Raises invalid for a value without an id."""
    if isinstance(value, dict):
        inner = value.get("configurable")
        checkpoint: JsonObject = inner if isinstance(inner, dict) else value  # pyright: ignore[reportUnknownVariableType]
        value = checkpoint.get("checkpoint_id")
        if not isinstance(value, str):
            raise FaultError(FaultCode.INVALID, "before: must hold a checkpoint_id")
    return value
