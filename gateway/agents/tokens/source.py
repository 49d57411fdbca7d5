"""Tokens for the server of one agent: of the gateway itself (client credentials), or of the caller (token exchange).

Without a token there is no call: every failure here ends the request before it is sent.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

import httpx

from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.agents.tokens.cache import TokenCache
from babelgate.gateway.agents.tokens.endpoint import ProviderUnavailable, TokenEndpoint, TokenRefused
from babelgate.gateway.run_caller import RUN_CALLER, RunCaller
from babelgate.gateway.settings.agent_auth import ClientCredentials, TokenExchange

log = logging.getLogger("babelgate.tokens")

_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:"


class AgentTokens:
    """Tokens for the server of one agent (`babelgate.adapters.kit.client.authorization.TokenSource`)."""

    def __init__(
        self,
        agent: str,
        settings: ClientCredentials | TokenExchange,
        cache: TokenCache | None = None,
    ) -> None:
        """Create the source. `agent` is the agent's name, for logs and faults."""
        self._agent = agent
        self._settings = settings
        self._cache = cache or TokenCache()
        self._endpoint = TokenEndpoint(
            settings.token_url, settings.client_id, settings.client_secret.get_secret_value()
        )

    async def get(self) -> str:
        """Return the token for a request of the current run.

        Raises agent_unreachable if the provider does not answer, agent_failed if it refuses, and unauthenticated if
        the run has no token of its caller.
        """
        try:
            return await self._get()
        except TokenRefused as error:
            log.warning("token refused agent=%s reason=%r", self._agent, str(error))
            raise FaultError(
                FaultCode.AGENT_FAILED,
                f"The identity provider issues no token for agent {self._agent}: {error.error}",
            ) from None
        except ProviderUnavailable as error:
            raise self._unavailable(error) from None

    async def replace(self, refused: str) -> str:
        """Replace a token that the server has refused by a new one. Raises the faults of `get`."""
        self.forget(refused)
        return await self.get()

    def forget(self, refused: str) -> None:
        """Remove a token that the server has refused."""
        self._cache.drop(refused)

    def handle_refusal(self, response: httpx.Response) -> None:
        """Do nothing: the refusal ends the call."""

    async def get_own(self) -> str | None:
        """Return a token of the gateway itself, or None if the provider issues none to it.

        Raises agent_unreachable if the provider does not answer.
        """
        try:
            return await self._own_token(self._settings.target)
        except TokenRefused as error:
            log.info("no token for discovery agent=%s reason=%r", self._agent, str(error))
            return None
        except ProviderUnavailable as error:
            raise self._unavailable(error) from None

    def _unavailable(self, error: ProviderUnavailable) -> FaultError:
        log.warning("token not fetched agent=%s reason=%r", self._agent, str(error))
        return FaultError(
            FaultCode.AGENT_UNREACHABLE,
            f"The token for agent {self._agent} cannot be fetched now: its identity provider cannot be used",
        )

    async def _get(self) -> str:
        settings, caller = self._settings, RUN_CALLER.get()
        if isinstance(settings, ClientCredentials):
            return await self._own_token(settings.target)
        if caller is not None and caller.token is not None:
            return await self._exchange(settings, caller, caller.token)
        if settings.fallback == "client":
            return await self._own_token(settings.target)
        raise FaultError(
            FaultCode.UNAUTHENTICATED,
            f"Agent {self._agent} acts for its caller, and this run has no token of one. Send a token of an issuer.",
        )

    async def _own_token(self, target: Mapping[str, str]) -> str:
        """Return a token of the gateway itself (RFC 6749, 4.4). Raises TokenRefused, ProviderUnavailable."""
        form = {"grant_type": "client_credentials", **target, **_optional(scope=self._settings.scope)}
        return await self._fetch(form)

    async def _exchange(self, settings: TokenExchange, caller: RunCaller, token: str) -> str:
        """Return a token of the caller (RFC 8693). Raises TokenRefused, ProviderUnavailable."""
        form = {
            "grant_type": _EXCHANGE,
            "subject_token": token,
            "subject_token_type": _TOKEN_TYPE + settings.subject_token_type,
            **settings.target,
            **_optional(scope=settings.scope, requested_token_type=settings.requested_token_type),
        }
        if settings.actor:
            form["actor_token"] = await self._own_token({})
            form["actor_token_type"] = _TOKEN_TYPE + "access_token"
        return await self._fetch(form, caller.expires_at)

    async def _fetch(self, form: Mapping[str, str], expires_at: float | None = None) -> str:
        key = hashlib.sha256(json.dumps([*self._endpoint.identity, sorted(form.items())]).encode()).digest()
        return await self._cache.get(key, partial(self._endpoint.request, form), expires_at)


class DiscoveryTokens:
    """Tokens for requests that no caller has caused: the detection of a protocol, and the description of an agent.

    They are tokens of the gateway itself, if it gets any. Most servers describe themselves to anybody.
    """

    def __init__(self, tokens: AgentTokens) -> None:
        self._tokens = tokens

    async def get(self) -> str | None:
        """Return a token of the gateway, or None if it gets none. Raises agent_unreachable."""
        return await self._tokens.get_own()

    async def replace(self, refused: str) -> str | None:
        """Replace a token that the server has refused by a new one. Raises agent_unreachable."""
        self._tokens.forget(refused)
        return await self._tokens.get_own()

    def handle_refusal(self, response: httpx.Response) -> None:
        """Do nothing: the refusal is the result."""


def _optional(**members: str | None) -> dict[str, str]:
    return {name: value for name, value in members.items() if value is not None}
