"""Cards of other servers: where they are found, which of their interfaces is called, and what is told of the agent."""

from typing import Any

import pytest

from babelgate.adapters.a2a.agents.interface import Interface, card_urls, describe, find_interface, is_card
from babelgate.adapters.a2a.client import Client, discover
from babelgate.canonical import FaultCode, FaultError, Skill
from tests import loopback
from tests.adapters.a2a.far import CARD, Far, card_0_3, card_1_0, far_server
from tests.adapters.a2a.talk import Talk

AT = "http://agents.example.com"


def faces(*entries: tuple[str, str, str]) -> dict[str, Any]:
    return {
        **CARD,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": binding, "protocolVersion": version} for url, binding, version in entries
        ],
    }


def found(card: dict[str, Any], url: str = AT) -> Interface:
    interface = find_interface(card, url)
    assert interface is not None
    return interface


def test_the_card_is_looked_for_below_the_endpoint_and_at_the_origin_under_both_names() -> None:
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


def test_1_0_by_json_rpc_is_preferred_whatever_the_order() -> None:
    card = faces(
        (f"{AT}/grpc", "GRPC", "1.0"),
        (f"{AT}/old", "JSONRPC", "0.3.0"),
        (f"{AT}/rest", "HTTP+JSON", "1.0"),
        (f"{AT}/rpc", "JSONRPC", "1.0"),
    )
    assert found(card) == Interface(f"{AT}/rpc", "1.0")
    card["supportedInterfaces"].pop()
    assert found(card) == Interface(f"{AT}/rest", "1.0", rest=True)
    card["supportedInterfaces"].pop()
    assert found(card) == Interface(f"{AT}/old", "0.3")


def test_a_version_of_the_future_is_not_spoken() -> None:
    assert found(faces((f"{AT}/new", "JSONRPC", "2.0"), (f"{AT}/old", "JSONRPC", "0.3"))).version == "0.3"


def test_a_card_of_0_3_has_one_address_and_more_beside_it() -> None:
    assert found(card_0_3(f"{AT}/a")) == Interface(f"{AT}/a", "0.3")
    assert found(card_0_3(f"{AT}/a", "GRPC", "HTTP+JSON")) == Interface(f"{AT}/a", "0.3", rest=True)
    assert found({**CARD, "url": f"{AT}/a"}) == Interface(f"{AT}/a", "0.3")


def test_a_card_of_both_generations_is_called_by_1_0() -> None:
    assert found({**card_0_3(f"{AT}/old"), **card_1_0(f"{AT}/new")}) == Interface(f"{AT}/new", "1.0")


def test_streams_are_asked_for_only_where_they_are_declared() -> None:
    assert not found({**card_1_0(AT), "capabilities": {}}).streams
    assert not found({**card_1_0(AT), "capabilities": {"streaming": "yes"}}).streams


@pytest.mark.parametrize("binding", ["GRPC", "SOAP"])
def test_a_card_without_an_interface_that_can_be_called_is_refused(binding: str) -> None:
    with pytest.raises(FaultError) as caught:
        find_interface(faces((AT, binding, "1.0")), AT)
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
def test_a_card_is_never_followed_to_another_origin(declared: str, configured: str, called: str) -> None:
    assert found(card_1_0(declared), configured).url == called


def test_a_card_at_the_origin_counts_only_if_it_names_the_path_that_was_asked_for() -> None:
    assert find_interface(card_1_0(f"{AT}/a"), f"{AT}/b", at_origin=True) is None
    assert find_interface(card_1_0(f"{AT}/a/"), f"{AT}/a", at_origin=True) == Interface(f"{AT}/a/", "1.0")


def test_what_is_told_of_an_agent_is_its_own_words_without_addresses_and_signatures() -> None:
    provider = {"organization": "Far Inc.", "url": "https://far.example.com"}
    info = describe({**card_1_0(AT), "provider": provider, "iconUrl": "https://far.example.com/icon.png"})
    assert (info.name, info.description, info.version) == ("far-echo", "Echoes.", "2.0")
    assert info.skills == (Skill(id="echo", name="Echo", description="Says it again.", tags=("demo",)),)
    assert info.metadata == {
        "a2a": {"name": "Far Echo", "provider": provider},
        "icon_url": "https://far.example.com/icon.png",
    }
    assert info.remembers


def test_modes_of_the_first_cards_are_media_types_here() -> None:
    info = describe({**card_0_3(AT), "defaultInputModes": ["text", "file"], "defaultOutputModes": []})
    assert (info.input_types, info.output_types) == (("text/plain", "*/*"), ("text/plain",))


def test_a_careless_card_is_read_for_what_it_is_worth() -> None:
    skills = [None, 7, {"name": "X"}, {"id": "y", "tags": ["a", 1]}]
    info = describe({"name": "!!!", "url": AT, "skills": skills, "description": None, "version": 2})
    assert (info.name, info.description, info.version) == ("agent", "", "1.0.0")
    assert [(skill.id, skill.name, skill.tags) for skill in info.skills] == [("x", "X", ()), ("y", "y", ("a",))]


@pytest.mark.parametrize("value", [None, [], "x", {}, {"name": "x"}, {"name": 7, "url": "x"}, {"agents": []}])
def test_not_every_json_is_a_card(value: Any) -> None:
    assert not is_card(value)


async def test_a_url_that_is_none_is_unreachable() -> None:
    async with loopback.client() as http:
        for url in ("http://[nowhere/a", "ftp://127.0.0.1/a", "http://127.0.0.1:port/"):
            with pytest.raises(FaultError) as caught:
                await discover(url, http)
            assert caught.value.fault.code is FaultCode.AGENT_UNREACHABLE


# Discovery


async def discovered(far: Far, path: str = "", **options: Any) -> list[str]:
    async with loopback.client() as http:
        return [info.name for info in await discover(far.url + path, http, **options)]


async def test_an_agent_is_discovered_by_its_card_with_the_configured_headers() -> None:
    async with far_server() as far:
        far.set("GET /a/.well-known/agent.json", card_0_3(f"{far.url}/a"))
        assert await discovered(far, "/a", headers={"X-Api-Key": "secret"}) == ["far-echo"]
        assert [headers["x-api-key"] for _, headers, _ in far.asked] == ["secret"] * 2


async def test_what_shows_no_card_is_no_a2a_server_unless_the_operator_says_so() -> None:
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
        assert other.asked == []


@pytest.mark.parametrize("more", [{}, {"url": None}])
def test_a_card_without_a_url_is_called_at_the_url_of_the_operator(more: dict[str, Any]) -> None:
    card: dict[str, Any] = {name: value for name, value in CARD.items() if name not in ("url", "supportedInterfaces")}
    card |= {"protocolVersion": "0.3.0", **more}
    assert is_card(card)
    assert found(card, f"{AT}/a/") == Interface(f"{AT}/a/", "0.3", streams=found(card).streams)
    assert found(card, f"{AT}/.well-known/agent-card.json").url == AT


def test_a_trailing_slash_of_the_url_is_kept() -> None:
    assert found(card_0_3("http://0.0.0.0:9999/a/"), f"{AT}/a/").url == f"{AT}/a/"
    assert found(card_0_3(f"{AT}/a/"), f"{AT}/a").url == f"{AT}/a/"


async def test_the_card_of_a_neighbour_at_the_origin_is_not_this_agents() -> None:
    async with far_server() as far:
        far.set("GET /.well-known/agent-card.json", card_1_0(f"{far.url}/neighbour", "HTTP+JSON"))
        with pytest.raises(FaultError):
            await discovered(far, "/mine")
        reply = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Hi"}]}
        far.set("SendStreamingMessage", [{"message": reply}])
        agent = Client(f"{far.url}/mine")
        assert (await Talk(agent).say("Hello")).text == "Hi"
        await agent.aclose()


def test_langgraphs_a2a_endpoint_says_all_of_its_answer_with_each_token() -> None:
    uri = "https://langchain.com/a2a/extensions/history-scope/v1"
    for extensions, says in (([{"uri": uri}], True), ([{"uri": f"{uri}/x"}], False), ([], False)):
        found = find_interface({"name": "x", "url": "http://a", "capabilities": {"extensions": extensions}}, "http://a")
        assert found is not None
        assert found.repeats_answer is says


@pytest.mark.parametrize(
    ("uri", "speaks"),
    [
        ("https://a2a-extensions.agentstack.beeai.dev/ui/agent-detail/v1", True),
        ("https://a2a-extensions.adk.kagenti.dev/ui/agent-detail/v1", False),
        ("beeai.dev", False),
        (7, False),
    ],
)
def test_agents_of_agentstack_speak_in_their_status(uri: Any, speaks: bool) -> None:
    card = {"name": "x", "url": "http://a", "capabilities": {"streaming": True, "extensions": [{"uri": uri}, 7]}}
    found = find_interface(card, "http://a")
    assert found is not None
    assert (found.streams, found.answers_in_status) == (True, speaks)
