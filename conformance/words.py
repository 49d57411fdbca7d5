"""A text beyond ASCII, which servers harm that do not read and write UTF-8 or do not escape what they send."""

import json
import re
from typing import Final

from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange

WORDS: Final = '[[Grüße, 世界\r\ndata: {"a": 1}\n\nevent: end\n\u2028\u2029 \U0001f469\u200d\U0001f52c \\ "quoted"]]'
"""Letters of two, three and four bytes, a joined emoji, line ends of all kinds, and what looks like a server-sent
event."""
_FORMS: Final = (WORDS, json.dumps(WORDS)[1:-1], json.dumps(WORDS, ensure_ascii=False)[1:-1])
"""As it is, and in JSON, which is what some tools answer with."""
_REPEATED: Final = re.compile(r"\[\[.*\]\]", re.DOTALL)


def check_repeated(text: str, exchange: Exchange) -> None:
    """Raises Failed if an answer repeats WORDS in another form. An agent need not repeat them."""
    found = _REPEATED.search(text)
    if found is not None:
        check(found.group() in _FORMS, f"the text as it was sent, {WORDS!r}", found.group(), exchange)
