"""Access to the servers of one agent: the tokens of requests, and the trust in cards."""

from functools import partial
from typing import NamedTuple

import httpx

from babelgate.adapters.kit.card_trust import CardTrust
from babelgate.adapters.kit.client.authorization import AuthorizedClient
from babelgate.gateway.agents.card_checks import CardChecks
from babelgate.gateway.agents.networks import ClientFactory
from babelgate.gateway.agents.tokens.source import AgentTokens, DiscoveryTokens
from babelgate.gateway.settings.model import AgentSettings


class ServerAccess(NamedTuple):
    """Functions that create the HTTP clients of an agent, and the verification of its cards."""

    discovery: ClientFactory = httpx.AsyncClient
    """Function for the clients of requests that no caller has caused."""
    calls: ClientFactory = httpx.AsyncClient
    """Function for the clients of runs."""
    trust: CardTrust | None = None
    """Verification of the cards of the servers. None: they are not verified."""

    @property
    def is_card_required(self) -> bool:
        """True if only servers with a verified card are called."""
        return self.trust is not None and self.trust.is_required

    @classmethod
    def of(cls, name: str, settings: AgentSettings, cards: CardChecks) -> "ServerAccess":
        """Return the access to an agent. If its servers get tokens, all its clients share them."""
        trust, request = cards.trust_of(name, settings), None if settings.auth is None else settings.auth.token_request
        if request is None:
            return cls(trust=trust)
        tokens = AgentTokens(name, request, note=partial(cards.reports.note_token_fetched, name))
        sources = DiscoveryTokens(tokens), tokens
        return cls(*(partial(AuthorizedClient, each, settings.servers) for each in sources), trust=trust)
