"""Tests of the export format: a reader accepts what a writer wrote, and nothing else."""

import io
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from babelgate.gateway.storage.transfer.form import VERSION, ExportWriter, LineStart, Reader, TransferError
from tests.gateway.storage.transfer.lines import header

EXPORT = (Path(__file__).parents[2] / "cli" / "export-1.jsonl").read_bytes()


def read(data: bytes, limit: int = 2**20) -> Iterator[object]:
    reader = Reader(io.BytesIO(data), limit)
    while (section := reader.begin()) is not None:
        for place, line in list(reader.section(section[0])):
            assert isinstance(place, LineStart)
            yield line


def test_a_section_can_be_read_twice() -> None:
    reader = Reader(io.BytesIO(EXPORT))
    section = reader.begin()
    assert section is not None
    once = [line for _, line in reader.section(section[0])]
    assert [line for _, line in reader.section(section[0])] == once
    next_section = reader.begin()
    assert next_section is not None and next_section[0].number == section[0].number + len(once) + 1


def test_an_empty_export_is_valid() -> None:
    file = io.BytesIO()
    ExportWriter(file, header()).end()
    assert list(read(file.getvalue())) == []


@pytest.mark.parametrize("end", range(0, len(EXPORT), 509))
def test_a_truncated_file_is_refused(end: int) -> None:
    with pytest.raises(TransferError):
        list(read(EXPORT[:end]))


def test_a_missing_repeated_or_moved_line_is_detected() -> None:
    lines = EXPORT.splitlines(keepends=True)
    for number in range(1, len(lines)):
        for changed in (
            [*lines[:number], *lines[number + 1 :]],
            [*lines[:number], lines[number], *lines[number:]],
            [*lines[: number - 1], lines[number], lines[number - 1], *lines[number + 1 :]],
        ):
            with pytest.raises(TransferError):
                list(read(b"".join(changed)))


@pytest.mark.parametrize("seed", range(40))
def test_a_changed_byte_is_detected(seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(EXPORT)
    place = chance.randrange(EXPORT.index(b"\n") + 1, len(EXPORT))
    data[place] ^= 1 << chance.randrange(8)
    with pytest.raises(TransferError, match=r"^line \d+: "):
        list(read(bytes(data)))


def test_a_line_over_the_limit_is_not_read() -> None:
    first, rest = EXPORT.split(b"\n", 1)
    longest = max(map(len, EXPORT.splitlines())) + 1
    assert list(read(EXPORT, longest))
    with pytest.raises(TransferError, match=f"longer than the limit of {longest - 1} bytes"):
        list(read(EXPORT, longest - 1))
    with pytest.raises(TransferError, match="not an export"):
        list(read(b" " * 5000 + first + b"\n" + rest))


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"{}\n", b"[]\n", b"\xff\xfe\n", b'{"kind":"babelgate-export"}\n', b"x" * 99]
)
def test_an_invalid_export_is_reported_in_one_line(data: bytes) -> None:
    with pytest.raises(TransferError, match=r"^not an export of Babelgate$"):
        Reader(io.BytesIO(data))


@pytest.mark.parametrize(("member", "value"), [("version", VERSION + 1), ("revision", "9999")])
def test_an_export_of_a_newer_release_is_refused_by_name(member: str, value: object) -> None:
    changed = json.loads(EXPORT.splitlines()[0]) | {"release": "9.0", "novel": True, member: value}
    with pytest.raises(TransferError) as refused:
        Reader(io.BytesIO(json.dumps(changed).encode() + b"\n"))
    message = str(refused.value)
    assert (
        f"{member} {value}".removeprefix("version ") in message
        and "written by Babelgate 9.0" in message
        and "\n" not in message
    )
