"""Messages of MCP that the gateway reads itself: the envelope, and what its tools are called with. All else is read by
the SDK."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from babelgate.canonical.value import Json

SPEC: Final = "https://modelcontextprotocol.io/specification/2025-11-25"
NEXT: Final = "https://modelcontextprotocol.io/specification/2026-07-28"
RECORDS: Final = "org.w3id.babelgate/events-v1"
"""The Babelgate extension, as MCP names extensions."""


class Wire(BaseModel):
    model_config = ConfigDict(strict=True)


class Error(Wire):
    code: StrictInt
    message: StrictStr


class Envelope(Wire):
    """SPEC/basic, Messages: a request, a notification, or a response to what the server has asked."""

    jsonrpc: Literal["2.0"]
    id: StrictStr | StrictInt | None = None
    method: Annotated[StrictStr, Field(min_length=1)] | None = None
    params: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: Error | None = None


class File(Wire):
    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    mime_type: str | None = None
    data: str | None = None
    """Base64."""
    uri: str | None = None


class Arguments(Wire):
    """Of a tool that is an agent without an input schema of its own."""

    model_config = ConfigDict(extra="forbid")

    message: str
    data: Json = None
    files: list[File] = []
    thread_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None


class Elicited(Wire):
    """SPEC/client/elicitation, Response Actions."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class Sampled(Wire):
    """SPEC/client/sampling, Creating Messages: of what the caller's model said."""

    model_config = ConfigDict(extra="allow")

    role: Literal["user", "assistant"]
    content: dict[str, Any] | list[dict[str, Any]]
    model: StrictStr


class Roots(Wire):
    """SPEC/client/roots, Listing Roots."""

    model_config = ConfigDict(extra="allow")

    roots: list[dict[str, Any]]


class Resume(Wire):
    """Of the tool that answers questions."""

    model_config = ConfigDict(extra="forbid")

    run_id: str
    answers: dict[str, Json] = {}
    action: Literal["answer", "decline", "cancel"] = "answer"
