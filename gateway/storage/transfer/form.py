"""Export format (JSON Lines): a header, sections of lines, and an end. Each section ends with a digest.

A section is a thread with all its data, or the data of an owner that belongs to no thread. Each section is read twice,
independent of the others: first to check it, and then inside the transaction that imports it. Only one line at a time
is in memory."""

import hashlib
import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import BinaryIO, Final

import msgspec

from babelgate.gateway.storage.database import HEAD, REVISIONS

FORMAT: Final = "babelgate-export"
VERSION: Final = 1
"""Version of the format. This release reads all versions up to it. It is incremented with every change of the lines,
except for changes of events, which the revision of the database covers."""
LINE: Final = 256 * 2**20
"""Maximum size of a line, in bytes. Chosen: the longest lines contain one event, or one state of a graph in base64."""
_HEADER: Final = 4096
"""Maximum size of the header line, in bytes. Chosen."""
_NUMBER: Final = 2**63
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class TransferError(Exception):
    """Error with a message of one line: the file is not an export, is damaged, or cannot be imported."""


class _Line(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class ExportHeader(_Line, tag=FORMAT):
    """First line of an export."""

    version: int
    release: str
    """Release of Babelgate that wrote the export."""
    revision: str
    """Schema revision of the exported database. It determines which events the export can contain."""
    made_at: int
    """Time of the export, in microseconds since 1970, UTC. All times in the file have this unit."""


class ThreadLine(_Line, tag="thread"):
    """First line of a thread's section."""

    owner: str
    thread_id: str


class OwnerLine(_Line, tag="owner"):
    """First line of a section with an owner's store items, assistants and crons."""

    owner: str


class FileLine(_Line, tag="file"):
    """A stored file that the thread refers to. The next lines have its bytes."""

    part: msgspec.Raw
    """JSON of a `FilePart` of the thread that refers to the file."""


class BytesLine(_Line, tag="bytes"):
    data: bytes
    """Next bytes of the file, in base64."""


class RecordLine(_Line, tag="record"):
    seq: int
    at: int
    task_id: str | None
    run_id: str | None
    attempt: int
    event: msgspec.Raw


class AliasLine(_Line, tag="alias"):
    """Name that a protocol uses for the thread with an agent, instead of the thread's id."""

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
    """An item of the key-value store."""

    namespace: str
    """Labels of the namespace, each followed by a dot, such as `users.ann.`."""
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
    """Number of lines in the section, not counting this one."""
    sha256: str
    """SHA-256 of the lines of the section with their line ends, in hex digits."""


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


class ExportWriter:
    """Writer of an export file: the header first, then sections line by line, then the end."""

    def __init__(self, file: BinaryIO, header: ExportHeader) -> None:
        self._file = file
        self._sections = 0
        self._lines = 0
        self._digest = hashlib.sha256()
        self.written = 0
        """Number of bytes written so far."""
        self._put(header)

    def write(self, line: Begin | OfThread | OfOwner) -> None:
        """Write one line of a section. Raises TransferError if it is longer than `LINE`, which readers would refuse."""
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
class LineStart:
    """Position of a line in an export file."""

    offset: int
    """Offset of the line's first byte in the file."""
    number: int
    """Number of the line, from 1."""


class Reader:
    """Reader of an export file: `begin` goes to the next section, and `section` yields its lines."""

    def __init__(self, file: BinaryIO, limit: int = LINE) -> None:
        """Read and check the header. `limit` is the maximum size of a line, in bytes.

        Raises TransferError if the file is not an export, or was written by a newer release."""
        self._file = file
        self._limit = limit
        self._place = LineStart(0, 1)
        self._sections = 0
        first = file.readline(_HEADER)
        header = _decode_header(first)
        if header.version > VERSION or header.revision not in REVISIONS:
            raise TransferError(
                f"this export is of format {header.version} and revision {header.revision}, written by Babelgate "
                f"{header.release}, and this release reads those up to {VERSION} and {HEAD}: install the newer release"
            )
        self.header = header
        self._place = LineStart(len(first), 2)

    def begin(self) -> tuple[LineStart, Begin] | None:
        """Return the position of the next section and its first line, or None at the end of the export.

        The previous section must have been read to its end. Raises TransferError for content that is no valid
        export."""
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

    def section(self, begin: LineStart) -> Generator[tuple[LineStart, Begin | OfThread | OfOwner]]:
        """Yield the lines of a section with their positions, beginning with its first line.

        Raises TransferError if a line is malformed, or at the end if the digest does not match."""
        self._file.seek(begin.offset)
        place, digest = begin, hashlib.sha256()
        while True:
            line, data = self._read(place)
            next_place = LineStart(place.offset + len(data), place.number + 1)
            if isinstance(line, SectionEnd):
                break
            if isinstance(line, End) or (isinstance(line, Begin) and place != begin):
                raise self._error(place, "the section before this line has no end")
            digest.update(data)
            yield place, line
            place = next_place
        if (line.lines, line.sha256) != (place.number - begin.number, digest.hexdigest()):
            raise self._error(place, f"the section that begins in line {begin.number} was changed or damaged")
        if self._place == begin:
            self._sections += 1
            self._place = next_place

    def _read(self, place: LineStart) -> tuple[_Any, bytes]:
        data = self._file.readline(self._limit + 1)
        if len(data) > self._limit:
            raise self._error(place, f"the line is longer than the limit of {self._limit} bytes")
        if not data.endswith(b"\n"):
            raise self._error(place, "the file is cut off here: export again, or copy it again")
        try:
            return _DECODER.decode(data), data
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._error(place, f"not a line of an export: {error}") from None

    def _error(self, place: LineStart, text: str) -> TransferError:
        return TransferError(f"line {place.number}: {text}")


def _decode_header(data: bytes) -> ExportHeader:
    """Decode the header line. Unknown members are ignored, so that the header of a newer release is readable, too.

    Raises TransferError if the file is not an export."""
    try:
        header = msgspec.json.decode(data)
        if header["kind"] != FORMAT:
            raise ValueError
        return ExportHeader(
            version=int(header["version"]),
            release=str(header["release"]),
            revision=str(header["revision"]),
            made_at=int(header["made_at"]),
        )
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError, ValueError):
        raise TransferError("not an export of Babelgate") from None


def _tag(line: msgspec.Struct) -> str:
    return str(line.__struct_config__.tag)


def is_id(text: str) -> bool:
    """Return True if the text is a UUID in lower case with hyphens, as the gateway writes ids."""
    return _UUID.fullmatch(text) is not None


def is_number(value: int | None) -> bool:
    """Return True if the value is None, or an integer of 64 bits, which every database can store."""
    return value is None or -_NUMBER <= value < _NUMBER
