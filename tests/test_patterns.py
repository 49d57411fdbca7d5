"""Regular expressions: the time of none of them may grow faster than the length of the text.

Python's engine backtracks. Each pattern is found in the source and gets texts of the letters in it, repeated often,
as a hostile sender would write them.
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
"""The standard library's own parser, which is private; only tests use it."""
ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("canonical", "adapters", "gateway")
METHODS: Final = frozenset({"match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"})
MENTIONS: Final = re.compile(rf"\.\s*(?:compile|{'|'.join(METHODS)})\b")
"""Pattern that marks a file in which a regular expression may be created or used."""
CREATES_PATTERN: Final = re.compile(rf"\bre\.(?:compile|{'|'.join(METHODS)})\(")
"""Pattern that marks a file that contains a regular expression."""
TRUSTED: Final = frozenset(
    {"gateway/cli/add.py", "gateway/cli/target.py", "gateway/settings/load.py", "gateway/storage/tables.py"}
)
"""Files whose patterns only see text of the operator, and none from a network."""

FEW: Final = (8, 12, 16, 20, 24, 28, 32, 64, 128, 256, 512)
"""Numbers of repetitions of a word, in steps: with exponential growth, many repetitions would practically never end."""
SLOW: Final = 0.02
"""Maximum time for few repetitions, in seconds; a fast pattern needs a thousandth of it."""
SOME: Final = 1024
MANY: Final = 4 * SOME
STEEP: Final = 8.0
"""Maximum growth of the time for a text of four times the length: linear growth is 4, quadratic 16."""
NOTICED: Final = 0.002
"""Time below which differences are noise, in seconds."""


@dataclass(frozen=True)
class Pattern:
    where: str
    text: str | bytes
    flags: int
    methods: frozenset[str]
    """Names of the methods with which the source uses the pattern, such as `match`; empty if they are not known."""

    def __str__(self) -> str:
        return f"{self.where} {self.text!r}"


# Finding the patterns


def _flags(node: ast.expr | None) -> int:
    names = [] if node is None else [each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)]
    flags = 0
    for name in names:
        flags |= int(getattr(re, name))
    return flags


def _calls(tree: Sequence[ast.AST]) -> Iterator[tuple[ast.Call, str, ast.expr]]:
    """Yield calls of functions of the module `re`: the call, the function's name, and the pattern."""
    for node in tree:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            module = node.func.value
            if isinstance(module, ast.Name) and module.id == "re" and node.func.attr in {*METHODS, "compile"}:
                yield node, node.func.attr, node.args[0]


def _used(trees: Mapping[str, Sequence[ast.AST]]) -> dict[str, set[str]]:
    """Return the methods with which patterns are used, by the patterns' names."""
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
    for call, function, pattern_node in _calls(tree):
        where = f"{path}:{call.lineno}"
        assert isinstance(pattern_node, ast.Constant), f"{where}: a pattern created at run time cannot be tested"
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
        text: Any = pattern_node.value
        yield Pattern(where, text, _flags(flags), frozenset(methods))


def files() -> dict[str, str]:
    """Return the files in which there may be a pattern, with their texts."""
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}
    return {path: text for path, text in texts.items() if MENTIONS.search(text)}


@cache
def patterns() -> Mapping[str, Sequence[Pattern]]:
    """Return the patterns of each file.

    Parsing takes two seconds, so it is not done in each process that collects tests.
    """
    trees = {path: list(ast.walk(ast.parse(text))) for path, text in files().items()}
    used = _used(trees)
    return {path: list(_in(path, tree, used)) for path, tree in trees.items() if path not in TRUSTED}


# Straining the patterns


_INNER: Final = {
    "MAX_REPEAT": 2,
    "MIN_REPEAT": 2,
    "POSSESSIVE_REPEAT": 2,
    "SUBPATTERN": 3,
    "ASSERT": 1,
    "ASSERT_NOT": 1,
}
"""Index of the inner pattern among the arguments of an operation."""


def _letters(tree: Any) -> Iterator[int]:
    """Yield characters that match the parts of a pattern: at least one for each part that matches a character."""
    for code, argument in tree:
        match str(code):
            case "LITERAL":
                yield argument
            case "NOT_LITERAL":
                yield from (next(each for each in b"axy" if each != argument), argument)
            case "ANY":
                yield ord("y")
            case "IN":
                yield from _of_class(argument)
            case name if name in _INNER:
                yield from _letters(argument[_INNER[name]])
            case "ATOMIC_GROUP":
                yield from _letters(argument)
            case "BRANCH":
                for branch in argument[1]:
                    yield from _letters(branch)
            case "AT":
                pass
            case _:
                raise AssertionError(f"{code} is not known to this test")


def _of_class(members: Sequence[Any]) -> Iterator[int]:
    kinds = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a"}
    characters: set[int] = set()
    for code, argument in members:
        match str(code):
            case "LITERAL":
                characters.add(argument)
            case "RANGE":
                characters |= {argument[0], argument[1]}
            case "CATEGORY":
                characters.add(ord(kinds.get(str(argument), "!")))
            case _:  # NEGATE, the first one: a character that the class accepts, and those that it excludes
                pass
    if str(members[0][0]) == "NEGATE":
        yield next(each for each in b"ayz1!" if each not in characters)
    yield from sorted(characters)[:4]


def _texts(pattern: Pattern) -> Iterator[tuple[str, str, str]]:
    """Yield the beginning, the repeated word and the end of each text on which the pattern is tried."""
    characters = list(dict.fromkeys(map(chr, _letters(PARSER.parse(pattern.text, pattern.flags)))))
    literal = "".join(characters)
    letters = characters[:10]
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


def _most_seconds(run: Callable[[Any], object], text: Any) -> float:
    """Return the elapsed time, which is an upper limit of the CPU time and eight times faster to read."""
    began = time.perf_counter()
    run(text)
    return time.perf_counter() - began


def _seconds(run: Callable[[Any], object], text: Any) -> float:
    began = time.thread_time()
    run(text)
    return time.thread_time() - began


def _least_seconds(run: Callable[[Any], object], text: Any, unless: float = 0.0, tries: int = 15) -> float:
    """Return the least CPU time of several tries, because other processes use this machine.

    Stop at a value of at most `unless`.
    """
    least = float("inf")
    for _ in range(tries):
        least = min(least, _seconds(run, text))
        if least <= unless:
            break
    return least


def repeats(tree: Any) -> bool:
    """Return True if a part of the pattern repeats.

    Without a repetition, a match reads no more characters from each position than the pattern is long.
    """
    return any(
        str(code).endswith("_REPEAT") or any(repeats(each) for each in _within(str(code), argument))
        for code, argument in tree
    )


def _within(code: str, argument: Any) -> Sequence[Any]:
    """Return the patterns inside a part of a pattern."""
    match code:
        case "SUBPATTERN":
            return [argument[3]]
        case "ATOMIC_GROUP":
            return [argument]
        case "ASSERT" | "ASSERT_NOT":
            return [argument[1]]
        case "BRANCH":
            return argument[1]
        case _:
            return []


def slow_text(pattern: Pattern) -> str | None:
    """Return a description of a text that takes too long, or None."""
    if not repeats(PARSER.parse(pattern.text, pattern.flags)):
        return None
    for run, (begin, word, end) in product(_runs(pattern), _texts(pattern)):

        def repeat(times: int, begin: str = begin, word: str = word, end: str = end) -> str | bytes:
            text = begin + word * times + end
            return text.encode("utf-8", "surrogatepass") if isinstance(pattern.text, bytes) else text

        for times in FEW:
            if _most_seconds(run, repeat(times)) > SLOW and _least_seconds(run, repeat(times), unless=SLOW) > SLOW:
                return f"{begin!r}, {times} times {word!r}, {end!r}"
        if _most_seconds(run, repeat(MANY)) > NOTICED:
            some = _least_seconds(run, repeat(SOME), tries=5)
            bound = max(NOTICED, STEEP * some)
            many = _least_seconds(run, repeat(MANY), unless=bound)
            if many > bound:
                return f"{begin!r}, {MANY} times {word!r}, {end!r}: {many:.4f} s, and for a fourth of it {some:.4f} s"
    return None


@pytest.mark.parametrize(
    "path", [path for path, text in files().items() if CREATES_PATTERN.search(text) and path not in TRUSTED]
)
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
def test_a_slow_pattern_is_found(text: str | bytes, method: str) -> None:
    assert slow_text(Pattern("", text, 0, frozenset({method}))) is not None


def test_all_patterns_are_found_with_their_methods() -> None:
    assert {path for path, each in patterns().items() if each} == {
        path for path, text in files().items() if CREATES_PATTERN.search(text) and path not in TRUSTED
    }
    found = {str(pattern.text): pattern for each in patterns().values() for pattern in each}
    assert len(found) > 30
    assert found["[0-9a-f]{64}"].methods == {"fullmatch"}
    assert any(pattern.flags for pattern in found.values())


def test_patterns_of_models_use_an_engine_without_backtracking() -> None:
    """Check that models use pydantic's own engine (the crate `regex`), which does not backtrack."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            assert "regex_engine" not in path.read_text(), path
