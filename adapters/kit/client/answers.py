"""Response parsing with limits (decompression bombs): bytes, inflated within bounds, size, and JSON under the rules for
bodies. All that servers answer comes in here.

A server is not trusted with the gateway's memory or time: one answer, or one event of a stream, is so many bytes and so
many values, and what is larger is a fault of the agent's.
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
"""Bytes of one answer, and of one event of a stream."""
LISTING_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of an answer that describes or lists what a server has: several of them are asked for at once."""
ANSWER_VALUES: Final = 500_000
"""Values in it. More than a request may have: a server lists all events of a run at once."""
ERROR_RESPONSE_LIMIT: Final = 64 * 1024
"""Bytes of an error response."""

EXCERPT: Final = "babelgate.excerpt"
"""Extension of a response: how the body of an error response begins, as far as it was read."""
_EXCERPT_LENGTH: Final = 4096

_PIECE: Final = 256 * 1024
"""Bytes that are inflated at once: a kilobyte can be a megabyte, and of other encodings a gigabyte."""
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Content encodings that are understood, although none is asked for, as `wbits` of zlib."""


async def pieces(response: httpx.Response) -> AsyncGenerator[bytes]:
    """The body as it comes, without its content encoding. Raises agent_invalid for one that cannot be taken off."""
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
                    FaultCode.AGENT_INVALID, "The agent's server gave an answer that cannot be decompressed"
                ) from error
            chunk = inflating.unconsumed_tail
            if piece:
                yield piece
                await asyncio.sleep(0)  # others come in between: what one chunk holds may take seconds


async def read_bytes(
    response: httpx.Response, limit: int = ANSWER_LIMIT, code: FaultCode = FaultCode.AGENT_INVALID
) -> bytes:
    """The whole body. Raises `code` as soon as it is longer than `limit`."""
    found = bytearray()  # not a list: the pieces may be of one byte each
    try:
        async with aclosing(pieces(response)) as coming:
            async for piece in coming:
                if len(found) + len(piece) > limit:
                    found += piece[:_EXCERPT_LENGTH]
                    raise FaultError(code, f"The agent's server answered with more than {limit} bytes")
                found += piece
    finally:
        if response.status_code >= 300:
            response.extensions[EXCERPT] = bytes(found[:_EXCERPT_LENGTH])
    return bytes(found)


async def read_answer(response: httpx.Response, limit: int = ANSWER_LIMIT) -> Json:
    """The whole body as JSON. Raises agent_invalid."""
    return await parse_whole(await read_bytes(response, limit))


async def parse_whole(raw: bytes) -> Json:
    """A whole answer as JSON. Raises agent_invalid."""
    try:
        return await parse(raw, ANSWER_VALUES)
    except FaultError as error:
        words = "did not answer with JSON"
        if error.fault.code is FaultCode.TOO_LARGE:
            words = f"answered with more than {error.fault.details['limit']} JSON values"
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent's server {words}") from error


async def parse_answer(raw: bytes) -> Json:
    """One event of a stream as JSON. Raises agent_invalid."""
    try:
        return await parse(raw, ANSWER_VALUES)
    except FaultError as error:
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent breaks its protocol: {error.fault.message}") from error
