"""Where the card of an agent is: below its own URL, or at the origin."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from babelgate.conformance.wire import credentials
from babelgate.conformance.wire.exchange import Exchange, as_object
from babelgate.conformance.wire.http import Receives, Unanswered, Wire

WELL_KNOWN = "/.well-known/agent-card.json"
UNJUDGED: Final = (
    "GRPC is not judged: it needs HTTP/2 and compiled protocol buffers, and the judge speaks HTTP and JSON"
)


@dataclass(frozen=True, slots=True)
class Found:
    """A card, or what was looked at in vain."""

    exchange: Exchange
    card: Any
    """A JSON object, or None."""


async def find_card(wire: Wire, url: str, *, version: str, receives: Receives) -> Found:
    """`url` is an agent's base, its endpoint, its origin, or that of the card itself. Raises Unanswered if nobody is
    there at all."""
    places = (url.rstrip("/") + WELL_KNOWN, origin_of(url) + WELL_KNOWN)
    asked = [url] if url.endswith(".json") else list(dict.fromkeys(places))
    headers = {"Accept": "application/json", "A2A-Version": version}
    silence: Unanswered | None = None
    last: Exchange | None = None
    for each in asked:
        try:
            exchange = await wire.request("GET", each, sends=None, receives=receives, headers=headers)
        except Unanswered as error:
            silence = error
            continue
        last = exchange
        if exchange.status == 200 and (card := as_object(exchange.json)) is not None:
            return Found(exchange, card)
    if last is None:
        assert silence is not None
        raise silence
    return Found(last, None)


def why_not_spoken(card: Any, transports: Iterable[Any], interface: str) -> str:
    """Why there is no interface to be judged. `transports`: what the card offers in this revision."""
    if card is None:
        return "there is no agent card"
    return f"the card offers GRPC alone, and {UNJUDGED}" if "GRPC" in transports else f"the card names no {interface}"


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, "", "", ""))


def own_url_of(url: str, card_url: str, endpoints: Sequence[str]) -> str:
    """Return the URL of the judged agent itself. If its card is at the origin, `url` may belong to another protocol,
    such as `…/acp`: then the endpoint that the card names counts, if it has the same origin."""
    is_below = card_url.removesuffix(WELL_KNOWN).rstrip("/") == url.removesuffix(WELL_KNOWN).rstrip("/")
    named = (endpoint for endpoint in endpoints if credentials.origin_of(endpoint) == credentials.origin_of(url))
    return url if is_below and urlsplit(url).path.strip("/") else next(named, url)


def sibling_of(url: str, agent: str) -> str | None:
    """Return the URL of another agent of the same server: `…/echo` → `…/ask`. It has the same origin. None if the URL
    has no path, so that it names no agent beside which others could be."""
    parts = urlsplit(url)
    path = parts.path.removesuffix(WELL_KNOWN).rstrip("/")
    if not path:
        return None
    return urlunsplit((parts.scheme, parts.netloc, f"{path.rpartition('/')[0]}/{agent}", "", ""))
