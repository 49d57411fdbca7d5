"""Cache of the public keys of another party, which publishes them as a key set (RFC 7517) at a URL or in a file.

PyJWKClient is not used. It blocks the event loop, and while the other party is down, every signature with an unknown
key would wait for another fetch.
"""

import asyncio
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import httpx
import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt.algorithms import get_default_algorithms

from babelgate.canonical.fault import FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.background import Tasks
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.signing_keys import describe_public_key

log = logging.getLogger("babelgate.credentials")

_TTL: Final = 300.0
"""Seconds after which the keys are fetched again. The cached keys are used meanwhile. Chosen."""
_COOLDOWN: Final = 30.0
"""Minimum seconds between two fetches because of an unknown key id. Chosen: anyone can send invented ids."""
_RETRY: Final = 5.0
"""Minimum seconds between two fetches while the cache is empty. Chosen: the gateway and the other party may start
together."""
_MAX_AGE: Final = 86_400.0
"""Seconds for which cached keys are used if they cannot be fetched again. Chosen: a day."""
FETCH_TIMEOUT: Final = 5.0
"""Maximum duration of each phase of a request for keys, in seconds. Chosen."""
MAX_DOCUMENT: Final = 2**20
"""Maximum size of a key set or discovery document, in bytes. Chosen: real key sets have a few kilobytes."""
_MAX_KEYS: Final = 100
"""Maximum number of keys in a key set. Chosen: issuers have fewer than ten."""
_RSA_BITS: Final = 2048
"""Minimum size of RSA keys, in bits (RFC 7518, 3.3)."""


class KeysUnavailable(Exception):
    """No keys are cached and they cannot be fetched. `retry_after` is the time until the next fetch, in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"retry after {retry_after} s")
        self.retry_after = retry_after


class KeyFetchError(Exception):
    """Failed fetch of a key set. The message is the reason, for the log."""


FetchKeys = Callable[[], Awaitable[JsonObject]]
"""Function that fetches the key set. Raises KeyFetchError, and exceptions of httpx and of file access."""


class KeySet:
    """Cache of the current public keys of another party. All methods are called on one event loop."""

    def __init__(
        self,
        kind: str,
        name: str,
        fetch: FetchKeys,
        *,
        fixed: JsonObject | None = None,
        now: Callable[[], float] = time.monotonic,
        observer: GatewayObserver = NO_OBSERVER,
    ) -> None:
        """Create the cache. Nothing is fetched before the first signature is to be verified.

        `kind` and `name` are for the log: `issuer` and the issuer's name, for example. `fixed` is a key set that is
        used instead of `fetch` and never changes. `now` is a steady clock, in seconds.
        """
        self._kind = kind
        self._name = name
        self._fetch_keys = fetch
        self._now = now
        self._observer = observer
        self._keys: list[JsonObject] = []
        self._prepared: dict[tuple[int, str], Any] = {}
        self._fetched_at = -math.inf
        """Time of the last successful fetch, in seconds of the steady clock."""
        self._tried_at = -math.inf
        """Time at which the last fetch started, in seconds of the steady clock."""
        self._tasks = Tasks()
        self._task: asyncio.Task[None] | None = None
        self.revision = 0
        """Number that is incremented when the keys change. A token that was verified with an earlier revision is
        verified again."""
        if fixed is not None:
            self._replace(fixed)
            self._fetched_at = math.inf

    async def find(self, kid: str | None, algorithm: str) -> Any:
        """Return the public key for a token, or None if there is none. `kid` is the key id in the token.

        For a token without a key id, a key is returned only if it is the only one for the algorithm. Raises
        KeysUnavailable if the keys could not be fetched for a day (`is_usable`).
        """
        return await self._find(lambda: self._look_up(kid, algorithm))

    async def find_all(self, kid: str | None, algorithm: str) -> Sequence[Any]:
        """Return the public keys that may have made a signature: those with its key id, and those without an id.

        Return all keys for the algorithm if `kid` is None. Raises KeysUnavailable if the keys could not be fetched for
        a day (`is_usable`).
        """
        return await self._find(lambda: self._look_up_all(kid, algorithm)) or ()

    async def _find(self, look_up: Callable[[], Any]) -> Any:
        """Return the result of `look_up` on current keys. If it is None, fetch the keys and look up again. Raises
        KeysUnavailable if the keys could not be fetched for a day (`is_usable`)."""
        self.refresh()
        if not self.is_usable:
            await self._fetch_at_most_every(_RETRY)
            if not self.is_usable:
                raise KeysUnavailable(max(1, math.ceil(self._tried_at + _RETRY - self._now())))
        found = look_up()
        if found is None and self._fetched_at < math.inf:
            await self._fetch_at_most_every(_COOLDOWN)
            found = look_up()
        return found

    @property
    def is_usable(self) -> bool:
        """True if keys are cached, and were fetched less than a day ago."""
        return self._now() - self._fetched_at <= _MAX_AGE

    def refresh(self) -> None:
        """Fetch the keys again in the background if they are older than five minutes. The cached keys are used
        meanwhile."""
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
            async with asyncio.timeout(2 * FETCH_TIMEOUT):
                document = await self._fetch_keys()
            self._replace(document)
            self._fetched_at = self._now()
            self._observer.note_jwks_fetch(self._name, "success")
        except (KeyFetchError, FaultError, httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            self._observer.note_jwks_fetch(self._name, "failed")
            log.warning("%s keys not fetched %s=%s reason=%s", self._kind, self._kind, self._name, reason)

    def _replace(self, document: JsonObject) -> None:
        """Replace the cached keys by the public keys of a key set. Raises KeyFetchError if it has none."""
        keys = find_public_keys(document)
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

    def _look_up_all(self, kid: str | None, algorithm: str) -> Sequence[Any] | None:
        found = [
            key
            for number, each in enumerate(self._keys)
            if (kid is None or each.get("kid") in (kid, None)) and (key := self._prepare(number, algorithm)) is not None
        ]
        return found or None

    def _prepare(self, number: int, algorithm: str) -> Any:
        """Return the cached key with this index, parsed for an algorithm. Return None if the key is for another
        algorithm."""
        if (number, algorithm) not in self._prepared:
            self._prepared[number, algorithm] = _prepare(self._keys[number], algorithm)
        return self._prepared[number, algorithm]


async def read_key_file(path: Path) -> JsonObject:
    """Return the key set in a file as `load_key_file` does, but read it in a thread. Raises KeyFetchError for other
    content, and OSError if the file cannot be read."""
    return await asyncio.to_thread(load_key_file, path)


def load_key_file(path: Path) -> JsonObject:
    """Return the key set in a file, which contains a key set in JSON or a public key in PEM. Raises KeyFetchError for
    other content, and OSError if the file cannot be read."""
    with path.open("rb") as file:
        content = file.read(MAX_DOCUMENT)
    if content.lstrip().startswith(b"-----BEGIN"):
        try:
            return {"keys": [describe_public_key(load_pem_public_key(content))]}
        except (ValueError, UnsupportedAlgorithm):
            raise KeyFetchError("the file has no public key in PEM that can be used") from None
    return parse_key_set(content)


def parse_key_set(body: bytes, source: str = "the file") -> JsonObject:
    """Return the JSON object in a body. `source` names the origin of the body in errors. Raises KeyFetchError for
    anything else."""
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise KeyFetchError(f"{source} is not JSON") from None
    if not isinstance(document, dict):
        raise KeyFetchError(f"{source} is not a JSON object")
    return cast("JsonObject", document)


def find_public_keys(document: JsonObject) -> list[JsonObject]:
    """Return those of the first 100 keys in a key set that may verify signatures. Raises KeyFetchError if there are
    none."""
    listed: Any = document.get("keys")
    entries = cast("list[Any]", listed)[:_MAX_KEYS] if isinstance(listed, list) else []
    keys = [cast("JsonObject", key) for key in entries if _is_for_signatures(key)]
    if not keys:
        raise KeyFetchError("the key set has no public key for signatures")
    return keys


def _is_for_signatures(key: object) -> bool:
    """Return True for a JSON Web Key that is public and may verify signatures (RFC 7517, 4)."""
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
