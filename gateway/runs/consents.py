"""Authorizations by users: the gateway asks for one as a question of the run, and the user answers it at the identity
provider.

The protocol is the authorization code flow with PKCE (RFC 6749, 4.1 and RFC 7636). The parameter `state` is random and
is accepted once. It is bound to the owner, the task and the question.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast
from urllib.parse import urlencode

from babelgate.canonical.event import InterruptRaised
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.hub import Answers
from babelgate.canonical.message import Message, TextPart
from babelgate.canonical.principal import Principal
from babelgate.canonical.value import JsonObject
from babelgate.gateway.background import STOPPING, Failures, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.runs.invocation import Origin
from babelgate.gateway.runs.lifecycle import StartedRun
from babelgate.gateway.settings.agent_auth import TokenExchange
from babelgate.gateway.settings.model import AgentSettings
from babelgate.gateway.storage.agent_tokens import AgentTokenStore, Consent, GrantedTokens, digest_state

log = logging.getLogger("babelgate.tokens")

CALLBACK: Final = "/oauth/callback"
"""Path of the gateway to which the identity provider redirects the browser (`redirect_uri`)."""
_STATE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_CODE_LENGTH: Final = 4096
"""Maximum length of an authorization code, in characters. Chosen: the longest codes of providers are JSON Web
Tokens."""
_LOOK: Final = 60.0
"""Maximum seconds between two checks for questions that have expired. Chosen: another node may have asked them."""

RedeemCode = Callable[[str, TokenExchange, Mapping[str, str], Callable[[JsonObject], None]], Awaitable[GrantedTokens]]
"""Function that exchanges an authorization code for tokens. Arguments: agent, settings, form of the request, check of
the identity token's claims.

Raises unavailable if the provider does not answer, and forbidden if it refuses.
"""


class Consents:
    """Service that asks users for authorizations, and that handles their return from the identity provider."""

    def __init__(
        self,
        store: AgentTokenStore,
        find: Callable[[str], AgentSettings | None],
        redeem: RedeemCode,
        public_url: Callable[[], str | None],
        key: Callable[[], str | None],
        issuer_url: Callable[[str], str | None],
        clock: Clock,
    ) -> None:
        """Create the service.

        `find` returns the settings of an agent. `redeem` exchanges a code for tokens. `public_url` and `key` return the
        settings `public_url` and `secrets_key` of the current generation. `issuer_url` returns the URL of a trusted
        token issuer by its name.
        """
        self.store = store
        self._find = find
        self._redeem = redeem
        self._public_url = public_url
        self._key = key
        self._issuer_url = issuer_url
        self._clock = clock
        self._answer: Callable[[str, Answers], Awaitable[object]] | None = None
        self._asked = asyncio.Event()
        self._tasks = Tasks()
        self._failures = Failures("the expiry of authorizations")

    def start(self, answer: Callable[[str, Answers], Awaitable[object]]) -> None:
        """Start the background task that declines questions which have expired. `answer` is `Submissions.resume`."""
        self._answer = answer
        self._tasks.spawn(self._expire(), "expiry of authorizations")

    async def stop(self, seconds: float = STOPPING) -> None:
        await self._tasks.stop(seconds)

    # The question

    async def ask(self, start: StartedRun, settings: AgentSettings, scopes: Sequence[str]) -> InterruptRaised:
        """Return the question by which a run asks its user for an authorization, with the link to the identity
        provider.

        `scopes` are those that the agent's server requires in addition. Raises forbidden if the settings do not allow
        the question.
        """
        exchange = None if settings.auth is None else settings.auth.exchange
        if exchange is None or exchange.consent is None or self._public_url() is None or self._key() is None:
            raise FaultError(FaultCode.FORBIDDEN, f"Agent {start.task.agent} needs an authorization by its user.")
        state, interrupt_id = secrets.token_urlsafe(32), f"authorization-{secrets.token_hex(8)}"
        expires_at = self._clock.now() + int(exchange.consent.ttl * 1_000_000)
        configured = (exchange.consent.scope or exchange.scope or "").split()
        wanted = list(dict.fromkeys((*configured, *scopes)))
        url = self._authorize_url(exchange, state, wanted)
        await self.store.add(
            Consent(
                state=digest_state(state),
                owner=start.owner,
                subject=start.run.subject,
                agent=start.task.agent,
                task_id=start.task.task_id,
                interrupt_id=interrupt_id,
                expires_at=expires_at,
            )
        )
        self._asked.set()
        text = f"Agent {start.task.agent} needs your authorization. Open this page, log in, and agree: {url}"
        value: JsonObject = {"url": url, "scopes": wanted, "expires_at": expires_at // 1_000_000}
        return InterruptRaised(
            interrupt_id=interrupt_id,
            ask="auth",
            asker="gateway",
            node=start.task.agent,
            message=Message(role="agent", parts=(TextPart(text=text),)),
            value=value if exchange.resource is None else {**value, "resource": exchange.resource},
        )

    def _authorize_url(self, exchange: TokenExchange, state: str, scopes: Sequence[str]) -> str:
        assert exchange.consent is not None
        query = {
            "response_type": "code",
            "client_id": exchange.client_id,
            "redirect_uri": self._redirect_uri(),
            "state": state,
            "code_challenge": _encode(hashlib.sha256(self._verifier(state).encode()).digest()),
            "code_challenge_method": "S256",
            **({"scope": " ".join(scopes)} if scopes else {}),
            **exchange.target,
        }
        url = exchange.consent.authorize_url
        return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"

    def _redirect_uri(self) -> str:
        return f"{(self._public_url() or '').rstrip('/')}{CALLBACK}"

    def _verifier(self, state: str) -> str:
        """Return the PKCE code verifier for a `state` (RFC 7636, 4.1). It is derived from `secrets_key`, so it need not
        be stored."""
        return _encode(hmac.digest((self._key() or "").encode(), f"pkce:{state}".encode(), "sha256"))

    # The answer

    async def handle_callback(self, principal: Principal, query: Mapping[str, str]) -> str:
        """Handle the return of a browser from the provider: keep the tokens, and let the run continue. Return the text
        for the user.

        Raises not_found for an unknown or used `state`, forbidden for another caller or a refusal, expired, invalid and
        unavailable.
        """
        state = query.get("state", "")
        consent = await self.store.find(state) if _STATE.fullmatch(state) else None
        if consent is None:
            raise FaultError(FaultCode.NOT_FOUND, "This link is not valid, or was used before.")
        if principal.owner and principal.subject != consent.subject:
            raise FaultError(FaultCode.FORBIDDEN, "This link belongs to another user.")
        if consent.expires_at <= self._clock.now():
            raise FaultError(FaultCode.EXPIRED, "This link has expired. Ask the agent again.")
        if "error" in query:
            if await self.store.take(consent, "consent.decline"):
                await self._end(consent, "decline")
            raise FaultError(FaultCode.FORBIDDEN, "You have not agreed. The run ends.")
        code = query.get("code", "")
        if not 0 < len(code) <= _CODE_LENGTH:
            raise FaultError(FaultCode.INVALID, "The identity provider has sent no code.")
        # Taken first, so that two requests do not use one code.
        if not await self.store.take(consent, "consent.grant"):
            raise FaultError(FaultCode.NOT_FOUND, "This link is not valid, or was used before.")
        await self._keep(consent, code, state)
        if await self._end(consent, "answer"):
            return "You have agreed, and the agent continues. You can close this page."
        return "You have agreed. Close this page, and call the agent again."

    async def _keep(self, consent: Consent, code: str, state: str) -> None:
        """Exchange an authorization code for tokens, and store them for the caller and the agent. Raises forbidden if
        another user has agreed, not_found if the agent no longer exists, and unavailable if the provider or the
        database cannot be reached."""
        settings = self._find(consent.agent)
        exchange = None if settings is None or settings.auth is None else settings.auth.exchange
        if exchange is None or exchange.consent is None:
            raise FaultError(FaultCode.NOT_FOUND, "The agent is no longer there.")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri(),
            "code_verifier": self._verifier(state),
            **exchange.target,
        }

        try:
            tokens = await self._redeem(consent.agent, exchange, form, partial(self._check_user, consent))
        except FaultError as error:
            if error.fault.code is FaultCode.UNAVAILABLE:  # the user can open the page again
                await self.store.add(consent)
            raise
        await self.store.write(consent.subject, consent.agent, exchange.purpose, tokens)

    def _check_user(self, consent: Consent, claims: JsonObject) -> None:
        """Check that the user who has agreed is the caller of the run, if the identity token shows the user. Raises
        forbidden if it shows another user.

        Otherwise a caller could send the link to another user, and would get that user's tokens.
        """
        kind, _, rest = consent.subject.partition(":")
        issuer, _, user = rest.partition(":")
        is_comparable = kind == "user" and claims.get("iss") == self._issuer_url(issuer)
        if is_comparable and claims.get("sub") != user:
            raise FaultError(FaultCode.FORBIDDEN, "You have logged in as another user than the one of the run.")

    async def _end(self, consent: Consent, action: str, reason: str = "") -> bool:
        """Answer the question of a consent by an `action`, such as `decline`, with its `reason`. Return True, or False
        if the question is not open any more."""
        assert self._answer is not None
        caller = Principal(subject=consent.subject, owner=consent.owner)
        value: JsonObject = {"reason": reason} if reason else {}
        answers = Answers(
            task_id=consent.task_id,
            values={consent.interrupt_id: value},
            action=cast("Any", action),
            protocol="",
            caller=caller,
        )
        try:
            await self._answer(consent.owner, answers)
        except FaultError as error:
            if error.fault.code not in _SETTLED:
                raise
            log.info("authorization for a question that is not open task=%s", consent.task_id)
            return False
        return True

    # Expiry

    async def _expire(self) -> None:
        while True:
            pause = _LOOK
            try:
                await self._end_expired()
                due = await self.store.next_expiry()
                if due is not None:
                    pause = min(pause, max(0.0, (due - self._clock.now()) / 1_000_000))
            except FaultError as error:
                log.warning("authorizations not checked for expiry error=%s", error)
            except Exception as error:
                self._failures.note(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._asked.wait()
            self._asked.clear()

    async def _end_expired(self) -> None:
        for consent in await self.store.list_expired(self._clock.now()):
            await self._end(consent, "decline", "expired")
            await self.store.take(consent, "consent.expire")


_SETTLED: Final = frozenset({FaultCode.NOT_AWAITING, FaultCode.TASK_ENDED, FaultCode.NOT_FOUND})
"""Faults of an answer to a question that is no longer open, because it was answered or its task was ended or erased."""


def check_agreed(origin: Origin, agent: str) -> None:
    """Check that the user has not declined the authorization that a run needs. Raises forbidden after a refusal, and
    expired if there was no answer in time."""
    if origin.answer.action != "decline":
        return
    if isinstance(origin.answer.value, dict) and origin.answer.value.get("reason") == "expired":
        raise FaultError(FaultCode.EXPIRED, f"The authorization for agent {agent} was not given in time.")
    raise FaultError(FaultCode.FORBIDDEN, f"The authorization for agent {agent} was declined.")


def _encode(content: bytes) -> str:
    """Return the content in base64url without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
