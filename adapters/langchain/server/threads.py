"""Routes that create, find, change, copy and delete threads."""

import re
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from litestar import Response, delete, get, patch, post
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.headers import preferences, read_line
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import list_response
from babelgate.adapters.langchain.codec import agent_protocol, state
from babelgate.adapters.langchain.server.answers import answer, empty_answer, pagination, select_members
from babelgate.adapters.langchain.server.dialect import both, dialect_of
from babelgate.adapters.langchain.server.lookup import read_history, thread_not_found
from babelgate.adapters.langchain.server.parameters import (
    check_selection,
    path_id,
    principal_of,
    read_body,
    uuid,
    words,
)
from babelgate.adapters.langchain.server.state import decode_update
from babelgate.adapters.langchain.wire.requests import (
    MAX_PAGE,
    StateUpdate,
    ThreadCount,
    ThreadCreate,
    ThreadPatch,
    ThreadSearch,
    ThreadsPrune,
    Ttl,
)
from babelgate.canonical import FaultCode, FaultError, Hub, Principal, ThreadChange, ThreadFilter, ThreadView
from babelgate.canonical.json import has_members
from babelgate.canonical.listed import Listed
from babelgate.canonical.value import JsonObject

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
_STATE_MEMBERS: Final = frozenset({"values", "messages", "interrupts", "error", "state_updated_at"})
"""Members of a thread that are computed from its log. A search that selects none of them reads no logs."""
_PATH_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(-?\d{1,9})\]")
"""Regular expression for one step of a path such as `values.messages[-1]`: a member's name, or an index in brackets."""


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    server = ThreadHandlers(hub)
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


class ThreadHandlers(Handlers):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def create(self, request: AnyRequest) -> Response[Any]:
        body = await read_body(request, ThreadCreate)
        thread_id = None if body.thread_id is None else uuid(body.thread_id, "thread")
        updates = _supersteps(body)
        change = ThreadChange(
            metadata=body.metadata or {}, ttl=_seconds(body.ttl), keeps_latest=_keeps_latest(body.ttl)
        )
        principal = principal_of(request)
        try:
            thread = await self._hub.create_thread(principal, change, thread_id=thread_id)
        except FaultError as error:
            # langgraph-api 0.16.7: 409, unless `if_exists` is do_nothing.
            if error.fault.code is not FaultCode.CONFLICT or body.if_exists != "do_nothing" or thread_id is None:
                raise
            return await self._thread_response(request, thread_id)
        if not updates:
            view = ThreadView(thread=thread, status="idle", updated_at=thread.changed_at)
            return await self._view_response(request, view)
        for update in updates:
            await self._revise(principal, thread.thread_id, update)
        return await self._thread_response(request, thread.thread_id)

    async def get(self, request: AnyRequest) -> Response[Any]:
        include = words(request, "include")
        return await self._thread_response(request, path_id(request, "thread"), ttl="ttl" in include)

    async def _thread_response(self, request: AnyRequest, thread_id: str, *, ttl: bool = False) -> Response[Any]:
        return await self._view_response(request, await self._view(principal_of(request), thread_id), ttl=ttl)

    async def _view_response(self, request: AnyRequest, view: ThreadView, *, ttl: bool = False) -> Response[Any]:
        body = await self._encode_thread(request, view)
        if ttl and view.thread.ttl is not None:
            body["ttl"] = _encode_ttl(view)
        return answer(body, headers={"Babelgate-Thread": view.thread.thread_id})

    async def _view(self, principal: Principal, thread_id: str) -> ThreadView:
        try:
            return await self._hub.reads.thread_view(principal, thread_id)
        except FaultError as error:
            raise thread_not_found(error, thread_id) from error

    async def _encode_thread(self, request: AnyRequest, view: ThreadView) -> JsonObject:
        history = await read_history(self._hub, principal_of(request), view.thread.thread_id)
        if dialect_of(request) == "agent-protocol":
            return agent_protocol.encode_thread(view, history)
        return state.encode_thread(view, history)

    async def change(self, request: AnyRequest) -> Response[Any]:
        """Change the thread in the path, and return it. Raises invalid for a malformed body, unsupported for values
        that the agent cannot take, not_found for an unknown thread or checkpoint, and conflict if a run is active.

        Values or messages create a new revision; a checkpoint names the revision that it changes. The metadata are
        merged with those of the thread. The Agent Protocol: a checkpoint is "ignored for metadata-only patches".
        """
        principal, thread_id = principal_of(request), path_id(request, "thread")
        body = await read_body(request, ThreadPatch)
        ttl = _seconds(body.ttl)
        revises = body.values is not None or body.messages is not None
        if revises or (body.checkpoint is not None and body.metadata is None):
            update = StateUpdate(values=body.values, checkpoint=body.checkpoint)
            await self._revise(principal, thread_id, update, body.messages)
        if body.metadata is not None or ttl is not None or not revises:
            try:
                change = ThreadChange(metadata=body.metadata or {}, ttl=ttl, keeps_latest=_keeps_latest(body.ttl))
                await self._hub.change_thread(principal, thread_id, change)
            except FaultError as error:
                raise thread_not_found(error, thread_id) from error
        # RFC 7240, 4.2, like langgraph-api 0.16.7.
        if preferences(read_line(request.scope["headers"], "prefer")).get("return") == "minimal":
            return empty_answer(204, {"Preference-Applied": "return=minimal"})
        return await self._thread_response(request, thread_id)

    async def _revise(self, principal: Principal, thread_id: str, update: StateUpdate, messages: Any = None) -> None:
        history = await read_history(self._hub, principal, thread_id)
        hub_update = decode_update(await self._hub.reads.thread(principal, thread_id), history, update)
        if messages is not None:
            decoded = state.decode_messages(messages)
            hub_update = replace(hub_update, messages=(*hub_update.messages, *decoded))
        await self._hub.update_state(principal, hub_update)

    async def delete(self, request: AnyRequest) -> Response[Any]:
        """Delete the thread in the path. Raises invalid for an id that is not a UUID, and not_found."""
        thread_id = path_id(request, "thread")
        try:
            await self._hub.delete_thread(principal_of(request), thread_id)
        except FaultError as error:
            raise thread_not_found(error, thread_id) from error
        return empty_answer(204)

    async def copy(self, request: AnyRequest) -> Response[Any]:
        """Copy the thread in the path, and return the copy. Raises invalid for an id that is not a UUID, and
        not_found."""
        thread_id = path_id(request, "thread")
        try:
            thread = await self._hub.copy_thread(principal_of(request), thread_id)
        except FaultError as error:
            raise thread_not_found(error, thread_id) from error
        return await self._thread_response(request, thread.thread_id)

    async def prune(self, request: AnyRequest) -> Response[Any]:
        """Delete threads or, with the strategy `keep_latest`, all but their newest state. Return the number of threads
        changed. As in langgraph-api 0.16.7, threads that do not exist or have an active run are skipped. Raises invalid
        for a malformed body."""
        body = await read_body(request, ThreadsPrune)
        prune = self._hub.delete_thread if body.strategy == "delete" else self._hub.prune_thread
        pruned = 0
        for thread_id in dict.fromkeys(uuid(id_, "thread") for id_ in body.thread_ids):
            try:
                await prune(principal_of(request), thread_id)
            except FaultError as error:
                if error.fault.code not in (FaultCode.NOT_FOUND, FaultCode.CONFLICT):
                    raise
            else:
                pruned += 1
        return answer({"pruned_count": pruned})

    # Lists

    async def search(self, request: AnyRequest) -> Response[Any]:
        body = await read_body(request, ThreadSearch)
        select = check_selection(body.select or (), _FIELDS, "select")
        paths = {name: _path(path) for name, path in (body.extract or {}).items()}
        where = _thread_filter(body, body.ids)
        if _asks_for_messages(body):
            thread_ids = await self._find_by_values(request, where, body, most=body.limit + 1)
            count, views = len(thread_ids), self._read_views(principal_of(request), thread_ids[: body.limit])
        else:
            page = await self._page(request, where, body, body.limit + 1, body.offset)
            count, views = page.count, aiter(page)
        count_shown = min(count, body.limit)
        headers = pagination(body.offset, count_shown, more=count > count_shown)
        return await list_response(
            b"[]", self._encode_threads(request, views, count_shown, select, paths), headers=headers
        )

    async def _page(
        self, request: AnyRequest, where: ThreadFilter, body: ThreadSearch, limit: int, offset: int
    ) -> Listed[ThreadView]:
        descending = body.sort_order != "asc"
        return await self._hub.reads.threads(
            principal_of(request), where, limit=limit, offset=offset, order=body.order, descending=descending
        )

    async def _find_by_values(
        self, request: AnyRequest, where: ThreadFilter, body: ThreadSearch, *, most: int
    ) -> Sequence[str]:
        """Return the ids of threads whose newest state has the values of `body`: at most `most`, after skipping
        `body.offset`. Each thread's log is read, because the database has no rows with messages."""
        thread_ids: list[str] = []
        skip, offset = body.offset, 0
        while (page := await self._page(request, where, body, MAX_PAGE, offset)).count:
            offset += page.count
            async for view in page:
                if not await self._has_values(principal_of(request), view.thread.thread_id, body.values or {}):
                    continue
                if skip:
                    skip -= 1
                    continue
                thread_ids.append(view.thread.thread_id)
                if len(thread_ids) == most:
                    return thread_ids
        return thread_ids

    async def _has_values(self, principal: Principal, thread_id: str, values: JsonObject) -> bool:
        """Return True if the thread's newest state contains the values."""
        try:
            history = await read_history(self._hub, principal, thread_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:  # deleted in the meantime
                raise
            return False
        return has_members(state.encode_values(history.head), values)

    async def _read_views(self, principal: Principal, thread_ids: Sequence[str]) -> AsyncGenerator[ThreadView]:
        """Yield the threads in `thread_ids`, except those that were deleted in the meantime."""
        for thread_id in thread_ids:
            try:
                yield await self._hub.reads.thread_view(principal, thread_id)
            except FaultError as error:
                if error.fault.code is not FaultCode.NOT_FOUND:
                    raise

    async def _encode_threads(
        self,
        request: AnyRequest,
        views: AsyncGenerator[ThreadView],
        limit: int,
        select: Sequence[str],
        paths: Mapping[str, Sequence[str | int]],
    ) -> AsyncGenerator[bytes | LargeJson]:
        async with aclosing(views):
            async for view in views:
                if not limit:
                    return
                limit -= 1
                try:
                    body = await self._encode_selection(request, view, select, paths)
                except FaultError as error:
                    if error.fault.code is not FaultCode.NOT_FOUND:
                        raise
                    continue
                yield encode(body)

    async def _encode_selection(
        self,
        request: AnyRequest,
        view: ThreadView,
        select: Sequence[str],
        paths: Mapping[str, Sequence[str | int]],
    ) -> JsonObject:
        """Return the members of a thread that `select` names (empty: all). `paths` are values to add in `extracted`, by
        the name that the caller chose."""
        if select and not paths and not _STATE_MEMBERS.intersection(select):
            whole = state.encode_thread(view, None)
        else:
            whole = await self._encode_thread(request, view)
        # Only on request, as in langgraph-api 0.16.7 (`include=ttl`).
        if "ttl" in select and view.thread.ttl is not None:
            whole["ttl"] = _encode_ttl(view)
        body = select_members(whole, select)
        return (
            body | {"extracted": {name: _follow_path(whole, path) for name, path in paths.items()}} if paths else body
        )

    async def count(self, request: AnyRequest) -> Response[Any]:
        body = await read_body(request, ThreadCount)
        if not _asks_for_messages(body):
            return answer(await self._hub.reads.count_threads(principal_of(request), _thread_filter(body)))
        search = ThreadSearch(values=body.values)
        return answer(len(await self._find_by_values(request, _thread_filter(body), search, most=sys.maxsize)))


def _thread_filter(body: ThreadCount, ids: list[str] | None = None) -> ThreadFilter:
    thread_ids = None if ids is None else tuple(uuid(thread_id, "thread") for thread_id in ids)
    values = {} if _asks_for_messages(body) else body.values or {}
    return ThreadFilter(ids=thread_ids, metadata=body.metadata or {}, values=values, status=body.status)


def _asks_for_messages(body: ThreadCount) -> bool:
    """Return True if a search has a condition on the messages of the state, for which each thread must be read."""
    return "messages" in (body.values or {})


def _seconds(ttl: Ttl | float | None) -> int | None:
    """Return the time to live in seconds, from LangGraph's `ttl` in minutes; None stays None."""
    if isinstance(ttl, Ttl):
        ttl = ttl.ttl
    return None if ttl is None else max(1, round(ttl * 60))


def _keeps_latest(ttl: Ttl | float | None) -> bool | None:
    if ttl is None:
        return None
    return isinstance(ttl, Ttl) and ttl.strategy == "keep_latest"


def _encode_ttl(view: ThreadView) -> JsonObject:
    seconds = view.thread.ttl or 0
    expires = view.updated_at + seconds * 1_000_000
    strategy = "keep_latest" if view.thread.keeps_latest else "delete"
    return {"strategy": strategy, "ttl_minutes": seconds / 60, "expires_at": state.format_time(expires)}


def _supersteps(body: ThreadCreate) -> list[StateUpdate]:
    """Return the state changes with which a new thread begins, from `supersteps`. Raises unsupported for a change with
    a command."""
    updates = [update for step in body.supersteps or () for update in step.updates]
    if any(update.command for update in updates):
        raise FaultError(FaultCode.UNSUPPORTED, "supersteps: a command needs an agent with a state of its own")
    return [StateUpdate(values=update.values, as_node=update.as_node) for update in updates]


def _path(text: str) -> Sequence[str | int]:
    """Parse a path such as `values.messages[-1].content` into `["values", "messages", -1, "content"]`. Raises invalid
    for any other text."""
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        step = _PATH_STEP.match(text, position)
        if step is None:
            raise FaultError(FaultCode.INVALID, f"extract: {text[:100]!r} is not a path such as values.messages[-1]")
        steps.append(step[1] if step[1] is not None else int(step[2]))
        position = step.end()
    return steps


def _follow_path(value: Any, path: Sequence[str | int]) -> Any:
    """Return the member or item of a JSON value at a path, or None if it does not exist."""
    for step in path:
        if isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):  # pyright: ignore[reportUnknownArgumentType]
            value = value[step]  # pyright: ignore[reportUnknownVariableType]
        elif isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        else:
            return None
    return value  # pyright: ignore[reportUnknownVariableType]
