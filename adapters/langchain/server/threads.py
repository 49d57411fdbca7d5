"""Threads: create, find, change, copy, delete."""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

from litestar import Response, delete, get, patch, post
from litestar.types import ControllerRouterHandler

from adapters.langchain import codec, codec_agent_protocol
from adapters.langchain.server.ask import (
    StateUpdate,
    ThreadCount,
    ThreadCreate,
    ThreadPatch,
    ThreadSearch,
    ThreadsPrune,
    Ttl,
    read_body,
)
from adapters.langchain.server.call import (
    MAX_PAGE,
    Asked,
    answer,
    both,
    chosen,
    contains,
    dialect_of,
    nothing,
    owner_of,
    pagination,
    path_id,
    picked,
    read_history,
    thread_missing,
    uuid,
    words,
)
from adapters.langchain.server.state import decode_update
from canonical import FaultCode, FaultError, History, Hub, ThreadChange, ThreadFilter, ThreadView
from canonical.hub import StateUpdate as Revise
from canonical.value import JsonObject

__all__ = ("routes",)

_FIELDS: Final = frozenset(
    {
        "thread_id",
        "created_at",
        "updated_at",
        "state_updated_at",
        "metadata",
        "status",
        "config",
        "context",
        "values",
        "messages",
        "interrupts",
        "error",
        "ttl",
    }
)
_OF_STATE: Final = frozenset({"values", "messages", "interrupts", "error", "state_updated_at"})
"""What is not known without the thread's log."""
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(-?\d{1,9})\]")


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    server = Threads(hub)
    return [
        post(both("/threads"), status_code=200)(server.create),
        post(both("/threads/search"), status_code=200)(server.search),
        post(both("/threads/count"), status_code=200)(server.count),
        post(both("/threads/prune"), status_code=200)(server.prune),
        get(both("/threads/{thread_id:str}"))(server.get),
        patch(both("/threads/{thread_id:str}"))(server.change),
        delete(both("/threads/{thread_id:str}"), status_code=200)(server.delete),
        post(both("/threads/{thread_id:str}/copy"), status_code=200)(server.copy),
    ]


class Threads:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def __deepcopy__(self, _: object) -> "Threads":
        # NB: Litestar copies every handler that it registers, and a bound method with its object: there is one hub.
        return self

    async def create(self, request: Asked) -> Response[Any]:
        body = await read_body(request, ThreadCreate)
        thread_id = None if body.thread_id is None else uuid(body.thread_id, "thread")
        updates = _supersteps(body)
        change = ThreadChange(metadata=body.metadata or {}, ttl=_seconds(body.ttl))
        owner = owner_of(request)
        try:
            thread = await self._hub.create_thread(owner, change, thread_id=thread_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.CONFLICT or body.if_exists != "do_nothing" or thread_id is None:
                raise
            return await self._shown(request, thread_id)
        for update in updates:
            await self._revise(owner, thread.thread_id, update)
        return await self._shown(request, thread.thread_id)

    async def get(self, request: Asked) -> Response[Any]:
        include = words(request, "include")
        return await self._shown(request, path_id(request, "thread"), ttl="ttl" in include)

    async def _shown(self, request: Asked, thread_id: str, *, ttl: bool = False) -> Response[Any]:
        view = await self._view(owner_of(request), thread_id)
        body = await self._encoded(request, view)
        if ttl and view.thread.ttl is not None:
            body["ttl"] = _encode_ttl(view)
        return answer(body, headers={"Babelgate-Thread": thread_id})

    async def _view(self, owner: str, thread_id: str) -> ThreadView:
        try:
            return await self._hub.thread_view(owner, thread_id)
        except FaultError as error:
            raise thread_missing(error, thread_id) from error

    async def _encoded(self, request: Asked, view: ThreadView, history: History | None = None) -> JsonObject:
        if history is None:
            history = await read_history(self._hub, owner_of(request), view.thread.thread_id)
        if dialect_of(request) == "agent-protocol":
            return codec_agent_protocol.encode_thread(view, history)
        return codec.encode_thread(view, history)

    async def change(self, request: Asked) -> Response[Any]:
        """With values or messages a new revision, which a checkpoint says where to branch off; the metadata is merged.
        (Agent Protocol: a checkpoint is "ignored for metadata-only patches".)"""
        owner, thread_id = owner_of(request), path_id(request, "thread")
        body = await read_body(request, ThreadPatch)
        ttl = _seconds(body.ttl)
        revises = body.values is not None or body.messages is not None
        if revises or (body.checkpoint is not None and body.metadata is None):
            update = StateUpdate(values=body.values, checkpoint=body.checkpoint)
            await self._revise(owner, thread_id, update, body.messages)
        if body.metadata is not None or ttl is not None or not revises:
            try:
                await self._hub.change_thread(owner, thread_id, ThreadChange(metadata=body.metadata or {}, ttl=ttl))
            except FaultError as error:
                raise thread_missing(error, thread_id) from error
        if "return=minimal" in request.headers.get("prefer", "").replace(" ", ""):
            return nothing(204, {"Preference-Applied": "return=minimal"})
        return await self._shown(request, thread_id)

    async def _revise(self, owner: str, thread_id: str, update: StateUpdate, messages: Any = None) -> None:
        history = await read_history(self._hub, owner, thread_id)
        revise = decode_update(thread_id, history, update)
        if messages is not None:
            said = codec_agent_protocol.decode_messages(messages)
            revise = Revise(
                thread_id=thread_id,
                values=revise.values,
                messages=(*revise.messages, *said),
                forgets=revise.forgets,
                checkpoint=revise.checkpoint,
                as_node=revise.as_node,
            )
        await self._hub.update_state(owner, revise)

    async def delete(self, request: Asked) -> Response[Any]:
        thread_id = path_id(request, "thread")
        try:
            await self._hub.delete_thread(owner_of(request), thread_id)
        except FaultError as error:
            raise thread_missing(error, thread_id) from error
        return nothing(204)

    async def copy(self, request: Asked) -> Response[Any]:
        thread_id = path_id(request, "thread")
        try:
            made = await self._hub.copy_thread(owner_of(request), thread_id)
        except FaultError as error:
            raise thread_missing(error, thread_id) from error
        return await self._shown(request, made.thread_id)

    async def prune(self, request: Asked) -> Response[Any]:
        body = await read_body(request, ThreadsPrune)
        if body.strategy != "delete":
            raise FaultError(FaultCode.UNSUPPORTED, "strategy: revisions of a thread are kept as long as the thread is")
        pruned = 0
        for thread_id in dict.fromkeys(uuid(each, "thread") for each in body.thread_ids):
            try:
                await self._hub.delete_thread(owner_of(request), thread_id)
            except FaultError as error:
                if error.fault.code is not FaultCode.NOT_FOUND:
                    raise
            else:
                pruned += 1
        return answer({"pruned_count": pruned})

    # Lists

    async def search(self, request: Asked) -> Response[Any]:
        body = await read_body(request, ThreadSearch)
        select = chosen(body.select or (), _FIELDS, "select")
        paths = {name: _path(path) for name, path in (body.extract or {}).items()}
        where = body.where(body.ids)
        shown: list[JsonObject] = []
        more = False
        skip = body.offset if body.values else 0
        async for view, history in self._found(request, where, body):
            if skip:
                skip -= 1
                continue
            if len(shown) == body.limit:
                more = True
                break
            shown.append(await self._listed(request, view, history, select, paths))
        return answer(shown, headers=pagination(body.offset, len(shown), more=more))

    async def _listed(
        self,
        request: Asked,
        view: ThreadView,
        history: History | None,
        select: Sequence[str],
        paths: Mapping[str, Sequence[str | int]],
    ) -> JsonObject:
        if select and not paths and not _OF_STATE.intersection(select):
            whole = codec.encode_thread(view, history)
        else:
            whole = await self._encoded(request, view, history)
        if "ttl" in select and view.thread.ttl is not None:
            whole["ttl"] = _encode_ttl(view)
        body = picked(whole, select)
        return body | {"extracted": {name: _at(whole, path) for name, path in paths.items()}} if paths else body

    async def _found(
        self, request: Asked, where: ThreadFilter, body: ThreadSearch
    ) -> AsyncGenerator[tuple[ThreadView, History | None]]:
        """The threads that match, in order. Values are in no row: threads are looked into, one by one."""
        owner = owner_of(request)
        descending = body.sort_order != "asc"
        offset, size = (0, MAX_PAGE // 10) if body.values else (body.offset, body.limit + 1)
        while True:
            page = await self._hub.threads(
                owner, where, limit=size, offset=offset, order=body.order, descending=descending
            )
            for view in page.threads:
                if not body.values:
                    yield view, None
                    continue
                history = await read_history(self._hub, owner, view.thread.thread_id)
                if contains(codec.encode_values(history.head), body.values):
                    yield view, history
            offset += size
            if len(page.threads) < size or not body.values:
                return

    async def count(self, request: Asked) -> Response[Any]:
        body = await read_body(request, ThreadCount)
        if not body.values:
            page = await self._hub.threads(owner_of(request), body.where(), limit=1)
            return answer(page.total)
        search = ThreadSearch(values=body.values)
        return answer(len([each async for each in self._found(request, body.where(), search)]))


def _seconds(ttl: Ttl | float | None) -> int | None:
    """Minutes as the hub counts. Raises unsupported for what would happen then, other than deletion."""
    if isinstance(ttl, Ttl):
        if ttl.strategy != "delete":
            raise FaultError(FaultCode.UNSUPPORTED, "ttl.strategy: a thread whose time is over is deleted")
        ttl = ttl.ttl
    return None if ttl is None else max(1, round(ttl * 60))


def _encode_ttl(view: ThreadView) -> JsonObject:
    seconds = view.thread.ttl or 0
    expires = view.updated_at + seconds * 1_000_000
    return {"strategy": "delete", "ttl_minutes": seconds / 60, "expires_at": codec.format_time(expires)}


def _supersteps(body: ThreadCreate) -> list[StateUpdate]:
    updates = [update for step in body.supersteps or () for update in step.updates]
    if any(update.command for update in updates):
        raise FaultError(FaultCode.UNSUPPORTED, "supersteps: a command needs an agent with a state of its own")
    return [StateUpdate(values=update.values, as_node=update.as_node) for update in updates]


def _path(text: str) -> Sequence[str | int]:
    """`values.messages[-1].content` as its steps."""
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise FaultError(FaultCode.INVALID, f"extract: {text[:100]!r} is no path")
        steps.append(step[1] if step[1] is not None else int(step[2]))
        at = step.end()
    return steps


def _at(value: Any, path: Sequence[str | int]) -> Any:
    """None where the path leads nowhere."""
    for step in path:
        if isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):  # pyright: ignore[reportUnknownArgumentType]
            value = value[step]  # pyright: ignore[reportUnknownVariableType]
        elif isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        else:
            return None
    return value  # pyright: ignore[reportUnknownVariableType]
