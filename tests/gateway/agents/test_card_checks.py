"""Verification of cards by keys of the operator: files, key sets at URLs, and agents that are refused."""

from pathlib import Path
from typing import Any, Final

from babelgate.adapters.a2a.agents.signatures import sign_card
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.signing_keys import SigningKeys
from tests.adapters.a2a.far import Far, card_1_0, far_server
from tests.gateway.card_keys import KeyPair, make_pair
from tests.gateway.http.issuing import issuing
from tests.gateway.load import run_body
from tests.gateway.log_capture import capture_log
from tests.running import Running, running

GET_CARD: Final = "GET /.well-known/agent-card.json"
REFUSED: Final = "The agent's card is not accepted: "
ANSWER: Final[dict[str, Any]] = {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Hello"}]}}


def serve_card(far: Far, *pairs: KeyPair, **members: Any) -> None:
    """Make the server show a card with these signatures, and then these members."""
    card: dict[str, Any] = {**card_1_0(far.url), "signatures": []}
    signed = sign_card(card, SigningKeys([pair.key for pair in pairs], None)) if pairs else card
    far.set(GET_CARD, {**signed, **members})
    far.set("SendStreamingMessage", [ANSWER])


def agent(far: Far, *keys: str, **members: Any) -> dict[str, Any]:
    return {"url": far.url, "card": {"verify": "require", "keys": list(keys)}, **members}


async def health(gateway: Running) -> str:
    await gateway.hub.registry.settle()
    return (await gateway.http.get("/readyz")).json()["agents"]["far"]


async def run(gateway: Running) -> str:
    return (await gateway.http.post("/acp/runs", json=run_body("far"))).json().get("status", "refused")


async def test_a_refused_agent_works_once_its_card_is_signed(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    async with far_server() as far:
        serve_card(far)
        # The protocol is known, so that a server without a card would be called.
        configured = {"far": agent(far, pair.write_key_set(), protocol="a2a")}
        async with running(tmp_path, configured=configured) as gateway:
            assert await health(gateway) == f"broken: {far.url}: {REFUSED}it has no signature"
            assert await run(gateway) == "refused"
            far.set(GET_CARD, {})  # no card
            assert await run(gateway) == "refused"
            assert far.calls() == []
            serve_card(far, pair)
            assert await run(gateway) == "completed"
            assert await health(gateway) == "ok"


async def test_a_later_card_is_verified_before_the_server_is_called(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    async with far_server() as far:
        serve_card(far, pair)
        async with running(tmp_path, configured={"far": agent(far, pair.write_key_set())}) as gateway:
            assert await health(gateway) == "ok"
            serve_card(far, pair, name="changed")  # before the first call, which reads the card again
            body = (await gateway.http.post("/acp/runs", json=run_body("far"))).json()
            assert body["status"] == "failed"
            assert body["error"]["message"] == f"{REFUSED}its content does not match its signature"
            assert far.calls() == []


async def test_an_unreachable_server_is_verified_when_it_is_called(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    async with far_server() as far:
        url = far.url
    configured = {"far": {"url": url, "protocol": "a2a", "card": {"verify": "require", "keys": [pair.write_key_set()]}}}
    async with running(tmp_path, configured=configured) as gateway:
        assert (await health(gateway)).startswith("broken: ")
        assert await run(gateway) in ("failed", "refused")


async def test_other_protocols_are_not_tried_for_a_verified_agent(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    async with far_server() as far:
        far.set("GET /agents", {"agents": [{"name": "far", "description": "By ACP, without a card."}]})
        far.set("GET /ping", {})
        async with running(tmp_path, configured={"far": agent(far, pair.write_key_set())}) as gateway:
            assert (await health(gateway)).startswith(f"broken: {far.url}: {REFUSED}the server has no card")


async def test_unknown_keys_cause_no_second_fetch_within_thirty_seconds(tmp_path: Path) -> None:
    old, new = make_pair(tmp_path, "old"), make_pair(tmp_path, "new", "EdDSA")
    async with far_server() as far, issuing() as operator:
        operator.keys = [old.key.jwk]
        serve_card(far, old)
        configured = {"far": agent(far, f"{operator.url}/keys")}
        async with running(tmp_path, configured=configured) as gateway:
            assert await health(gateway) == "ok"
            assert await run(gateway) == "completed"
            assert operator.fetches == ["/keys"]
            # A changed agent is connected again. Its key is unknown, and the last fetch was a moment ago.
            serve_card(far, new)
            operator.keys = [new.key.jwk]
            changed = {"far": {**configured["far"], "headers": {"X-Changed": "1"}}}
            values = {"database": gateway.settings.database, "network": gateway.settings.network, "agents": changed}
            await gateway.generations.apply(Settings.model_validate(values))
            assert (
                await health(gateway) == f"broken: {far.url}: {REFUSED}none of its signatures is by a key in card.keys"
            )
            assert operator.fetches == ["/keys"]


async def test_keys_are_fetched_only_from_permitted_addresses(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    async with far_server() as far, issuing() as operator:
        operator.keys = [pair.key.jwk]
        serve_card(far, pair)
        configured = {"far": agent(far, f"{operator.url}/keys")}
        with capture_log() as logs:
            async with running(tmp_path, configured=configured, network={"allow": []}) as gateway:
                assert await health(gateway) == f"broken: {far.url}: {REFUSED}the keys in card.keys cannot be read now"
        assert operator.fetches == []
        assert "The gateway calls other addresses only if its setting network.allow lists them." in logs.text


async def test_a_changed_key_file_counts_at_once(tmp_path: Path) -> None:
    wrong = make_pair(tmp_path)
    file = wrong.write_key_set()
    async with far_server() as far, running(tmp_path, configured={"far": agent(far, file)}) as gateway:
        pair = make_pair(tmp_path)
        serve_card(far, pair)
        assert await run(gateway) == "refused"
        assert pair.write_key_set() == file
        assert await run(gateway) == "completed"


async def test_a_server_with_a_refused_card_is_left_out(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    async with far_server() as far, far_server() as other:
        serve_card(far, pair)
        serve_card(other)
        card = {"verify": "require", "keys": [pair.write_key_set()]}
        async with running(tmp_path, configured={"far": {"urls": [other.url, far.url], "card": card}}) as gateway:
            assert [await run(gateway) for _ in range(4)] == ["completed"] * 4
        assert other.calls() == []
