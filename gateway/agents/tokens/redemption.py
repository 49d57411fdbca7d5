"""Exchange of an authorization code for tokens, after a user has agreed at the identity provider (RFC 6749, 4.1.3)."""

import base64
import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.agents.tokens.endpoint import ProviderUnavailable, TokenEndpoint, TokenRefused
from babelgate.gateway.agents.tokens.source import keep_granted
from babelgate.gateway.observe import GatewayObserver
from babelgate.gateway.settings.agent_auth import TokenExchange
from babelgate.gateway.storage.agent_tokens import GrantedTokens

log = logging.getLogger("babelgate.tokens")


async def redeem(
    observer: GatewayObserver,
    agent: str,
    settings: TokenExchange,
    form: Mapping[str, str],
    check: Callable[[JsonObject], None],
) -> GrantedTokens:
    """Return the tokens for an authorization code, and report the fetch. `form` is the request to the provider, with
    the code. `check` gets the claims of the identity token, or no claims if the provider has sent no identity token.

    Raises unavailable if the provider does not answer, forbidden if it refuses, and the faults of `check`.
    """
    note, secret = partial(observer.note_token_fetched, agent), settings.client_secret.get_secret_value()
    endpoint = TokenEndpoint(settings.token_url, settings.client_id, secret, note)
    try:
        issued = await endpoint.request(form)
    except TokenRefused as error:
        log.warning("code refused agent=%s reason=%r", agent, str(error))
        raise FaultError(FaultCode.FORBIDDEN, f"The identity provider has refused: {error.error}.") from None
    except ProviderUnavailable as error:
        log.warning("code not redeemed agent=%s reason=%r", agent, str(error))
        raise FaultError(
            FaultCode.UNAVAILABLE, "The identity provider cannot be used now. Open the link of the question again."
        ) from None
    check(_read_claims(issued.id_token or ""))
    return keep_granted(issued)


def _read_claims(token: str) -> JsonObject:
    """Return the claims of an identity token, or an empty object for any other text.

    The signature need not be checked, because the provider itself has sent the token over TLS (OpenID Connect Core 1.0,
    3.1.3.7).
    """
    try:
        part = token.split(".")[1]
        claims: Any = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, IndexError, RecursionError):
        return {}
    return cast("JsonObject", claims) if isinstance(claims, dict) else {}
