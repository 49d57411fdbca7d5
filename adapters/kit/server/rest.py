"""Descriptions of REST operations: the types of their bodies, from which the gateway generates OpenAPI documents.

Paths, methods and statuses come from the routes, and summaries from the docstrings of the handlers. A description adds
what a handler reads and returns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

JsonType = Literal["string", "integer", "boolean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOperation:
    """Bodies and parameters of one REST operation. A type is anything that pydantic can describe by a JSON Schema."""

    body: Any = None
    """Type of the request body. None means that no body is read."""
    is_body_optional: bool = False
    """True if a request without a body is accepted."""
    body_media_type: str = "application/json"
    returns: Any = None
    """Type of the response body. None means any JSON, or no body if the status is 204."""
    media_type: str = "application/json"
    """Media type of the response."""
    streams: Any = None
    """Type of the data of each server-sent event, if the operation can respond with a stream. None means that it
    cannot, and `Any` that the data is any JSON."""
    is_stream_only: bool = False
    """True if a successful response is always a stream."""
    other: Mapping[int, Any] = field(default_factory=dict[int, Any])
    """Body types of other successful responses, by status."""
    query: Mapping[str, JsonType] = field(default_factory=dict[str, JsonType])
    """Parameters of the query, with the type of their values. All of them are optional."""
    headers: Mapping[str, JsonType] = field(default_factory=dict[str, JsonType])
    """Request headers that the operation reads, with the type of their values. All of them are optional."""
    within: Mapping[str, "RestOperation"] = field(default_factory=dict[str, Any])
    """Operations that share one route, because the last segment of its path holds more than an id. Each key has the
    method and that segment, such as `post {task_id}:cancel`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestDescription:
    """Descriptions of the operations of one protocol."""

    error: Any
    """Body type of every error."""
    operations: Mapping[str, RestOperation]
    """Descriptions by the name of the operation, as in metrics and logs: `get_run`, `thread.create`."""
    official: str = ""
    """URL of the official document of the protocol. Empty if there is none."""
