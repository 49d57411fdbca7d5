"""Artifacts in an S3-compatible object store, which every node reaches.

Where it is and who may use it is told by the usual variables (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`,
`AWS_SECRET_ACCESS_KEY`, …), which obstore reads; none of it is in the settings or in a log. An object is named by the
hash of its content, so that a request to put it can be repeated.
"""

import asyncio
import logging
import os
import re
import tempfile
import threading
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Final
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import S3Store

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.clock import Clock
from babelgate.gateway.storage.blobs import PIECE, Blobs, check_hash, is_hash, no_such_file

if TYPE_CHECKING:  # it is a name for type checkers alone
    from obstore import GetResult

log = logging.getLogger("babelgate.s3")

_RETRIES: Final = 4
_PATIENCE: Final = timedelta(seconds=15)
"""For which a request is repeated: one to an address that refuses, one that was answered by a 5xx."""
_CONNECT: Final = timedelta(seconds=3)
_SILENCE: Final = timedelta(seconds=30)
"""For which the store may say nothing, also while some of a file is on its way to it."""
_LONGEST: Final = timedelta(hours=24)
"""Of one request: a caller may take a large file slowly."""
_PROBE: Final = timedelta(seconds=4)
_PART: Final = 5 * 2**20
_PARTS: Final = 4
"""Bytes of one request to put a large file, and how many of them are under way."""
_YOUNG: Final = 1800.0
"""Seconds for which an object need not be put again: half of what the sweep leaves alone."""
_THREADS: Final = 16
"""In which files are put: others of the process do not wait for those that wait for the store."""
_LOCKS: Final = 64
_USERINFO: Final = re.compile(r"(?<=://)[^/\s]*@")


class S3Blobs(Blobs):
    def __init__(
        self, bucket: str, prefix: str, limit: int, *, young: float = _YOUNG, clock: Clock | None = None
    ) -> None:
        """`young` = seconds for which an object need not be put again."""
        super().__init__(limit)
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        allow_http = urlsplit(endpoint).scheme == "http"
        self._store = S3Store(
            bucket,
            prefix=prefix or None,
            client_options={
                "connect_timeout": _CONNECT,
                "read_timeout": _SILENCE,
                "timeout": _LONGEST,
                "allow_http": allow_http,
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": _PATIENCE},
        )
        self._probe = S3Store(
            bucket,
            prefix=prefix or None,
            client_options={"timeout": _PROBE, "allow_http": allow_http},
            retry_config={"max_retries": 0, "retry_timeout": _PROBE},
        )
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="babelgate-s3")
        self._young = young
        self._clock = clock or Clock()
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        """By hash: an object is not removed between the look that finds it old and the one that finds it there."""

    @classmethod
    def of_url(cls, url: str, limit: int) -> "S3Blobs":
        parts = urlsplit(url)
        return cls(parts.netloc, parts.path.strip("/"), limit)

    async def find_failure(self) -> str | None:
        """A list of nothing: whether there is such a bucket, and whether it may be looked into."""
        try:
            await self._probe.list("probe").collect_async()  # pyright: ignore[reportUnknownMemberType] - of Arrow, not used
        except (BaseError, OSError) as error:
            return f"the store of files fails: {_reason(error)}"
        return None

    def put_file(self, file: IO[bytes], blob: str) -> None:
        """Raises unavailable."""
        with self._lock(blob), _faults("store a file"):
            if not self._is_young(blob):
                self._store.put(_path(blob), file, chunk_size=_PART, max_concurrency=_PARTS)

    async def _put(self, data: bytes) -> str:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.put, data)

    async def renew(self, blob: str) -> bool:
        """Raises not_found, unavailable."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._renew, check_hash(blob))

    def _renew(self, blob: str) -> bool:
        with self._lock(blob), _faults("read a file"):
            if not self._is_young(blob):
                try:
                    found = self._store.get(_path(blob))
                except FileNotFoundError:
                    return False
                self._put_again(blob, found)
            return True

    def _put_again(self, blob: str, found: "GetResult") -> None:
        """S3 does not copy an object to itself, and the library does not read one while it writes another."""
        with tempfile.TemporaryFile() as spool:
            for piece in found.stream(min_chunk_size=_PART):
                spool.write(piece)
            spool.seek(0)
            self._store.put(_path(blob), spool, chunk_size=_PART, max_concurrency=_PARTS)

    def _lock(self, blob: str) -> threading.Lock:
        return self._locks[int(blob[:8], 16) % _LOCKS]

    def _is_young(self, blob: str) -> bool:
        """Whether it is there, and the sweep leaves it alone for some time to come."""
        try:
            found = self._store.head(_path(blob))
        except FileNotFoundError:
            return False
        return found["last_modified"].timestamp() > self._clock.now() / 1e6 - self._young

    def sweep(self, used: set[str], older_than: float) -> int:
        """Raises unavailable. Each is looked at again before it is removed: another node may have put it meanwhile."""
        removed = 0
        with _faults("look through the files"):
            for some in self._store.list():  # pyright: ignore[reportUnknownMemberType] - of Arrow, not used
                for found in some:
                    blob = found["path"].rpartition("/")[2]
                    if blob in used or not is_hash(blob) or found["last_modified"].timestamp() >= older_than:
                        continue
                    with self._lock(blob), suppress(FileNotFoundError):
                        if self._store.head(_path(blob))["last_modified"].timestamp() < older_than:
                            self._store.delete(_path(blob))
                            removed += 1
        return removed

    def get(self, blob: str) -> bytes:
        """Raises not_found, unavailable."""
        with _faults("read a file", missing=True):
            return bytes(self._store.get(_path(blob)).bytes())

    async def _get(self, blob: str) -> bytes:
        with _faults("read a file", missing=True):
            found = await self._store.get_async(_path(blob))
            return bytes(await found.bytes_async())

    async def size(self, blob: str) -> int:
        """Raises not_found, unavailable."""
        with _faults("read a file", missing=True):
            return (await self._store.head_async(_path(blob)))["size"]

    async def pieces(self, blob: str) -> AsyncGenerator[bytes]:
        with _faults("read a file", missing=True):
            found = await self._store.get_async(_path(blob))
            async for piece in found.stream(min_chunk_size=PIECE):
                yield bytes(piece)


def _path(blob: str) -> str:
    """Raises not_found."""
    return f"{check_hash(blob)[:2]}/{blob}"


@contextmanager
def _faults(what: str, *, missing: bool = False) -> Generator[None]:
    """What the store could not do is our fault, with one line in the log. `missing`: that there is no such object is an
    answer; where an object is put, there is no such bucket."""
    try:
        yield
    except FileNotFoundError as error:
        if missing:
            raise no_such_file() from None
        raise _fault(what, error) from None
    except (BaseError, OSError) as error:
        raise _fault(what, error) from None


def _fault(what: str, error: Exception) -> FaultError:
    log.error("file store could not %s error=%s", what, _reason(error))
    return FaultError(FaultCode.UNAVAILABLE, f"The gateway could not {what}: the store of files fails.")


def _reason(error: Exception) -> str:
    """An address, and what came from there. What stands below is how the library sees itself."""
    said = " ".join(str(error).partition("\n\nDebug source")[0].split())
    return _USERINFO.sub("…@", said)[:500]
