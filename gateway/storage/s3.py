"""Blob store in an S3-compatible object store, which every node of a cluster can reach.

The endpoint and the credentials come from the usual environment variables (`AWS_ENDPOINT_URL`, `AWS_REGION`,
`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, …), which obstore reads. They appear neither in the settings nor in a log.
The name of an object is the hash of its content, so an upload can be repeated."""

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

if TYPE_CHECKING:  # obstore exports the name only to type checkers
    from obstore import GetResult

log = logging.getLogger("babelgate.s3")

_RETRIES: Final = 4
_PATIENCE: Final = timedelta(seconds=15)
"""Maximum time for retries of a request after a refused connection or a 5xx response. Chosen."""
_CONNECT: Final = timedelta(seconds=3)
"""Timeout for connecting. Chosen."""
_SILENCE: Final = timedelta(seconds=30)
"""Time without received data after which a request fails, also during an upload. Chosen."""
_MAX_DURATION: Final = timedelta(hours=24)
"""Timeout of a whole request. Chosen: a caller may read a large file slowly."""
_PROBE: Final = timedelta(seconds=4)
"""Timeout of a health check. Chosen."""
_PART: Final = 5 * 2**20
"""Size of one part of a multipart upload, in bytes: the minimum that S3 allows."""
_PARTS: Final = 4
"""Number of parts of one file that are uploaded at the same time. Chosen."""
_YOUNG: Final = 1800.0
"""Seconds after an upload in which the same file is not uploaded again. Chosen: half of the age below which the sweep
deletes nothing."""
_THREADS: Final = 16
"""Number of threads that upload. They do nothing else, so no other work waits for a slow store. Chosen."""
_LOCKS: Final = 64
"""Number of locks. All objects share them: the hash of an object selects its lock. Chosen."""
_USERINFO: Final = re.compile(r"(?<=://)[^/\s]*@")


class S3Blobs(Blobs):
    def __init__(
        self, bucket: str, prefix: str, limit: int, *, young: float = _YOUNG, clock: Clock | None = None
    ) -> None:
        """Create the store for a bucket, without connecting. Object names begin with `prefix`.

        `limit` is the maximum size of a file in bytes. `young` is the number of seconds after an upload in which the
        same file is not uploaded again. `clock` is the source of the time; None is the system's clock."""
        super().__init__(limit)
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        allow_http = urlsplit(endpoint).scheme == "http"
        self._store = S3Store(
            bucket,
            prefix=prefix or None,
            client_options={
                "connect_timeout": _CONNECT,
                "read_timeout": _SILENCE,
                "timeout": _MAX_DURATION,
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
        """Locks that keep a sweep from deleting an object while a thread checks or renews its age. The hash selects the
        lock."""

    @classmethod
    def of_url(cls, url: str, limit: int) -> "S3Blobs":
        """Create the store for a URL such as `s3://bucket/prefix`, with a maximum file size of `limit` bytes."""
        parts = urlsplit(url)
        return cls(parts.netloc, parts.path.strip("/"), limit)

    async def find_failure(self) -> str | None:
        """Return the reason why the bucket cannot be listed now, or None if it can.

        The check lists a prefix that has no objects."""
        try:
            await self._probe.list("probe").collect_async()  # pyright: ignore[reportUnknownMemberType] - of Arrow, not used
        except (BaseError, OSError) as error:
            return f"the file store fails: {_reason(error)}"
        return None

    def put_file(self, file: IO[bytes], blob: str) -> None:
        """Upload a file under its hash, unless the store has a copy younger than `young`. Raises unavailable if the
        object store cannot be reached or refuses."""
        with self._lock(blob), _faults("store a file"):
            if not self._is_young(blob):
                self._store.put(_path(blob), file, chunk_size=_PART, max_concurrency=_PARTS)

    async def _put(self, data: bytes) -> str:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.put, data)

    async def renew(self, blob: str) -> bool:
        """Upload an object again if it is not young, so that no sweep deletes it soon. Return False if it does not
        exist.

        Raises not_found if `blob` is not a hash, and unavailable."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._renew, check_hash(blob))

    def _renew(self, blob: str) -> bool:
        with self._lock(blob), _faults("read a file"):
            if not self._is_young(blob):
                try:
                    response = self._store.get(_path(blob))
                except FileNotFoundError:
                    return False
                self._put_again(blob, response)
            return True

    def _put_again(self, blob: str, response: "GetResult") -> None:
        """Download an object and upload it again, which resets its age.

        S3 does not copy an object to itself, and obstore cannot stream one request into another.
        """
        with tempfile.TemporaryFile() as spool:
            for piece in response.stream(min_chunk_size=_PART):
                spool.write(piece)
            spool.seek(0)
            self._store.put(_path(blob), spool, chunk_size=_PART, max_concurrency=_PARTS)

    def _lock(self, blob: str) -> threading.Lock:
        return self._locks[int(blob[:8], 16) % _LOCKS]

    def _is_young(self, blob: str) -> bool:
        """Return True if the object exists and was uploaded less than `young` seconds ago, so that no sweep deletes it
        soon."""
        try:
            head = self._store.head(_path(blob))
        except FileNotFoundError:
            return False
        return head["last_modified"].timestamp() > self._clock.now() / 1e6 - self._young

    def sweep(self, used: set[str], older_than: float) -> int:
        """Delete the objects that are not in `used` and older than `older_than`, and return their number. Raises
        unavailable if the object store cannot be reached or refuses.

        The age is checked again just before each deletion, because another node may have uploaded the object
        meanwhile."""
        removed = 0
        with _faults("look through the files"):
            for entries in self._store.list():  # pyright: ignore[reportUnknownMemberType] - of Arrow, not used
                for entry in entries:
                    blob = entry["path"].rpartition("/")[2]
                    if blob in used or not is_hash(blob) or entry["last_modified"].timestamp() >= older_than:
                        continue
                    with self._lock(blob), suppress(FileNotFoundError):
                        if self._store.head(_path(blob))["last_modified"].timestamp() < older_than:
                            self._store.delete(_path(blob))
                            removed += 1
        return removed

    def get(self, blob: str) -> bytes:
        """Return the bytes of a stored file. Raises not_found if the store has no such file, and unavailable if the
        store cannot be reached or refuses."""
        with _faults("read a file", missing=True):
            return bytes(self._store.get(_path(blob)).bytes())

    async def _get(self, blob: str) -> bytes:
        with _faults("read a file", missing=True):
            response = await self._store.get_async(_path(blob))
            return bytes(await response.bytes_async())

    async def size(self, blob: str) -> int:
        """Return the size of a stored file in bytes. Raises not_found if the store has no such file, and unavailable if
        the store cannot be reached or refuses."""
        with _faults("read a file", missing=True):
            return (await self._store.head_async(_path(blob)))["size"]

    async def pieces(self, blob: str) -> AsyncGenerator[bytes]:
        with _faults("read a file", missing=True):
            response = await self._store.get_async(_path(blob))
            async for piece in response.stream(min_chunk_size=PIECE):
                yield bytes(piece)


def _path(blob: str) -> str:
    """Return the name of an object after the prefix, such as `ab/ab12…`. Raises not_found if `blob` is not a hash."""
    return f"{check_hash(blob)[:2]}/{blob}"


@contextmanager
def _faults(what: str, *, missing: bool = False) -> Generator[None]:
    """Convert errors of the store inside this context into the fault unavailable, and log them.

    `what` is the failed action for both texts, such as "read a file". With `missing`, a missing object becomes
    not_found. Without it, as during an upload, that error means that the bucket does not exist."""
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
    return FaultError(FaultCode.UNAVAILABLE, f"The gateway could not {what}: the file store fails.")


def _reason(error: Exception) -> str:
    """Return the text of an error on one line, without credentials and without the debug output that obstore
    appends."""
    text = " ".join(str(error).partition("\n\nDebug source")[0].split())
    return _USERINFO.sub("…@", text)[:500]
