"""Requests to the token endpoint of an identity provider (RFC 6749, 3.2): a form is sent, and one JSON object of
limited size is read."""

import asyncio
import base64
import json
import math
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import quote_plus

import httpx

from babelgate.adapters.kit.client.redact import hide_texts
from babelgate.canonical.printable import printable

TIMEOUT: Final = 10.0
"""Maximum duration of one request for a token, in seconds. Chosen: a run waits for it."""
_MAX_BODY: Final = 256 * 1024
"""Maximum size of a response, in bytes. Chosen: tokens with many groups have tens of KiB."""
_MAX_TOKEN: Final = 64 * 1024
"""Maximum length of a token, in characters: the limit of common servers on one header."""
_KINDS: Final = {
    "client_credentials": "client",
    "urn:ietf:params:oauth:grant-type:token-exchange": "exchange",
    "authorization_code": "consent",
    "refresh_token": "refresh",
}
"""Names of the OAuth grants in metrics, by the `grant_type` of the request."""
NoteFetch = Callable[[str, str, float], None]
"""Receiver of reports: (kind of the grant, outcome, seconds), as `GatewayObserver.note_token_fetched` names them."""
_TEXT_LENGTH: Final = 200
"""Maximum length of a provider's description of an error, in characters."""


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """Tokens that a provider has issued for one request."""

    access_token: str = field(repr=False)
    expires_in: float | None
    """Lifetime of the access token in seconds; None if the provider does not state it."""
    refresh_token: str | None = field(default=None, repr=False)
    id_token: str | None = field(default=None, repr=False)
    scope: str | None = None


class TokenRefused(Exception):
    """Refusal of an identity provider to issue a token. The message is for the operator's log."""

    def __init__(self, error: str, description: str = "") -> None:
        """Create the exception. `error` is an error code of RFC 6749, 5.2, such as `invalid_grant`."""
        super().__init__(f"{error}: {description}" if description else error)
        self.error = error


class ProviderUnavailable(Exception):
    """Missing or unusable response of an identity provider. The message is for the operator's log."""


class TokenEndpoint:
    """Token endpoint of one provider, with the gateway as its client."""

    def __init__(self, url: str, client_id: str, client_secret: str, note: NoteFetch | None = None) -> None:
        """Create the endpoint. `note` receives a report of each request."""
        self._note = note
        self._url = url
        self._client_id, self._secret = client_id, client_secret
        self._tls: ssl.SSLContext | None = None

    @property
    def identity(self) -> tuple[str, str, str]:
        """Values on which all tokens of this endpoint depend: its URL, and the id and the secret of the gateway as its
        client."""
        return self._url, self._client_id, self._secret

    async def request(self, form: Mapping[str, str]) -> IssuedToken:
        """Return the token that the provider issues for a form. Raises TokenRefused if the provider refuses, and
        ProviderUnavailable if it does not respond."""
        began, outcome = time.monotonic(), "cancelled"
        try:
            issued = await self._request(form)
            outcome = "issued"
        except TokenRefused:
            outcome = "refused"
            raise
        except ProviderUnavailable:
            outcome = "unavailable"
            raise
        finally:
            if self._note is not None:
                self._note(_KINDS[form["grant_type"]], outcome, time.monotonic() - began)
        return issued

    async def _request(self, form: Mapping[str, str]) -> IssuedToken:
        try:
            async with asyncio.timeout(TIMEOUT):
                status, body = await self._post(form)
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise ProviderUnavailable(f"no answer: {type(error).__name__}") from None
        answer = _parse(body)
        if status != 200:
            raise _refusal(status, answer, [self._secret, *form.values()])
        return _read_token(answer)

    async def _post(self, form: Mapping[str, str]) -> tuple[int, bytes]:
        # Both are form-encoded first (RFC 6749, 2.3.1).
        pair = f"{quote_plus(self._client_id)}:{quote_plus(self._secret)}"
        headers = {
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        if self._tls is None:  # loading the certificates takes time
            self._tls = httpx.create_ssl_context()
        # Not a client of the agent's connections, whose exchanges are recorded.
        options: dict[str, Any] = {"timeout": TIMEOUT, "follow_redirects": False, "trust_env": False}
        async with (
            httpx.AsyncClient(verify=self._tls, **options) as http,
            http.stream("POST", self._url, data=dict(form), headers=headers) as response,
        ):
            body = bytearray()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > _MAX_BODY:
                    raise ProviderUnavailable(f"the answer has more than {_MAX_BODY} bytes")
            return response.status_code, bytes(body)


def _parse(body: bytes) -> Mapping[str, Any]:
    """Return the JSON object in a response body. Return an empty object for any other body, such as the page of a
    proxy."""
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    return cast("Mapping[str, Any]", answer) if isinstance(answer, dict) else {}


def _refusal(status: int, answer: Mapping[str, Any], secrets: Iterable[str]) -> TokenRefused | ProviderUnavailable:
    """Return the exception for an error response. Its text does not contain the `secrets` that were sent, because a
    provider may repeat them."""
    error = answer.get("error")
    if not 400 <= status < 500 or status == 429 or not isinstance(error, str):
        return ProviderUnavailable(f"status {status}")
    description = answer.get("error_description")
    words = hide_texts(description, secrets) if isinstance(description, str) else ""
    return TokenRefused(printable(hide_texts(error, secrets), _TEXT_LENGTH), printable(words, _TEXT_LENGTH))


def _read_token(answer: Mapping[str, Any]) -> IssuedToken:
    """Return the tokens in a successful response. Raises ProviderUnavailable if there is no token that can be sent as
    `Bearer`."""
    kind = answer.get("token_type", "Bearer")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise ProviderUnavailable("the token is not a bearer token")
    token = answer.get("access_token")
    if not _is_token(token):
        raise ProviderUnavailable("the answer has no access_token")
    refresh, identity, scope = (answer.get(name) for name in ("refresh_token", "id_token", "scope"))
    return IssuedToken(
        access_token=cast("str", token),
        expires_in=_read_seconds(answer.get("expires_in")),
        refresh_token=refresh if _is_token(refresh) else None,
        id_token=identity if _is_token(identity) else None,
        scope=scope if isinstance(scope, str) else None,
    )


def _is_token(value: object) -> bool:
    """Return True for a text that can be sent as a token in a header."""
    return isinstance(value, str) and 0 < len(value) <= _MAX_TOKEN and value.isascii() and value.isprintable()


def _read_seconds(value: object) -> float | None:
    """Return a duration in seconds from a number, or from a text with a number, which some providers send. Return None
    for anything else."""
    try:
        seconds = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
