"""API keys of the administration API: the digest of a key → its principal, without a query."""

import logging
import time
from collections.abc import Callable
from typing import Final

from babelgate.canonical import FaultError, Principal
from babelgate.gateway.background import Tasks
from babelgate.gateway.storage.administered import AdministeredState
from babelgate.gateway.storage.administration import Administration, StoredKey, note_use
from babelgate.gateway.storage.journal import Journal

log = logging.getLogger("babelgate.admin")

_USE_INTERVAL: Final = 60.0
"""Minimum seconds between two writes of `last_used`. Chosen: it tells if a key is in use, and not how much."""

Replaced = Callable[[Principal, Principal | None], None]
"""Function that is called with the principal of a key before and after a change. After a revocation it is None."""


class KeyRing:
    """API keys of the administration API. It follows the changes of all nodes."""

    def __init__(
        self, administered: AdministeredState, journal: Journal, clock: Callable[[], float] = time.time
    ) -> None:
        """Create the ring. `clock` is the time since 1970, in seconds."""
        self._journal = journal
        self._clock = clock
        self._principals: dict[bytes, Principal] = {}
        self._used: dict[str, float] = {}
        """Time of the last noted use, by id of the key."""
        self._tasks = Tasks()
        self._listeners: list[Replaced] = []
        administered.add_listener(self._apply)

    def add_listener(self, listener: Replaced) -> None:
        """Call a function with each key that is changed or revoked."""
        self._listeners.append(listener)

    def find(self, digest: bytes) -> Principal | None:
        """Return the principal of a key, also of an expired one. `digest` is the SHA-256 digest of the key."""
        principal = self._principals.get(digest)
        if principal is not None:
            self._note_use(principal)
        return principal

    def _note_use(self, principal: Principal) -> None:
        now, key_id = self._clock(), principal.credential_id
        is_expired = principal.expires_at is not None and principal.expires_at <= now
        if is_expired or now - self._used.get(key_id, 0.0) < _USE_INTERVAL:
            return
        self._used[key_id] = now
        self._tasks.spawn(self._store_use(key_id, round(now * 1e6)), "use of an API key")

    async def _store_use(self, key_id: str, at: int) -> None:
        try:
            await self._journal.write(note_use, key_id, at)
        except FaultError as error:  # the next use in a minute is stored
            log.debug("use of an API key not stored key=%s error=%s", key_id, error)

    def _apply(self, administration: Administration) -> None:
        before = self._principals
        self._principals = {}
        for key in administration.keys:
            self._add(key)
        ids = {key.key_id for key in administration.keys}
        self._used = {key_id: at for key_id, at in self._used.items() if key_id in ids}
        for digest, principal in before.items():
            changed = self._principals.get(digest)
            if changed != principal:
                for listener in self._listeners:
                    listener(principal, changed)

    def _add(self, key: StoredKey) -> None:
        expires_at = None if key.expires_at is None else key.expires_at / 1e6
        self._principals[bytes.fromhex(key.digest)] = _principal(key, expires_at)
        if key.previous_digest is not None and key.previous_until is not None:
            until = key.previous_until / 1e6
            until = until if expires_at is None else min(until, expires_at)
            self._principals[bytes.fromhex(key.previous_digest)] = _principal(key, until)


def _principal(key: StoredKey, expires_at: float | None) -> Principal:
    return Principal(
        subject=f"key:{key.owner}",
        owner=key.owner,
        groups=frozenset(key.groups),
        scopes=frozenset(key.scopes),
        credential_id=key.key_id,
        expires_at=expires_at,
    )
