"""The export format (JSON Lines): a header, sections of lines each with a digest at its end, and an end.

A section is a thread with all that belongs to it, or what an owner has beside threads. It can be read for itself, and
twice: once to check it, and once more inside the transaction that takes it in. Nothing is held but the line at hand.
"""

import hashlib
import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import BinaryIO, Final

import msgspec

from babelgate.gateway.storage.database import HEAD, REVISIONS

FORMAT: Final = "babelgate-export"
VERSION: Final = 1
"""Goes up with every change of the lines, but for events, which have their revision. Those up to it can be read."""
LINE: Final = 256 * 2**20
"""Bytes of a line. The longest have one event, or one state of a graph in base64."""
_HEADER: Final = 4096
"""Bytes of the first line."""
_NUMBER: Final = 2**63
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class TransferError(Exception):
    """A file that is no export, or not one that can be taken in. One line."""


class _Line(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class Header(_Line, tag=FORMAT):
    version: int
    release: str
    """Of Babelgate, that wrote it."""
    revision: str
    """Of the database that it is from: which events there may be."""
    made_at: int
    """Microseconds since 1970, UTC, as all times."""


class ThreadLine(_Line, tag="thread"):
    """Begins a section."""

    owner: str
    thread_id: str


class OwnerLine(_Line, tag="owner"):
    """Begins a section with what belongs to no thread."""

    owner: str


class FileLine(_Line, tag="file"):
    """A stored file that the thread names; its bytes follow."""

    part: msgspec.Raw
    """A `FilePart`: how the thread names it first."""


class BytesLine(_Line, tag="bytes"):
    data: bytes
    """Base64."""


class RecordLine(_Line, tag="record"):
    seq: int
    at: int
    task_id: str | None
    run_id: str | None
    attempt: int
    event: msgspec.Raw


class AliasLine(_Line, tag="alias"):
    """A protocol's own name of the thread."""

    protocol: str
    agent: str
    alias: str


class WebhookLine(_Line, tag="webhook", omit_defaults=True):
    task_id: str
    webhook_id: str
    dialect: str
    url: str
    delivered_seq: int
    done: bool
    config: msgspec.Raw
    failures: int = 0
    next_try: int | None = None
    reason: str | None = None
    given_up_at: int | None = None


class CheckpointLine(_Line, tag="checkpoint"):
    ns: str
    checkpoint_id: str
    parent_id: str | None
    run_id: str | None
    form: str
    body: bytes
    channels: dict[str, str] | None


class CheckpointValueLine(_Line, tag="checkpoint_value"):
    ns: str
    channel: str
    checkpoint_id: str
    base_id: str | None
    form: str
    body: bytes


class CheckpointWriteLine(_Line, tag="checkpoint_write"):
    ns: str
    checkpoint_id: str
    task_id: str
    idx: int
    task_path: str
    channel: str
    run_id: str | None
    form: str
    body: bytes


class ItemLine(_Line, tag="item"):
    """Of the store."""

    namespace: str
    """Each label with a dot after it."""
    key: str
    created_at: int
    updated_at: int
    expires_at: int | None
    ttl: int | None
    value: msgspec.Raw


class AssistantLine(_Line, tag="assistant"):
    in_use: msgspec.Raw
    versions: list[msgspec.Raw]


class CronLine(_Line, tag="cron"):
    cron: msgspec.Raw


class SectionEnd(_Line, tag="section_end"):
    lines: int
    """Of the section, without this one."""
    sha256: str
    """Of these lines, with their ends."""


class End(_Line, tag="end"):
    sections: int


OfThread = (
    FileLine
    | BytesLine
    | RecordLine
    | AliasLine
    | WebhookLine
    | CheckpointLine
    | CheckpointValueLine
    | CheckpointWriteLine
)
OfOwner = ItemLine | AssistantLine | CronLine
Begin = ThreadLine | OwnerLine
_Any = Begin | OfThread | OfOwner | SectionEnd | End

_DECODER: Final[msgspec.json.Decoder[_Any]] = msgspec.json.Decoder(_Any)
_ENCODER: Final = msgspec.json.Encoder()


class Writer:
    """Writes an export, a line at a time."""

    def __init__(self, file: BinaryIO, header: Header) -> None:
        self._file = file
        self._sections = 0
        self._lines = 0
        self._digest = hashlib.sha256()
        self.written = 0
        """Bytes."""
        self._put(header)

    def write(self, line: Begin | OfThread | OfOwner) -> None:
        """Raises TransferError for a line that could not be read again."""
        data = self._put(line)
        self._digest.update(data)
        self._lines += 1

    def end_section(self) -> None:
        self._put(SectionEnd(lines=self._lines, sha256=self._digest.hexdigest()))
        self._sections += 1
        self._lines, self._digest = 0, hashlib.sha256()

    def end(self) -> None:
        self._put(End(sections=self._sections))

    def _put(self, line: msgspec.Struct) -> bytes:
        data = _ENCODER.encode(line) + b"\n"
        if len(data) > LINE:
            raise TransferError(
                f"a {line.__struct_config__.tag} of {len(data)} bytes is larger than the limit of a line, {LINE} bytes"
            )
        self._file.write(data)
        self.written += len(data)
        return data


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file a line begins."""

    offset: int
    number: int
    """1 is the first."""


class Reader:
    """Reads an export, a line at a time."""

    def __init__(self, file: BinaryIO, limit: int = LINE) -> None:
        """`limit` = bytes of a line. Raises TransferError."""
        self._file = file
        self._limit = limit
        self._place = Place(0, 1)
        self._sections = 0
        first = file.readline(_HEADER)
        header = _decode_header(first)
        if header.version > VERSION or header.revision not in REVISIONS:
            raise TransferError(
                f"this export is of format {header.version} and revision {header.revision}, written by Babelgate "
                f"{header.release}, and this release reads those up to {VERSION} and {HEAD}: install the newer release"
            )
        self.header = header
        self._place = Place(len(first), 2)

    def begin(self) -> tuple[Place, Begin] | None:
        """The next section and where it begins; None at the end of the export. It is to be read before the one after
        it. Raises TransferError."""
        self._file.seek(self._place.offset)
        line, _ = self._read(self._place)
        if isinstance(line, End):
            if line.sections != self._sections:
                raise self._error(
                    self._place, f"the file should have {line.sections} sections, but has {self._sections}"
                )
            if self._file.read(1):
                raise self._error(self._place, "there is data after the end of the export")
            return None
        if not isinstance(line, Begin):
            raise self._error(self._place, f"expected the beginning of a section, got {_tag(line)}")
        return self._place, line

    def section(self, begin: Place) -> Generator[tuple[Place, Begin | OfThread | OfOwner]]:
        """The lines of the section that begins there, and that they are all there and as they were written. Raises
        TransferError."""
        self._file.seek(begin.offset)
        place, digest = begin, hashlib.sha256()
        while True:
            line, data = self._read(place)
            following = Place(place.offset + len(data), place.number + 1)
            if isinstance(line, SectionEnd):
                break
            if isinstance(line, End) or (isinstance(line, Begin) and place != begin):
                raise self._error(place, "the section before this line has no end")
            digest.update(data)
            yield place, line
            place = following
        if (line.lines, line.sha256) != (place.number - begin.number, digest.hexdigest()):
            raise self._error(place, f"the section that begins in line {begin.number} was changed or damaged")
        if self._place == begin:
            self._sections += 1
            self._place = following

    def _read(self, place: Place) -> tuple[_Any, bytes]:
        data = self._file.readline(self._limit + 1)
        if len(data) > self._limit:
            raise self._error(place, f"the line is longer than the limit of {self._limit} bytes")
        if not data.endswith(b"\n"):
            raise self._error(place, "the file is cut off here: export again, or copy it again")
        try:
            return _DECODER.decode(data), data
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._error(place, f"not a line of an export: {error}") from None

    def _error(self, place: Place, said: str) -> TransferError:
        return TransferError(f"line {place.number}: {said}")


def _decode_header(data: bytes) -> Header:
    """What a newer release says beyond this in its header is no reason to tell less than its number."""
    try:
        told = msgspec.json.decode(data)
        if told["kind"] != FORMAT:
            raise ValueError
        return Header(
            version=int(told["version"]),
            release=str(told["release"]),
            revision=str(told["revision"]),
            made_at=int(told["made_at"]),
        )
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError, ValueError):
        raise TransferError("not an export of Babelgate") from None


def _tag(line: msgspec.Struct) -> str:
    return str(line.__struct_config__.tag)


def is_id(text: str) -> bool:
    """Whether it is a UUID as the gateway writes it."""
    return _UUID.fullmatch(text) is not None


def is_number(value: int | None) -> bool:
    """Whether it is none, or one that every database holds."""
    return value is None or -_NUMBER <= value < _NUMBER
