"""Requests to a token endpoint: the form, the client's credentials, and every answer that is no token."""

from typing import Any, Final

import pytest

from babelgate.gateway.agents.tokens.endpoint import ProviderUnavailable, TokenEndpoint, TokenRefused
from tests.gateway.agents.tokens.provider import scripted_provider

pytestmark = pytest.mark.asyncio

FORM: Final = {"grant_type": "client_credentials", "scope": "a b"}


async def test_a_request_is_a_form_with_basic_authentication() -> None:
    async with scripted_provider() as provider:
        issued = await TokenEndpoint(provider.url, "gate way:1", "p+ss/wörd").request(FORM)
        assert (issued.access_token, issued.expires_in) == ("token-1", 600)
        assert provider.forms == [FORM]
        assert provider.clients == [("gate way:1", "p+ss/wörd")]
        assert "token-1" not in repr(issued)


@pytest.mark.parametrize(
    ("status", "answer", "error", "message"),
    [
        (400, {"error": "invalid_grant"}, TokenRefused, "invalid_grant"),
        (
            400,
            {"error": "invalid_target", "error_description": "no such\naudience"},
            TokenRefused,
            "invalid_target: no ",
        ),
        (
            401,
            {"error": "invalid_client", "error_description": "bad hush-hush"},
            TokenRefused,
            "invalid_client: bad ***",
        ),
        (400, b"<html>", ProviderUnavailable, "status 400"),
        (429, {"error": "slow_down"}, ProviderUnavailable, "status 429"),
        (503, {"error": "server_error"}, ProviderUnavailable, "status 503"),
        (302, b"", ProviderUnavailable, "status 302"),
        (200, b"[1]", ProviderUnavailable, "the answer has no access_token"),
        (200, b"[" * 5000, ProviderUnavailable, "the answer has no access_token"),
        (200, {"access_token": "a\nb"}, ProviderUnavailable, "the answer has no access_token"),
        (200, {"access_token": "a", "token_type": "DPoP"}, ProviderUnavailable, "the token is not a bearer token"),
        (200, b" " * 300_000, ProviderUnavailable, "the answer has more than 262144 bytes"),
    ],
)
async def test_an_answer_without_a_usable_token_is_a_failure(
    status: int, answer: Any, error: type[Exception], message: str
) -> None:
    async with scripted_provider() as provider:
        provider.answer = lambda _: (status, answer)
        provider.headers = [(b"location", b"/elsewhere")]
        with pytest.raises(error) as caught:
            await TokenEndpoint(provider.url, "client", "hush-hush").request(FORM)
        assert str(caught.value).startswith(message)
        assert len(provider.forms) == 1, "no redirect is followed"


async def test_a_provider_that_is_down_is_unavailable() -> None:
    async with scripted_provider() as provider:
        url = provider.url
    with pytest.raises(ProviderUnavailable):
        await TokenEndpoint(url, "client", "secret").request(FORM)


@pytest.mark.parametrize(("value", "seconds"), [("600", 600), (None, None), (-1, None), ("soon", None), (True, None)])
async def test_a_lifetime_may_be_a_number_in_text(value: object, seconds: float | None) -> None:
    async with scripted_provider() as provider:
        provider.answer = lambda _: (200, {"access_token": "a", "expires_in": value})
        assert (await TokenEndpoint(provider.url, "client", "secret").request(FORM)).expires_in == seconds
