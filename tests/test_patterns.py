"""Regular expressions: none that is in this code takes a time that grows faster than the text it looks at.

Python's engine goes back and tries again. Each pattern is found in the source, and is given texts that are made of its
own letters, over and over: whoever sends a foreign text would do the same.
"""

import ast
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

PARSER: Final[Any] = import_module("re._parser")
"""The standard library's own. It promises nothing of it, so it is asked for in tests alone."""
ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("canonical", "adapters", "gateway")
METHODS: Final = frozenset({"match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"})
MENTIONS: Final = re.compile(rf"\.\s*(?:compile|{'|'.join(METHODS)})\b")
"""In a file in which a pattern may be made or used."""
MAKES: Final = re.compile(rf"\bre\.(?:compile|{'|'.join(METHODS)})\(")
"""In one in which there is a pattern."""
TRUSTED: Final = frozenset(
    {"gateway/cli/add.py", "gateway/cli/target.py", "gateway/settings/load.py", "gateway/storage/tables.py"}
)
"""They see the operator's own words, and nothing that came over a network."""

FEW: Final = (8, 12, 16, 20, 24, 28, 32, 64, 128, 256, 512)
"""How often a word is said, step by step: where each time doubles the work, many times would take for ever."""
SLOW: Final = 0.02
"""Seconds for so few words: to read them takes a thousandth of it."""
SOME: Final = 1024
MANY: Final = 4 * SOME
STEEP: Final = 8.0
"""By how much the time may grow where the text is four times as long: in proportion it would be by 4, squared by 16."""
NOTICED: Final = 0.002
"""Seconds, below which nothing can be told from the noise."""


@dataclass(frozen=True)
class Pattern:
    where: str
    text: str | bytes
    flags: int
    methods: frozenset[str]
    """By which it is used; none where that is not known."""

    def __str__(self) -> str:
        return f"{self.where} {self.text!r}"


# Finding them


def _flags(node: ast.expr | None) -> int:
    names = [] if node is None else [each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)]
    flags = 0
    for name in names:
        flags |= int(getattr(re, name))
    return flags


def _calls(tree: Sequence[ast.AST]) -> Iterator[tuple[ast.Call, str, ast.expr]]:
    """Calls of functions of the module `re`: the call, the function's name, the pattern."""
    for node in tree:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            module = node.func.value
            if isinstance(module, ast.Name) and module.id == "re" and node.func.attr in {*METHODS, "compile"}:
                yield node, node.func.attr, node.args[0]


def _used(trees: Mapping[str, Sequence[ast.AST]]) -> dict[str, set[str]]:
    """By which methods patterns are used, by the name that they have."""
    found: dict[str, set[str]] = {}
    for tree in trees.values():
        for node in tree:
            if isinstance(node, ast.Attribute) and node.attr in METHODS and isinstance(node.value, ast.Name):
                found.setdefault(node.value.id, set()).add(node.attr)
    return found


def _in(path: str, tree: Sequence[ast.AST], used: Mapping[str, set[str]]) -> Iterator[Pattern]:
    names = {
        id(node.value): target.id
        for node in tree
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for call, function, given in _calls(tree):
        where = f"{path}:{call.lineno}"
        assert isinstance(given, ast.Constant), f"{where}: a pattern that is made as the program runs is in no test"
        methods = used.get(names.get(id(call), ""), set()) if function == "compile" else {function}
        flags = next((each.value for each in call.keywords if each.arg == "flags"), None)
        places = {
            "compile": 1,
            "match": 2,
            "fullmatch": 2,
            "search": 2,
            "findall": 2,
            "finditer": 2,
            "split": 3,
            "sub": 4,
        }
        place = places.get(function, 4)
        flags = flags or (call.args[place] if len(call.args) > place else None)
        text: Any = given.value
        yield Pattern(where, text, _flags(flags), frozenset(methods))


def files() -> dict[str, str]:
    """Those in which there may be a pattern, and their texts."""
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}
    return {path: text for path, text in texts.items() if MENTIONS.search(text)}


@cache
def patterns() -> Mapping[str, Sequence[Pattern]]:
    """By file. Parsing them takes two seconds, which are not for each process that collects tests."""
    trees = {path: list(ast.walk(ast.parse(text))) for path, text in files().items()}
    used = _used(trees)
    return {path: list(_in(path, tree, used)) for path, tree in trees.items() if path not in TRUSTED}


# Straining them


def _letters(tree: Any) -> Iterator[int]:
    """One character for each place of a pattern that takes one."""
    for code, given in tree:
        match str(code):
            case "LITERAL":
                yield given
            case "NOT_LITERAL":
                yield from (next(each for each in b"axy" if each != given), given)
            case "ANY":
                yield ord("y")
            case "IN":
                yield from _of_class(given)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                yield from _letters(given[2])
            case "SUBPATTERN":
                yield from _letters(given[3])
            case "ATOMIC_GROUP":
                yield from _letters(given)
            case "ASSERT" | "ASSERT_NOT":
                yield from _letters(given[1])
            case "BRANCH":
                for branch in given[1]:
                    yield from _letters(branch)
            case "AT":
                pass
            case _:
                raise AssertionError(f"{code} is not known to this test")


def _of_class(members: Sequence[Any]) -> Iterator[int]:
    kinds = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a"}
    taken: set[int] = set()
    for code, given in members:
        match str(code):
            case "LITERAL":
                taken.add(given)
            case "RANGE":
                taken |= {given[0], given[1]}
            case "CATEGORY":
                taken.add(ord(kinds.get(str(given), "!")))
            case _:  # NEGATE, the first one: what the class takes, and what ends it
                pass
    if str(members[0][0]) == "NEGATE":
        yield next(each for each in b"ayz1!" if each not in taken)
    yield from sorted(taken)[:4]


def _texts(pattern: Pattern) -> Iterator[tuple[str, str, str]]:
    """Beginnings, what is said over and over, and ends."""
    known = list(dict.fromkeys(map(chr, _letters(PARSER.parse(pattern.text, pattern.flags)))))
    literal = "".join(known)
    letters = known[:10]
    words = [*letters, *map("".join, product(letters[:6], repeat=2)), literal, literal[:3]]
    for begin, word, end in product(("", literal[:1], literal), dict.fromkeys(words), ("", "\x01", "\n", *letters[:4])):
        if word:
            yield begin, word, end


def _runs(pattern: Pattern) -> list[Callable[[Any], object]]:
    compiled = re.compile(pattern.text, pattern.flags)
    methods = pattern.methods or {"search"}
    ways: dict[str, Callable[[Any], object]] = {
        "match": compiled.match,
        "fullmatch": compiled.fullmatch,
        "search": compiled.search,
        "findall": compiled.findall,
    }
    return [ways.get(name, compiled.findall) for name in sorted(methods)]


def _most_seconds(run: Callable[[Any], object], given: Any) -> float:
    """By the clock, which is read eight times faster than what this thread has computed, and never tells less."""
    began = time.perf_counter()
    run(given)
    return time.perf_counter() - began


def _seconds(run: Callable[[Any], object], given: Any) -> float:
    began = time.thread_time()
    run(given)
    return time.thread_time() - began


def _surely(run: Callable[[Any], object], given: Any, unless: float = 0.0, tries: int = 15) -> float:
    """The least of some tries: others use this machine, too. None that is `unless` or less needs another."""
    least = float("inf")
    for _ in range(tries):
        least = min(least, _seconds(run, given))
        if least <= unless:
            break
    return least


def repeats(tree: Any) -> bool:
    """Whether there is anything in a pattern that it takes more than once. One in which there is nothing looks at no
    more characters from each place of a text than the pattern is long."""
    return any(
        str(code).endswith("_REPEAT") or any(repeats(each) for each in _within(str(code), given))
        for code, given in tree
    )


def _within(code: str, given: Any) -> Sequence[Any]:
    """The patterns in a part of one."""
    match code:
        case "SUBPATTERN":
            return [given[3]]
        case "ATOMIC_GROUP":
            return [given]
        case "ASSERT" | "ASSERT_NOT":
            return [given[1]]
        case "BRANCH":
            return given[1]
        case _:
            return []


def slow_text(pattern: Pattern) -> str | None:
    """One that takes too long, if there is one."""
    if not repeats(PARSER.parse(pattern.text, pattern.flags)):
        return None
    for run, (begin, word, end) in product(_runs(pattern), _texts(pattern)):

        def said(times: int, begin: str = begin, word: str = word, end: str = end) -> str | bytes:
            text = begin + word * times + end
            return text.encode("utf-8", "surrogatepass") if isinstance(pattern.text, bytes) else text

        for times in FEW:
            if _most_seconds(run, said(times)) > SLOW and _surely(run, said(times), unless=SLOW) > SLOW:
                return f"{begin!r}, {times} times {word!r}, {end!r}"
        if _most_seconds(run, said(MANY)) > NOTICED:
            some = _surely(run, said(SOME), tries=5)
            bound = max(NOTICED, STEEP * some)
            many = _surely(run, said(MANY), unless=bound)
            if many > bound:
                return f"{begin!r}, {MANY} times {word!r}, {end!r}: {many:.4f} s, and for a fourth of it {some:.4f} s"
    return None


@pytest.mark.parametrize("path", [path for path, text in files().items() if MAKES.search(text) and path not in TRUSTED])
def test_no_text_makes_a_pattern_slow(path: str) -> None:
    assert {str(pattern): slow for pattern in patterns()[path] if (slow := slow_text(pattern)) is not None} == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "method"),
    [
        (r"(a+)+$", "match"),
        (r"\s*\S+(?:\s+$)?", "findall"),
        (r"[^/\\]*$", "sub"),
        (r"(a|a)*b", "fullmatch"),
        (r"a*a*a*$", "fullmatch"),
        (r"(\w+\s?)*$", "match"),
        (r"<a[^>]*>", "search"),
        (r"(.*)=(.*)=x", "match"),
        (rb"\s+$", "search"),
        (r"^(([a-z])+.)+[A-Z]([a-z])+$", "search"),
    ],
)
def test_a_slow_pattern_would_be_found(text: str | bytes, method: str) -> None:
    assert slow_text(Pattern("", text, 0, frozenset({method}))) is not None


def test_the_patterns_of_this_code_are_found_with_what_they_are_used_for() -> None:
    assert {path for path, each in patterns().items() if each} == {
        path for path, text in files().items() if MAKES.search(text) and path not in TRUSTED
    }
    found = {str(pattern.text): pattern for each in patterns().values() for pattern in each}
    assert len(found) > 30
    assert found["[0-9a-f]{64}"].methods == {"fullmatch"}
    assert any(pattern.flags for pattern in found.values())


def test_patterns_of_models_are_for_an_engine_that_never_goes_back() -> None:
    """pydantic's own (the crate `regex`), unless a model says otherwise."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            assert "regex_engine" not in path.read_text(), path
