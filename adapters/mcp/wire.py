"""MCP messages that the gateway reads itself: the envelope, the tools' arguments, and the responses of clients. The SDK
reads all others."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from babelgate.canonical.value import Json

SPEC: Final = "https://modelcontextprotocol.io/specification/2025-11-25"
"""Base URL of the sections cited as `SPEC/…`."""
NEXT: Final = "https://modelcontextprotocol.io/specification/2026-07-28"
"""Base URL of the sections cited as `NEXT/…`."""
RECORDS: Final = "org.w3id.babelgate/events-v1"
"""Name of the Babelgate extension in MCP."""


class Wire(BaseModel):
    """Base class of the messages."""

    model_config = ConfigDict(strict=True)


class Error(Wire):
    """SPEC/basic, Messages: an error of JSON-RPC."""

    code: StrictInt
    message: StrictStr


class Envelope(Wire):
    """SPEC/basic, Messages: a request, a notification, or a response to a request of the server."""

    jsonrpc: Literal["2.0"]
    id: StrictStr | StrictInt | None = None
    method: Annotated[StrictStr, Field(min_length=1)] | None = None
    params: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: Error | None = None


class File(Wire):
    """A file in the arguments of a tool."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    mime_type: str | None = None
    data: str | None = None
    """The bytes, in base64."""
    uri: str | None = None


class Arguments(Wire):
    """Arguments of a tool whose agent has no input schema."""

    model_config = ConfigDict(extra="forbid")

    message: str
    data: Json = None
    files: list[File] = []
    thread_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None


class Elicited(Wire):
    """SPEC/client/elicitation, Response Actions: the response to a form."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class Sampled(Wire):
    """SPEC/client/sampling, Creating Messages: a message of the caller's model."""

    model_config = ConfigDict(extra="allow")

    role: Literal["user", "assistant"]
    content: dict[str, Any] | list[dict[str, Any]]
    model: StrictStr


class Roots(Wire):
    """SPEC/client/roots, Listing Roots: the caller's folders."""

    model_config = ConfigDict(extra="allow")

    roots: list[dict[str, Any]]


class Resume(Wire):
    """Arguments of the tool that answers questions."""

    model_config = ConfigDict(extra="forbid")

    run_id: str
    answers: dict[str, Json] = {}
    action: Literal["answer", "decline", "cancel"] = "answer"
