"""Principals and operations."""

from babelgate.canonical.principal import OPERATIONS, Principal


def test_work_for_an_owner_has_no_credential() -> None:
    principal = Principal.of_owner("alice")
    assert principal.owner == "alice"
    assert not (principal.groups or principal.scopes or principal.credential_id)


def test_operations_are_the_documented_ones() -> None:
    documented = "discover run answer read cancel write delete webhook admin"
    assert documented.split() == list(OPERATIONS)
