"""Cards of other servers: their URLs, the interface to call, and the description of the agent."""

from typing import Any

import pytest

from babelgate.adapters.a2a.agents.interface import Interface, card_urls, describe, find_interface, is_card
from babelgate.adapters.a2a.client import Client, discover
from babelgate.canonical import FaultCode, FaultError, Skill
from tests import loopback
from tests.adapters.a2a.far import CARD, Far, card_0_3, card_1_0, far_server
from tests.adapters.a2a.talk import Talk

AT = "http://agents.example.com"


def card_with(*entries: tuple[str, str, str]) -> dict[str, Any]:
    return {
        **CARD,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": binding, "protocolVersion": version} for url, binding, version in entries
        ],
    }


def interface_of(card: dict[str, Any], url: str = AT) -> Interface:
    interface = find_interface(card, url)
    assert interface is not None
    return interface


def test_card_urls_are_below_the_endpoint_and_at_the_origin() -> None:
    assert card_urls(f"{AT}/a/b/") == (
        f"{AT}/a/b/.well-known/agent-card.json",
        f"{AT}/a/b/.well-known/agent.json",
        f"{AT}/.well-known/agent-card.json",
        f"{AT}/.well-known/agent.json",
    )
    assert card_urls(AT) == (f"{AT}/.well-known/agent-card.json", f"{AT}/.well-known/agent.json")
    assert card_urls(f"{AT}/.well-known/agent-card.json?assistant_id=x") == (
        f"{AT}/.well-known/agent-card.json?assistant_id=x",
    )


def test_json_rpc_of_1_0_is_preferred_in_any_order() -> None:
    card = card_with(
        (f"{AT}/grpc", "GRPC", "1.0"),
        (f"{AT}/old", "JSONRPC", "0.3.0"),
        (f"{AT}/rest", "HTTP+JSON", "1.0"),
        (f"{AT}/rpc", "JSONRPC", "1.0"),
    )
    assert interface_of(card) == Interface(f"{AT}/rpc", "1.0")
    card["supportedInterfaces"].pop()
    assert interface_of(card) == Interface(f"{AT}/rest", "1.0", rest=True)
    card["supportedInterfaces"].pop()
    assert interface_of(card) == Interface(f"{AT}/old", "0.3")


def test_unknown_major_version_is_skipped() -> None:
    assert interface_of(card_with((f"{AT}/new", "JSONRPC", "2.0"), (f"{AT}/old", "JSONRPC", "0.3"))).version == "0.3"


def test_card_of_0_3_has_a_main_and_additional_interfaces() -> None:
    assert interface_of(card_0_3(f"{AT}/a")) == Interface(f"{AT}/a", "0.3")
    assert interface_of(card_0_3(f"{AT}/a", "GRPC", "HTTP+JSON")) == Interface(f"{AT}/a", "0.3", rest=True)
    assert interface_of({**CARD, "url": f"{AT}/a"}) == Interface(f"{AT}/a", "0.3")


def test_card_of_both_versions_is_called_by_1_0() -> None:
    assert interface_of({**card_0_3(f"{AT}/old"), **card_1_0(f"{AT}/new")}) == Interface(f"{AT}/new", "1.0")


def test_streams_are_used_only_if_declared() -> None:
    assert not interface_of({**card_1_0(AT), "capabilities": {}}).streams
    assert not interface_of({**card_1_0(AT), "capabilities": {"streaming": "yes"}}).streams


GRPC = Interface("grpc://agents.example.com:50051", "1.0", grpc=True, files_url=AT)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([("agents.example.com:50051", "GRPC", "1.0")], GRPC),
        ([("0.0.0.0:50051", "GRPC", "1.0"), (AT, "JSONRPC", "1.0")], GRPC),
        ([("https://elsewhere.example:50051/x", "grpc", "1.0"), (AT, "JSONRPC", "1.0")], GRPC),
        ([(AT, "JSONRPC", "1.0"), ("agents.example.com:50051", "GRPC", "1.0")], Interface(AT, "1.0")),
        ([(AT, "JSONRPC", "0.3"), ("agents.example.com:50051", "GRPC", "1.0")], GRPC),
        ([("agents.example.com:50051", "GRPC", "0.3"), (AT, "JSONRPC", "0.3")], Interface(AT, "0.3")),
        ([("agents.example.com", "GRPC", "1.0"), (AT, "JSONRPC", "1.0")], Interface(AT, "1.0")),
        ([("agents.example.com:x", "GRPC", "1.0"), (AT, "JSONRPC", "1.0")], Interface(AT, "1.0")),
    ],
)
def test_grpc_is_called_if_it_is_preferred_or_alone(entries: list[tuple[str, str, str]], expected: Interface) -> None:
    assert find_interface(card_with(*entries), AT, speaks_grpc=True) == expected


def test_grpc_has_tls_if_the_configured_url_has_it() -> None:
    found = find_interface(card_with(("http://x:1", "GRPC", "1.0")), "https://[::1]:8443/a", speaks_grpc=True)
    assert found is not None
    assert found.url == "grpcs://[::1]:1"


def test_a_card_with_only_grpc_names_the_extra() -> None:
    with pytest.raises(FaultError, match=r"babelgate\[grpc\]"):
        find_interface(card_with(("agents.example.com:1", "GRPC", "1.0")), AT)


@pytest.mark.parametrize("binding", ["GRPC", "SOAP"])
def test_card_without_a_usable_interface_is_rejected(binding: str) -> None:
    with pytest.raises(FaultError) as caught:
        find_interface(card_with((AT, binding, "1.0")), AT)
    assert caught.value.fault.code is FaultCode.AGENT_INVALID


@pytest.mark.parametrize(
    ("declared", "configured", "called"),
    [
        ("http://agents.example.com:80/a", AT, "http://agents.example.com:80/a"),
        ("/a", AT, f"{AT}/a"),
        ("http://0.0.0.0:9999/a", AT, f"{AT}/a"),
        ("http://evil.example.com/a", f"{AT}/mine", f"{AT}/mine"),
        ("https://agents.example.com/a", AT, f"{AT}/a"),
        ("http://[nowhere/a", f"{AT}/mine", f"{AT}/mine"),
        ("http://internal:8000/", f"{AT}/proxied/", f"{AT}/proxied/"),
        ("http://internal:8000/a", f"{AT}/x/.well-known/agent-card.json", f"{AT}/x"),
    ],
)
def test_interface_is_never_at_another_origin(declared: str, configured: str, called: str) -> None:
    assert interface_of(card_1_0(declared), configured).url == called


def test_card_at_the_origin_must_name_the_agents_path() -> None:
    assert find_interface(card_1_0(f"{AT}/a"), f"{AT}/b", at_origin=True) is None
    assert find_interface(card_1_0(f"{AT}/a/"), f"{AT}/a", at_origin=True) == Interface(f"{AT}/a/", "1.0")


def test_description_omits_urls_and_signatures_of_the_card() -> None:
    provider = {"organization": "Far Inc.", "url": "https://far.example.com"}
    info = describe({**card_1_0(AT), "provider": provider, "iconUrl": "https://far.example.com/icon.png"})
    assert (info.name, info.description, info.version) == ("far-echo", "Echoes.", "2.0")
    assert info.skills == (Skill(id="echo", name="Echo", description="Says it again.", tags=("demo",)),)
    assert info.metadata == {
        "a2a": {"name": "Far Echo", "provider": provider},
        "icon_url": "https://far.example.com/icon.png",
    }
    assert info.remembers


def test_modes_of_early_cards_become_media_types() -> None:
    info = describe({**card_0_3(AT), "defaultInputModes": ["text", "file"], "defaultOutputModes": []})
    assert (info.input_types, info.output_types) == (("text/plain", "*/*"), ("text/plain",))


def test_invalid_members_of_a_card_get_defaults() -> None:
    skills = [None, 7, {"name": "X"}, {"id": "y", "tags": ["a", 1]}]
    info = describe({"name": "!!!", "url": AT, "skills": skills, "description": None, "version": 2})
    assert (info.name, info.description, info.version) == ("agent", "", "1.0.0")
    assert [(skill.id, skill.name, skill.tags) for skill in info.skills] == [("x", "X", ()), ("y", "y", ("a",))]


@pytest.mark.parametrize("value", [None, [], "x", {}, {"name": "x"}, {"name": 7, "url": "x"}, {"agents": []}])
def test_other_json_is_not_a_card(value: Any) -> None:
    assert not is_card(value)


async def test_invalid_url_is_unreachable() -> None:
    async with loopback.client() as http:
        for url in ("http://[nowhere/a", "ftp://127.0.0.1/a", "http://127.0.0.1:port/"):
            with pytest.raises(FaultError) as caught:
                await discover(url, http)
            assert caught.value.fault.code is FaultCode.AGENT_UNREACHABLE


# Discovery


async def discovered(far: Far, path: str = "", **options: Any) -> list[str]:
    async with loopback.client() as http:
        return [info.name for info in await discover(far.url + path, http, **options)]


async def test_discovery_sends_the_configured_headers() -> None:
    async with far_server() as far:
        far.set("GET /a/.well-known/agent.json", card_0_3(f"{far.url}/a"))
        assert await discovered(far, "/a", headers={"X-Api-Key": "secret"}) == ["far-echo"]
        assert [headers["x-api-key"] for _, headers, _ in far.requests] == ["secret"] * 2


async def test_server_without_a_card_is_accepted_only_on_request() -> None:
    async with far_server() as far:
        bodies: list[Any] = [{"agents": []}, b"<html>", b"", [], b"{" + b" " * 2_000_000 + b"}"]
        for body in bodies:
            far.set("GET /.well-known/agent-card.json", body)
            with pytest.raises(FaultError) as caught:
                await discovered(far)
            assert caught.value.fault.code is FaultCode.AGENT_INVALID
            assert await discovered(far, card=False) == ["agent"]


async def test_a_redirect_of_the_card_is_followed_within_its_origin() -> None:
    async with far_server() as far, far_server() as other:
        other.set("GET /elsewhere", card_1_0(other.url))
        far.set("GET /.well-known/agent-card.json", b"", status=302)
        far.set("GET /elsewhere", card_1_0(far.url))
        far.headers = [(b"location", b"/elsewhere")]
        assert await discovered(far)
        far.headers = [(b"location", f"{other.url}/elsewhere".encode())]
        with pytest.raises(FaultError):
            await discovered(far)
        assert other.requests == []


@pytest.mark.parametrize("more", [{}, {"url": None}])
def test_card_without_a_url_uses_the_configured_url(more: dict[str, Any]) -> None:
    card: dict[str, Any] = {name: value for name, value in CARD.items() if name not in ("url", "supportedInterfaces")}
    card |= {"protocolVersion": "0.3.0", **more}
    assert is_card(card)
    assert interface_of(card, f"{AT}/a/") == Interface(f"{AT}/a/", "0.3", streams=interface_of(card).streams)
    assert interface_of(card, f"{AT}/.well-known/agent-card.json").url == AT


def test_trailing_slash_of_the_url_is_preserved() -> None:
    assert interface_of(card_0_3("http://0.0.0.0:9999/a/"), f"{AT}/a/").url == f"{AT}/a/"
    assert interface_of(card_0_3(f"{AT}/a/"), f"{AT}/a").url == f"{AT}/a/"


async def test_card_of_another_agent_at_the_origin_is_ignored() -> None:
    async with far_server() as far:
        far.set("GET /.well-known/agent-card.json", card_1_0(f"{far.url}/neighbour", "HTTP+JSON"))
        with pytest.raises(FaultError):
            await discovered(far, "/mine")
        reply = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Hi"}]}
        far.set("SendStreamingMessage", [{"message": reply}])
        agent = Client(f"{far.url}/mine")
        assert (await Talk(agent).say("Hello")).text == "Hi"
        await agent.aclose()


def test_langgraph_is_recognized_by_its_history_scope_extension() -> None:
    uri = "https://langchain.com/a2a/extensions/history-scope/v1"
    for extensions, repeats_answer in (([{"uri": uri}], True), ([{"uri": f"{uri}/x"}], False), ([], False)):
        interface = find_interface(
            {"name": "x", "url": "http://a", "capabilities": {"extensions": extensions}}, "http://a"
        )
        assert interface is not None
        assert interface.repeats_answer is repeats_answer


@pytest.mark.parametrize(
    ("uri", "answers_in_status"),
    [
        ("https://a2a-extensions.agentstack.beeai.dev/ui/agent-detail/v1", True),
        ("https://a2a-extensions.adk.kagenti.dev/ui/agent-detail/v1", False),
        ("beeai.dev", False),
        (7, False),
    ],
)
def test_agentstack_is_recognized_by_the_host_of_an_extension(uri: Any, answers_in_status: bool) -> None:
    card = {"name": "x", "url": "http://a", "capabilities": {"streaming": True, "extensions": [{"uri": uri}, 7]}}
    interface = find_interface(card, "http://a")
    assert interface is not None
    assert (interface.streams, interface.answers_in_status) == (True, answers_in_status)
