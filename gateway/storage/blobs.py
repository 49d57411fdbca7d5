"""Content-addressed blob store: the bytes of files, by the hash of their content. A name from outside is never a path:
only hashes that we made ourselves, or that look exactly like one, reach a store."""

import asyncio
import hashlib
import os
import re
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from shutil import copyfileobj
from typing import IO, BinaryIO, Final
from weakref import WeakValueDictionary

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.message import FilePart, Message, Part
from babelgate.gateway.storage.permission import make_folder, make_private

_HASH: Final = re.compile(r"[0-9a-f]{64}")
PIECE: Final = 256 * 1024
"""Bytes that are read at once."""


class Blobs(ABC):
    """Bytes that are written once under their SHA-256, wherever that is."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Bytes of one file."""
        self._held: WeakValueDictionary[str, FilePart] = WeakValueDictionary()
        """By hash, a part with the bytes that somebody holds: all readers of a run hold the same ones."""
        self._reading: dict[str, asyncio.Future[bytes]] = {}

    @property
    def folders(self) -> Sequence[Path]:
        """Where on this machine they are; none if they are elsewhere."""
        return ()

    def secure(self) -> None:
        """Others cannot look into it, which earlier releases let them."""
        return

    async def find_failure(self) -> str | None:
        """Why the store cannot be used now; None if it can."""
        return None

    # In a thread

    def put(self, data: bytes) -> str:
        """Store bytes and return their hash. They are there, by name, when this returns: the event that names them is
        appended afterwards. Raises too_large, unavailable."""
        blob = self._hash(data)
        self.put_file(BytesIO(data), blob)
        return blob

    def _hash(self, data: bytes) -> str:
        if len(data) > self.limit:
            raise FaultError(FaultCode.TOO_LARGE, f"A file of {len(data)} bytes: the limit is {self.limit}")
        return hashlib.sha256(data).hexdigest()

    @abstractmethod
    def put_file(self, file: IO[bytes], blob: str) -> None:
        """Store what a file holds from where it stands, and of which the hash is known. Raises unavailable."""

    @abstractmethod
    def get(self, blob: str) -> bytes:
        """Raises not_found, unavailable."""

    @abstractmethod
    def sweep(self, used: set[str], older_than: float) -> int:
        """Remove the files that nothing names and that were written before `older_than` (seconds since 1970): younger
        ones may be on their way into an event. Returns how many. Raises unavailable."""

    # In the event loop

    @abstractmethod
    async def size(self, blob: str) -> int:
        """Raises not_found, unavailable."""

    @abstractmethod
    def pieces(self, blob: str) -> AsyncGenerator[bytes]:
        """The bytes of a stored file, some at a time. What is removed meanwhile can be read to its end. Raises
        not_found, unavailable."""

    @abstractmethod
    async def renew(self, blob: str) -> bool:
        """Make a stored file young again: the sweep leaves it alone until an event names it. Whether there is one.
        Raises not_found, unavailable."""

    async def _put(self, data: bytes) -> str:
        return await asyncio.to_thread(self.put, data)

    async def _get(self, blob: str) -> bytes:
        return await asyncio.to_thread(self.get, blob)

    async def keep(self, part: Part) -> Part:
        """The part as the log may hold it: the bytes that it carried, or that it names, are in the store. Raises
        not_found, too_large, unavailable."""
        if not isinstance(part, FilePart) or (part.inline is None and part.blob is None):
            return part
        if part.inline is None:
            if not await self.renew(part.blob or ""):
                raise FaultError(FaultCode.NOT_FOUND, "No such file")
            return part
        blob = await self._put(part.inline)
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
            reading = self._reading[blob] = asyncio.ensure_future(self._get(blob))
            reading.add_done_callback(lambda _: self._reading.pop(blob))
        return await asyncio.shield(reading)


def check_hash(blob: str) -> str:
    """It, if it can be one. Raises not_found."""
    if not is_hash(blob):
        raise no_such_file()
    return blob


def is_hash(text: str) -> bool:
    return _HASH.fullmatch(text) is not None


def no_such_file() -> FaultError:
    return FaultError(FaultCode.NOT_FOUND, "No such file")


class FolderBlobs(Blobs):
    """A folder of files, each named by its SHA-256."""

    def __init__(self, folder: Path, limit: int) -> None:
        super().__init__(limit)
        self.folder = folder
        self._sweeping = threading.Lock()
        """A file is not removed between the look that finds it and the touch that makes it young."""

    @property
    def folders(self) -> Sequence[Path]:
        return (self.folder,)

    def secure(self) -> None:
        make_private([self.folder])

    def path(self, blob: str) -> Path:
        """Raises not_found."""
        return self.folder / check_hash(blob)[:2] / blob

    def put_file(self, file: IO[bytes], blob: str) -> None:
        """Raises unavailable."""
        if self._touch(blob):
            return
        try:
            self._write(self.path(blob), file)
        except OSError as error:
            raise FaultError(FaultCode.UNAVAILABLE, "The gateway could not store a file.") from error

    async def renew(self, blob: str) -> bool:
        return await asyncio.to_thread(self._touch, blob)

    def _touch(self, blob: str) -> bool:
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
            raise no_such_file() from None

    async def size(self, blob: str) -> int:
        """Raises not_found."""
        try:
            return (await asyncio.to_thread(self.path(blob).stat)).st_size
        except FileNotFoundError:
            raise no_such_file() from None

    async def pieces(self, blob: str) -> AsyncGenerator[bytes]:
        with self._open(blob) as file:  # NB: not in a thread, where it would stay open if the reader left meanwhile
            while piece := await asyncio.to_thread(file.read, PIECE):
                yield piece

    def _open(self, blob: str) -> BinaryIO:
        try:
            return self.path(blob).open("rb")
        except FileNotFoundError:
            raise no_such_file() from None

    def sweep(self, used: set[str], older_than: float) -> int:
        removed = 0
        for path in self.folder.glob("??/*"):
            if path.name in used:
                continue
            with self._sweeping, suppress(FileNotFoundError):
                if path.stat().st_mtime < older_than:
                    path.unlink()
                    removed += 1
        return removed
