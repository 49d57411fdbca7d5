"""Tests of the cache of an issuer's keys: discovery, rotation, cooldowns, failures and limits."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.gateway.http.issuer_keys import IssuerKeys
from babelgate.gateway.key_set import KeysUnavailable
from babelgate.gateway.settings.credentials import IssuerSettings
from tests.gateway.http.issuing import Issuing, issuing, public_key
from tests.gateway.log_capture import capture_log
from tests.gateway.reports import Recorder

DISCOVERY: Final = "/.well-known/openid-configuration"
METADATA: Final = "/.well-known/oauth-authorization-server"


class Clock:
    """A steady clock that a test sets."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def key_set(issuer: Issuing, clock: Clock, **members: Any) -> IssuerKeys:
    return IssuerKeys("corp", IssuerSettings.model_validate(issuer.settings(**members)), now=clock)


async def has(keys: IssuerKeys, number: int = 0) -> bool:
    return await keys.find(f"RS256-{number}", "RS256") is not None


async def test_keys_are_found_by_discovery_once() -> None:
    async with issuing() as issuer:
        keys = key_set(issuer, Clock())
        assert issuer.fetches == []
        assert await has(keys)
        assert await has(keys)
        assert issuer.fetches == [DISCOVERY, "/keys"]


async def test_metadata_of_oauth_is_read_without_openid_connect() -> None:
    async with issuing() as issuer:
        issuer.url = f"{issuer.url}/realms/corp"
        metadata = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"}
        issuer.documents = {f"{METADATA}/realms/corp": metadata, "/realms/corp/keys": {"keys": issuer.keys}}
        assert await has(key_set(issuer, Clock()))
        assert issuer.fetches[0] == f"/realms/corp{DISCOVERY}"


async def test_many_requests_wait_for_one_fetch() -> None:
    async with issuing() as issuer:
        keys = key_set(issuer, Clock())
        assert all(await asyncio.gather(*(has(keys) for _ in range(50))))
        assert issuer.fetches == [DISCOVERY, "/keys"]


async def test_a_cancelled_request_does_not_cancel_the_fetch() -> None:
    async with issuing() as issuer:
        keys = key_set(issuer, Clock())
        first = asyncio.ensure_future(has(keys))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(has(keys))
        await asyncio.sleep(0)
        first.cancel()
        assert await second
        assert issuer.fetches == [DISCOVERY, "/keys"]


async def test_after_a_rotation_old_and_new_tokens_pass() -> None:
    async with issuing() as issuer:
        keys, revision = key_set(issuer, clock := Clock()), 0
        assert await has(keys)
        revision = keys.revision
        issuer.keys = [public_key(number=1), public_key()]
        clock.time += 31
        assert await has(keys, 1)
        assert await has(keys, 0)
        assert keys.revision == revision + 1


async def test_unknown_key_ids_cause_one_fetch_in_thirty_seconds() -> None:
    async with issuing() as issuer:
        keys = key_set(issuer, clock := Clock())
        assert await has(keys)
        for number in range(100, 200):
            assert not await has(keys, number)
        assert len(issuer.fetches) == 2
        clock.time += 31
        for number in range(100, 200):
            assert not await has(keys, number)
        assert issuer.fetches == [DISCOVERY, "/keys", "/keys"]


async def test_old_keys_are_fetched_in_the_background() -> None:
    async with issuing() as issuer:
        keys = key_set(issuer, clock := Clock())
        assert await has(keys)
        issuer.keys = [public_key(number=1)]
        clock.time += 301
        assert await has(keys, 0)  # the request does not wait
        assert await has(keys, 1)  # an unknown id waits for the fetch that is running
        assert not await has(keys, 0)
        assert len(issuer.fetches) == 3


async def test_keys_last_a_day_while_the_issuer_is_down() -> None:
    async with issuing() as issuer:
        keys = key_set(issuer, clock := Clock())
        assert await has(keys)
        issuer.status = 500
        with capture_log() as logs:
            for seconds in (301, 3600, 80_000):
                clock.time = 1000 + seconds
                assert await has(keys)
                await keys.aclose()
            clock.time = 1000 + 86_401
            assert not keys.is_usable
            with pytest.raises(KeysUnavailable):
                await has(keys)
        assert f"issuer=corp reason={issuer.url}/.well-known" in logs.text


async def test_an_issuer_that_was_never_reached_is_unavailable_then_found() -> None:
    async with issuing() as issuer:
        keys, issuer.status = key_set(issuer, clock := Clock()), 503
        for _ in range(10):
            with pytest.raises(KeysUnavailable) as raised:
                await has(keys)
            assert (raised.value.retry_after, issuer.fetches) == (5, [DISCOVERY, METADATA])
        issuer.status = 200
        clock.time += 5
        assert await has(keys)


@pytest.mark.parametrize(
    ("path", "document", "reason"),
    [
        (DISCOVERY, {"issuer": "https://evil.example"}, "the discovery document is of another issuer"),
        (DISCOVERY, {"jwks_uri": "http://agents.example.com/keys"}, "has no jwks_uri with https"),
        (DISCOVERY, {"jwks_uri": None}, "has no jwks_uri with https"),
        ("/keys", {"keys": []}, "the key set has no public key for signatures"),
        ("/keys", [], "is not a JSON object"),
        ("/keys", b"<html>", "is not JSON"),
        ("/keys", b"[" * 100_000, "is not JSON"),
        ("/keys", b" " * (2**20 + 1), "answers with more than 1048576 bytes"),
    ],
)
async def test_a_wrong_document_is_not_used(path: str, document: Any, reason: str) -> None:
    async with issuing() as issuer:
        if path == DISCOVERY:
            document = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys", **document}
        issuer.documents[path] = document
        with capture_log() as logs, pytest.raises(KeysUnavailable):
            await has(key_set(issuer, Clock()))
        assert reason in logs.text


async def test_redirects_are_not_followed() -> None:
    async with issuing() as issuer:
        issuer.status, issuer.headers = 302, {"location": f"{issuer.url}/keys"}
        with pytest.raises(KeysUnavailable):
            await has(key_set(issuer, Clock()))
        assert issuer.fetches == [DISCOVERY, METADATA]


async def test_keys_can_be_at_a_url_without_discovery() -> None:
    async with issuing() as issuer:
        assert await has(key_set(issuer, Clock(), jwks=f"{issuer.url}/keys"))
        assert issuer.fetches == ["/keys"]


async def test_keys_can_be_in_a_file_that_changes(tmp_path: Path) -> None:
    issuer, file = Issuing(), tmp_path / "jwks.json"
    keys = key_set(issuer, clock := Clock(), jwks=str(file))
    with capture_log() as logs, pytest.raises(KeysUnavailable):
        await has(keys)
    assert "No such file" in logs.text
    file.write_text(json.dumps({"keys": issuer.keys}))
    clock.time += 5
    assert await has(keys)
    file.write_text(json.dumps({"keys": [public_key(number=1)]}))
    clock.time += 31
    assert await has(keys, 1)


async def test_keys_in_the_settings_are_never_fetched() -> None:
    issuer = Issuing()
    keys = IssuerKeys("corp", IssuerSettings.model_validate(issuer.inline()), now=(clock := Clock()))
    clock.time = 1e12
    assert await has(keys)
    assert not await has(keys, 1)


@pytest.mark.parametrize(
    "members",
    [{"use": "enc"}, {"key_ops": ["sign"]}, {"alg": "RS512"}, {"n": "AQAB"}, {"n": "AQ" * 80}, {"kty": "EC"}, {"e": 1}],
)
async def test_a_key_for_another_purpose_is_not_used(members: dict[str, Any]) -> None:
    issuer = Issuing()
    issuer.keys = [public_key(number=1), public_key(**members)]
    keys = IssuerKeys("corp", IssuerSettings.model_validate(issuer.inline()), now=Clock())
    assert not await has(keys)
    assert await has(keys, 1)


async def test_each_fetch_is_reported() -> None:
    observer, clock = Recorder(), Clock()
    async with issuing() as issuer:
        settings = IssuerSettings.model_validate(issuer.settings())
        keys = IssuerKeys("corp", settings, now=clock, observer=observer)
        assert await has(keys)
        issuer.documents = {"/keys": {"keys": []}, DISCOVERY: {}}
        clock.time += 31
        assert not await has(keys, 9)
    assert observer.of("jwks_fetch") == [("jwks_fetch", "corp", "success"), ("jwks_fetch", "corp", "failed")]
