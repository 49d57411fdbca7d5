"""Malformed and hostile requests: bodies, forms, ids, wrong values, queries and headers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast
from uuid import uuid4

from babelgate.canonical.value import Json

LIMIT: Final = 2 * 2**20
"""Maximum size of a body that the gateway under test accepts, in bytes."""

UNKNOWN: Final = str(uuid4())


def _nested(levels: int) -> bytes:
    return b'{"input":' * levels + b"1" + b"}" * levels


BODIES: Final[Mapping[str, bytes]] = {
    "empty": b"",
    "blank": b" \r\n\t ",
    "cut off": b'{"agent_name": "echo", "input": [',
    "not JSON": b"<html><body>hello</body></html>",
    "a form": b"agent_name=echo&input=hello",
    "two values": b"{} {}",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"agent_name": "echo"}'.encode("utf-16"),
    "invalid UTF-8": b'{"agent_name": "\xff\xfe", "message": "\xc3\x28"}',
    "a lone surrogate": rb'{"agent_name": "\ud800", "message": {"role": "\udfff"}}',
    "NaN": b'{"agent_name": NaN, "input": [NaN]}',
    "Infinity": b'{"agent_name": -Infinity, "configuration": {"historyLength": Infinity}}',
    "1e999": b'{"agent_name": 1e999, "configuration": {"historyLength": 1e999}}',
    "1 000 levels": _nested(1_000),
    "100 000 levels": b"[" * 100_000 + b"]" * 100_000,
    "an array": b'[{"agent_name": "echo"}, 7]',
    "a number": b"12345678901234567890123456789",
    "a string": b'"hello"',
    "true": b"true",
    "null": b"null",
    "a huge integer": b'{"agent_name": 1' + b"0" * 400 + b', "id": -1' + b"0" * 4500 + b"}",
    "a string of 1 MB": b'"' + b"x" * 2**20 + b'"',
    "a name of 1 MB": b'{"' + b"x" * 2**20 + b'": 1}',
    "NUL": rb'{"\u0000": "\u0000", "agent_name": "\u0000"}',
    "names of Python": b'{"__class__": "x", "self": 1, "request": 2, "call": 3, "context": 4, "model_config": 5}',
}
"""Bodies, by name. None is valid in a request that has a required member."""

HARMLESS: Final = frozenset({"empty", "blank", "null", "a name of 1 MB", "NUL", "names of Python"})
"""Bodies that are valid where every member is optional and unknown members are ignored."""

BOUNDARY: Final = "babelgate-boundary"


def _form(*parts: str, end: str = "--") -> bytes:
    return "".join(f"--{BOUNDARY}\r\n{part}\r\n" for part in parts).encode() + f"--{BOUNDARY}{end}\r\n".encode()


_TYPE: Final = f"multipart/form-data; boundary={BOUNDARY}"
_FILE: Final = 'Content-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhello'
_FOLDER: Final = 'Content-Disposition: form-data; name="relative_path"\r\n\r\n'

FORMS: Final[Mapping[str, tuple[str, bytes]]] = {
    "no form": ("application/json", b'{"file": "hello"}'),
    "no type": ("", _form(_FILE)),
    "no boundary": ("multipart/form-data", _form(_FILE)),
    "an empty boundary": ("multipart/form-data; boundary=", _form(_FILE)),
    "another boundary": ("multipart/form-data; boundary=other", _form(_FILE)),
    "a boundary beyond ASCII": ("multipart/form-data; boundary=\xe9\xe9", _form(_FILE)),
    "a long boundary": (f"multipart/form-data; boundary={'x' * 5_000}", _form(_FILE)),
    "an urlencoded form": ("application/x-www-form-urlencoded", b"file=hello"),
    "another multipart": (_TYPE.replace("form-data", "mixed"), _form(_FILE)),
    "nothing": (_TYPE, b""),
    "no parts": (_TYPE, f"--{BOUNDARY}--\r\n".encode()),
    "cut off": (_TYPE, _form(_FILE)[:-12]),
    "no end": (_TYPE, _form(_FILE, end="")),
    "no file": (_TYPE, _form(_FOLDER + "src")),
    "a part without a head": (_TYPE, _form("hello")),
    "a part without a name": (_TYPE, _form("Content-Disposition: form-data\r\n\r\nhello")),
    "a head that never ends": (_TYPE, _form("X: " + "x" * 100_000)),
    "a thousand parts": (_TYPE, _form(*[_FOLDER + "a"] * 1_000, _FILE)),
    "a folder that is no text": (_TYPE, _form(_FILE, _FOLDER).replace(b'path"\r\n\r\n', b'path"\r\n\r\n\xff\xfe')),
    "a folder of 100 kB": (_TYPE, _form(_FILE, _FOLDER + "a/" * 50_000)),
}
"""Content-Type and body, by name. None of them is a valid upload."""

EVENT_IDS: Final = (
    b"",
    b"-1",
    b"0",
    b"1-",
    b"-",
    b"a-b",
    b"1-1-1",
    b"9" * 30 + b"-1",
    b"\xb2-1",
    b"\xff",
    b"-2",
    b"x" * 5_000,
)

IDS: Final[Mapping[str, str]] = {
    "unknown UUID": UNKNOWN,
    "unknown UUID in capitals": UNKNOWN.upper(),
    "malformed UUID": UNKNOWN[:-1],
    "UUID in braces": f"%7B{UNKNOWN}%7D",
    "UUID as a URN": f"urn:uuid:{UNKNOWN}",
    "a number": "0",
    "a negative number": "-1",
    "null": "null",
    "NUL": "a%00b",
    "line feed": "a%0D%0AX-Injected:%201",
    "slash": "a%2Fb",
    "two dots": "%2E%2E",
    "a path": "%2E%2E%2F%2E%2E%2Fetc%2Fpasswd",
    "backslashes": "..%5C..%5Cwindows",
    "percent": "%25",
    "twice encoded": "%252F%2500",
    "question mark and hash": "a%3Fb%23c",
    "colon": "a:b:c",
    "SQL": "'%20OR%201=1%20--",
    "wildcards": "%25_*",
    "markup": "%3Cscript%3Ealert(1)%3C%2Fscript%3E",
    "accents": "%C3%A9%CC%81",
    "emoji": "%F0%9F%98%80",
    "invalid UTF-8": "%FF%FE",
    "surrogate in UTF-8": "%ED%A0%80",
    "a space": "%20",
    "very long": "x" * 5_000,
    "a long hash": "0" * 64,
}
"""Percent-encoded path segments, by name. None of them is the id of anything."""

WRONG: Final[Sequence[Json]] = (None, True, -1, 10**30, 1.5, "", "\0 é\u202e", [None], {"a": [[]]})

QUERY: Final = ("", "0", "-1", "1e9", "9" * 30, "NaN", "%00", "%FF", "x" * 5_000, "%C3%A9", "true", "[]", "1;2")

HEADERS: Final[Sequence[Mapping[str, bytes]]] = (
    {"A2A-Version": b"9.9"},
    {"A2A-Version": b"1.0, 0.3"},
    {"A2A-Version": b"\xff\xfe"},
    {"A2A-Version": b"x" * 5_000},
    {"Babelgate-From": b"-1"},
    {"Babelgate-From": b"9" * 40},
    {"Babelgate-From": "²".encode("latin-1")},
    {"Accept": b"text/event-stream;q=x, \xff"},
    {"Content-Type": b"multipart/form-data"},
    {"Content-Type": b"application/json; charset=utf-16"},
    {"Content-Encoding": b"gzip"},
    {"Host": b'evil.example"><script>'},
    {"Authorization": b"Bearer \xff"},
    {"If-None-Match": b"\xff,,,"},
    {"X-Forwarded-Host": b"evil.example"},
    {"Cookie": b"=;=;\xff"},
)


def mutations(valid: Json, wrong: Sequence[Json] = WRONG) -> Iterator[tuple[str, Json]]:
    """Yield the valid value with one member, at any depth, replaced by a wrong value or left out."""
    for path in _paths(valid):
        name = ".".join(str(step) for step in path)
        for value in wrong:
            yield f"{name} = {_short(value)}", _changed(valid, path, value)
        yield f"without {name}", _changed(valid, path, _MISSING)


_MISSING: Final = object()


def _paths(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items: Iterator[tuple[str | int, Any]] = iter(())
    if isinstance(value, dict):
        items = iter(cast("dict[str, Any]", value).items())
    elif isinstance(value, list):
        items = iter(enumerate(cast("list[Any]", value)))
    for step, inner in items:
        yield (*at, step)
        yield from _paths(inner, (*at, step))


def _changed(valid: Json, path: Sequence[str | int], value: object) -> Json:
    copy: Any = json.loads(json.dumps(valid))
    holder = copy
    for step in path[:-1]:
        holder = holder[step]
    if value is _MISSING:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return copy


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) < 40 else f"{text[:20]}… ({len(text)})"
