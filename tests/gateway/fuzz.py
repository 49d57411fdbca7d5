"""Fuzzed requests: valid ones, changed at random from a seed."""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, cast
from urllib.parse import quote_from_bytes

from babelgate.canonical.value import Json
from tests.gateway.hostile import BOUNDARY, UNKNOWN

NUMBERS: Final[Sequence[str]] = (
    "0", "-0", "-0.0", "1.0", "1e2", "-1", "0.1", "1e-320", "1e308", "-1e308", "1e309", "1E400", "2147483648",
    "-2147483649", "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "18446744073709551616", "1e19", "253402300800", "1e15", "9" * 40, "9" * 299, "-" + "9" * 299, "9" * 301,
    "9" * 5000,
)  # fmt: skip
"""Numbers in their JSON form, at the limits of C, SQLite, dates and floats."""

TEXTS: Final[Sequence[str]] = (
    "", " ", "\0", "a\0b", "\n", "\r\n", "\t", "\x7f", "\x1b[2J", "\x85", "\u2028", "\ufeff", "\uffff", "\u202e", "é",
    "e\u0301", "😀", "٣", "²", "½", "Ⅷ", "ß", "İ", "0", "-1", "1e999", "NaN", "Infinity", "true", "null", "[]", "{}",
    "[" * 5000, '"', "\\", "../../etc/passwd", "/", "//", "/" * 20_000, "a/" * 10_000, "\\" * 5000, ".", "..", "%",
    "%00", "%s%n", "$", "{0}", "${HOME}", "'", "--", ";", "*", "?", "[a-z]", "(", "(a+)+$", "a" * 100_000,
    " " * 20_000, "=" * 5000, "data:", "data:text/plain;base64,!!!!", "data:;base64,aGk", "http://", "http://[",
    "http://a:b@c:d/", "file:///etc/passwd", "javascript:1", "urn:x", "9999-99-99T99:99:99Z",
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999999Z", "2026-02-30T00:00:00Z", "20260101", "0" * 64,
    UNKNOWN, UNKNOWN.upper(), f"{{{UNKNOWN}}}", "1-1", "0-0", "5" * 30 + "-1", "values.messages[-1]",
    "values.messages[99999999999999999999]", "a[", "a..b", "$ref", "__class__", "constructor", "text/plain",
    "text/plain; charset=x", "*/*", "a/b;" * 2000, "Content-Length: 5\r\n\r\n", "SendMessage", "role", "user",
    "system", "assistant",
)  # fmt: skip

_RAW: Final[Sequence[str]] = (
    r'"\ud800"', r'"\udfff\ud800"', r'"\u0000"', r'"\uD83D\uDE00"', r'"\x41"', '"\\', "NaN", "Infinity", "-Infinity",
    "undefined", "0x10", "01", "+1", ".5", "1.", "True", "'a'", "[1,]", '{"a":1,}', '{"a":1,"a":2}',
    '{"a":{"b":1},"a":null}', '{"":1,"":2}', "[", "]", "{", "}", '"', ",", ":", "[" * 60 + "]" * 60,
    "[" * 63 + "]" * 63, "[" * 64 + "]" * 64, "[" * 10_000 + "]" * 10_000, '{"a":' * 62 + "1" + "}" * 62,
    '{"a":' * 10_000 + "1" + "}" * 10_000, "[" + "1," * 20_000 + "1]", "[" + "{}," * 20_000 + "{}]",
    '["' + f'","{UNKNOWN}' * 40_000 + '"]', '{"a":"' + "x" * 1_000_000 + '"}', "\ufeff{}", "/**/1", "//\n1",
)  # fmt: skip
"""Texts that replace a value and may not be valid JSON."""

_PLAIN: Final[Sequence[Any]] = (
    None, True, False, [], {}, [None], [[]], [{}], {"": 1}, {"a": {"b": {"c": None}}}, {"$gt": []},
    {"$ne": {"$gt": 1}}, {"$eq": "x", "$nope": 1}, [1, "a", None], ["a"] * 300, {str(n): n for n in range(300)},
    {"type": "text"}, {"type": None, "text": 5}, {"kind": "file", "file": {}},
    {"role": "user", "content": [{"type": "text"}]}, [{"role": 5}], {"messages": None}, {"messages": [None]},
    {"__error__": 1}, {"__interrupt__": 1}, {"uri": "x", "bytes": "aGk="}, {"bytes": "aGk"}, {"bytes": "é"},
    {"raw": "aGk", "text": ""}, {"url": "http://", "base64": 1},
)  # fmt: skip
STRANGE: Final[Sequence[str]] = (*NUMBERS, *map(json.dumps, TEXTS), *_RAW, *map(json.dumps, _PLAIN))
"""Replacements of a value, as JSON text."""

_HOLE: Final = "\ue000hole\ue000"


def bodies(valid: Json, seed: object, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each changed body. A seed always yields the same ones."""
    chance = random.Random(f"{seed}")
    for number in range(count):
        change = chance.choice(_CHANGES)
        name, body = change(valid, chance)
        if chance.random() < 0.2:
            more, body = _damage_bytes(body, chance)
            name += f", {more}"
        yield f"form {number} of seed {seed!r}: {name}", body


def _replace_value(valid: Json, chance: random.Random) -> tuple[str, bytes]:
    holders = list(_places(valid))
    value, strange = deepcopy(valid), chance.choice(STRANGE)
    if not holders:
        return "another body", _utf8(strange)
    path = chance.choice(holders)
    _set(value, path, _HOLE)
    return f"{path} = {strange[:40]}", _utf8(json.dumps(value).replace(json.dumps(_HOLE), strange))


def _replace_several(valid: Json, chance: random.Random) -> tuple[str, bytes]:
    value, names = deepcopy(valid), list[str]()
    for _ in range(chance.randint(2, 5)):
        holders = list(_places(value))
        if not holders:
            break
        path = chance.choice(holders)
        _set(value, path, deepcopy(chance.choice([*_PLAIN, *TEXTS])))
        names.append(str(path))
    return f"others at {names}", _utf8(json.dumps(value))


def _remove_members(valid: Json, chance: random.Random) -> tuple[str, bytes]:
    holders = [path for path in _places(valid) if path]
    value = deepcopy(valid)
    for path in chance.sample(holders, min(len(holders), chance.randint(1, 3))):
        try:
            holder = _get(value, path[:-1])
            del holder[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue
    return "without some", _utf8(json.dumps(value))


def _rename_member(valid: Json, chance: random.Random) -> tuple[str, bytes]:
    """Rename one member."""
    holders = [path for path in _places(valid) if path and isinstance(path[-1], str)]
    value = deepcopy(valid)
    if not holders:
        return "as it is", _utf8(json.dumps(value))
    path, name = chance.choice(holders), chance.choice(TEXTS)
    holder = _get(value, path[:-1])
    holder[name] = holder.pop(path[-1])
    return f"{path} is called {name[:20]!r}", _utf8(json.dumps(value))


def _duplicate_member(valid: Json, chance: random.Random) -> tuple[str, bytes]:
    """Write one member twice, with two values."""
    text, strange = json.dumps(valid), chance.choice(STRANGE)
    holders = [path for path in _places(valid) if path and isinstance(path[-1], str)]
    if not holders:
        return "twice", _utf8(text + text)
    value, path = deepcopy(valid), chance.choice(holders)
    holder = _get(value, path[:-1])
    holder[_HOLE] = 0
    again = f"{json.dumps(path[-1])}: {strange}"
    return f"{path} twice: {strange[:40]}", _utf8(json.dumps(value).replace(f"{json.dumps(_HOLE)}: 0", again))


def _extend_list(valid: Json, chance: random.Random) -> tuple[str, bytes]:
    """Extend one list by copies of its items."""
    lists = [path for path in (*_places(valid), ()) if isinstance(_get(valid, path), list) and _get(valid, path)]
    value = deepcopy(valid)
    if not lists:
        return _replace_value(valid, chance)
    path = chance.choice(lists)
    _get(value, path).extend(_get(value, path) * chance.choice([1, 10, 200]))
    return f"{path} is long", _utf8(json.dumps(value))


_CHANGES: Final[Sequence[Callable[[Json, random.Random], tuple[str, bytes]]]] = (
    _replace_value, _replace_value, _replace_value, _replace_value, _replace_several, _remove_members, _rename_member,
    _duplicate_member, _extend_list,
)  # fmt: skip


def _damage_bytes(body: bytes, chance: random.Random) -> tuple[str, bytes]:
    at = chance.randrange(len(body) + 1)
    match chance.randrange(5):
        case 0:
            return "cut off", body[:at]
        case 1:
            return "with a byte more", body[:at] + chance.randbytes(1) + body[at:]
        case 2:
            return "with other bytes", body[:at] + chance.randbytes(4) + body[at + 4 :]
        case 3:
            return "with a piece twice", body[:at] + body[max(0, at - 20) :]
        case _:
            return "in UTF-16", body.decode(errors="replace").encode("utf-16")


def forms(kind: str, body: bytes, seed: object, count: int) -> Iterator[tuple[str, str, bytes]]:
    """Yield the name, content type and content of each changed form, derived from a valid one."""
    chance = random.Random(f"{seed}")
    for number in range(count):
        content_type, content = kind, body
        name = f"form {number} of seed {seed!r}: "
        match chance.randrange(6):
            case 0:
                more, content = _damage_bytes(body, chance)
                name += more
            case 1:
                content = body.replace(b"\r\n", chance.choice([b"\n", b"\r", b"\r\n\r\n", b"", b"\r\n "]))
                name += "other line ends"
            case 2:
                content = body.replace(b'"', chance.choice([b"", b"'", b'\\"', b'""', b"\xff"]))
                name += "other quotes"
            case 3:
                text = chance.choice(TEXTS).encode(errors="replace")
                content = body.replace(
                    chance.choice([b"a.txt", b"file", b"hello", b"form-data", b"Content-Disposition"]), text
                )
                name += f"{text[:20]!r} in it"
            case 4:
                text = chance.choice(
                    ["", "-", "é", " ", "a b", "x" * 80, '"', '"a', "a; a=b", BOUNDARY + " ", BOUNDARY * 2]
                )
                content_type = kind.replace(BOUNDARY, text)
                content = body.replace(BOUNDARY.encode(), chance.choice([BOUNDARY, text]).encode())
                name += f"the boundary {text[:20]!r}"
            case _:
                more = chance.choice(
                    [
                        b"Content-Length: 99",
                        b"Content-Transfer-Encoding: base64",
                        b"Content-Type: x",
                        b"X" * 9000,
                        b":",
                        b"a:\0",
                    ]
                )
                content = body.replace(b"\r\n\r\n", b"\r\n" + more + b"\r\n\r\n", 1)
                name += f"the header {more[:20]!r}"
        yield name, content_type, content


def queries(names: Sequence[str], seed: object, count: int) -> Iterator[str]:
    chance = random.Random(f"{seed}")
    for _ in range(count):
        pairs: list[str] = []
        for _ in range(chance.randint(1, 3)):
            value = chance.choice([*TEXTS, *NUMBERS]).encode(errors="replace")[:2000]
            if chance.random() < 0.1:
                value = chance.randbytes(8)
            text = (
                quote_from_bytes(value)
                if chance.random() < 0.9
                else chance.choice(["%", "%zz", "a=b=c", "&&", "%FF", "+"])
            )
            pairs.append(f"{chance.choice(names)}={text}")
        yield "&".join(pairs)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items: Iterator[tuple[str | int, Any]] = iter(())
    if isinstance(value, dict):
        items = iter(cast("Mapping[str, Any]", value).items())
    elif isinstance(value, list):
        items = enumerate(cast("list[Any]", value))
    for step, inner in items:
        yield (*at, step)
        yield from _places(inner, (*at, step))


def _get(value: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value


def _set(value: Any, path: Sequence[str | int], to: Any) -> None:
    _get(value, path[:-1])[path[-1]] = to
