"""Memory of the API keys of the administration API: finds the principal of a key without a query of the database."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from babelgate.canonical import FaultError, Principal
from babelgate.gateway.background import Tasks
from babelgate.gateway.storage.administered import AdministeredState
from babelgate.gateway.storage.administration import Administration, StoredKey, note_use
from babelgate.gateway.storage.journal import Journal

log = logging.getLogger("babelgate.admin")

_USE_INTERVAL: Final = 60.0
"""Minimum seconds between two writes of a key's `last_used`. Chosen: the time only shows whether the key is in use."""

Replaced = Callable[[Mapping[Principal, Principal | None]], None]
"""Function that is called after keys have changed. Its argument maps the principal of each old key to the new one, or
to None after a revocation."""


class KeyRing:
    """API keys of the administration API, in memory. It follows the changes that any node makes."""

    def __init__(self, on_change: Replaced, clock: Callable[[], float] = time.time) -> None:
        """Create an empty key ring. `on_change` is called after keys have changed. `clock` returns the time in seconds
        since 1970."""
        self._on_change = on_change
        self._clock = clock
        self._journal: Journal | None = None
        self._principals: dict[bytes, Principal] = {}
        self._used: dict[str, float] = {}
        """Time of the last stored use of each key, by id of the key, in seconds since 1970."""
        self._tasks = Tasks()

    def follow(self, administered: AdministeredState, journal: Journal) -> None:
        """Load the keys now and whenever `administered` changes, and write the times of their last use to the
        journal."""
        self._journal = journal
        administered.add_listener(self._apply)

    def has_principal(self, principal: Principal) -> bool:
        """Return True if a key with exactly this principal exists."""
        return principal in self._principals.values()

    def find(self, digest: bytes) -> Principal | None:
        """Return the principal of a key by the SHA-256 digest of the key, and note its use. Return None for an unknown
        key.

        An expired key is returned, too: `babelgate.gateway.http.verifier.Verifier` checks the expiry.
        """
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
        assert self._journal is not None
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
        after = {principal: self._principals.get(digest) for digest, principal in before.items()}
        changed = {principal: each for principal, each in after.items() if each != principal}
        if changed:
            self._on_change(changed)

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
