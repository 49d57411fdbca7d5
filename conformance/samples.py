"""Samples that a careless server harms: a text beyond ASCII, and a file that holds every byte."""

import base64
import json
import re
from typing import Any, Final

from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange

WORDS: Final = '[[Grüße, 世界\r\ndata: {"a": 1}\n\nevent: end\n\u2028\u2029 \U0001f469\u200d\U0001f52c \\ "quoted"]]'
"""Characters of 2, 3 and 4 bytes, a joined emoji, line ends of all kinds, and a text that looks like a
server-sent event."""
BYTES: Final = bytes(range(256))
"""All byte values: a server that treats the file as text changes some of them."""
FILE_NAME: Final = "bytes.bin"
_FORMS: Final = (WORDS, json.dumps(WORDS)[1:-1], json.dumps(WORDS, ensure_ascii=False)[1:-1])
"""WORDS as they are, and encoded as JSON, because some tools answer with JSON."""
_REPEATED: Final = re.compile(r"\[\[.*\]\]", re.DOTALL)


def check_repeated(text: str, exchange: Exchange) -> None:
    """Check an answer that repeats WORDS, which an agent need not do. Raises Failed if the text was changed."""
    found = _REPEATED.search(text)
    if found is not None:
        check(found.group() in _FORMS, f"the text as it was sent, {WORDS!r}", found.group(), exchange)


def decode_base64(encoded: Any) -> bytes | None:
    """Return the bytes, or None if it is not base64 (RFC 4648, section 4)."""
    try:
        return base64.b64decode(str(encoded), validate=True)
    except ValueError:
        return None
