"""docs/architecture.md names existing files, classes and functions, and the contracts of `.importlinter`."""

import ast
import re
from collections.abc import Iterator
from configparser import ConfigParser
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
PAGE: Final = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PROSE: Final = re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)

PATHS: Final = set(re.findall(r"`([\w.-]*(?:/[\w.-]*)+|\.importlinter)`", PROSE))
_NAME: Final = r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)`"
PAIRS: Final = set(re.findall(rf"`([\w./-]+\.py)`\s+{_NAME}", PROSE))
"""Pairs of a file and the name that follows the file on the page."""


def test_the_files_on_the_page_exist() -> None:
    assert len(PATHS) > 60
    assert {path for path in PATHS if not (ROOT / path).exists()} == set()


def test_a_name_after_a_file_is_defined_there() -> None:
    assert len(PAIRS) > 60
    assert {(path, name) for path, name in PAIRS if name not in names_in(path)} == set()


def test_names_without_a_file_are_in_files_of_the_page() -> None:
    defined = {name for path in PATHS if path.endswith(".py") for name in names_in(path)}
    named = {each for each in re.findall(_NAME, PROSE) if re.match(r"_?[A-Z]", each) or "_" in each}
    assert named - defined == set()


def test_the_contracts_on_the_page_are_those_of_the_linter() -> None:
    section = PAGE.partition("### Import rules\n")[2].partition("\n### ")[0]
    named = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(named) == sorted(each.rpartition(":")[2] for each in contracts() if ":contract:" in each)


def test_the_order_of_the_rooms_is_that_of_the_linter() -> None:
    block = PAGE.partition("The contract `rooms`")[2].partition("```\n")[2].partition("```")[0]
    assert block.split("\n")[:-1] == contracts()["importlinter:contract:rooms"]["layers"].strip().split("\n")


def contracts() -> ConfigParser:
    parser = ConfigParser()
    parser.read(ROOT / ".importlinter")
    return parser


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the names that a module defines, and those of its classes as `Class.name`."""
    return frozenset(_names(ast.parse((ROOT / path).read_text(encoding="utf-8")).body))


def _names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef(name=name, body=inner):
                yield prefix + name
                if not prefix:
                    yield from _names(inner, f"{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name
            case ast.Assign(targets=targets):
                yield from (prefix + each.id for each in targets if isinstance(each, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name
            case _:
                pass
