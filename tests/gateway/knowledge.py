"""What tests know of a protocol that another package offers: `KNOWLEDGE`, in the module `testing` of that package.

What they know of the built-in ones stands in the tables of this folder (`route`, `shape`, `valid`, `siege`, `owning`),
which take these in.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

import httpx

from babelgate.adapters import ADAPTERS, Adapter
from babelgate.canonical.value import Json
from tests.pairs.caller import Caller


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    check_error: Callable[[httpx.Response], None]
    """An error looks like this, as the protocol's document has it."""
    valid: Mapping[str, Json]
    """By route (`POST /toy/{agent}`): a body that it takes, of which not every member may be left out."""
    make: Callable[[httpx.AsyncClient], Awaitable[Mapping[str, str]]]
    """New things: by the name of a route's parameter, what stands for it in the path. `agent` is an agent's name."""
    look: Callable[[Mapping[str, str]], Sequence[str]]
    """Paths where all of these things can be seen."""
    echo: Callable[[httpx.AsyncClient, str], Awaitable[str]]
    """What the agent `echo` says to that."""
    callers: Sequence[type[Caller]]
    """For the pair suite (`tests/pairs`)."""
    path: str
    """There: of an agent below a gateway's URL, with `{agent}` for its name, where the client of the protocol finds
    it."""


_BUILT_IN: Final = "babelgate"


def _package(adapter: Adapter) -> str:
    return adapter.routes.__module__.partition(".")[0]


@cache
def knowledge() -> Mapping[str, Knowledge]:
    """By the adapter's name."""
    offered = {each.name: _package(each) for each in ADAPTERS if _package(each) != _BUILT_IN}
    return {name: import_module(f"{package}.testing").KNOWLEDGE for name, package in offered.items()}


def knowledge_of(path: str) -> Knowledge | None:
    name = prefixed(path)
    return None if name is None else knowledge()[name]


def prefixed(path: str) -> str | None:
    """The offered protocol whose path it is."""
    for adapter in ADAPTERS:
        if adapter.name in knowledge() and any(f"{path}/".startswith(f"{each}/") for each in adapter.prefixes):
            return adapter.name
    return None
