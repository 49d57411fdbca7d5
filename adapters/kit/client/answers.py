"""Parsing of upstream responses with limits (against decompression bombs): decompressed size, total size, and JSON
under the same rules as request bodies. Every response of an agent's server passes through this module.

A server is not trusted with the gateway's memory or time. A response, or an event of a stream, that exceeds the limits
on bytes or values is a fault of the agent.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, cast

import httpx

from babelgate.adapters.kit.headers import content_codings
from babelgate.adapters.kit.json import parse
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import Json

ANSWER_LIMIT: Final = 64 * 1024 * 1024
"""Maximum size of one response, and of one stream event, in bytes. Chosen: the default limit of a request's body."""
LISTING_LIMIT: Final = 4 * 1024 * 1024
"""Maximum size of a response that describes or lists a server's agents, in bytes. Chosen: lower than `ANSWER_LIMIT`,
because several of these responses are requested concurrently."""
ANSWER_VALUES: Final = 500_000
"""Maximum number of JSON values in a response. Chosen: five times the limit of a request, because a server lists all
events of a run in one response."""
ERROR_RESPONSE_LIMIT: Final = 64 * 1024
"""Maximum size of an error response, in bytes. Chosen."""

READ: Final = "babelgate.read"
"""Key in `httpx.Response.extensions`: function that returns the next chunk of the body as received, or b"" at the end.

`HttpTransport` sets it. Reading through it is faster than through httpx, which passes each chunk through three
generators.
"""
EXCERPT: Final = "babelgate.excerpt"
"""Key in `httpx.Response.extensions`: the first bytes of an error response's body, as far as they were read."""
_EXCERPT_LENGTH: Final = 4096
"""Maximum length of the excerpt under `EXCERPT`, in bytes. Chosen."""

_PIECE: Final = 256 * 1024
"""Maximum number of bytes that one decompression step returns. Without a limit, 1 KiB of gzip can become 1 MiB, and 1
KiB of other encodings 1 GiB."""
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Supported content encodings, as `wbits` of zlib. The gateway requests none, but servers may use them."""


class Body:
    """Reader that yields the body of a response, decompressed if necessary. Call `aclose` at the end."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._read = response.extensions.get(READ) or self._read_any
        self._raw: AsyncGenerator[bytes] | None = None
        codings = content_codings(response.headers.get("content-encoding", ""))
        self._encoding = ", ".join(codings)
        self._inflating = zlib.decompressobj(_WINDOWS[self._encoding]) if self._encoding in _WINDOWS else None
        self._compressed = b""

    async def read(self) -> bytes:
        """Return the next chunk of the decompressed body, or b"" at the end.

        Raises agent_invalid if the body cannot be decompressed, and httpx.TransportError if the connection fails.
        """
        if not self._encoding:
            return await self._read()
        if self._inflating is None:
            raise FaultError(
                FaultCode.AGENT_INVALID,
                f"The agent's server used the unsupported Content-Encoding {self._encoding[:50]!r}",
            )
        while not self._inflating.eof:
            if not self._compressed:
                self._compressed = await self._read()
                if not self._compressed:
                    break
            else:
                await asyncio.sleep(0)  # other tasks run in between: decompressing one chunk may take seconds
            try:
                piece = self._inflating.decompress(self._compressed, _PIECE)
            except zlib.error as error:
                raise FaultError(
                    FaultCode.AGENT_INVALID, "The agent's server sent an answer that cannot be decompressed"
                ) from error
            self._compressed = self._inflating.unconsumed_tail
            if piece:
                return piece
        return b""

    async def _read_any(self) -> bytes:
        """Read the next bytes from the response of a transport without the extension `READ`."""
        if self._raw is None:
            self._raw = cast("AsyncGenerator[bytes]", self._response.aiter_raw())
        return await anext(self._raw, b"")

    async def aclose(self) -> None:
        if self._raw is not None:
            await self._raw.aclose()


async def read_bytes(
    response: httpx.Response, limit: int = ANSWER_LIMIT, code: FaultCode = FaultCode.AGENT_INVALID
) -> bytes:
    """Return the whole body of a response, decompressed. Raises a fault with `code` as soon as it is longer than
    `limit` bytes."""
    body = bytearray()  # not a list, because a chunk may be a single byte
    try:
        async with aclosing(Body(response)) as content:
            while piece := await content.read():
                if len(body) + len(piece) > limit:
                    body += piece[:_EXCERPT_LENGTH]
                    raise FaultError(code, f"The agent's server answered with more than {limit} bytes")
                body += piece
    finally:
        if response.status_code >= 300:
            response.extensions[EXCERPT] = bytes(body[:_EXCERPT_LENGTH])
    return bytes(body)


async def read_answer(response: httpx.Response, limit: int = ANSWER_LIMIT) -> Json:
    """Return the whole body of a response as JSON. Raises agent_invalid if it is not JSON, or exceeds `limit` bytes or
    `ANSWER_VALUES` values."""
    return await parse_whole(await read_bytes(response, limit))


async def parse_whole(raw: bytes) -> Json:
    """Parse the body of a whole response as JSON. Raises agent_invalid if it is not JSON, or has more than
    `ANSWER_VALUES` values."""
    try:
        return await parse(raw, ANSWER_VALUES)
    except FaultError as error:
        words = "did not answer with JSON"
        if error.fault.code is FaultCode.TOO_LARGE:
            words = f"answered with more than {error.fault.details['limit']} JSON values"
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent's server {words}") from error


async def parse_answer(raw: bytes) -> Json:
    """Parse the data of one stream event as JSON. Raises agent_invalid if it is not JSON, or has more than
    `ANSWER_VALUES` values."""
    try:
        return await parse(raw, ANSWER_VALUES)
    except FaultError as error:
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent breaks its protocol: {error.fault.message}") from error
