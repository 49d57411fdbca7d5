"""Authorization of MCP: the metadata of the gateway as a protected resource (RFC 9728), and the `WWW-Authenticate`
header that names its URL."""

from collections.abc import MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from litestar import Response
from litestar.exceptions import NotFoundException

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Authentication, authentication, base_url
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.adapters.mcp.errors import ORIGIN, encode_fault
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject

METADATA: Final = "/.well-known/oauth-protected-resource"
METADATA_PATHS: Final = (METADATA, f"{METADATA}/mcp")
"""Paths of the metadata. Clients look at the longer one first (SPEC/basic/authorization, Protected Resource Metadata
Discovery Requirements)."""
_MAX_AGE: Final = 300
"""Seconds for which a client may cache the metadata. Chosen: they change only with the configuration."""


async def get_metadata(request: AnyRequest) -> Response[Any]:
    """Return the metadata of the protected resource. Raises NotFoundException if the gateway accepts no tokens."""
    accepted = authentication(request)
    if not accepted.issuers:
        raise NotFoundException
    body = resource_metadata(accepted, base_url(request))
    return json_response(body, {"Cache-Control": f"public, max-age={_MAX_AGE}"})


def resource_metadata(accepted: Authentication, base_url: str) -> JsonObject:
    """Return the metadata of the gateway as a protected resource (RFC 9728, 2), for the base URL of the request."""
    metadata: JsonObject = {
        "resource": _resource(accepted, base_url),
        "authorization_servers": [issuer.url for issuer in accepted.issuers],
        "bearer_methods_supported": ["header"],
        "resource_name": "Babelgate",
    }
    if accepted.scopes:
        metadata["scopes_supported"] = list(accepted.scopes)
    return metadata


def _resource(accepted: Authentication, base_url: str) -> str:
    """Return the resource for which clients request tokens: the configured audience that contains this endpoint's URL,
    else the base URL. The gateway accepts tokens for its audiences only."""
    audiences = [audience for issuer in accepted.issuers for audience in issuer.audiences]
    return next((audience for audience in audiences if _contains(audience, f"{base_url}/mcp")), base_url)


def _contains(audience: str, url: str) -> bool:
    """Return True if a URL equals an audience or is below it, by the rule that clients use (mcp 2.3.0)."""
    parent, child = urlsplit(audience), urlsplit(url)
    is_same_host = (parent.scheme.lower(), parent.netloc.lower()) == (child.scheme.lower(), child.netloc.lower())
    return is_same_host and f"{child.path}/".startswith(f"{parent.path.rstrip('/')}/")


def challenge_headers(fault: Fault, request: AnyRequest) -> dict[str, str]:
    """Return the headers of the response to a refused request. If a token could help, `WWW-Authenticate` contains the
    URL of the metadata (SPEC/basic/authorization, Access Token Usage and Scope Challenge Handling)."""
    headers, accepted = fault_headers(fault), authentication(request)
    is_about_origin = fault.details.get("reason") == ORIGIN
    if "WWW-Authenticate" in headers and accepted.issuers and not is_about_origin:
        parameters = [f'resource_metadata="{base_url(request)}{METADATA_PATHS[1]}"']
        if accepted.scopes and fault.code is FaultCode.UNAUTHENTICATED:
            parameters.append(f'scope="{" ".join(accepted.scopes)}"')
        challenge = headers["WWW-Authenticate"]
        headers["WWW-Authenticate"] = f"{challenge}{',' if '=' in challenge else ''} {', '.join(parameters)}"
    return headers


class Challenge:
    """Error response to a request whose token needs more scopes (SPEC/basic/authorization, Scope Challenge
    Handling)."""

    def __init__(self, request: AnyRequest, request_id: str | int | None) -> None:
        self._request = request
        self._request_id = request_id

    def encode(self, fault: Fault) -> tuple[MutableMapping[str, Any], MutableMapping[str, Any]]:
        """Return the ASGI messages of the response for a fault."""
        status, body, _ = encode_fault(fault)
        headers = {"Content-Type": "application/json", **challenge_headers(fault, self._request)}
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        content = msgspec.json.encode({**body, "id": self._request_id})
        return (
            {"type": "http.response.start", "status": status, "headers": encoded},
            {"type": "http.response.body", "body": content, "more_body": False},
        )
