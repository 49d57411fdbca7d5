"""Requests as bytes: valid ones of every route, method and command, mutated by a seeded generator."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from babelgate.canonical.value import Json
from tests.behaviour.test_routes import QUERIES
from tests.gateway import fuzz
from tests.gateway.hostile import BODIES, EVENT_IDS, FORMS, HEADERS, IDS, UNKNOWN
from tests.gateway.route import ROUTES, Route
from tests.gateway.siege import headers_for, spared
from tests.gateway.valid import COMMANDS, RPC, UPLOAD, V1, VALID, command, filled, rpc

Slots = Mapping[str, str]
"""Ids of existing objects, by the name of a route's parameter."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Valid request to one route, from which mutated requests are made."""

    route: Route
    body: Json = None
    content_type: str = "application/json"
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Mutated:
    name: str
    raw: bytes
    is_whole: bool = True
    """True if the framing is valid HTTP.

    After a request with other framing the sender closes its side, and the gateway may close the connection.
    """


@dataclass(frozen=True, slots=True)
class _Draft:
    method: str
    target: str
    headers: tuple[tuple[str, bytes], ...]
    body: bytes

    def raw(self) -> bytes:
        lines = [f"{self.method} {self.target} HTTP/1.1".encode("latin-1", "replace")]
        lines += [name.encode() + b": " + value for name, value in self.headers]
        return b"\r\n".join((*lines, b"", self.body))

    def with_header(self, name: str, value: bytes) -> "_Draft":
        others = tuple(each for each in self.headers if each[0].lower() != name.lower())
        return replace(self, headers=(*others, (name, value)))


_FORM: Final = FORMS["no end"][0], FORMS["no end"][1].rstrip(b"\r\n") + b"--\r\n"


def _kinds() -> Sequence[Kind]:
    found = [Kind(route, VALID.get(str(route))) for route in ROUTES if not route.waits]
    found += [
        Kind(each.route, rpc(each.name, each.valid), headers={} if each.old else V1)
        for each in RPC
        if each.name not in ("tasks/resubscribe", "SubscribeToTask")  # streams of a waiting task do not end
    ]
    commands = Route("POST", "/threads/{thread_id}/commands")
    return [*found, *(Kind(commands, command(each.method, each.valid)) for each in COMMANDS)]


KINDS: Final = _kinds()


def make(seed: int, number: int, slots: Callable[[str], Slots]) -> Mutated:
    """Return the request with this seed and number.

    The same values give the same request, except for the ids in `slots`.
    """
    chance = random.Random(f"{seed} {number}")
    kind = chance.choice(KINDS)
    route = kind.route
    ids = spared(route, slots(route.path))
    body = filled(kind.body, {**ids, "task": UNKNOWN, "open": ids.get("task_id", UNKNOWN)})
    at = "/a2a/echo" if route.words == "rpc" else route.at(ids)
    headers = (("Host", b"127.0.0.1"), ("Content-Type", b"application/json"), ("Connection", b"close"))
    draft = _Draft(route.method, at, headers, b"" if body is None else json.dumps(body).encode())
    for name, value in (headers_for(route) if kind.headers is None else kind.headers).items():
        draft = draft.with_header(name, value.encode())
    name, draft = _change(kind, ids, body, draft, chance)
    named = f"request {number} of seed {seed}, {kind.route}: {name}"
    draft = draft if draft.method == "GET" and not draft.body else _with_length(draft)
    if chance.random() < 0.15:
        how, raw = _broken(draft, chance)
        return Mutated(f"{named}, {how}", raw, is_whole=False)
    return Mutated(named, draft.raw())


def _with_length(draft: _Draft) -> _Draft:
    return draft.with_header("Content-Length", str(len(draft.body)).encode())


def _change(kind: Kind, slots: Slots, body: Json, draft: _Draft, chance: random.Random) -> tuple[str, _Draft]:
    route = kind.route
    if str(route) == UPLOAD:
        ((name, content_type, form),) = fuzz.forms(*_FORM, chance.random(), 1)
        changed = replace(draft, body=form).with_header("Content-Type", content_type.encode("latin-1", "replace"))
        return name, changed
    how = chance.randrange(10)
    if how < 5 and body is not None:
        ((name, changed_body),) = fuzz.bodies(body, chance.random(), 1)
        return name, replace(draft, body=changed_body)
    if how < 6:
        name, changed_body = chance.choice(list(BODIES.items()))
        return f"the body {name}", replace(draft, body=changed_body)
    if how < 8 and (str(route) in QUERIES or how == 7):
        (query,) = fuzz.queries(QUERIES.get(str(route), ("limit", "a")), chance.random(), 1)
        return "a query", replace(draft, target=f"{draft.target}?{query}")
    if how < 9 and route.slots and route.words != "rpc":
        slot = chance.choice(route.slots)
        texts = [*IDS.values(), *(quote(text.encode(errors="replace")[:2000], safe="") for text in fuzz.TEXTS if text)]
        return f"another {slot}", replace(draft, target=route.at({**slots, slot: chance.choice(texts)}))
    return _other_header(draft, chance)


_NAMES: Final = (
    "Accept", "Accept-Encoding", "Authorization", "A2A-Version", "A2A-Extensions", "Babelgate-From", "Cache-Control",
    "Content-Encoding", "Content-Type", "Cookie", "Expect", "Forwarded", "Host", "If-None-Match", "Last-Event-ID",
    "Origin", "Range", "Referer", "Upgrade", "User-Agent", "X-API-Key", "X-Forwarded-For", "X-Forwarded-Host",
    "X-Forwarded-Proto", "X-HTTP-Method-Override",
)  # fmt: skip


def _other_header(draft: _Draft, chance: random.Random) -> tuple[str, _Draft]:
    if chance.random() < 0.3:
        ((name, value),) = chance.choice(HEADERS).items()
    elif chance.random() < 0.2:
        name, value = "Last-Event-ID", chance.choice(EVENT_IDS)
    else:
        name, text = chance.choice(_NAMES), chance.choice([*fuzz.TEXTS, *fuzz.NUMBERS])
        # `_broken` covers characters that end the header.
        value = text.encode(errors="replace").translate(None, b"\r\n\0")[:20_000]
    return f"the header {name}: {value[:30]!r}", draft.with_header(name, value)


def _broken(draft: _Draft, chance: random.Random) -> tuple[str, bytes]:
    """Return what is wrong with a request, and its bytes, whose framing is not valid HTTP or only almost valid."""
    raw = draft.raw()
    head, _, body = raw.partition(b"\r\n\r\n")
    length = str(len(draft.body)).encode()
    at = chance.randrange(len(head))
    match chance.randrange(12):
        case 0:
            return "cut off", raw[: chance.randrange(len(raw))]
        case 1:
            return "with other bytes in its head", head[:at] + chance.randbytes(3) + head[at + 3 :] + raw[len(head) :]
        case 2:
            return "without a piece of its head", head[:at] + head[at + chance.randrange(20) :] + raw[len(head) :]
        case 3:
            other = chance.choice([b"-1", b"0", b"1e3", b"", b"0x10", b"9" * 30, length + b", 7", b"+" + length])
            return "of another length", head + b"\r\nContent-Length: " + other + b"\r\n\r\n" + body
        case 4:
            return "in chunks and of a length", head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + body
        case 5:
            size = chance.choice([b"-1", b"zz", b"f" * 20, b"5;" + b"a" * 5000, b"", b"\0", b"10\n"])
            chunks = draft.with_header("Transfer-Encoding", b"chunked")
            chunked = replace(chunks, headers=tuple(each for each in chunks.headers if each[0] != "Content-Length"))
            return f"in chunks of {size[:10]!r}", replace(chunked, body=size + b"\r\n" + draft.body + b"\r\n").raw()
        case 6:
            return "with bare line feeds", raw.replace(b"\r\n", b"\n")
        case 7:
            line = chance.choice(
                [b"a" * 70_000, b"X: " + b"x" * 70_000, b"\0: 1", b": 1", b" X: 1", b"X : 1", b"X\xff: \xff"]
            )
            return f"with the line {line[:10]!r}", head + b"\r\n" + line + b"\r\n\r\n" + body
        case 8:
            method = chance.choice(
                [b"", b"get", b"PRI", b"CONNECT", b"TRACE", b"\xff", b"X" * 5000, b"OPTIONS", b"HEAD"]
            )
            return f"by {method[:10]!r}", raw.replace(draft.method.encode(), method, 1)
        case 9:
            version = chance.choice([b"HTTP/0.9", b"HTTP/2.0", b"HTTP/1.0", b"HTTP/9", b"", b"http/1.1", b"HTTP/1.1 x"])
            return f"in {version!r}", raw.replace(b"HTTP/1.1", version, 1)
        case 10:
            target = chance.choice(
                [b"*", b"//", b"http://evil.example/", b"/" * 60_000, b"/%", b"/\xff", b"?", b"/a b"]
            )
            return f"at {target[:10]!r}", raw.replace(draft.target.encode("latin-1", "replace"), target, 1)
        case _:
            return "twice", raw + raw[: chance.randrange(len(raw))]
