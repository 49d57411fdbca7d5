"""Public keys of one issuer of tokens. They are in a file, in the settings or at a URL, which may be found by
discovery."""

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from babelgate.canonical.value import JsonObject
from babelgate.gateway.key_set import (
    FETCH_TIMEOUT,
    MAX_DOCUMENT,
    KeyFetchError,
    KeySet,
    parse_key_set,
    read_key_file,
)
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.settings.credentials import IssuerSettings, is_trusted_url


class IssuerKeys(KeySet):
    """Cache of the current public keys of one issuer."""

    def __init__(
        self,
        name: str,
        settings: IssuerSettings,
        *,
        now: Callable[[], float] = time.monotonic,
        observer: GatewayObserver = NO_OBSERVER,
    ) -> None:
        """Create the cache. `name` is that of the issuer, for the log. `now` is a steady clock, in seconds. Nothing is
        fetched before the first token is to be verified."""
        fixed = settings.jwks if isinstance(settings.jwks, dict) else None
        super().__init__("issuer", name, self._read, fixed=fixed, now=now, observer=observer)
        self._settings = settings
        self._jwks_url: str | None = None
        self._tls: ssl.SSLContext | None = None

    async def _read(self) -> JsonObject:
        jwks = self._settings.jwks
        if isinstance(jwks, str) and "://" not in jwks:
            return await read_key_file(Path(jwks))
        async with httpx.AsyncClient(
            timeout=FETCH_TIMEOUT,
            follow_redirects=False,
            trust_env=False,
            verify=self._tls_context(),
            headers={"Accept": "application/json"},
        ) as client:
            if isinstance(jwks, str):
                return await _get(client, jwks)
            if self._jwks_url is not None:
                try:
                    return await _get(client, self._jwks_url)
                except (KeyFetchError, httpx.HTTPError):
                    self._jwks_url = None  # the issuer may have moved its keys
            self._jwks_url = await self._discover(client)
            return await _get(client, self._jwks_url)

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:  # loading the certificates takes time
            self._tls = httpx.create_ssl_context()
        return self._tls

    async def _discover(self, client: httpx.AsyncClient) -> str:
        """Return the URL of the key set from the issuer's discovery document: that of OpenID Connect, or else that of
        OAuth 2 (RFC 8414).

        Raises KeyFetchError if the document names another issuer or no usable URL.
        """
        try:
            document = await _get(client, self._settings.discovery_url)
        except KeyFetchError:
            document = await _get(client, _metadata_url(self._settings.issuer))
        if document.get("issuer") != self._settings.issuer:  # OpenID Connect Discovery 1.0, 4.3
            raise KeyFetchError("the discovery document is of another issuer")
        url = document.get("jwks_uri")
        if not isinstance(url, str) or not is_trusted_url(url):
            raise KeyFetchError("the discovery document has no jwks_uri with https")
        return url


def _metadata_url(issuer: str) -> str:
    """Return the URL of an issuer's OAuth 2 metadata (RFC 8414, 3.1)."""
    parts = urlsplit(issuer)
    return f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path.rstrip('/')}"


async def _get(client: httpx.AsyncClient, url: str) -> JsonObject:
    """Return the JSON object at a URL. Redirects are not followed. Raises KeyFetchError for another status than 200,
    and a body that is too large or no object."""
    async with client.stream("GET", url) as response:
        if response.status_code != 200:
            raise KeyFetchError(f"{url} answers with the status {response.status_code}")
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_DOCUMENT:
                raise KeyFetchError(f"{url} answers with more than {MAX_DOCUMENT} bytes")
    return parse_key_set(bytes(body), url)
