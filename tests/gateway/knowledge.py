"""Test data for the tests of all routes: `KNOWLEDGE`, in the module `testing` of a protocol's package or, for a
built-in protocol, of its tests.

The modules `route`, `shape`, `valid`, `siege` and `owning` hold the test data of the other built-in protocols. They
include this data.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Final

import httpx

from babelgate.adapters import ADAPTERS, Adapter
from babelgate.canonical.value import Json
from tests.pairs.caller import Caller


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    check_error: Callable[[httpx.Response], None]
    """Assertion that a response is an error as the protocol's document describes it."""
    valid: Mapping[str, Json]
    """Valid body of each route (`POST /toy/{agent}`), with at least one required member."""
    make: Callable[[httpx.AsyncClient], Awaitable[Mapping[str, str]]]
    """Function that creates resources and returns the values of the routes' parameters. `agent` is an agent's name."""
    look: Callable[[Mapping[str, str]], Sequence[str]]
    """Function that returns the paths that show all of these resources."""
    echo: Callable[[httpx.AsyncClient, str], Awaitable[str]]
    """Function that sends a text to the agent `echo` and returns its answer."""
    callers: Sequence[type[Caller]]
    """Callers for the pair suite (`tests/pairs`)."""
    path: str
    """Path of an agent below a gateway's URL for the protocol's client, with `{agent}` for the agent's name."""


_BUILT_IN: Final = "babelgate"


def _package(adapter: Adapter) -> str:
    return adapter.routes.__module__.partition(".")[0]


@cache
def knowledge() -> Mapping[str, Knowledge]:
    """Return the test data of each protocol that has the module `testing`, by the name of its adapter."""
    folders = {each.name: each.routes.__module__.split(".")[2] for each in ADAPTERS if _package(each) == _BUILT_IN}
    modules = {name: f"tests.adapters.{folder}.testing" for name, folder in folders.items()}
    built_in = {name: import_module(module).KNOWLEDGE for name, module in modules.items() if find_spec(module)}
    return {**built_in, **offered()}


@cache
def offered() -> Mapping[str, Knowledge]:
    """Return the test data of each protocol of another package."""
    packages = {each.name: _package(each) for each in ADAPTERS if _package(each) != _BUILT_IN}
    return {name: import_module(f"{package}.testing").KNOWLEDGE for name, package in packages.items()}


def knowledge_of(path: str) -> Knowledge | None:
    name = prefixed(path)
    return None if name is None else knowledge()[name]


def prefixed(path: str) -> str | None:
    """Return the protocol of another package that serves this path."""
    for adapter in ADAPTERS:
        if adapter.name in knowledge() and any(f"{path}/".startswith(f"{each}/") for each in adapter.prefixes):
            return adapter.name
    return None
