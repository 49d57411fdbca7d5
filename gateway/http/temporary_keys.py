"""Temporary API keys for programs that this process starts, such as a check of an agent from the console. They are in
memory only."""

import hashlib
from collections.abc import Callable

import msgspec

from babelgate.canonical import Principal
from babelgate.gateway.api_key import make_key


class TemporaryKeys:
    """Temporary API keys of this process. Each has the rights of the caller for whom a program works, until it is
    revoked."""

    def __init__(self) -> None:
        self._principals: dict[bytes, Principal] = {}

    def issue(self, principal: Principal, until: float) -> str:
        """Return a new key that has a caller's rights. `until` is the time at which it expires, in seconds since 1970.

        For a caller with an API key, the new key expires with that key instead. A token expires too early for the
        program, so `until` applies.
        """
        key = make_key()
        if principal.issuer:
            principal = msgspec.structs.replace(principal, expires_at=until)
        self._principals[_digest(key)] = principal
        return key

    def revoke(self, key: str) -> None:
        """Stop accepting a temporary key."""
        self._principals.pop(_digest(key), None)

    def find(self, digest: bytes) -> Principal | None:
        """Return the principal of a temporary key by its SHA-256 digest, or None if there is no such key."""
        return self._principals.get(digest)

    def check(self, find: Callable[[Principal], Principal | None]) -> None:
        """Remove the keys of callers whose credential is no longer accepted.

        `find` returns the principal that an accepted credential has now, or None if the credential is no longer
        accepted.
        """
        current = {digest: find(principal) for digest, principal in self._principals.items()}
        self._principals = {digest: principal for digest, principal in current.items() if principal is not None}


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
