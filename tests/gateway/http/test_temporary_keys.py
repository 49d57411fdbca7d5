"""Temporary keys: accepted with the rights of a caller, for as long as that caller has them."""

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from babelgate.canonical import FaultError, Principal
from babelgate.gateway.http.temporary_keys import TemporaryKeys
from babelgate.gateway.http.verifier import Verifier
from babelgate.gateway.settings.model import Settings
from tests.opened import opened

KEYS: Final = {"alice": "key-of-alice", "bob": "key-of-bob"}


async def test_a_key_is_accepted_until_it_is_revoked(tmp_path: Path) -> None:
    async with opened(tmp_path, keys=KEYS) as gateway:
        keys, verifier = gateway.generations.temporary_keys, gateway.generations.front().verifier
        alice = await verifier.verify({b"x-api-key": b"key-of-alice"})
        key = keys.issue(alice, 0)
        assert await verifier.verify({b"authorization": b"Bearer " + key.encode()}) == alice
        keys.revoke(key)
        assert await _find(verifier, key) is None


async def test_a_key_ends_with_the_credential_of_its_caller(tmp_path: Path) -> None:
    async with opened(tmp_path, keys=KEYS) as gateway:
        generations = gateway.generations
        keys, verifier = generations.temporary_keys, generations.front().verifier
        for name in KEYS:
            keys.issue(await verifier.verify({b"x-api-key": f"key-of-{name}".encode()}), 0)
        key = keys.issue(await verifier.verify({b"x-api-key": b"key-of-bob"}), 0)
        for owner, is_accepted in (("bob", True), ("carol", False)):
            used = {"database": gateway.settings.database, "keys": {owner: f"key-of-{owner}"}}
            await generations.apply(Settings.model_validate(used))
            found = await _find(generations.front().verifier, key)
            assert (found is not None) == is_accepted


def test_the_key_for_a_token_outlives_the_token() -> None:
    keys = TemporaryKeys()
    token = Principal(subject="user:i:u", owner="u", issuer="i", expires_at=10.0)
    key = keys.issue(token, 99.0)
    principal = keys.find(hashlib.sha256(key.encode()).digest())
    assert principal == msgspec.structs.replace(token, expires_at=99.0)


async def _find(verifier: Verifier, key: str) -> Principal | None:
    """Return the principal of a key, or None if it is not accepted."""
    try:
        return await verifier.verify({b"x-api-key": key.encode()})
    except FaultError:
        return None
