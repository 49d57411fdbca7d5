"""Tier of a test, derived from its imports, so that no test needs a mark.

`unit` opens neither a connection nor a database. `database` runs hubs and whole gateways in this process, on SQLite.
`sockets` starts servers or processes of this project, `peers` runs other people's clients and servers, and `crash`
kills gateways.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

TIERS: Final = ("unit", "database", "sockets", "peers", "crash")
_ROOT: Final = Path(__file__).parents[1]
_FOLDERS: Final = {"tests/browser": "peers", "tests/interop": "peers", "tests/crash": "crash"}
_OPENS_SOCKETS: Final = frozenset(
    {"aiohttp", "multiprocessing", "socket", "subprocess", "tests.loopback", "tests.serving", "uvicorn"}
    | {"babelgate.gateway.agents.processes.agent", "babelgate.gateway.agents.processes.server"}
)
"""Names of modules that start servers or processes, or call them. A test that imports one is at least in the tier
`sockets`."""
_OPENS_DATABASE: Final = frozenset(
    {"sqlite3", "babelgate.gateway.storage.database", "babelgate.gateway.storage.sqlite", "tests.empty"}
)
"""Names of modules that open a database. A test that imports one is at least in the tier `database`."""
_CALL: Final = re.compile(r"\.(?:create_server|create_subprocess_exec|open_connection|start_server)\b")
"""Pattern of calls of asyncio that open sockets or start processes."""
_IMPORT: Final = re.compile(
    r"^[ \t]*(?:from[ ]+(?P<module>[\w.]+)[ ]+)?import[ ]+(?P<names>\([^)]*\)|[^(\n]+)$", re.MULTILINE
)
_COMMENT: Final = re.compile(r"#.*")


def tier_of(modules: Iterable[str]) -> str:
    """Return the tier of a test from its own module and those of its fixtures, `tests.…`."""
    named = list(modules)
    for folder, tier in _FOLDERS.items():
        if any(name.startswith(f"{folder.replace('/', '.')}.") for name in named):
            return tier
    reached = frozenset[str]().union(*map(_reached, named))
    if reached & _OPENS_SOCKETS:
        return "sockets"
    return "database" if reached & _OPENS_DATABASE else "unit"


def can_be_slow(module: str) -> bool:
    """Return True if the module, or a module of `tests` that it imports directly or indirectly, has the mark `slow`."""
    return any(_has_slow_mark(name) for name in _reached(module) if name.startswith("tests."))


@cache
def _reached(module: str) -> frozenset[str]:
    """Return the imports of the module and of the modules of `tests` that it imports, directly or indirectly."""
    modules: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in modules:
            modules.add(name)
            if name.startswith("tests."):
                waiting += _imports(name)
    return frozenset(modules)


@cache
def _imports(module: str) -> tuple[str, ...]:
    return tuple(_named(_source(module)))


@cache
def _has_slow_mark(module: str) -> bool:
    return "mark.slow" in _source(module)


@cache
def _source(module: str) -> str:
    """Return the text of a module of `tests`, which is empty if there is no such module."""
    path = _ROOT.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return source.read_text(encoding="utf-8") if source.is_file() else ""


def _named(text: str) -> Iterator[str]:
    """Yield imported names without a parser, which would take two seconds for all test files in every process.

    Text in strings counts too: mostly it is a program that the test starts.
    """
    for found in _IMPORT.finditer(text):
        module, names = found["module"], found["names"]
        if module is None:
            yield from _words(names)
        else:
            yield module
            yield from (f"{module}.{name}" for name in _words(names))
    if _CALL.search(text):
        yield "socket"


def _words(names: str) -> list[str]:
    """Return the names in an import list: `a.b` and `c` for `a.b as x, c`.

    It may have parentheses, line breaks and comments.
    """
    plain = _COMMENT.sub("", names).strip("()\n ")
    return [name.split()[0] for name in plain.split(",") if name.strip()]
