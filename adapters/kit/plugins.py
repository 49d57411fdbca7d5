"""Protocols that installed packages offer, through entry points: those of the group `babelgate.adapters` are `Adapter`
values, those of `babelgate.upstreams` are `Upstream` values."""

from collections.abc import Callable, Collection, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Final, TypeVar

from babelgate._renamed import describe_import_error
from babelgate.adapters.kit.adapter import Adapter
from babelgate.adapters.kit.upstream import Upstream

T = TypeVar("T")

ADAPTERS_GROUP: Final = "babelgate.adapters"
UPSTREAMS_GROUP: Final = "babelgate.upstreams"


class PluginError(Exception):
    """An installed package offers a protocol that cannot be taken: one line that says which, and why."""


def with_adapters(built_in: Sequence[Adapter]) -> tuple[Adapter, ...]:
    """And after them what is offered."""
    return _with_offered(ADAPTERS_GROUP, Adapter, built_in, _names_of_adapter)


def with_upstreams(built_in: Sequence[Upstream]) -> tuple[Upstream, ...]:
    """And after them, as the least preferred, what is offered."""
    return _with_offered(UPSTREAMS_GROUP, Upstream, built_in, lambda upstream: (upstream.protocol,))


def _names_of_adapter(adapter: Adapter) -> Collection[str]:
    """Each of them leads to one adapter."""
    return (adapter.name, *adapter.prefixes, *(f"webhooks of {dialect}" for dialect in adapter.webhooks))


def _with_offered(
    group: str, kind: type[T], built_in: Sequence[T], names_of: Callable[[T], Collection[str]]
) -> tuple[T, ...]:
    found = list(built_in)
    taken = {name for each in built_in for name in names_of(each)}
    for offer, value in _load_offered(group, kind):
        if again := sorted(taken.intersection(names_of(value))):
            raise PluginError(f"{offer}: {', '.join(again)} is already taken")
        taken.update(names_of(value))
        found.append(value)
    return tuple(found)


def _load_offered(group: str, kind: type[T]) -> Iterator[tuple[str, T]]:
    """In the order of the entry points' names, wherever the packages are installed."""
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        offer = f"Plug-in {_package_of(point)}, entry point {group}: {point.name} = {point.value}"
        try:
            value = point.load()
        except Exception as error:  # whatever the code of the package raises
            raise PluginError(f"{offer}: {describe_import_error(error)}") from error
        if not isinstance(value, kind):
            raise PluginError(f"{offer}: expected an {kind.__name__}, got {type(value).__name__}")
        yield offer, value


def _package_of(point: EntryPoint) -> str:
    return "of no package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
