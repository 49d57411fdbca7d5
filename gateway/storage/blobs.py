"""Content-addressed blob store: the bytes of files, by the hash of their content. A name from outside is never a path:
only hashes that we made ourselves, or that look exactly like one, reach the file system."""

import asyncio
import hashlib
import os
import re
import tempfile
import threading
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from shutil import copyfileobj
from typing import IO, BinaryIO, Final
from weakref import WeakValueDictionary

from canonical.fault import FaultCode, FaultError
from canonical.message import FilePart, Message, Part
from gateway.storage.permission import make_folder, make_private

_HASH: Final = re.compile(r"[0-9a-f]{64}")
_PIECE: Final = 256 * 1024
"""Bytes that are read at once."""


class Blobs:
    """A folder of files, each named by its SHA-256 and written once."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        """Bytes of one file."""
        self._sweeping = threading.Lock()
        """A file is not removed between the look that finds it and the touch that makes it young."""
        self._held: WeakValueDictionary[str, FilePart] = WeakValueDictionary()
        """By hash, a part with the bytes that somebody holds: all readers of a run hold the same ones."""
        self._reading: dict[str, asyncio.Future[bytes]] = {}

    def secure(self) -> None:
        """Others cannot look into the folder, which earlier releases let them."""
        make_private([self.folder])

    def path(self, blob: str) -> Path:
        """Raises not_found."""
        if not _HASH.fullmatch(blob):
            raise FaultError(FaultCode.NOT_FOUND, "No such file")
        return self.folder / blob[:2] / blob

    def put(self, data: bytes) -> str:
        """Store bytes and return their hash. They are on disk, by name, when this returns: the event that names them is
        appended afterwards. Raises too_large, internal."""
        if len(data) > self.limit:
            raise FaultError(FaultCode.TOO_LARGE, f"A file of {len(data)} bytes: the limit is {self.limit}")
        blob = hashlib.sha256(data).hexdigest()
        self.put_file(BytesIO(data), blob)
        return blob

    def put_file(self, file: IO[bytes], blob: str) -> None:
        """Store what a file holds from where it stands, and of which the hash is known. Raises internal."""
        if self._touch(blob):
            return
        try:
            self._write(self.path(blob), file)
        except OSError as error:
            raise FaultError(FaultCode.INTERNAL, "The gateway could not store a file.") from error

    def _touch(self, blob: str) -> bool:
        """Make a stored file young again: the sweep leaves it alone until an event names it."""
        with self._sweeping:
            try:
                os.utime(self.path(blob))
            except FileNotFoundError:
                return False
            return True

    def _write(self, path: Path, source: IO[bytes]) -> None:
        make_folder(path.parent)
        file, name = tempfile.mkstemp(dir=path.parent)  # which only its owner can read
        try:
            with os.fdopen(file, "wb") as stream:
                copyfileobj(source, stream)
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def get(self, blob: str) -> bytes:
        """Raises not_found."""
        try:
            return self.path(blob).read_bytes()
        except FileNotFoundError:
            raise FaultError(FaultCode.NOT_FOUND, "No such file") from None

    async def size(self, blob: str) -> int:
        """Raises not_found."""
        try:
            return (await asyncio.to_thread(self.path(blob).stat)).st_size
        except FileNotFoundError:
            raise FaultError(FaultCode.NOT_FOUND, "No such file") from None

    async def pieces(self, blob: str) -> AsyncGenerator[bytes]:
        """The bytes of a stored file. What is removed meanwhile can be read to its end."""
        with self._open(blob) as file:  # NB: not in a thread, where it would stay open if the reader left meanwhile
            while piece := await asyncio.to_thread(file.read, _PIECE):
                yield piece

    def _open(self, blob: str) -> BinaryIO:
        return self.path(blob).open("rb")

    def sweep(self, used: set[str], older_than: float) -> int:
        """Remove the files that nothing names and that were written before `older_than` (seconds since 1970): younger
        ones may be on their way into an event."""
        removed = 0
        for path in self.folder.glob("??/*"):
            if path.name in used:
                continue
            with self._sweeping, suppress(FileNotFoundError):
                if path.stat().st_mtime < older_than:
                    path.unlink()
                    removed += 1
        return removed

    async def keep(self, part: Part) -> Part:
        """The part as the log may hold it: the bytes that it carried, or that it names, are in the store. Raises
        not_found."""
        if not isinstance(part, FilePart) or (part.inline is None and part.blob is None):
            return part
        if part.inline is None:
            if not await asyncio.to_thread(self._touch, part.blob or ""):
                raise FaultError(FaultCode.NOT_FOUND, "No such file")
            return part
        blob = await asyncio.to_thread(self.put, part.inline)
        return part.replace(blob=blob, size=len(part.inline), inline=None)

    async def keep_all(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        kept: list[Message] = []
        for message in messages:
            if any(isinstance(part, FilePart) for part in message.parts):
                parts = [await self.keep(part) for part in message.parts]
                message = message.replace(parts=tuple(parts))
            kept.append(message)
        return tuple(kept)

    async def load(self, part: FilePart, limit: int | None = None) -> FilePart:
        """The part with its bytes in `inline`, if they are in the store and within `limit`."""
        if part.blob is None or part.inline is not None or (limit is not None and (part.size or 0) > limit):
            return part
        held = self._held.get(part.blob)
        data = await self._read(part.blob) if held is None else held.inline
        loaded = self._held[part.blob] = part.replace(inline=data)
        return loaded

    async def _read(self, blob: str) -> bytes:
        """Once for all who ask while it is being read."""
        reading = self._reading.get(blob)
        if reading is None:
            reading = self._reading[blob] = asyncio.ensure_future(asyncio.to_thread(self.get, blob))
            reading.add_done_callback(lambda _: self._reading.pop(blob))
        return await asyncio.shield(reading)
