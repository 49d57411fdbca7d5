"""REST operations of AG-UI: the types of their bodies."""

from typing import Any, Final

from babelgate.adapters.ag_ui import wire as w
from babelgate.adapters.kit.server.rest import RestDescription, RestOperation

REST: Final = RestDescription(
    official=w.SPEC,
    error=w.ErrorResponse,
    operations={
        "run_agent": RestOperation(body=w.RunAgentInput, streams=dict[str, Any], is_stream_only=True),
        "connect": RestOperation(
            body=w.RunReference,
            streams=dict[str, Any],
            is_stream_only=True,
            headers={"Last-Event-ID": "string"},
        ),
        "cancel": RestOperation(body=w.RunReference, returns=w.CancelAccepted),
        "get_capabilities": RestOperation(returns=dict[str, Any]),
        "get_file": RestOperation(returns=bytes, media_type="application/octet-stream"),
    },
)
