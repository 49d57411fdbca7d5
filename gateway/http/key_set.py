"""Public keys of one issuer, as a cache over its key set (RFC 7517) in a URL, a file or the settings.

PyJWKClient is not used. It blocks the event loop, and while the issuer is down, every token with an unknown key would
wait for another fetch.
"""

import asyncio
import json
import logging
import math
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx
import jwt
from jwt.algorithms import get_default_algorithms

from babelgate.canonical.value import JsonObject
from babelgate.gateway.background import Tasks
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.settings.credentials import IssuerSettings, is_trusted_url

log = logging.getLogger("babelgate.credentials")

_TTL: Final = 300.0
"""Seconds after which the keys are fetched again. Meanwhile the old ones are used."""
_COOLDOWN: Final = 30.0
"""Minimum seconds between two fetches for unknown key ids, which anyone can invent."""
_RETRY: Final = 5.0
"""Minimum seconds between two fetches while there are no keys. Chosen: the gateway and its issuer may start
together."""
_MAX_AGE: Final = 86_400.0
"""Seconds for which the keys are used although they cannot be fetched again."""
_TIMEOUT: Final = 5.0
"""Maximum seconds of one request to the issuer."""
_MAX_BODY: Final = 2**20
"""Maximum size of one document from the issuer, in bytes. Chosen: real key sets have a few kilobytes."""
_MAX_KEYS: Final = 100
"""Maximum number of keys in a key set. Chosen: issuers have fewer than ten."""
_RSA_BITS: Final = 2048
"""Minimum size of RSA keys, in bits (RFC 7518, 3.3)."""


class KeysUnavailable(Exception):
    """Raised if the issuer has no known keys and cannot be reached. `retry_after` is in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"retry after {retry_after} s")
        self.retry_after = retry_after


class _FetchError(Exception):
    """Failure to fetch the keys, with the reason for the log."""


class KeySet:
    """The current public keys of one issuer. All methods are called on one event loop."""

    def __init__(
        self,
        name: str,
        settings: IssuerSettings,
        *,
        now: Callable[[], float] = time.monotonic,
        observer: GatewayObserver = NO_OBSERVER,
    ) -> None:
        """Create the cache. `now` is a steady clock, in seconds. Nothing is fetched before the first token."""
        self._name = name
        self._settings = settings
        self._now = now
        self._observer = observer
        self._keys: list[JsonObject] = []
        self._prepared: dict[tuple[int, str], Any] = {}
        self._fetched_at = -math.inf
        """Time of the last successful fetch."""
        self._tried_at = -math.inf
        """Time of the last fetch."""
        self._jwks_url: str | None = None
        self._tasks = Tasks()
        self._task: asyncio.Task[None] | None = None
        self._tls: ssl.SSLContext | None = None
        self.revision = 0
        """Number that changes with the keys. A token that was verified with an earlier revision is verified again."""
        if isinstance(settings.jwks, dict):
            self._replace(settings.jwks)
            self._fetched_at = math.inf

    async def find(self, kid: str | None, algorithm: str) -> Any:
        """Return the public key for a token, or None if the issuer has no such key. `kid` is the key id in the token.

        A token without a key id needs an issuer with only one key for the algorithm. Raises KeysUnavailable.
        """
        self.refresh()
        if not self.is_usable:
            await self._fetch_at_most_every(_RETRY)
            if not self.is_usable:
                raise KeysUnavailable(max(1, math.ceil(self._tried_at + _RETRY - self._now())))
        key = self._look_up(kid, algorithm)
        if key is None and self._fetched_at < math.inf:
            await self._fetch_at_most_every(_COOLDOWN)
            key = self._look_up(kid, algorithm)
        return key

    @property
    def is_usable(self) -> bool:
        """True if there are keys, and they are not too old."""
        return self._now() - self._fetched_at <= _MAX_AGE

    def refresh(self) -> None:
        """Fetch the keys in the background if they are old. The current keys are used meanwhile."""
        age = self._now() - self._fetched_at
        if _TTL < age <= _MAX_AGE and self._now() - self._tried_at >= _COOLDOWN and not self._is_fetching:
            self._start()

    async def aclose(self) -> None:
        """Cancel a running fetch."""
        await self._tasks.stop()

    async def _fetch_at_most_every(self, seconds: float) -> None:
        if not self._is_fetching:
            if self._now() - self._tried_at < seconds:
                return
            self._start()
        assert self._task is not None
        await asyncio.shield(self._task)  # other requests wait for the same fetch

    @property
    def _is_fetching(self) -> bool:
        return self._task is not None and not self._task.done()

    def _start(self) -> None:
        self._tried_at = self._now()
        self._task = self._tasks.spawn(self._fetch(), f"fetch of the keys of {self._name}")

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(2 * _TIMEOUT):
                document = await self._read()
            self._replace(document)
            self._fetched_at = self._now()
            self._observer.note_jwks_fetch(self._name, "success")
        except (_FetchError, httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, RecursionError) as error:
            reason = str(error) or type(error).__name__
            self._observer.note_jwks_fetch(self._name, "failed")
            log.warning("issuer keys not fetched issuer=%s reason=%s", self._name, reason)

    def _replace(self, document: JsonObject) -> None:
        """Replace the keys by the public keys of a key set. Raises _FetchError if there are none."""
        listed: Any = document.get("keys")
        entries = cast("list[Any]", listed)[:_MAX_KEYS] if isinstance(listed, list) else []
        keys = [cast("JsonObject", key) for key in entries if _is_for_signatures(key)]
        if not keys:
            raise _FetchError("the key set has no public key for signatures")
        if keys != self._keys:
            self._keys = keys
            self._prepared = {}
            self.revision += 1

    def _look_up(self, kid: str | None, algorithm: str) -> Any:
        found = [
            key
            for number, each in enumerate(self._keys)
            if kid in (None, each.get("kid")) and (key := self._prepare(number, algorithm)) is not None
        ]
        return found[0] if len(found) == 1 or (found and kid is not None) else None

    def _prepare(self, number: int, algorithm: str) -> Any:
        """Return a key for an algorithm, or None if it is for another one."""
        if (number, algorithm) not in self._prepared:
            self._prepared[number, algorithm] = _prepare(self._keys[number], algorithm)
        return self._prepared[number, algorithm]

    # Sources

    async def _read(self) -> JsonObject:
        jwks = self._settings.jwks
        if isinstance(jwks, str) and "://" not in jwks:
            return _parse(await asyncio.to_thread(_read_file, Path(jwks)))
        async with httpx.AsyncClient(
            timeout=_TIMEOUT,
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
                except (_FetchError, httpx.HTTPError):
                    self._jwks_url = None  # the issuer may have moved its keys
            self._jwks_url = await self._discover(client)
            return await _get(client, self._jwks_url)

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:  # loading the certificates takes time
            self._tls = httpx.create_ssl_context()
        return self._tls

    async def _discover(self, client: httpx.AsyncClient) -> str:
        """Return the URL of the key set by the discovery document of OpenID Connect, or of OAuth 2 (RFC 8414)."""
        try:
            document = await _get(client, self._settings.discovery_url)
        except _FetchError:
            document = await _get(client, _metadata_url(self._settings.issuer))
        if document.get("issuer") != self._settings.issuer:  # OpenID Connect Discovery 1.0, 4.3
            raise _FetchError("the discovery document is of another issuer")
        url = document.get("jwks_uri")
        if not isinstance(url, str) or not is_trusted_url(url):
            raise _FetchError("the discovery document has no jwks_uri with https")
        return url


def _metadata_url(issuer: str) -> str:
    """Return the URL of an issuer's metadata (RFC 8414, 3.1)."""
    parts = urlsplit(issuer)
    return f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path.rstrip('/')}"


async def _get(client: httpx.AsyncClient, url: str) -> JsonObject:
    """Return the JSON object at a URL. Redirects are not followed. Raises _FetchError."""
    async with client.stream("GET", url) as response:
        if response.status_code != 200:
            raise _FetchError(f"{url} answers with the status {response.status_code}")
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _MAX_BODY:
                raise _FetchError(f"{url} answers with more than {_MAX_BODY} bytes")
    return _parse(bytes(body), url)


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_BODY)


def _parse(body: bytes, source: str = "the file") -> JsonObject:
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise _FetchError(f"{source} is not JSON") from None
    if not isinstance(document, dict):
        raise _FetchError(f"{source} is not a JSON object")
    return cast("JsonObject", document)


def _is_for_signatures(key: object) -> bool:
    """Return True for a public key that may verify signatures (RFC 7517, 4)."""
    if not isinstance(key, Mapping):
        return False
    members = cast("JsonObject", key)
    operations: Any = members.get("key_ops", ["verify"])
    return (
        members.get("kty") in ("RSA", "EC", "OKP")
        and members.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
        and "d" not in members
    )


def _prepare(key: JsonObject, algorithm: str) -> Any:
    if key.get("alg", algorithm) != algorithm:
        return None
    method: Any = get_default_algorithms()[algorithm]
    try:
        public_key = method.prepare_key(method.from_jwk(key))
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):  # of another type, or malformed
        return None
    return public_key if getattr(public_key, "key_size", _RSA_BITS) >= _RSA_BITS or key["kty"] != "RSA" else None
