"""Temporary API keys of this process, for programs that it starts itself. They are in memory only."""

import hashlib
from collections.abc import Callable

import msgspec

from babelgate.canonical import Principal
from babelgate.gateway.api_key import make_key


class TemporaryKeys:
    """Keys that this process accepts until it revokes them. Each has the principal of the caller for whom a program
    works."""

    def __init__(self) -> None:
        self._principals: dict[bytes, Principal] = {}

    def issue(self, principal: Principal, until: float) -> str:
        """Return a new key that has a caller's rights. `until` is the time at which it expires, in seconds since 1970.

        The principal of an API key is not changed, so the new key is not accepted for longer than that one. A token
        expires too early for the program, so the new key has a later time.
        """
        key = make_key()
        if principal.issuer:
            principal = msgspec.structs.replace(principal, expires_at=until)
        self._principals[_digest(key)] = principal
        return key

    def revoke(self, key: str) -> None:
        """Stop accepting a key."""
        self._principals.pop(_digest(key), None)

    def find(self, digest: bytes) -> Principal | None:
        """Return the principal of a key, by the SHA-256 digest of the key."""
        return self._principals.get(digest)

    def check(self, find: Callable[[Principal], Principal | None]) -> None:
        """Remove the keys of callers whose credential is no longer accepted. `find` returns the principal that a
        caller has now, or None."""
        current = {digest: find(principal) for digest, principal in self._principals.items()}
        self._principals = {digest: principal for digest, principal in current.items() if principal is not None}


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
