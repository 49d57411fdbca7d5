"""Parsing of upstream responses with limits (against decompression bombs): decompressed size, total size, and JSON
under the same rules as request bodies. Every response of an agent's server passes through this module.

A server is not trusted with the gateway's memory or time. A response, or an event of a stream, that exceeds the limits
on bytes or values is a fault of the agent.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import httpx

from babelgate.adapters.kit.headers import content_codings
from babelgate.adapters.kit.json import parse
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import Json

ANSWER_LIMIT: Final = 64 * 1024 * 1024
"""Maximum size of one response, and of one event of a stream, in bytes."""
LISTING_LIMIT: Final = 4 * 1024 * 1024
"""Maximum size of a response that describes or lists a server's agents, in bytes. Several of these are requested
concurrently."""
ANSWER_VALUES: Final = 500_000
"""Maximum number of JSON values in a response. It is higher than for a request, because a server lists all events of a
run in one response."""
ERROR_RESPONSE_LIMIT: Final = 64 * 1024
"""Maximum size of an error response, in bytes."""

EXCERPT: Final = "babelgate.excerpt"
"""Key of a response extension: the first bytes of an error response's body, as far as they were read."""
_EXCERPT_LENGTH: Final = 4096
"""Maximum length of that excerpt, in bytes."""

_PIECE: Final = 256 * 1024
"""Maximum bytes per decompression step: 1 KiB of gzip can hold 1 MiB, and other encodings can hold 1 GiB."""
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Supported content encodings, as `wbits` of zlib. The gateway requests none, but servers may use them."""


async def pieces(response: httpx.Response) -> AsyncGenerator[bytes]:
    """Yield the body in chunks, decompressed. Raises agent_invalid if it cannot be decompressed."""
    codings = content_codings(response.headers.get("content-encoding", ""))
    if not codings:
        async for chunk in response.aiter_raw():
            yield chunk
        return
    encoding = ", ".join(codings)
    if encoding not in _WINDOWS:
        raise FaultError(
            FaultCode.AGENT_INVALID, f"The agent's server used the unsupported Content-Encoding {encoding[:50]!r}"
        )
    inflating = zlib.decompressobj(_WINDOWS[encoding])
    async for chunk in response.aiter_raw():
        while chunk and not inflating.eof:
            try:
                piece = inflating.decompress(chunk, _PIECE)
            except zlib.error as error:
                raise FaultError(
                    FaultCode.AGENT_INVALID, "The agent's server sent an answer that cannot be decompressed"
                ) from error
            chunk = inflating.unconsumed_tail
            if piece:
                yield piece
                await asyncio.sleep(0)  # other tasks run in between: decompressing one chunk may take seconds


async def read_bytes(
    response: httpx.Response, limit: int = ANSWER_LIMIT, code: FaultCode = FaultCode.AGENT_INVALID
) -> bytes:
    """Return the whole body. Raises `code` as soon as it is longer than `limit`."""
    body = bytearray()  # not a list, because a chunk may be a single byte
    try:
        async with aclosing(pieces(response)) as chunks:
            async for piece in chunks:
                if len(body) + len(piece) > limit:
                    body += piece[:_EXCERPT_LENGTH]
                    raise FaultError(code, f"The agent's server answered with more than {limit} bytes")
                body += piece
    finally:
        if response.status_code >= 300:
            response.extensions[EXCERPT] = bytes(body[:_EXCERPT_LENGTH])
    return bytes(body)


async def read_answer(response: httpx.Response, limit: int = ANSWER_LIMIT) -> Json:
    """Return the whole body as JSON. Raises agent_invalid."""
    return await parse_whole(await read_bytes(response, limit))


async def parse_whole(raw: bytes) -> Json:
    """Parse the body of a whole response as JSON. Raises agent_invalid."""
    try:
        return await parse(raw, ANSWER_VALUES)
    except FaultError as error:
        words = "did not answer with JSON"
        if error.fault.code is FaultCode.TOO_LARGE:
            words = f"answered with more than {error.fault.details['limit']} JSON values"
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent's server {words}") from error


async def parse_answer(raw: bytes) -> Json:
    """Parse one event of a stream as JSON. Raises agent_invalid."""
    try:
        return await parse(raw, ANSWER_VALUES)
    except FaultError as error:
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent breaks its protocol: {error.fault.message}") from error
