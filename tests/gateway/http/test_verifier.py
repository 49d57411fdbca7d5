"""Tests of credentials: API keys, their records, tokens, and what is remembered of tokens."""

import hashlib
import time
from typing import Any, Final

import pytest

from babelgate.canonical import FaultCode, FaultError, Principal
from babelgate.gateway.http.verifier import Verifier
from babelgate.gateway.settings.model import Settings
from tests.gateway.http.issuing import Issuing, bearer, issuing, public_key

KEY: Final = "alice-0123456789"
HASH: Final = "sha256:" + hashlib.sha256(KEY.encode()).hexdigest()


def verifier(**settings: Any) -> Verifier:
    return Verifier(Settings.model_validate(settings))


async def refusal(verifier: Verifier, headers: dict[bytes, bytes]) -> FaultError:
    with pytest.raises(FaultError) as raised:
        await verifier.verify(headers)
    return raised.value


# API keys


@pytest.mark.parametrize("keys", [KEY, {"hash": HASH}, {"key": KEY}, [KEY], ["another-key", {"hash": HASH}]])
@pytest.mark.parametrize("headers", [bearer(KEY), {b"x-api-key": KEY.encode()}])
async def test_every_form_of_a_key_identifies_its_owner(keys: object, headers: dict[bytes, bytes]) -> None:
    principal = await verifier(keys={"alice": keys}).verify(headers)
    assert principal == Principal(subject="key:alice", owner="alice", credential_id=HASH[7:15])


async def test_a_record_gives_groups_scopes_and_expiry() -> None:
    record = {"hash": HASH, "groups": ["dev"], "scopes": ["agents:run"], "expires": "2999-01-01"}
    principal = await verifier(keys={"alice": record}).verify(bearer(KEY))
    assert (principal.groups, principal.scopes) == (frozenset({"dev"}), frozenset({"agents:run"}))
    assert principal.expires_at == 32472144000


async def test_an_expired_key_is_refused_and_its_successor_accepted() -> None:
    keys = [{"hash": HASH, "expires": "2020-01-01T00:00:00Z"}, "the-new-key-of-alice"]
    checked = verifier(keys={"alice": keys})
    assert str(await refusal(checked, bearer(KEY))) == "The API key is not accepted: it has expired."
    assert (await checked.verify(bearer("the-new-key-of-alice"))).owner == "alice"


async def test_a_bearer_takes_precedence_over_x_api_key() -> None:
    checked = verifier(keys={"alice": KEY, "bob": "bob-0123456789"})
    assert (await checked.verify({**bearer("bob-0123456789"), b"x-api-key": KEY.encode()})).owner == "bob"
    await refusal(checked, {**bearer("wrong"), b"x-api-key": KEY.encode()})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"keys": {"a": KEY}}, "An API key is needed: send Authorization: Bearer <key>, or X-Api-Key: <key>."),
        ({"issuers": {"corp": Issuing().inline()}}, "A token is needed: send Authorization: Bearer <token>."),
        (
            {"keys": {"a": KEY}, "issuers": {"corp": Issuing().inline()}},
            "An API key or a token is needed: send Authorization: Bearer <key or token>, or X-Api-Key: <key>.",
        ),
    ],
)
async def test_a_refusal_names_the_credentials_that_are_needed(settings: dict[str, Any], words: str) -> None:
    for headers in ({}, bearer("wrong"), {b"authorization": b"Basic YTpi"}, {b"x-api-key": b"wrong"}):
        assert str(await refusal(verifier(**settings), headers)) == words


# Tokens


async def test_a_key_with_two_dots_is_still_a_key() -> None:
    issuers = {"corp": Issuing().inline()}
    dotted = "a.key.with-dots-in-it"
    assert (await verifier(keys={"alice": dotted}).verify(bearer(dotted))).owner == "alice"
    assert (await verifier(keys={"alice": dotted}, issuers=issuers).verify(bearer(dotted))).owner == "alice"


async def test_tokens_of_two_issuers_have_different_owners() -> None:
    corp, partner = Issuing(), Issuing("https://id.partner.example")
    partner.keys = [public_key(number=1)]
    checked = verifier(issuers={"corp": corp.inline(), "partner": partner.inline()})
    assert (await checked.verify(bearer(corp.token()))).owner == "corp:alice"
    assert (await checked.verify(bearer(partner.token(number=1)))).owner == "partner:alice"
    foreign = corp.token(number=1, headers={"kid": "RS256-1"})
    assert "signature does not match" in str(await refusal(checked, bearer(foreign)))


async def test_a_remembered_token_expires() -> None:
    clock = [time.time()]
    settings = Settings.model_validate({"issuers": {"corp": Issuing().inline(leeway=0)}})
    checked = Verifier(settings, clock=lambda: clock[0])
    headers = bearer(Issuing().token(exp=int(clock[0]) + 2))
    first = await checked.verify(headers)
    assert await checked.verify(headers) is first
    clock[0] += 3
    assert await checked.verify(headers) is not first  # verified again, by the real clock


async def test_a_token_is_refused_once_its_key_is_revoked() -> None:
    async with issuing() as issuer:
        now = [0.0]
        settings = Settings.model_validate({"issuers": {"corp": issuer.settings()}})
        checked = Verifier(settings, now=lambda: now[0])
        old = bearer(issuer.token())
        await checked.verify(old)
        issuer.keys = [public_key(number=1)]
        now[0] += 31
        await checked.verify(bearer(issuer.token(number=1)))
        assert "signature does not match" in str(await refusal(checked, old))


async def test_keys_work_while_an_issuer_is_unavailable() -> None:
    down = {"issuer": "http://127.0.0.1:9", "audience": ["a"]}
    checked = verifier(keys={"alice": KEY}, issuers={"corp": down})
    error = await refusal(checked, bearer(Issuing("http://127.0.0.1:9").token()))
    assert error.fault.code is FaultCode.UNAVAILABLE
    assert error.fault.details == {"retry_after": 5}
    assert str(error) == "The keys of the issuer corp cannot be fetched now; try again in 5 seconds."
    assert (await checked.verify(bearer(KEY))).owner == "alice"
