"""Content-addressed blob store: the bytes of files, by the SHA-256 of their content.

A name from a request is never used as a path. Only hashes that the gateway computed, or names with the exact form of
such a hash, reach a store.
"""

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
"""Maximum number of bytes of one piece that `Blobs.pieces` yields. Chosen."""


class Blobs(ABC):
    """Store of immutable files, each under the SHA-256 of its bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Maximum size of one file, in bytes."""
        self._held: WeakValueDictionary[str, FilePart] = WeakValueDictionary()
        """Loaded file parts by hash, as long as a reader uses them, so that all readers of one file share its bytes."""
        self._reading: dict[str, asyncio.Future[bytes]] = {}
        """Reads in progress, by the hash of the file, so that concurrent calls share one read."""

    @property
    def folders(self) -> Sequence[Path]:
        """Folders of this machine that hold the files. Empty if the store is remote."""
        return ()

    def secure(self) -> None:
        """Restrict the permissions of existing files to the gateway's user. Earlier releases let other users read
        them."""
        return

    async def find_failure(self) -> str | None:
        """Return the reason why the store cannot be used now, or None if it can."""
        return None

    # Called in worker threads

    def put(self, data: bytes) -> str:
        """Store bytes and return their hash.

        The bytes are durable when this returns, because the event that refers to them is committed afterwards. Raises
        too_large above the limit, and unavailable if the store fails."""
        blob = self._hash(data)
        self.put_file(BytesIO(data), blob)
        return blob

    def _hash(self, data: bytes) -> str:
        if len(data) > self.limit:
            raise FaultError(FaultCode.TOO_LARGE, f"A file of {len(data)} bytes: the limit is {self.limit}")
        return hashlib.sha256(data).hexdigest()

    @abstractmethod
    def put_file(self, file: IO[bytes], blob: str) -> None:
        """Store the rest of an open file, from its current position, under `blob`, the hash of these bytes.

        Raises unavailable if the store fails.
        """

    @abstractmethod
    def get(self, blob: str) -> bytes:
        """Return the bytes of a stored file. Raises not_found, and unavailable if the store fails."""

    @abstractmethod
    def sweep(self, used: set[str], older_than: float) -> int:
        """Delete the files that are not in `used` and were written before `older_than`. Return their number.

        `older_than` is in seconds since 1970. Younger files are kept: an event that refers to them may not be committed
        yet. Raises unavailable if the store fails."""

    # Called in the event loop

    @abstractmethod
    async def size(self, blob: str) -> int:
        """Return the size of a stored file in bytes. Raises not_found, and unavailable if the store fails."""

    @abstractmethod
    def pieces(self, blob: str) -> AsyncGenerator[bytes]:
        """Yield the bytes of a stored file in pieces. A file that is removed meanwhile is still read to its end.

        Raises not_found, and unavailable if the store fails.
        """

    @abstractmethod
    async def renew(self, blob: str) -> bool:
        """Reset the age of a stored file, so that no sweep removes it before an event names it.

        Return False if there is no such file. Raises not_found if `blob` is not a hash, and unavailable if the store
        fails.
        """

    async def _put(self, data: bytes) -> str:
        return await asyncio.to_thread(self.put, data)

    async def _get(self, blob: str) -> bytes:
        return await asyncio.to_thread(self.get, blob)

    async def keep(self, part: Part) -> Part:
        """Return the part in the form in which a log stores it: the bytes of a file are in the store, the part has
        their hash.

        Parts without bytes or hash are unchanged. Raises not_found if the part refers to a file that is not stored,
        too_large above the limit, and unavailable if the store fails."""
        if not isinstance(part, FilePart) or (part.inline is None and part.blob is None):
            return part
        if part.inline is None:
            if not await self.renew(part.blob or ""):
                raise FaultError(FaultCode.NOT_FOUND, "No such file")
            return part
        blob = await self._put(part.inline)
        return part.replace(blob=blob, size=len(part.inline), inline=None)

    async def keep_all(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        stored: list[Message] = []
        for message in messages:
            if any(isinstance(part, FilePart) for part in message.parts):
                parts = [await self.keep(part) for part in message.parts]
                message = message.replace(parts=tuple(parts))
            stored.append(message)
        return tuple(stored)

    async def load(self, part: FilePart, limit: int | None = None) -> FilePart:
        """Return the file part with its bytes in `inline`.

        Return it unchanged if it refers to no stored file, or if its size is above `limit` (None: no limit). Raises the
        same faults as `get`."""
        if part.blob is None or part.inline is not None or (limit is not None and (part.size or 0) > limit):
            return part
        held = self._held.get(part.blob)
        data = await self._read(part.blob) if held is None else held.inline
        loaded = self._held[part.blob] = part.replace(inline=data)
        return loaded

    async def _read(self, blob: str) -> bytes:
        """Return the bytes of a stored file. Concurrent calls for one file share one read."""
        reading = self._reading.get(blob)
        if reading is None:
            reading = self._reading[blob] = asyncio.ensure_future(self._get(blob))
            reading.add_done_callback(lambda _: self._reading.pop(blob))
        return await asyncio.shield(reading)


def check_hash(blob: str) -> str:
    """Return `blob` if it has the form of a SHA-256 in hex digits. Raises not_found otherwise."""
    if not is_hash(blob):
        raise no_such_file()
    return blob


def is_hash(text: str) -> bool:
    return _HASH.fullmatch(text) is not None


def no_such_file() -> FaultError:
    return FaultError(FaultCode.NOT_FOUND, "No such file")


class FolderBlobs(Blobs):
    """Blob store in a folder of this machine. Each file is named by its SHA-256, in a subfolder of the first two
    digits."""

    def __init__(self, folder: Path, limit: int) -> None:
        super().__init__(limit)
        self.folder = folder
        self._sweeping = threading.Lock()
        """Lock that keeps a renewal from falling between the sweep's check of a file's age and its removal of the
        file."""

    @property
    def folders(self) -> Sequence[Path]:
        return (self.folder,)

    def secure(self) -> None:
        make_private([self.folder])

    def path(self, blob: str) -> Path:
        """Return the path for the file with this hash, stored or not. Raises not_found if `blob` is not a hash."""
        return self.folder / check_hash(blob)[:2] / blob

    def put_file(self, file: IO[bytes], blob: str) -> None:
        """Store the rest of an open file, unless the folder has it. Raises unavailable if the disk fails."""
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
        file, name = tempfile.mkstemp(dir=path.parent)  # readable by the user of the gateway only
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
        """Return the bytes of a stored file. Raises not_found."""
        try:
            return self.path(blob).read_bytes()
        except FileNotFoundError:
            raise no_such_file() from None

    async def size(self, blob: str) -> int:
        """Return the size of a stored file in bytes. Raises not_found."""
        try:
            return (await asyncio.to_thread(self.path(blob).stat)).st_size
        except FileNotFoundError:
            raise no_such_file() from None

    async def pieces(self, blob: str) -> AsyncGenerator[bytes]:
        with self._open(blob) as file:  # not in a worker thread: a cancelled reader would leave the file open
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
