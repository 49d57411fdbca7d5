"""Compact encoding (dictionary compression) of records and rows: most of a short one is words that are the same in
every other one.

- An event's JSON begins with its kind, which is kept as one byte, and goes on, as most do, with the id of a message or
  a task: if that is a UUID, its 16 bytes are kept.
- Of the ids of a record's task and run only the seq of the record is kept that created them, in which they stand.
- A thread, a task or a run begins with its ids, of which the 16 bytes are kept, and in the names of its other members a
  control character, which JSON has none of, stands for each.

What is not like that is kept as it is, and so is what earlier releases have written.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Final, TypeVar

from babelgate.canonical.event import Event, RunCreated, TaskCreated
from babelgate.canonical.stored import decode_snapshot, encode_snapshot
from babelgate.canonical.value import Value

V = TypeVar("V", bound=Value)

KINDS: Final = (
    # A byte of the database means the same for ever: kinds are added at the end.
    "thread_changed",
    "task_created",
    "run_created",
    "run_started",
    "task_changed",
    "message_started",
    "part_added",
    "part_delta",
    "part_ended",
    "message_ended",
    "run_ended",
    "tool_started",
    "tool_ended",
    "step_started",
    "step_ended",
    "artifact_added",
    "interrupt_raised",
    "interrupt_answered",
    "state_saved",
    "custom",
    "native",
    "run_removed",
    "loss_noted",
    "upstream_bound",
    "states_pruned",
    "run_changed",
)
_PLAIN, _WITH_ID = 0x80, 0xC0
"""Added to a kind's number. JSON begins with neither."""
_HEAD: Final = b'{"kind":"'
_CODES: Final[Mapping[bytes, int]] = {kind.encode(): number for number, kind in enumerate(KINDS)}
_IDS: Final = {b"task_created": b',"task_id":"', b"run_created": b',"messages":[{"message_id":"'}
"""What comes before the id, where it is not the id of a message at the beginning."""
_PLAIN_HEADS: Final = [b'{"kind":"%s"' % kind for kind in _CODES]
_ID_HEADS: Final = [b'{"kind":"%s"%s' % (kind, _IDS.get(kind, b',"message_id":"')) for kind in _CODES]


def shorten(body: bytes) -> bytes:
    """An event as JSON, as the log keeps it."""
    end = body.find(b'"', 9)
    code = _CODES.get(body[9:end])
    if code is None or not body.startswith(_HEAD):
        return body
    head = _ID_HEADS[code]
    if body.startswith(head):
        begun = len(head)
        uuid = _parse_uuid(body[begun : begun + 36])
        if uuid is not None:
            return bytes((_WITH_ID + code,)) + uuid + body[begun + 36 :]
    return bytes((_PLAIN + code,)) + body[end + 1 :]


def shorten_all(bodies: Iterable[bytes]) -> list[bytes]:
    """Events that follow each other: most begin with the same kind and id as the one before."""
    made: list[bytes] = []
    head = kept_head = b""
    for body in bodies:
        if head and body.startswith(head):
            made.append(kept_head + body[len(head) :])
            continue
        kept = shorten(body)
        made.append(kept)
        has_id = _WITH_ID <= kept[0] < _ROW
        head, kept_head = (body[: len(body) - len(kept) + 17], kept[:17]) if has_id else (b"", b"")
    return made


def beginnings(kind: str) -> tuple[bytes, ...]:
    """With what an event of this kind begins in the log, in each form that it may have there."""
    code = _CODES[kind.encode()]
    return bytes((_PLAIN + code,)), bytes((_WITH_ID + code,)), _PLAIN_HEADS[code]


def lengthen(kept: bytes) -> bytes:
    """An event or a row as JSON again."""
    first = kept[0]
    if first < _PLAIN:
        return kept
    if first >= _ROW:
        return _lengthen_row(kept)
    if first < _WITH_ID:
        return _PLAIN_HEADS[first - _PLAIN] + kept[1:]
    return _lengthen_head(kept[:17]) + kept[17:]


@lru_cache(maxsize=256)  # events that follow each other begin with the same id
def _lengthen_head(kept: bytes) -> bytes:
    return _ID_HEADS[kept[0] - _WITH_ID] + _format_uuid(kept[1:])


_ROW: Final = 0xE0
"""Added to the number of what begins so."""
_HEADS: Final = (
    (b'{"run_id":"', b'","task_id":"', b'","thread_id":"'),
    (b'{"task_id":"', b'","thread_id":"'),
    (b'{"thread_id":"',),
)
_WORDS: Final = (
    # Their places mean the same for ever, too. A longer one goes before what it holds.
    (
        b'","status":"success","cause":"input","created_at":',
        b'","agent":"',
        b'","status":"',
        b'","cause":"input","created_at":',
        b',"first_seq":',
        b',"last_seq":',
        b',"attempt":1,"started_at":',
        b',"ended_at":',
        b',"reason":"done"',
    ),
    (
        b'","state":"completed","created_at":',
        b'","agent":"',
        b'","state":"',
        b',"changed_at":',
        b',"first_seq":',
        b',"last_seq":',
        b',"protocol":"',
        b'","version":"',
    ),
    (b'","owner":"', b'","created_at":', b',"changed_at":'),
)
_SIGNS: Final = [[(word, bytes((number,))) for number, word in enumerate(words, 1)] for words in _WORDS]


def encode_row(value: object) -> bytes:
    """A thread, a task, a run, a question or a file, as its row keeps it."""
    body = encode_snapshot(value)
    for number, heads in enumerate(_HEADS):
        if not body.startswith(heads[0]):
            continue
        kept, end = bytes((_ROW + number,)), 0
        for head in heads:
            begun = end + len(head)
            end = begun + 36
            uuid = _parse_uuid(body[begun:end])
            if uuid is None or not body.startswith(head, begun - len(head)):
                return body
            kept += uuid
        rest = body[end:]
        for word, sign in _SIGNS[number]:
            rest = rest.replace(word, sign)
        return kept + rest
    return body


def decode_row(kind: type[V], kept: bytes) -> V:
    """As `babelgate.canonical.stored.decode_snapshot`."""
    return decode_snapshot(kind, lengthen(kept))


def _lengthen_row(kept: bytes) -> bytes:
    number = kept[0] - _ROW
    heads = _HEADS[number]
    ids = [_format_uuid(kept[begun : begun + 16]) for begun in range(1, 1 + 16 * len(heads), 16)]
    rest = kept[1 + 16 * len(heads) :]
    for word, sign in _SIGNS[number]:
        rest = rest.replace(sign, word)
    return b"".join(chain.from_iterable(zip(heads, ids, strict=True))) + rest


@lru_cache(maxsize=2048)  # the same ids stand in several records and rows
def _parse_uuid(written: bytes) -> bytes | None:
    """The 16 bytes of a UUID that is written as we write it."""
    try:
        uuid = bytes.fromhex(written.replace(b"-", b"").decode())
    except ValueError:
        return None
    return uuid if len(uuid) == 16 and _format_uuid(uuid) == written else None


def _format_uuid(uuid: bytes) -> bytes:
    text = uuid.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}".encode()


_SEQ: Final = "#"


def refer(name: str | None, created: int | None) -> str | None:
    """What is kept of the id of a task or a run that the record `created` has made; None = the id itself."""
    if name is None or created is None:
        return name if name is None or not name.startswith(_SEQ) else _SEQ + name
    return f"{_SEQ}{created}"


def find_reference(kept: str | None) -> int | None:
    """The seq that is kept in the place of an id."""
    return int(kept[1:]) if kept is not None and kept[:1] == _SEQ and kept[1:2] != _SEQ else None


def plain_id(kept: str | None) -> str | None:
    """The id, where it is kept itself."""
    return kept[1:] if kept is not None and kept[:1] == _SEQ else kept


def created_id(event: Event) -> str | None:
    """Of the task or the run that the event creates."""
    if type(event) is TaskCreated:
        return event.task_id
    return event.run_id if type(event) is RunCreated else None
