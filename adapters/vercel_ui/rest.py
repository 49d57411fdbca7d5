"""HTTP operations of the protocol, for the OpenAPI document: the types of their bodies, query parameters and
headers."""

from typing import Any, Final

from babelgate.adapters.kit.server.rest import JsonType, RestDescription, RestOperation
from babelgate.adapters.vercel_ui import wire as w

_OPTIONS: Final[dict[str, JsonType]] = {"sdk": "integer", "steps": "boolean"}
_HEADERS: Final[dict[str, JsonType]] = {"Babelgate-Sdk": "integer"}

REST: Final = RestDescription(
    error=str,
    operations={
        "send_messages": RestOperation(
            body=w.ChatRequest,
            streams=dict[str, Any],
            is_stream_only=True,
            query={**_OPTIONS, "on_disconnect": "string"},
            headers=_HEADERS,
        ),
        "get_chat": RestOperation(returns=w.ChatHistory, query=_OPTIONS, headers=_HEADERS),
        "resume_stream": RestOperation(
            streams=dict[str, Any],
            is_stream_only=True,
            other={204: None},
            query={**_OPTIONS, "startIndex": "integer"},
            headers=_HEADERS,
        ),
        "stop_chat": RestOperation(returns=w.Stopped),
        "get_file": RestOperation(media_type="application/octet-stream"),
    },
)
