"""Samples that a server with a bug changes on the way: a text beyond ASCII, and a file that contains every byte
value."""

import base64
import json
import re
from typing import Any, Final

from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange

WORDS: Final = '[[Grüße, 世界\r\ndata: {"a": 1}\n\nevent: end\n\u2028\u2029 \U0001f469\u200d\U0001f52c \\ "quoted"]]'
"""Text that a server must return unchanged. It has characters of 2, 3 and 4 bytes, a joined emoji, line ends of all
kinds, and lines that look like a server-sent event."""
BYTES: Final = bytes(range(256))
"""Content of a file with all byte values: a server that treats the file as text changes some of them."""
FILE_NAME: Final = "bytes.bin"
_FORMS: Final = (WORDS, json.dumps(WORDS)[1:-1], json.dumps(WORDS, ensure_ascii=False)[1:-1])
"""Forms in which an answer may repeat WORDS: as it is, and as a JSON string, because some tools answer with JSON."""
_REPEATED: Final = re.compile(r"\[\[.*\]\]", re.DOTALL)


def check_repeated(text: str, exchange: Exchange) -> None:
    """Check that an answer which repeats WORDS repeats it unchanged. An answer without it passes. Raises Failed if it
    is changed."""
    found = _REPEATED.search(text)
    if found is not None:
        check(found.group() in _FORMS, f"the text as it was sent, {WORDS!r}", found.group(), exchange)


def decode_base64(encoded: Any) -> bytes | None:
    """Return the bytes that a base64 text encodes (RFC 4648, section 4), or None if it is not base64."""
    try:
        return base64.b64decode(str(encoded), validate=True)
    except ValueError:
        return None
