"""Signed cards between the gateway and the official A2A SDKs of Python and JavaScript: each verifies what another one
signs."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.adapters.a2a.agents.interface import describe
from babelgate.adapters.a2a.agents.signatures import UnverifiedCard, verify_card
from babelgate.gateway.agents.python.agent import wrap
from babelgate.gateway.demo import echo
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Settings
from tests.gateway.card_keys import KeyPair, make_pair
from tests.gateway.log_capture import capture_log
from tests.interop.driver import ClientError, OfficialClient, start_client, start_server
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

SDKS: Final = {"python": "a2a_signing_client.py", "javascript": "a2a_js_client.py"}
CARD: Final = "/a2a/{agent}/.well-known/agent-card.json"
V1: Final = {"A2A-Version": "1.0"}
PUBLIC: Final = "https://agents.example.com"
FAR: Final[dict[str, Any]] = {
    "name": "far",
    "url": "http://far",
    "description": "Größe: €\u2028",
    "provider": {"organization": "", "url": "https://far.example"},
    "documentationUrl": "",
    "x-card": {"unknown": [None, 1]},
    "capabilities": {
        "streaming": False,
        "x-capability": 1,
        "extensions": [
            {
                "uri": "https://far.example/x",
                "required": False,
                "params": {"a": False, "b": "", "c": None, "d": [1.0, 1e21]},
            },
            {"uri": "https://far.example/y", "required": True, "description": ""},
            {"uri": "https://far.example/z", "params": {"too large": 2**60}},
        ],
    },
    "skills": [{"id": "s", "name": "", "tags": ["", "x"], "examples": [""], "inputModes": [], "x-skill": 1}, {}],
    "signatures": [{"protected": "x", "signature": "y"}],
}
"""Card of another server, with members that an SDK reads differently, or not at all."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sdks() -> AsyncGenerator[dict[str, OfficialClient]]:
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(start_client("a2a-signing", program=program))
            for name, program in SDKS.items()
        }


async def get_card(gateway: Running, agent: str = "echo") -> Any:
    return (await gateway.http.get(CARD.format(agent=agent), headers=V1)).json()


async def is_verified(sdk: OfficialClient, card: Any, *keys: Any) -> bool:
    try:
        await sdk.call("verify", card=card, keys=list(keys))
    except ClientError as error:
        assert "o valid signature" in error.message
        return False
    return True


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA", "RS256"])
async def test_each_sdk_verifies_the_cards_of_the_gateway(
    tmp_path: Path, sdks: dict[str, OfficialClient], algorithm: str
) -> None:
    pair = make_pair(tmp_path, algorithm=algorithm)
    far = RegisteredAgent(describe(FAR), wrap(echo, "far")[1])
    settings: Any = {"signing": {"keys": [str(pair.file)]}, "public_url": PUBLIC, "keys": {"alice": "alice-0123456789"}}
    async with running(
        tmp_path, registered={"echo": RegisteredAgent(*wrap(echo, "echo")), "far": far}, **settings
    ) as gateway:
        (key,) = (await gateway.http.get("/.well-known/jwks.json")).json()["keys"]
        body = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}
        headers = {**V1, "X-Api-Key": "alice-0123456789"}
        extended = (await gateway.http.post("/a2a/echo", json=body, headers=headers)).json()["result"]
        for sdk in sdks.values():
            for agent in ("echo", "far"):
                card = await sdk.call("fetch", url=gateway.url, path=CARD.format(agent=agent))
                assert await is_verified(sdk, card, key)
                assert not await is_verified(sdk, {**card, "description": "changed"}, key)
            assert await is_verified(sdk, await get_card(gateway, "far"), key)
            assert await is_verified(sdk, extended, key)
            assert not await is_verified(
                sdk, extended, make_pair(tmp_path, "other", algorithm).key.jwk | {"kid": key["kid"]}
            )


async def test_each_sdk_verifies_cards_during_a_rotation(tmp_path: Path, sdks: dict[str, OfficialClient]) -> None:
    old, new = make_pair(tmp_path, "old"), make_pair(tmp_path, "new", "EdDSA")

    def settings(*pairs: KeyPair) -> dict[str, Any]:
        return {"signing": {"keys": [str(pair.file) for pair in pairs]}, "public_url": PUBLIC}

    async with running(tmp_path, **settings(old)) as gateway:
        for pairs in ((old,), (old, new), (new, old), (new,)):
            values = {"database": gateway.settings.database, **settings(*pairs)}
            assert (await gateway.generations.apply(Settings.model_validate(values))).is_ok
            keys = (await gateway.http.get("/.well-known/jwks.json")).json()["keys"]
            assert [key["kid"] for key in keys] == [pair.key.kid for pair in pairs]
            card = await get_card(gateway)
            for sdk in sdks.values():
                assert await is_verified(sdk, card, *keys)
                for pair in pairs:  # a client that has pinned one key
                    assert await is_verified(sdk, card, pair.key.jwk)
        assert not await is_verified(sdks["javascript"], card, old.key.jwk)


@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA"])
async def test_the_gateway_verifies_cards_that_an_sdk_signed(
    tmp_path: Path, sdks: dict[str, OfficialClient], algorithm: str
) -> None:
    pair, far = make_pair(tmp_path, algorithm=algorithm), {**FAR, "signatures": []}
    far["capabilities"] = {**FAR["capabilities"], "extensions": FAR["capabilities"]["extensions"][:2]}
    far["supportedInterfaces"] = [{"url": "http://far", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]

    async def find_keys(kid: str | None, used_algorithm: str) -> list[Any]:
        return [pair.key.private_key.public_key()] if (kid, used_algorithm) == (pair.key.kid, algorithm) else []

    for sdk in sdks.values():
        card = await sdk.call("sign", card=far, key=pair.pem, header=pair.header)
        verified = await verify_card(card, find_keys)
        assert (verified["name"], "signatures" in verified) == ("far", False)
        # Members of 0.3 that a server adds after it has signed are not covered, and not used.
        assert "url" not in await verify_card({**card, "url": "http://evil.example"}, find_keys)
        with pytest.raises(UnverifiedCard, match="does not match its signature"):
            await verify_card({**card, "name": "other"}, find_keys)


@asynccontextmanager
async def fronted(folder: Path, url: str, **card: Any) -> AsyncGenerator[Running]:
    configured = {"echo": {"url": f"{url}/echo", "card": card}}
    async with running(folder, configured=configured, keys={"ops": "ops-0123456789-ops"}) as gateway:
        gateway.http.headers["X-Api-Key"] = "ops-0123456789-ops"
        yield gateway


async def run(gateway: Running) -> Any:
    body = {"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": "Hello"}]}]}
    return (await gateway.http.post("/acp/runs", json=body)).json()


async def test_a_signed_server_is_verified_in_each_mode(tmp_path: Path) -> None:
    pair, other = make_pair(tmp_path), make_pair(tmp_path, "other")
    signing = {"key": pair.pem, "header": {**pair.header, "jku": "http://127.0.0.1:1/never"}}
    async with start_server("a2a-signing", gated=False, signing=signing) as server:
        for keys in ([pair.write_key_set()], [pair.write_public_pem()], [other.write_key_set(), pair.write_key_set()]):
            async with fronted(tmp_path, server.url, verify="require", keys=keys) as gateway:
                assert (await run(gateway))["status"] == "completed"
                relayed = await get_card(gateway)
                assert "signatures" not in relayed
        reason = "none of its signatures is by a key in card.keys"
        with capture_log() as logs:
            async with fronted(tmp_path, server.url, verify="require", keys=[other.write_key_set()]) as gateway:
                broken = (await gateway.http.get("/readyz")).json()["agents"]["echo"]
                assert broken == f"broken: {server.url}/echo: The agent's card is not accepted: {reason}"
                assert "not available" in (await run(gateway))["error"]["message"]
        assert f"card not verified agent=echo verify=require reason={reason!r}" in logs.text
        with capture_log() as logs:
            async with fronted(tmp_path, server.url, verify="audit", keys=[other.write_key_set()]) as gateway:
                assert (await run(gateway))["status"] == "completed"
                await gateway.hub.auditor.stop()
                records = (await gateway.http.get("/admin/audit?action=card.verify")).json()["records"]
        assert f"card not verified agent=echo verify=audit reason={reason!r}" in logs.text
        assert [
            (each["target"]["id"], each["outcome"], each["reason"]) for each in records if each["outcome"] == "error"
        ] == [("echo", "error", reason)]
        with capture_log() as logs:
            async with fronted(tmp_path, server.url, verify=False) as gateway:
                assert (await run(gateway))["status"] == "completed"
        assert "card not verified" not in logs.text


async def test_a_gateway_verifies_the_cards_of_another_gateway(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    (tmp_path / "near").mkdir()
    signing = {"keys": [str(pair.file)]}
    async with running(tmp_path, signing=signing, public_url=PUBLIC, agents={"echo": echo}) as far:
        jwks = f"{far.url}/.well-known/jwks.json"
        for url in (far.url, f"{far.url}/a2a/echo"):
            configured = {"echo": {"url": url, "card": {"verify": "require", "keys": [jwks]}}}
            async with running(tmp_path / "near", configured=configured) as near:
                assert (await run(near))["status"] == "completed"
