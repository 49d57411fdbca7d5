"""`babelgate export` and `babelgate import`: copy threads from one database to another by a file."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import BinaryIO, Final, TypeVar

import click

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.printable import one_line
from babelgate.gateway.cli.database import connect_to_read, load_settings, reason_of
from babelgate.gateway.cli.errors import USAGE, CliError
from babelgate.gateway.cli.log import set_up_logging
from babelgate.gateway.clock import Clock
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.storage.blob_store import open_blobs
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.database import DatabaseError
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.transfer.export import Exported, ThreadSelection, export
from babelgate.gateway.storage.transfer.form import OwnerLine, Reader, TransferError
from babelgate.gateway.storage.transfer.restore import check_section, restore_owner, restore_thread

T = TypeVar("T")

_STDIO: Final = Path("-")
_OTHERS: Final = "items, assistants and crons"
_PERIOD: Final = 2.0
"""Seconds between two lines of progress. Chosen. On a terminal the line is updated ten times as often."""


def export_threads(
    out: Path,
    owners: Sequence[str],
    threads: Sequence[str],
    agents: Sequence[str],
    metadata: Sequence[str],
    active: bool,
    config: Path | None,
    database: str | None,
) -> int:
    """Export the matching threads to the file `out`, and return the exit code: 1 if a thread was left out. Raises
    CliError if the file cannot be written or the database cannot be read.

    Threads with an active run are left out, unless `active`. `config` and `database` select the database as in
    `load_settings`.
    """
    selection = ThreadSelection(
        owners=frozenset(owners),
        threads=frozenset(each.lower() for each in threads),
        agents=frozenset(agents),
        metadata=dict(map(_read_member, metadata)),
        active=active,
    )
    settings = load_settings(config, database)
    progress = _Progress()

    def tell(done: Exported) -> None:
        progress.show(f"{done.threads} threads, {done.records} records, {done.files} files, {done.bytes} bytes")

    with connect_to_read(settings) as connection, _open_to_write(out) as file:
        blobs = _open_blobs(settings)
        try:
            exporting = export(
                connection,
                blobs,
                file,
                selection,
                release=version("babelgate"),
                now=Clock().now(),
                on_progress=tell,
            )
            done = asyncio.run(exporting)
            file.flush()
        except (TransferError, FaultError) as error:
            raise CliError(f"{out}: {error}") from None
        except BrokenPipeError:
            raise CliError("the reader of the export ended before the export did") from None
        except (OSError, DatabaseError) as error:
            raise CliError(f"{out}: the export cannot be written: {reason_of(error)}") from None
    progress.end()
    for line in done.left_out:
        click.echo(f"left out: {one_line(line)}", err=True)
    summary = _count(threads=done.threads, records=done.records, files=done.files, **{_OTHERS: done.others})
    click.echo(f"{out}: {summary or 'nothing'}; left out: {len(done.left_out)}", err=True)
    return int(bool(done.left_out))


@dataclass(slots=True)
class _Imported:
    added: int = 0
    same: int = 0
    records: int = 0
    files: int = 0
    live: int = 0
    others_added: int = 0
    others_same: int = 0
    conflicts: list[str] = field(default_factory=list[str])


def import_threads(path: Path, config: Path | None, database: str | None) -> int:
    """Import threads from the file `path`, and return the exit code: 1 if there was a conflict. Raises CliError if the
    file cannot be read or is no valid export.

    `config` and `database` select the database as in `load_settings`.
    """
    settings = load_settings(config, database)
    set_up_logging("error")
    done = _Imported()
    with _open_to_read(path) as file:
        try:
            asyncio.run(_import(settings, file, done))
        except TransferError as error:
            so_far = f"; {done.added} threads before this line were imported, {done.same} existed already"
            raise CliError(f"{path}: {error}{so_far if done.added or done.same else ''}") from None
        finally:
            for line in done.conflicts:
                click.echo(f"conflict: {one_line(line)}", err=True)
    if done.live:
        click.echo(
            f"{done.live} runs were active or waiting: the next gateway recovers them as after a crash", err=True
        )
    added = _count(threads=done.added, records=done.records, files=done.files, **{_OTHERS: done.others_added})
    same = _count(threads=done.same, **{_OTHERS: done.others_same})
    click.echo(
        f"{path}: added: {added or 'nothing'}; there already: {same or 'nothing'}; conflicts: {len(done.conflicts)}",
        err=True,
    )
    return int(bool(done.conflicts))


async def _import(settings: Settings, file: BinaryIO, done: _Imported) -> None:
    reader = Reader(file)
    blobs = _open_blobs(settings)
    blobs.secure()
    journal = Journal(settings.database, power=settings.durability == "power")
    try:
        await journal.open()
    except FaultError as error:
        raise CliError(error.fault.message) from None
    except (OSError, DatabaseError) as error:
        raise CliError(f"{settings.database_shown} cannot be opened: {reason_of(error)}") from None
    progress = _Progress()
    try:
        while (found := await asyncio.to_thread(reader.begin)) is not None:
            place, begin = found
            checked = await asyncio.to_thread(check_section, reader, place, blobs)
            if isinstance(begin, OwnerLine):
                others = await _write(journal.write(restore_owner, reader, place, begin.owner))
                done.others_added += others.added
                done.others_same += others.same
                done.conflicts += [f"{each} (owner {begin.owner})" for each in others.conflicts]
                continue
            try:
                restored = await _write(
                    journal.write(restore_thread, reader, place, begin.owner, begin.thread_id),
                )
            except FaultError as error:
                done.conflicts.append(f"thread {begin.thread_id} of {begin.owner}: {error.fault.message}")
                continue
            if restored.outcome == "same":
                done.same += 1
            else:
                done.added += 1
                done.live += restored.live
                done.records += checked.records
                done.files += checked.files
            progress.show(f"{done.added} threads added, {done.same} there already, {done.records} records")
    finally:
        progress.end()
        await journal.close()


async def _write(written: "asyncio.Future[T]") -> T:
    """Wait for a write to the journal, and return its result. Raises FaultError for a conflict, and TransferError for
    every other fault."""
    try:
        return await written
    except FaultError as error:
        if error.fault.code is FaultCode.CONFLICT:
            raise
        raise TransferError(error.fault.message) from None


def _read_member(option: str) -> tuple[str, object]:
    """Parse `KEY=VALUE` of the option `--metadata`. The value is parsed as JSON, or is a text if it is not JSON. Raises
    CliError for any other form."""
    name, equals, value = option.partition("=")
    if not name or not equals:
        raise CliError(f"--metadata {option}: give KEY=VALUE", code=USAGE)
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _open_blobs(settings: Settings) -> Blobs:
    try:
        return open_blobs(settings.artifacts, settings.blobs_path, settings.limits.artifact)
    except FaultError as error:
        raise CliError(error.fault.message) from None


@contextmanager
def _open_to_write(out: Path) -> Generator[BinaryIO]:
    """Yield a stream whose content replaces the file `out` once it is complete. `-` is stdout. Raises CliError if it
    cannot be written."""
    if out == _STDIO:
        yield sys.stdout.buffer
        return
    if out.is_dir():
        raise CliError(f"--out {out}: this is a folder", code=USAGE)
    try:
        file, name = tempfile.mkstemp(dir=out.absolute().parent, prefix=f".{out.name}.")  # only its owner can read it
    except OSError as error:
        raise CliError(f"--out {out}: it cannot be written: {error.strerror}", code=USAGE) from None
    try:
        with os.fdopen(file, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(out)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def _open_to_read(path: Path) -> Generator[BinaryIO]:
    """Yield a stream of the file, or of stdin for `-`. The stream is read twice, so stdin is first copied to a
    temporary file. Raises CliError if it cannot be read."""
    try:
        if path == _STDIO:
            with tempfile.TemporaryFile() as spool:
                shutil.copyfileobj(sys.stdin.buffer, spool)
                spool.seek(0)
                yield spool
        else:
            with path.open("rb") as file:
                yield file
    except OSError as error:
        raise CliError(f"{path}: it cannot be read: {error.strerror}", code=USAGE) from None


def _count(**numbers: int) -> str:
    """Return a text with the numbers that are not 0 and their names, such as `3 threads, 2 files`."""
    return ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in numbers.items() if number)


class _Progress:
    """Display of the progress on stderr: a line every two seconds; on a terminal one line that is updated."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._next = monotonic() + _PERIOD
        self._shown = 0

    def show(self, text: str) -> None:
        if monotonic() < self._next:
            return
        self._next = monotonic() + (_PERIOD / 10 if self._is_terminal else _PERIOD)
        if self._is_terminal:
            click.echo(f"\r{text:<{self._shown}}", err=True, nl=False)
            self._shown = len(text)
        else:
            click.echo(text, err=True)

    def end(self) -> None:
        if self._shown:
            click.echo(f"\r{'':<{self._shown}}\r", err=True, nl=False)
