"""Compact encoding (dictionary compression) of records and rows, most of whose JSON is the same in all of them.

- The JSON of an event begins with its kind, which is stored as one byte. In most events the id of a message or a task
  follows. If it is a UUID, its 16 bytes are stored.
- Instead of the ids of its task and run, a record has the sequence numbers of the records that created them and contain
  these ids.
- The JSON of a thread, task or run begins with its ids, stored as 16 bytes each. In the rest, each frequent member name
  is replaced by a control character, which cannot occur in JSON.

JSON that does not have this form is stored unchanged, as earlier releases stored everything."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Final, TypeVar

from babelgate.canonical.event import Event, RunCreated, TaskCreated
from babelgate.canonical.stored import decode_snapshot, encode_snapshot
from babelgate.canonical.value import Value

V = TypeVar("V", bound=Value)

KINDS: Final = (
    # The database stores the index of a kind, so new kinds are only added at the end.
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
"""Base values of the first byte of a stored event, without and with a packed id. The index of the event's kind is
added. JSON cannot begin with such a byte."""
_HEAD: Final = b'{"kind":"'
_CODES: Final[Mapping[bytes, int]] = {kind.encode(): number for number, kind in enumerate(KINDS)}
_IDS: Final = {b"task_created": b',"task_id":"', b"run_created": b',"messages":[{"message_id":"'}
"""Text between the kind and the id, for kinds whose second member is not `message_id`."""
_PLAIN_HEADS: Final = [b'{"kind":"%s"' % kind for kind in _CODES]
_ID_HEADS: Final = [b'{"kind":"%s"%s' % (kind, _IDS.get(kind, b',"message_id":"')) for kind in _CODES]


def shorten(body: bytes) -> bytes:
    """Encode the JSON of an event in the compact form in which the log stores it."""
    end = body.find(b'"', 9)
    code = _CODES.get(body[9:end])
    if code is None or not body.startswith(_HEAD):
        return body
    head = _ID_HEADS[code]
    if body.startswith(head):
        start = len(head)
        uuid = _parse_uuid(body[start : start + 36])
        if uuid is not None:
            return bytes((_WITH_ID + code,)) + uuid + body[start + 36 :]
    return bytes((_PLAIN + code,)) + body[end + 1 :]


def shorten_all(bodies: Iterable[bytes]) -> list[bytes]:
    """Encode the JSON of consecutive events as `shorten` does, faster if they begin with the same kind and id."""
    shortened: list[bytes] = []
    head = stored_head = b""
    for body in bodies:
        if head and body.startswith(head):
            shortened.append(stored_head + body[len(head) :])
            continue
        stored = shorten(body)
        shortened.append(stored)
        has_id = _WITH_ID <= stored[0] < _ROW
        head, stored_head = (body[: len(body) - len(stored) + 17], stored[:17]) if has_id else (b"", b"")
    return shortened


def beginnings(kind: str) -> tuple[bytes, ...]:
    """Return the first bytes that a stored event of this kind may have: one prefix for each of the three stored
    forms."""
    code = _CODES[kind.encode()]
    return bytes((_PLAIN + code,)), bytes((_WITH_ID + code,)), _PLAIN_HEADS[code]


def lengthen(stored: bytes) -> bytes:
    """Decode the compact form of an event or row to its JSON."""
    first = stored[0]
    if first < _PLAIN:
        return stored
    if first >= _ROW:
        return _lengthen_row(stored)
    if first < _WITH_ID:
        return _PLAIN_HEADS[first - _PLAIN] + stored[1:]
    return _lengthen_head(stored[:17]) + stored[17:]


@lru_cache(maxsize=256)  # consecutive events begin with the same id
def _lengthen_head(stored_head: bytes) -> bytes:
    return _ID_HEADS[stored_head[0] - _WITH_ID] + _format_uuid(stored_head[1:])


_ROW: Final = 0xE0
"""Base value of the first byte of a stored row, to which the index of its type in `_HEADS` is added."""
_HEADS: Final = (
    (b'{"run_id":"', b'","task_id":"', b'","thread_id":"'),
    (b'{"task_id":"', b'","thread_id":"'),
    (b'{"thread_id":"',),
)
_WORDS: Final = (
    # The database stores the index of a word, so the order must not change. A word precedes all words that it contains.
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
RUN_WORDS: Final = _WORDS[0]
"""Texts that the row of a run does not contain, because a control character replaces each of them."""
_REPLACEMENTS: Final = [[(word, bytes((number,))) for number, word in enumerate(words, 1)] for words in _WORDS]


def encode_row(value: object) -> bytes:
    """Encode a thread, task, run, question or file in the compact form in which its row stores it."""
    body = encode_snapshot(value)
    for number, heads in enumerate(_HEADS):
        if not body.startswith(heads[0]):
            continue
        stored, end = bytes((_ROW + number,)), 0
        for head in heads:
            start = end + len(head)
            end = start + 36
            uuid = _parse_uuid(body[start:end])
            if uuid is None or not body.startswith(head, start - len(head)):
                return body
            stored += uuid
        rest = body[end:]
        for word, sign in _REPLACEMENTS[number]:
            rest = rest.replace(word, sign)
        return stored + rest
    return body


def decode_row(kind: type[V], stored: bytes) -> V:
    """Decode the compact form of a row to a value of the type `kind`."""
    return decode_snapshot(kind, lengthen(stored))


def _lengthen_row(stored: bytes) -> bytes:
    number = stored[0] - _ROW
    heads = _HEADS[number]
    ids = [_format_uuid(stored[start : start + 16]) for start in range(1, 1 + 16 * len(heads), 16)]
    rest = stored[1 + 16 * len(heads) :]
    for word, sign in _REPLACEMENTS[number]:
        rest = rest.replace(sign, word)
    return b"".join(chain.from_iterable(zip(heads, ids, strict=True))) + rest


@lru_cache(maxsize=2048)  # an id occurs in several records and rows
def _parse_uuid(text: bytes) -> bytes | None:
    """Return the 16 bytes of a UUID. Return None for a text that `_format_uuid` would not restore exactly, such as one
    in capitals."""
    try:
        uuid = bytes.fromhex(text.replace(b"-", b"").decode())
    except ValueError:
        return None
    return uuid if len(uuid) == 16 and _format_uuid(uuid) == text else None


def _format_uuid(uuid: bytes) -> bytes:
    digits = uuid.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}".encode()


_SEQ: Final = "#"


def refer(name: str | None, created: int | None) -> str | None:
    """Return the text that the log stores for the id of a task or run: `#17` for an id created by record 17.

    If `created` is None, the number is not known, and the id itself is stored. For no id (`name` is None), return
    None."""
    if name is None or created is None:
        return name if name is None or not name.startswith(_SEQ) else _SEQ + name
    return f"{_SEQ}{created}"


def find_reference(reference: str | None) -> int | None:
    """Return the sequence number in a stored reference such as `#17`, or None if it contains the id itself."""
    return int(reference[1:]) if reference is not None and reference[:1] == _SEQ and reference[1:2] != _SEQ else None


def plain_id(reference: str | None) -> str | None:
    """Return the id from a stored reference that contains the id itself, or None for a record without an id."""
    return reference[1:] if reference is not None and reference[:1] == _SEQ else reference


def created_id(event: Event) -> str | None:
    """Return the id of the task or run that an event creates, or None for any other event."""
    if type(event) is TaskCreated:
        return event.task_id
    return event.run_id if type(event) is RunCreated else None
