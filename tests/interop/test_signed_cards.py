"""Signed cards between the gateway and the official A2A SDKs of Python and JavaScript: each verifies what another one
signs."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
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
from babelgate.gateway.storage.auditor import CountingAuditor
from tests.gateway.card_keys import KeyPair, make_pair
from tests.gateway.log_capture import capture_log
from tests.interop.driver import ClientError, OfficialClient, start_client, start_server
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

SDKS: Final = {"python": "a2a_signing_client.py", "javascript": "a2a_js_client.py"}
CARD: Final = "/a2a/{agent}/.well-known/agent-card.json"
V1: Final = {"A2A-Version": "1.0"}
PUBLIC: Final = "https://agents.example.com"
OPS: Final = {"X-Api-Key": "ops-0123456789-ops"}
PARAMS: Final[dict[str, Any]] = {"a": False, "b": "", "c": None, "d": [1.0, 1e21, -0.0, 0.1]}
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
    other = {**make_pair(tmp_path, "other", algorithm).key.jwk, "kid": pair.key.kid}
    agents = {
        "echo": RegisteredAgent(*wrap(echo, "echo")),
        "far": RegisteredAgent(describe(FAR), wrap(echo, "far")[1]),
    }
    signing = {"keys": [str(pair.file)]}
    async with running(tmp_path, registered=agents, signing=signing, public_url=PUBLIC) as gateway:
        (key,) = (await gateway.http.get("/.well-known/jwks.json")).json()["keys"]
        for sdk in sdks.values():
            for agent in agents:
                card = await sdk.call("fetch", url=gateway.url, path=CARD.format(agent=agent))
                assert await is_verified(sdk, card, key)
                assert not await is_verified(sdk, {**card, "description": "changed"}, key)
                assert not await is_verified(sdk, card, other)
                assert await is_verified(sdk, await get_card(gateway, agent), key)


async def test_each_sdk_verifies_cards_with_security_schemes(tmp_path: Path, sdks: dict[str, OfficialClient]) -> None:
    pair = make_pair(tmp_path)
    settings: Any = {"signing": {"keys": [str(pair.file)]}, "public_url": PUBLIC, "keys": {"ops": OPS["X-Api-Key"]}}
    async with running(tmp_path, **settings) as gateway:
        body = {"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}
        extended = (await gateway.http.post("/a2a/echo", json=body, headers={**V1, **OPS})).json()["result"]
        for sdk in sdks.values():
            # As they were sent: @a2a-js/sdk 1.3.0 refuses such a card in the form in which its own client returns it,
            # because its verifier cannot read the security schemes there.
            for card in (extended, await get_card(gateway)):
                assert card["securityRequirements"]
                assert await is_verified(sdk, card, pair.key.jwk)
                assert not await is_verified(sdk, {**card, "securitySchemes": {}}, pair.key.jwk)


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
    pair = make_pair(tmp_path, algorithm=algorithm)
    far: dict[str, Any] = {**FAR, "signatures": []}
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


async def run(gateway: Running, agent: str = "echo") -> Any:
    body = {"agent_name": agent, "input": [{"role": "user", "parts": [{"content": "Hello"}]}]}
    return (await gateway.http.post("/acp/runs", json=body)).json()


async def test_the_card_of_a_server_is_verified_in_each_mode(tmp_path: Path) -> None:
    pair, other = make_pair(tmp_path), make_pair(tmp_path, "other")
    key_set, wrong = pair.write_key_set(), other.write_key_set()
    signing = {"key": pair.pem, "header": {**pair.header, "jku": "http://127.0.0.1:1/never"}}
    cards: dict[str, Any] = {
        "by-key-set": {"verify": "require", "keys": [key_set]},
        "by-pem": {"verify": "require", "keys": [pair.write_public_pem()]},
        "by-second": {"verify": "require", "keys": [wrong, key_set]},
        "refused": {"verify": "require", "keys": [wrong]},
        "audited": {"verify": "audit", "keys": [wrong]},
        "unchecked": {"verify": False},
    }
    reason = "none of its signatures is by a key in card.keys"
    async with start_server("a2a-signing", gated=False, signing=signing) as server:
        url = f"{server.url}/echo"
        configured = {name: {"url": url, "agent": name, "card": card} for name, card in cards.items()}
        with capture_log() as logs:
            access = [{"who": "*", "allow": "*"}]
            keys = {"ops": OPS["X-Api-Key"]}
            async with running(tmp_path, configured=configured, keys=keys, access=access) as gateway:
                gateway.http.headers.update(OPS)
                health = (await gateway.http.get("/readyz")).json()["agents"]
                answers = {name: await run(gateway, name) for name in cards}
                relayed = await get_card(gateway, "by-pem")
                auditor = gateway.hub.auditor
                assert isinstance(auditor, CountingAuditor)
                await auditor.record_now()
                acts = (await gateway.http.get("/admin/audit?action=card.verify")).json()["records"]
        ok = dict.fromkeys(cards, "ok")
        assert health == ok | {"refused": f"broken: {url}: The agent's card is not accepted: {reason}"}
        assert [name for name, answer in answers.items() if answer.get("status") != "completed"] == ["refused"]
        assert "Agent refused is not available" in answers["refused"]["message"]
        assert "signatures" not in relayed
        audited = {(each["target"]["id"], each["outcome"], each["reason"]) for each in acts}
        assert audited == {("refused", "deny", reason), ("audited", "error", reason)}
        for name, verify in (("refused", "require"), ("audited", "audit")):
            assert f"card not verified agent={name} verify={verify} reason={reason!r}" in logs.text


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
