from pathlib import Path
from typing import Any

import pytest

from babelgate.gateway.agents.registry import agent_uuid
from tests import bridge
from tests.adapters.a2a.schema import check
from tests.adapters.a2a.site import URL as GATEWAY
from tests.adapters.a2a.site import Site, answer_of, message_0_3, opened
from tests.opened import opened as opened_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

CARD = "/a2a/echo/.well-known/agent-card.json"


async def card(site: Site, path: str, **headers: str) -> Any:
    response = await site.client.get(path, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


async def test_card_serves_both_versions(site: Site) -> None:
    merged = await card(site, CARD)
    assert {"supportedInterfaces", "url", "protocolVersion", "skills"} <= merged.keys()
    assert await card(site, "/a2a/echo") == merged


async def test_version_in_header_or_query_selects_the_card(site: Site) -> None:
    new = check("card", "1.0", await card(site, CARD, **{"A2A-Version": "1.0"}))
    assert await card(site, f"{CARD}?A2A-Version=1.0") == new
    old = check("card", "0.3", await card(site, CARD, **{"A2A-Version": "0.3"}))
    assert await card(site, "/a2a/echo/.well-known/agent.json") == old


async def test_root_has_the_card_of_the_default_or_named_agent(site: Site) -> None:
    for name in ("agent-card.json", "agent.json"):
        assert (await card(site, f"/.well-known/{name}"))["name"] == "echo"
        assert (await card(site, f"/.well-known/{name}?assistant_id=ask"))["name"] == "ask"


async def test_root_without_a_default_agent_explains_the_error(tmp_path: Path) -> None:
    async with opened_gateway(tmp_path, {}) as gateway, bridge.client(gateway.app) as client:
        response = await client.get("/.well-known/agent-card.json")
    assert response.status_code == 400
    assert "assistant_id" in check("rest-error", "1.0", response.json())["error"]["message"]


async def test_an_unknown_agent_has_no_card(site: Site) -> None:
    for path in ("/a2a/nobody/.well-known/agent-card.json", "/.well-known/agent.json?assistant_id=nobody"):
        assert (await site.client.get(path)).status_code == 404


@pytest.mark.parametrize("path", [CARD, "/.well-known/agent-card.json", "/a2a/echo/.well-known/agent.json"])
async def test_a_card_is_cached_by_its_etag_per_version(site: Site, path: str) -> None:
    first = await site.client.get(path)
    assert first.headers["Vary"] == "A2A-Version, Origin"
    assert "max-age" in first.headers["Cache-Control"]
    tag = first.headers["ETag"]
    for sent in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        again = await site.client.get(path, headers={"If-None-Match": sent})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
    assert (await site.client.get(path, headers={"If-None-Match": '"x"'})).status_code == 200
    if path == CARD:
        assert (await site.client.get(path, headers={"A2A-Version": "1.0"})).headers["ETag"] != tag


async def test_urls_start_with_the_public_url_despite_the_host_header(tmp_path: Path) -> None:
    async with opened(tmp_path, public_url="https://public.example.com", hosts=["evil.example.com"]) as site:
        response = await site.client.get(f"/agent/echo{CARD}", headers={"Host": "evil.example.com"})
    assert "evil" not in response.text
    assert response.json()["url"] == "https://public.example.com/agent/echo/a2a/echo"


EXTENDED = [("GetExtendedAgentCard", "1.0"), ("agent/getAuthenticatedExtendedCard", "0.3")]


@pytest.mark.parametrize(("method", "form"), EXTENDED)
async def test_extended_card_exists_only_with_keys(site: Site, owned: Site, method: str, form: Any) -> None:
    assert (await site.error("echo", method))["code"] == -32004
    extended = check("card", form, await owned.result("echo", method))
    assert extended["name"] == "echo"
    merged = await card(owned, CARD)
    assert merged["capabilities"]["extendedAgentCard"] is True
    assert merged["supportsAuthenticatedExtendedCard"] is True
    assert merged["securityRequirements"] == [
        {"schemes": {"bearer": {"list": []}}},
        {"schemes": {"apiKey": {"list": []}}},
    ]


@pytest.mark.parametrize(("method", "form"), EXTENDED)
async def test_extended_card_is_for_callers_who_may_run_its_skills(tmp_path: Path, method: str, form: Any) -> None:
    keys = {"alice": "alice-0123456789", "viewer": "viewer-0123456789"}
    access = [{"who": "key:alice", "allow": "*"}, {"who": "key:viewer", "allow": ["discover", "read"]}]
    async with opened(tmp_path, keys=keys, access=access) as site:
        site.client.headers["X-Api-Key"] = keys["alice"]
        assert check("card", form, await site.result("echo", method))["skills"]
        site.client.headers["X-Api-Key"] = keys["viewer"]
        assert "key:viewer may not run echo" in (await site.error("echo", method))["message"]
        assert (await card(site, CARD))["skills"]


async def test_extended_card_has_a_path_in_every_version(owned: Site) -> None:
    check("card", "1.0", await card(owned, "/a2a/echo/extendedAgentCard", **{"A2A-Version": "1.0"}))
    check("card", "0.3", await card(owned, "/a2a/echo/v1/card"))
    check("card", "0.3", await card(owned, "/a2a/echo/agent/authenticatedExtendedCard"))


async def test_agent_is_found_by_the_langgraph_uuid_of_its_name(site: Site) -> None:
    named = await card(site, f"/a2a/{agent_uuid('echo')}/.well-known/agent-card.json")
    assert named["url"] == f"{GATEWAY}/a2a/echo"
    assert (await card(site, f"/.well-known/agent-card.json?assistant_id={agent_uuid('ask')}"))["name"] == "ask"
    assert answer_of(await site.result(agent_uuid("echo"), "message/send", message_0_3("Hello"))) == "Hello"
