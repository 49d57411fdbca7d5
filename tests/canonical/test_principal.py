"""Principals and operations."""

import msgspec

from babelgate.canonical.principal import OPERATIONS, Principal


def test_work_for_an_owner_has_no_credential() -> None:
    principal = Principal.of_owner("alice")
    assert principal.owner == "alice"
    assert not (principal.groups or principal.scopes or principal.credential_id)


def test_operations_are_the_documented_ones() -> None:
    documented = "discover run answer read cancel write delete webhook admin"
    assert documented.split() == list(OPERATIONS)


def test_the_token_of_a_principal_is_no_part_of_it() -> None:
    principal = Principal(subject="user:corp:alice", owner="corp:alice", issuer="corp")
    with_token = principal.with_token("secret-token")
    assert (principal.token, with_token.token) == (None, "secret-token")
    assert with_token == principal
    assert "secret-token" not in repr(with_token) + msgspec.json.encode(with_token).decode()
    assert msgspec.structs.replace(with_token, owner="corp").token is None
