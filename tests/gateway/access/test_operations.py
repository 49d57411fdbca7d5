"""The table of operations has exactly the methods of the port."""

import inspect
from collections.abc import Mapping
from typing import Final

from babelgate.canonical.assistant import Assistants
from babelgate.canonical.cron import Crons
from babelgate.canonical.grant import Grants
from babelgate.canonical.hub import Hub, Reads
from babelgate.canonical.principal import OPERATIONS
from babelgate.canonical.store import Store
from babelgate.gateway.access.guarded_overview import GuardedOverview
from babelgate.gateway.access.operations import OPERATION_OF, Part

PORT: Final[Mapping[Part, type]] = {
    "hub": Hub,
    "reads": Reads,
    "store": Store,
    "assistants": Assistants,
    "crons": Crons,
    "grants": Grants,
    "overview": GuardedOverview,
}


def methods_of(protocol: type) -> dict[str, inspect.Signature]:
    """Return the signatures of the public methods that a Protocol class declares."""
    return {
        name: inspect.signature(value)
        for name, value in vars(protocol).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def test_the_table_has_exactly_the_methods_of_the_port() -> None:
    assert {part: set(methods) for part, methods in OPERATION_OF.items()} == {
        part: set(methods_of(protocol)) for part, protocol in PORT.items()
    }


def test_every_operation_in_the_table_exists() -> None:
    used = {operation for methods in OPERATION_OF.values() for operation in methods.values()}
    assert used == set(OPERATIONS) - {"admin"}, "the port cannot operate the gateway"


def test_every_method_of_the_port_takes_the_principal_first() -> None:
    for protocol in PORT.values():
        for name, signature in methods_of(protocol).items():
            assert list(signature.parameters)[1] == "principal", name
