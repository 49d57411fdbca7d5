"""Discovery of an agent's card: below its own URL, or at the origin."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from babelgate.conformance.wire import credentials
from babelgate.conformance.wire.exchange import Exchange, as_object
from babelgate.conformance.wire.http import Receives, Unanswered, Wire

WELL_KNOWN = "/.well-known/agent-card.json"


@dataclass(frozen=True, slots=True)
class CardDiscovery:
    """Result of looking for an agent card: the card, and the exchange that returned it. If no card was found, the last
    exchange."""

    exchange: Exchange
    card: Any
    """Agent card as a JSON object; None if no card was found."""


async def find_card(wire: Wire, url: str, *, version: str, receives: Receives) -> CardDiscovery:
    """Find the card of an agent below `url` or at its origin. Raises Unanswered if no server answers.

    `url` is the agent's base URL, its endpoint, its origin, or the URL of the card. `version` is sent as `A2A-Version`,
    and `receives` names the schemas of the response.
    """
    well_known = (url.rstrip("/") + WELL_KNOWN, origin_of(url) + WELL_KNOWN)
    places = [url] if url.endswith(".json") else list(dict.fromkeys(well_known))
    headers = {"Accept": "application/json", "A2A-Version": version}
    silence: Unanswered | None = None
    last: Exchange | None = None
    for each in places:
        try:
            exchange = await wire.request("GET", each, sends=None, receives=receives, headers=headers)
        except Unanswered as error:
            silence = error
            continue
        last = exchange
        if exchange.status == 200 and (card := as_object(exchange.json)) is not None:
            return CardDiscovery(exchange, card)
    if last is None:
        assert silence is not None
        raise silence
    return CardDiscovery(last, None)


def why_not_spoken(card: Any, transports: Iterable[Any], interface: str, why_no_grpc: str) -> str:
    """Return why no interface in the card can be judged. `transports` are the bindings of the protocol version's
    interfaces in the card, `interface` describes what was looked for, and `why_no_grpc` says why gRPC is not
    checked."""
    if card is None:
        return "there is no agent card"
    return f"the card offers only gRPC, and {why_no_grpc}" if "GRPC" in transports else f"the card names no {interface}"


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, "", "", ""))


def own_url_of(url: str, card_url: str, endpoints: Sequence[str]) -> str:
    """Return the URL of the judged agent, from which `sibling_of` derives those of other agents.

    If its card is at the origin, `url` may belong to another protocol, such as `…/acp`. Then the result is the first of
    the card's endpoints that has the same origin, if there is one.
    """
    is_below = card_url.removesuffix(WELL_KNOWN).rstrip("/") == url.removesuffix(WELL_KNOWN).rstrip("/")
    named = (endpoint for endpoint in endpoints if credentials.origin_of(endpoint) == credentials.origin_of(url))
    return url if is_below and urlsplit(url).path.strip("/") else next(named, url)


def sibling_of(url: str, agent: str) -> str | None:
    """Return the URL of another agent of the same server, whose name replaces the last segment of the path: `…/echo` →
    `…/ask`.

    Return None if the URL has no path, because it then names no agent.
    """
    parts = urlsplit(url)
    path = parts.path.removesuffix(WELL_KNOWN).rstrip("/")
    if not path:
        return None
    return urlunsplit((parts.scheme, parts.netloc, f"{path.rpartition('/')[0]}/{agent}", "", ""))
