"""Crons of LangGraph Platform: scheduled runs, either on one thread or each on a new thread."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from litestar import Response, delete, get, patch, post
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.json import validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller
from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import list_response
from babelgate.adapters.langchain.codec import state
from babelgate.adapters.langchain.codec.state import format_time
from babelgate.adapters.langchain.server.answers import answer, empty_answer, pagination, select_members
from babelgate.adapters.langchain.server.create_run import bad_request, prepare_for
from babelgate.adapters.langchain.server.lookup import find_assistant, thread_not_found
from babelgate.adapters.langchain.server.parameters import (
    check_selection,
    path_id,
    principal_of,
    read_body,
    read_optional_body,
    uuid,
)
from babelgate.adapters.langchain.wire import crons as w
from babelgate.adapters.langchain.wire.requests import RunCreate
from babelgate.canonical import Cron, CronQuery, FaultCode, FaultError, Hub, Listed, Principal
from babelgate.canonical.cron import CronOrder
from babelgate.canonical.value import JsonObject

_FIELDS: Final = frozenset(
    {
        "cron_id",
        "assistant_id",
        "thread_id",
        "user_id",
        "end_time",
        "schedule",
        "timezone",
        "payload",
        "next_run_date",
        "metadata",
        "on_run_completed",
        "enabled",
        "created_at",
        "updated_at",
    }
)
_ORDERS: Final[dict[str, CronOrder]] = {
    "cron_id": "cron_id",
    "assistant_id": "assistant_id",
    "thread_id": "thread_id",
    "next_run_date": "next_run",
    "end_time": "end_time",
    "created_at": "created_at",
    "updated_at": "updated_at",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PROTOCOL: Final = "langgraph"


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    server = CronHandlers(hub)
    one = "/runs/crons/{cron_id:str}"
    return [
        post(["/runs/crons", "/threads/{thread_id:str}/runs/crons"], status_code=200)(server.create),
        post("/runs/crons/search", status_code=200)(server.search),
        post("/runs/crons/count", status_code=200)(server.count),
        get(one)(server.get),
        patch(one)(server.change),
        delete(one, status_code=200)(server.delete),
    ]


async def submit(hub: Hub, principal: Principal, cron: Cron, run_id: str) -> None:
    """Start one run of a cron under the given run id. The gateway's scheduler calls it when the run is due. Raises the
    hub's fault if it refuses the run."""
    body = {
        **cron.request,
        "assistant_id": cron.assistant_id,
        "metadata": {**cron.metadata, "cron_id": cron.cron_id},
        "on_completion": "keep" if cron.keep else "delete",
    }
    who = Caller(principal, base_url="", agent=None)
    launch = await prepare_for(hub, who, "langgraph", validate(RunCreate, body), cron.thread_id, run_id)
    await launch.start()


class CronHandlers(Handlers):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def create(self, request: AnyRequest) -> Response[Any]:
        """Create a cron. Raises invalid for a malformed body, not_found for an unknown thread or assistant, too_large,
        and queue_full for too many crons."""
        principal = principal_of(request)
        thread_id = path_id(request, "thread") if "thread_id" in request.path_params else None
        body = await read_body(request, w.CronCreate)
        _check(body)
        agent, assistant = await find_assistant(self._hub, principal, body.assistant_id)
        cron = Cron(
            cron_id=str(uuid4()),
            agent=agent.name,
            assistant_id=state.assistant_id(agent.name) if assistant is None else assistant.assistant_id,
            protocol=_PROTOCOL,
            request=body.request,
            schedule=body.schedule,
            timezone=body.timezone,
            thread_id=thread_id,
            keep=body.on_run_completed == "keep",
            end_time=_microseconds(body.end_time),
            enabled=body.enabled is not False,
            metadata=body.metadata or {},
        )
        try:
            cron = await self._hub.crons.create(principal, cron, body.webhook)
        except FaultError as error:
            raise thread_not_found(error, thread_id or "") from error
        return answer(_encode(cron, principal.owner))

    async def get(self, request: AnyRequest) -> Response[Any]:
        return answer(_encode(await self._path_cron(request), principal_of(request).owner))

    async def _path_cron(self, request: AnyRequest) -> Cron:
        cron_id = path_id(request, "cron")
        cron = await self._hub.crons.get(principal_of(request), cron_id)
        if cron is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Cron with ID {cron_id} not found")
        return cron

    async def change(self, request: AnyRequest) -> Response[Any]:
        """Change the cron in the path. Raises invalid for a malformed or empty body, not_found for an unknown cron, and
        too_large."""
        current = await self._path_cron(request)
        body = await read_body(request, w.CronPatch)
        _check(body)
        changes: JsonObject = {
            name: getattr(body, name)
            for name in ("schedule", "timezone", "enabled", "metadata")
            if getattr(body, name) is not None
        }
        if request_ := body.request:
            changes["request"] = request_
        if "end_time" in body.model_fields_set:  # null removes it
            changes["end_time"] = _microseconds(body.end_time)
        if body.on_run_completed is not None:
            changes["keep"] = body.on_run_completed == "keep"
        if not changes:
            # langgraph-api 0.16.7: 400, and not 422.
            raise bad_request("There is nothing to change.")
        cron = await self._hub.crons.change(principal_of(request), current.cron_id, changes, body.webhook)
        return answer(_encode(cron, principal_of(request).owner))

    async def delete(self, request: AnyRequest) -> Response[Any]:
        """Delete the cron in the path. Raises invalid for an id that is not a UUID, and not_found."""
        cron_id = path_id(request, "cron")
        if not await self._hub.crons.delete(principal_of(request), cron_id):
            raise FaultError(FaultCode.NOT_FOUND, f"Cron with ID {cron_id} not found")
        return empty_answer(204)

    async def search(self, request: AnyRequest) -> Response[Any]:
        body = await read_optional_body(request, w.CronSearch)
        select = None if body.select is None else check_selection(body.select, _FIELDS, "select")
        query = await self._query(
            request,
            body,
            enabled=body.enabled,
            order=_ORDERS[body.sort_by or "created_at"],
            descending=body.sort_order != "asc",
            limit=body.limit + 1,
            offset=body.offset,
        )
        page = await self._hub.crons.search(principal_of(request), query)
        count = min(page.count, body.limit)
        headers = pagination(body.offset, count, more=page.count > count)
        crons = _encode_crons(page, count, select, principal_of(request).owner)
        return await list_response(b"[]", crons, headers=headers)

    async def count(self, request: AnyRequest) -> Response[Any]:
        query = await self._query(request, await read_optional_body(request, w.CronCount))
        return answer(await self._hub.crons.count(principal_of(request), query))

    async def _query(self, request: AnyRequest, filter_: w.CronCount, **more: Any) -> CronQuery:
        assistant_id = filter_.assistant_id
        if assistant_id is not None:
            agent, assistant = await find_assistant(self._hub, principal_of(request), assistant_id)
            assistant_id = state.assistant_id(agent.name) if assistant is None else assistant.assistant_id
        thread_id = None if filter_.thread_id is None else uuid(filter_.thread_id, "thread")
        return CronQuery(assistant_id=assistant_id, thread_id=thread_id, metadata=filter_.metadata or {}, **more)


def _check(body: w.CronFields) -> None:
    """Refuse settings with which each run of the cron would fail: both `configurable` and `context`. Raises
    bad_request."""
    if body.config is not None and body.config.configurable and body.context:
        raise bad_request("Cannot specify both configurable and context: use one of them.")


def _microseconds(at: datetime | None) -> int | None:
    """Return a time in microseconds since 1970; None stays None."""
    if at is None:
        return None
    # A time without a zone is UTC, as the schedule is.
    return round(((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) / timedelta(microseconds=1))


def _encode(cron: Cron, owner: str) -> JsonObject:
    payload: JsonObject = {"assistant_id": cron.assistant_id, "schedule": cron.schedule}
    if cron.timezone is not None:
        payload["timezone"] = cron.timezone
    if cron.metadata:
        payload["metadata"] = cron.metadata
    return {
        "cron_id": cron.cron_id,
        "assistant_id": cron.assistant_id,
        "thread_id": cron.thread_id,
        "user_id": owner,
        "end_time": None if cron.end_time is None else format_time(cron.end_time),
        "schedule": cron.schedule,
        "timezone": cron.timezone,
        "payload": {**payload, **cron.request},
        "next_run_date": None if cron.next_run is None else format_time(cron.next_run),
        "metadata": cron.metadata,
        # langgraph-api 0.16.7: null for a cron on a thread of its caller.
        "on_run_completed": None if cron.thread_id is not None else "keep" if cron.keep else "delete",
        "enabled": cron.enabled,
        "created_at": format_time(cron.created_at),
        "updated_at": format_time(cron.updated_at),
    }


async def _encode_crons(
    page: Listed[Cron], limit: int, select: Sequence[str] | None, owner: str
) -> AsyncGenerator[bytes | LargeJson]:
    async with aclosing(aiter(page)) as crons:
        async for cron in crons:
            if not limit:
                return
            limit -= 1
            yield encode(select_members(_encode(cron, owner), select))
