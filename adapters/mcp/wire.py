"""MCP messages that the gateway validates itself: the JSON-RPC envelope, the arguments of tools, and the results of
requests to clients. The SDK validates all others."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from babelgate.canonical.value import Json

SPEC: Final = "https://modelcontextprotocol.io/specification/2025-11-25"
"""Base URL of the sections cited as `SPEC/…`."""
NEXT: Final = "https://modelcontextprotocol.io/specification/2026-07-28"
"""Base URL of the sections cited as `NEXT/…`."""
RECORDS: Final = "org.w3id.babelgate/events-v1"
"""Name of the Babelgate extension in MCP's capabilities and in `_meta`."""


class Wire(BaseModel):
    """Base class of the models in this module."""

    model_config = ConfigDict(strict=True)


class Error(Wire):
    """Error of a JSON-RPC response (SPEC/basic, Messages)."""

    code: StrictInt
    message: StrictStr


class Envelope(Wire):
    """Any JSON-RPC message (SPEC/basic, Messages): a request, a notification, or a response to a request of the
    server."""

    jsonrpc: Literal["2.0"]
    id: StrictStr | StrictInt | None = None
    method: Annotated[StrictStr, Field(min_length=1)] | None = None
    params: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: Error | None = None


class File(Wire):
    """A file in the arguments of a tool call."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    mime_type: str | None = None
    data: str | None = None
    """Bytes of the file, in Base64."""
    uri: str | None = None


class Arguments(Wire):
    """Arguments of a tool whose agent takes messages."""

    model_config = ConfigDict(extra="forbid")

    message: str
    data: Json = None
    files: list[File] = []
    thread_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None


class Elicited(Wire):
    """Result of a form: the user's action, and the fields (SPEC/client/elicitation, Response Actions)."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class Sampled(Wire):
    """Result of `sampling/createMessage`: a message of the caller's model (SPEC/client/sampling, Creating Messages)."""

    model_config = ConfigDict(extra="allow")

    role: Literal["user", "assistant"]
    content: dict[str, Any] | list[dict[str, Any]]
    model: StrictStr


class Roots(Wire):
    """Result of `roots/list`: the caller's folders (SPEC/client/roots, Listing Roots)."""

    model_config = ConfigDict(extra="allow")

    roots: list[dict[str, Any]]


class Resume(Wire):
    """Arguments of `resume_run`, the tool that answers questions."""

    model_config = ConfigDict(extra="forbid")

    run_id: str
    answers: dict[str, Json] = {}
    action: Literal["answer", "decline", "cancel"] = "answer"
