"""Source of the tokens for one agent's server: those of the gateway itself (client credentials), or of the caller
(token exchange).

Without a token there is no call: every failure here ends the request before it is sent.
"""

import hashlib
import json
import logging
import re
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Final

import httpx

from babelgate.adapters.kit.client.authorization import AuthorizationNeeded
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.principal import has_credential
from babelgate.gateway.agents.tokens.cache import MARGIN, TokenCache
from babelgate.gateway.agents.tokens.endpoint import (
    IssuedToken,
    NoteFetch,
    ProviderUnavailable,
    TokenEndpoint,
    TokenRefused,
)
from babelgate.gateway.run_caller import RUN_CALLER, DelegatingCaller
from babelgate.gateway.settings.agent_auth import ClientCredentials, TokenExchange
from babelgate.gateway.storage.agent_tokens import AgentTokenStore, GrantedTokens

log = logging.getLogger("babelgate.tokens")

_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_NEEDS_USER: Final = frozenset({"interaction_required", "consent_required", "login_required", "invalid_grant"})
"""Error codes of a provider after which the gateway asks the user for an authorization (OpenID Connect Core 1.0,
3.1.2.6)."""
_MAX_REFUSED: Final = 100
"""Maximum number of refused tokens that are remembered. Chosen: a refused token is replaced at once."""
_CHALLENGE_LENGTH: Final = 2048
"""Maximum number of characters that are read of the parameters in `WWW-Authenticate`. Chosen."""
_CHALLENGE_SCOPE: Final = re.compile(r'\bscope="([\x21\x23-\x5b\x5d-\x7e ]{1,500})"')
"""Parameter `scope` in the header `WWW-Authenticate` (RFC 6750, 3)."""
_TOKEN_TYPE: Final = "urn:ietf:params:oauth:token-type:"


class AgentTokens:
    """Source of the tokens for the server of one agent. It implements
    `babelgate.adapters.kit.client.authorization.TokenSource`."""

    def __init__(
        self,
        agent: str,
        settings: ClientCredentials | TokenExchange,
        cache: TokenCache | None = None,
        note: NoteFetch | None = None,
    ) -> None:
        """Create the source. `agent` is the agent's name, for logs and faults. `note` receives reports of fetches."""
        self._agent = agent
        self._settings = settings
        self._cache = cache or TokenCache()
        self._refused: deque[str] = deque(maxlen=_MAX_REFUSED)
        """Tokens that the agent's server has recently refused."""
        self._endpoint = TokenEndpoint(
            settings.token_url, settings.client_id, settings.client_secret.get_secret_value(), note
        )

    async def get(self) -> str:
        """Return the token for a request of the current run.

        Raises agent_unreachable if the provider does not answer, and agent_failed if it refuses. Raises
        AuthorizationNeeded if the user has to agree first, and forbidden if the run has no token of its caller.
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
        """Return a new token instead of one that the agent's server has refused. Raises the faults of `get`."""
        self.forget(refused)
        return await self.get()

    def forget(self, refused: str) -> None:
        """Remove a token that the agent's server has refused from the cache, and remember the refusal."""
        self._cache.drop(refused)
        self._refused.append(refused)

    def handle_refusal(self, response: httpx.Response) -> None:
        """Raise AuthorizationNeeded if the agent's server requires another token and the settings let the gateway ask
        the user. Otherwise do nothing, and the response ends the call.

        Raises AuthorizationNeeded.
        """
        settings, caller = self._settings, RUN_CALLER.get()
        if isinstance(settings, ClientCredentials) or settings.consent is None or caller is None:
            return
        is_own = caller.token is None and settings.fallback == "client"
        scheme, _, parameters = response.headers.get("www-authenticate", "").partition(" ")
        if scheme.lower() == "bearer" and caller.store is not None and not is_own:
            match = _CHALLENGE_SCOPE.search(parameters[:_CHALLENGE_LENGTH])
            raise AuthorizationNeeded(match[1].split() if match else ())

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
        if (
            settings.consent is not None
            and caller is not None
            and (granted := await self._find_granted(settings, caller))
        ):
            return granted
        if caller is not None and caller.token is not None:
            try:
                return await self._exchange(settings, caller, caller.token)
            except TokenRefused as error:
                if settings.consent is not None and caller.store is not None and error.error in _NEEDS_USER:
                    raise AuthorizationNeeded from None
                raise
        if settings.fallback == "client":
            return await self._own_token(settings.target)
        if settings.consent is not None and caller is not None and caller.store is not None:
            raise AuthorizationNeeded
        raise FaultError(
            FaultCode.FORBIDDEN,
            f"Agent {self._agent} acts for its caller, and this run has no token of one. Send a token of an issuer.",
        )

    # Tokens to which the user has agreed

    async def _find_granted(self, settings: TokenExchange, caller: DelegatingCaller) -> str | None:
        """Return a token that the caller has granted by consent, or None. Raises ProviderUnavailable if the provider
        does not respond."""
        store: AgentTokenStore | None = caller.store
        if settings.consent is None or store is None or not has_credential(caller.subject):
            return None
        key = hashlib.sha256(json.dumps(["granted", caller.subject, settings.purpose]).encode()).digest()
        try:
            return await self._cache.get(key, partial(self._load_granted, settings, store, caller.subject))
        except _NothingGranted:
            return None

    async def _load_granted(self, settings: TokenExchange, store: AgentTokenStore, subject: str) -> IssuedToken:
        """Return the token that a user has granted by consent, from the database. Refresh it if it has expired or the
        server has refused it.

        Raises _NothingGranted if there is no usable token, and ProviderUnavailable if the provider does not respond.
        """
        tokens = await store.read(subject, self._agent, settings.purpose)
        if tokens is None:
            raise _NothingGranted
        remaining = None if tokens.expires_at is None else tokens.expires_at - time.time()
        is_refused = tokens.access_token in self._refused
        if not is_refused and (remaining is None or remaining > MARGIN):
            return IssuedToken(tokens.access_token, remaining)
        if tokens.refresh_token is None:
            raise _NothingGranted
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token, **settings.target}
        try:
            issued = await self._endpoint.request(form)
        except TokenRefused as error:
            latest = await store.read(subject, self._agent, settings.purpose)
            if latest is not None and latest != tokens:  # another node was faster
                return IssuedToken(latest.access_token, None)
            log.info("granted token not refreshed agent=%s reason=%r", self._agent, str(error))
            await store.delete(subject, self._agent)
            raise _NothingGranted from None
        refreshed = keep_granted(issued, tokens.refresh_token)
        await store.write(subject, self._agent, settings.purpose, refreshed)
        return issued

    async def _own_token(self, target: Mapping[str, str]) -> str:
        """Return a token of the gateway itself, by its client credentials (RFC 6749, 4.4). `target` are the parameters
        that name the agent's server (`TokenRequest.target`). Raises TokenRefused if the provider refuses, and
        ProviderUnavailable if it does not respond."""
        form = {"grant_type": "client_credentials", **target, **_optional(scope=self._settings.scope)}
        return await self._fetch(form)

    async def _exchange(self, settings: TokenExchange, caller: DelegatingCaller, token: str) -> str:
        """Return a token for the agent's server that the provider issues in exchange for the caller's `token` (RFC
        8693). Raises TokenRefused if the provider refuses, and ProviderUnavailable if it does not respond."""
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
        try:
            issued = await self._fetch(form, caller)
        except (TokenRefused, ProviderUnavailable) as error:
            await _note(caller, self._agent, error.error if isinstance(error, TokenRefused) else "unavailable")
            raise
        return issued

    async def _fetch(self, form: Mapping[str, str], caller: DelegatingCaller | None = None) -> str:
        key = hashlib.sha256(json.dumps([*self._endpoint.identity, sorted(form.items())]).encode()).digest()
        if caller is None:
            return await self._cache.get(key, partial(self._endpoint.request, form))

        async def exchange() -> IssuedToken:
            issued = await self._endpoint.request(form)
            await _note(caller, self._agent)
            return issued

        return await self._cache.get(key, exchange, caller.expires_at)


class _NothingGranted(Exception):
    """Signal that a user has granted no usable token by consent."""


async def _note(caller: DelegatingCaller, agent: str, error: str = "") -> None:
    """Record a token exchange in the audit log. `error` is the reason of a failure; empty after a success."""
    store: AgentTokenStore | None = caller.store
    if store is not None:
        await store.note_exchange(caller.subject, caller.owner, agent, error)


def keep_granted(issued: IssuedToken, refresh_token: str | None = None) -> GrantedTokens:
    """Return issued tokens in the form in which they are stored. `refresh_token` is the earlier one, which stays valid
    if the provider has issued no new one."""
    expires_at = None if issued.expires_in is None else time.time() + issued.expires_in
    return GrantedTokens(
        access_token=issued.access_token,
        refresh_token=issued.refresh_token or refresh_token,
        expires_at=expires_at,
    )


class DiscoveryTokens:
    """Source of tokens for requests without a caller: the detection of a protocol, and the description of an agent.

    They are tokens of the gateway itself. If it gets none, the requests are sent without a token, because most servers
    describe themselves to anyone.
    """

    def __init__(self, tokens: AgentTokens) -> None:
        self._tokens = tokens

    async def get(self) -> str | None:
        """Return a token of the gateway itself, or None if the provider issues none to it. Raises agent_unreachable if
        the provider cannot be reached."""
        return await self._tokens.get_own()

    async def replace(self, refused: str) -> str | None:
        """Return a new token instead of one that the agent's server has refused, or None. Raises agent_unreachable if
        the provider cannot be reached."""
        self._tokens.forget(refused)
        return await self._tokens.get_own()

    def handle_refusal(self, response: httpx.Response) -> None:
        """Do nothing: the refusal is the result of the discovery."""


def _optional(**members: str | None) -> dict[str, str]:
    return {name: value for name, value in members.items() if value is not None}
