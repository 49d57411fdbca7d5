"""Routes of grants: an owner shares threads, lists the grants, and revokes them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from litestar import Response, delete, get, post
from litestar.types import ControllerRouterHandler
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from babelgate.adapters.kit.json import read_json, validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.grant import Grant, GrantLevel
from babelgate.canonical.hub import Hub
from babelgate.canonical.value import JsonObject

PATH: Final = "/grants"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_Text = Annotated[str, Field(min_length=1, max_length=300)]


class Share(BaseModel):
    """Grant of access to a thread, as the body of a request."""

    model_config = ConfigDict(extra="forbid")

    thread_id: _Text
    grantee: _Text
    level: GrantLevel = "read"
    expires: AwareDatetime | None = None


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    """Return the handlers that give, list and delete grants. Raises the faults of `babelgate.canonical.grant.Grants`,
    and invalid, not_found."""

    @get(PATH)
    async def list_grants(request: AnyRequest) -> JsonObject:
        principal, thread_id = caller(request).principal, request.query_params.get("thread_id")
        if thread_id is not None:
            return {"given": [_encode(each) for each in await hub.grants.list_given(principal, thread_id)]}
        return {
            "given": [_encode(each) for each in await hub.grants.list_given(principal)],
            "received": [_encode(each) for each in await hub.grants.list_received(principal)],
        }

    @post(PATH, status_code=200)
    async def give(request: AnyRequest) -> JsonObject:
        share = validate(Share, await read_json(request))
        expires = None if share.expires is None else (share.expires - _EPOCH) // timedelta(microseconds=1)
        grant = await hub.grants.give(caller(request).principal, share.thread_id, share.grantee, share.level, expires)
        return _encode(grant)

    @delete(PATH, status_code=204)
    async def remove(request: AnyRequest) -> Response[None]:
        thread_id, grantee = (_need(request, name) for name in ("thread_id", "grantee"))
        if not await hub.grants.delete(caller(request).principal, thread_id, grantee):
            raise FaultError(FaultCode.NOT_FOUND, "There is no such grant.")
        return Response(None, status_code=204)

    return (list_grants, give, remove)


def _need(request: AnyRequest, name: str) -> str:
    value: str | None = request.query_params.get(name)
    if not value:
        raise FaultError(FaultCode.INVALID, f"{name}: required query parameter")
    return value


def _encode(grant: Grant) -> JsonObject:
    """Return a grant as JSON, with times in RFC 3339."""
    return {
        "thread_id": grant.thread_id,
        "owner": grant.owner,
        "grantee": grant.grantee,
        "level": grant.level,
        "by": grant.by,
        "at": _time(grant.at),
        "expires": None if grant.expires is None else _time(grant.expires),
    }


def _time(at: int) -> str:
    return (_EPOCH + timedelta(microseconds=at)).isoformat().replace("+00:00", "Z")
