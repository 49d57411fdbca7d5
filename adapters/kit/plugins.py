"""Plug-ins: protocols of installed packages, by entry points. The group `babelgate.adapters` holds `Adapter` values,
and `babelgate.upstreams` holds `Upstream` values."""

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
    """Raised for an entry point that cannot be used. The message is one line with the package, the entry point and the
    reason."""


def with_adapters(built_in: Sequence[Adapter]) -> tuple[Adapter, ...]:
    """Return the built-in adapters, followed by those of installed packages. Raises PluginError for a package that
    cannot be imported, or whose adapter clashes with another one."""
    return _with_offered(ADAPTERS_GROUP, Adapter, built_in, _names_of_adapter)


def with_upstreams(built_in: Sequence[Upstream]) -> tuple[Upstream, ...]:
    """Return the built-in upstreams, followed by those of installed packages, which are the least preferred. Raises
    PluginError for a package that cannot be imported, or whose upstream clashes with another one."""
    return _with_offered(UPSTREAMS_GROUP, Upstream, built_in, lambda upstream: (upstream.protocol,))


def _names_of_adapter(adapter: Adapter) -> Collection[str]:
    """Return the names that no other adapter may have: its own, its path prefixes, and its webhook dialects."""
    return (adapter.name, *adapter.prefixes, *(f"webhooks of {dialect}" for dialect in adapter.webhooks))


def _with_offered(
    group: str, kind: type[T], built_in: Sequence[T], names_of: Callable[[T], Collection[str]]
) -> tuple[T, ...]:
    """Return the built-in values, followed by those of the entry points in `group`. `names_of` returns the names that
    only one value may have. Raises PluginError if two values have the same name, or an entry point cannot be loaded."""
    plugins = list(built_in)
    used_names = {name for each in built_in for name in names_of(each)}
    for offer, value in _load_offered(group, kind):
        if conflicts := sorted(used_names.intersection(names_of(value))):
            raise PluginError(f"{offer}: {', '.join(conflicts)} is already taken")
        used_names.update(names_of(value))
        plugins.append(value)
    return tuple(plugins)


def _load_offered(group: str, kind: type[T]) -> Iterator[tuple[str, T]]:
    """Yield a description and the value of each entry point in `group`. They are sorted by name, so that the order does
    not depend on the installation. Raises PluginError if an entry point cannot be loaded, or is not a `kind`."""
    for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        offer = f"Plug-in {_package_of(point)}, entry point {group}: {point.name} = {point.value}"
        try:
            value = point.load()
        except Exception as error:  # the package's own code may raise any error
            raise PluginError(f"{offer}: {describe_import_error(error)}") from error
        if not isinstance(value, kind):
            raise PluginError(f"{offer}: expected an {kind.__name__}, got {type(value).__name__}")
        yield offer, value


def _package_of(point: EntryPoint) -> str:
    return "of no package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
