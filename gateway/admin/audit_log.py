"""The audit log over the administration API: pages with filters, and verification."""

from typing import Any, Final

import msgspec
from litestar import Response

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.admin.bodies import read_limit, read_query, read_time
from babelgate.gateway.clock import format_time
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.storage.audit import AuditFilter, ChainVerifier, read_page_of_chain, read_records

_TEXTS: Final = ("action", "subject", "kind", "target", "agent", "outcome")
_TIMES: Final = ("since", "until")
_PARAMETERS: Final = frozenset((*_TEXTS, *_TIMES, "limit", "before"))


class AuditHandlers(Handlers):
    """HTTP handlers of the administration API for the audit log."""

    def __init__(self, hub: GatewayHub) -> None:
        self._hub = hub

    async def list_records(self, request: AnyRequest) -> Response[Any]:
        """List the records, the newest first. Raises invalid for an unknown, repeated or malformed query parameter."""
        parameters = read_query(request)
        if unknown := set(parameters) - _PARAMETERS:
            names = ", ".join(sorted(_PARAMETERS))
            raise FaultError(FaultCode.INVALID, f"There is no parameter {min(unknown)[:40]!r}; there are {names}")
        filters: dict[str, Any] = {name: parameters[name] for name in _TEXTS if name in parameters}
        filters |= {name: read_time(parameters[name], name) for name in _TIMES if name in parameters}
        before = parameters.get("before")
        if before is not None and not (before.isascii() and before.isdigit() and len(before) <= 18):
            raise FaultError(FaultCode.INVALID, "before: expected the number of a record, such as the last `next`")
        limit = read_limit(request, 100, 1000)
        position = None if before is None else int(before)
        rows = await self._hub.journal.query(read_records, AuditFilter(**filters), limit, position)
        more = {"next": rows[-1]["seq"]} if len(rows) == limit else {}
        return Response({"records": list(map(_encode, rows)), **more})

    async def verify(self) -> Response[Any]:
        """Verify the chain of hashes of the whole audit log, and return the result."""
        verifier = ChainVerifier()
        while records := await self._hub.journal.query(read_page_of_chain, verifier.position):
            if not verifier.add(records):
                break
        result = verifier.finish()
        return Response({"intact": result.problem is None, **msgspec.to_builtins(result)})


def _encode(row: dict[str, Any]) -> dict[str, Any]:
    """Return a record of the audit log as responses show it, without its empty members."""
    actor = {name: row[name] for name in ("subject", "owner", "issuer", "credential") if row[name]}
    target = {"kind": row["kind"], "id": row["target"], "agent": row["agent"], "owner": row["target_owner"]}
    request = {name: row[name] for name in ("node", "request_id", "trace_id", "protocol", "address") if row[name]}
    outcome = {name: row[name] for name in ("outcome", "reason") if row[name]}
    return {
        "seq": row["seq"],
        "at": format_time(row["at"]),
        **request,
        "actor": actor,
        "action": row["action"],
        "target": {name: value for name, value in target.items() if value},
        **outcome,
        **({"count": row["count"]} if row["count"] > 1 else {}),
        **{name: row[name] for name in ("before", "after") if row[name]},
        "previous_hash": row["previous_hash"],
        "hash": row["hash"],
    }
