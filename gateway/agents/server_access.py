"""Access to the servers of one agent: the tokens of requests, and the trust in cards."""

from functools import partial
from typing import NamedTuple

import httpx

from babelgate.adapters.kit.card_trust import CardTrust
from babelgate.adapters.kit.client.authorization import AuthorizedClient
from babelgate.adapters.kit.client.direct_client import DirectClient
from babelgate.gateway.agents.card_checks import CardChecks
from babelgate.gateway.agents.networks import ClientFactory
from babelgate.gateway.agents.tokens.source import AgentTokens, DiscoveryTokens
from babelgate.gateway.settings.model import AgentSettings


class ServerAccess(NamedTuple):
    """Functions that create the HTTP clients of an agent, and the verification of its cards."""

    discovery: ClientFactory = httpx.AsyncClient
    """Function that creates the HTTP client for requests that no caller has caused, such as the detection of a
    protocol."""
    calls: ClientFactory = DirectClient
    """Function that creates the HTTP client for the requests of runs."""
    trust: CardTrust | None = None
    """Verification of the cards of the servers; None if the cards are not verified."""

    @property
    def is_card_required(self) -> bool:
        """True if only servers with a verified card are called."""
        return self.trust is not None and self.trust.is_required

    @classmethod
    def of(cls, name: str, settings: AgentSettings, cards: CardChecks) -> "ServerAccess":
        """Return the access to the servers of an agent. If they require tokens, all clients that the two functions
        create share the cached tokens."""
        trust, request = cards.trust_of(name, settings), None if settings.auth is None else settings.auth.token_request
        if request is None:
            return cls(trust=trust)
        tokens = AgentTokens(name, request, note=partial(cards.reports.note_token_fetched, name))
        sources = DiscoveryTokens(tokens), tokens
        return cls(*(partial(AuthorizedClient, each, settings.servers) for each in sources), trust=trust)
