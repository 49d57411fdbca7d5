"""HTTP operations of the adapter, for the OpenAPI document. The methods of the protocol itself are messages over a
WebSocket."""

from typing import Any, Final

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.kit.server.rest import RestDescription, RestOperation

REST: Final = RestDescription(
    official=w.SPEC,
    error=dict[str, Any],
    operations={
        "get_session": RestOperation(returns=w.SessionUpdates),
        "get_file": RestOperation(returns=bytes, media_type="application/octet-stream"),
    },
)
