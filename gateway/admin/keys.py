"""API keys over the administration API: create, list, rotate and revoke."""

from typing import Any, Final

import msgspec
from litestar import Response
from litestar.params import FromPath

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.admin.bodies import NewKey, Rotation, read_body, read_expiry, read_grace, read_limit
from babelgate.gateway.api_key import digest_of, make_key
from babelgate.gateway.clock import Clock, format_time
from babelgate.gateway.exchange import current_origin
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.ids import new_id
from babelgate.gateway.storage import administration
from babelgate.gateway.storage.administration import StoredKey

_MAX_NAME: Final = 128
"""Maximum length of an owner, a group or a scope, in characters: as in the settings."""
_MAX_NAMES: Final = 100
"""Maximum number of groups, and of scopes, of a key. Chosen."""
_NO_STORE: Final = {"cache-control": "no-store"}
"""Headers of a response that contains an API key, so that no cache stores it."""


class KeyHandlers(Handlers):
    """HTTP handlers of the administration API for API keys."""

    def __init__(self, hub: GatewayHub, clock: Clock | None = None) -> None:
        self._hub = hub
        self._clock = clock or Clock()

    async def create_key(self, request: AnyRequest) -> Response[Any]:
        """Create a key. The response is the only place that contains it."""
        body = await read_body(request, NewKey)
        _check_names("owner", (body.owner,))
        _check_names("groups", body.groups)
        _check_names("scopes", body.scopes)
        now, secret = self._clock.now(), make_key()
        key = StoredKey(
            key_id=new_id(),
            owner=body.owner,
            groups=body.groups,
            scopes=body.scopes,
            digest=digest_of(secret),
            created_at=now,
            created_by=caller(request).principal.subject,
            expires_at=read_expiry(body.expires, now),
        )
        await self._hub.journal.write(administration.create_key, key, current_origin())
        await self._hub.administration.refresh()
        headers = {**_NO_STORE, "location": f"/admin/keys/{key.key_id}"}
        return Response({"key": secret, **_encode(key)}, status_code=201, headers=headers)

    async def list_keys(self, request: AnyRequest) -> Response[Any]:
        """List the records of all keys, including revoked ones. They do not contain the keys themselves."""
        limit = read_limit(request, 100, 1000)
        after = request.query_params.get("after", "")
        keys = await self._hub.journal.query(administration.read_keys, limit, after)
        more = {"next": keys[-1].key_id} if len(keys) == limit else {}
        return Response({"keys": list(map(_encode, keys)), **more})

    async def get_key(self, key_id: FromPath[str]) -> Response[Any]:
        """Return the record of one key, which does not contain the key itself."""
        return Response(_encode(await self._hub.journal.query(administration.read_key, key_id)))

    async def rotate_key(self, request: AnyRequest, key_id: FromPath[str]) -> Response[Any]:
        """Replace the secret of a key, which keeps its id."""
        grace = read_grace((await read_body(request, Rotation)).grace)
        secret, origin = make_key(), current_origin()
        key = await self._hub.journal.write(
            administration.rotate_key, key_id, digest_of(secret), round(grace * 1e6), origin
        )
        await self._hub.administration.refresh()
        return Response({"key": secret, **_encode(key)}, headers=_NO_STORE)

    async def revoke_key(self, key_id: FromPath[str]) -> Response[Any]:
        """End the validity of a key, and end the open streams of its callers."""
        key = await self._hub.journal.write(administration.revoke_key, key_id, current_origin())
        await self._hub.administration.refresh()
        return Response(_encode(key))


def _check_names(member: str, names: tuple[str, ...]) -> None:
    if len(names) > _MAX_NAMES:
        raise FaultError(FaultCode.INVALID, f"{member}: expected at most {_MAX_NAMES} names")
    if not all(name and len(name) <= _MAX_NAME and name.isprintable() for name in names):
        raise FaultError(FaultCode.INVALID, f"{member}: a name is 1 to {_MAX_NAME} printable characters")


def _encode(key: StoredKey) -> dict[str, Any]:
    """Return an API key as responses show it, without the key itself."""
    fields = msgspec.structs.asdict(key)
    times = ("created_at", "expires_at", "revoked_at", "last_used_at")
    return {
        "id": key.key_id,
        "owner": key.owner,
        "groups": key.groups,
        "scopes": key.scopes,
        "created_by": key.created_by,
        **{name: format_time(fields[name]) for name in times},
        "previous_accepted_until": format_time(key.previous_until),
    }
