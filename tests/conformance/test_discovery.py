"""Discovery of the protocol of a server from any of its URLs."""

import pytest

from babelgate.conformance.examine import RequirementSelection, examine
from babelgate.conformance.probe import ProbeOptions
from babelgate.conformance.protocols.a2a.discovery import WELL_KNOWN, own_url_of, sibling_of
from babelgate.conformance.report.model import CheckReport
from babelgate.conformance.verdict import Verdict
from tests.conformance.servers import (
    a2a_0_3,
    acp_0_2,
    mcp_2025_11_25,
    mcp_2026_07_28,
    openai_chat,
    openai_responses,
)
from tests.conformance.servers.kit import Answer, Request, ScriptedServer, Server
from tests.serving import serving

SERVERS = (acp_0_2.SERVER, mcp_2025_11_25.SERVER, mcp_2026_07_28.SERVER, openai_chat.SERVER, openai_responses.SERVER)


async def examined(server: Server, path: str, *only: str, protocol: str = "") -> tuple[str, CheckReport]:
    async with serving(server.make("")) as url:
        return url, await examine(url + path, RequirementSelection(protocol, only=only), server.options)


@pytest.mark.parametrize("server", SERVERS, ids=lambda each: each.set)
async def test_server_is_judged_only_by_the_protocol_it_speaks(server: Server) -> None:
    _, report = await examined(server, server.path, "*/safe.errors", "*/error.*")
    assert [each.set.name for each in report.sets] == [server.set]


@pytest.mark.parametrize(
    ("server", "path", "endpoint"),
    [
        (acp_0_2.SERVER, "/agents", ""),
        (acp_0_2.SERVER, "/runs/1c1e4a8e-0000-4000-8000-000000000000/events", ""),
        (openai_chat.SERVER, "/v1/chat/completions", "/v1/chat/completions"),
        (openai_chat.SERVER, "/v1/models", "/v1/chat/completions"),
        (openai_responses.SERVER, "/v1/responses/resp_1", "/v1/responses"),
    ],
)
async def test_any_url_of_a_server_leads_to_its_endpoint(server: Server, path: str, endpoint: str) -> None:
    url, report = await examined(server, path, "*/safe.errors")
    (found,) = report.sets
    assert found.endpoint == url + endpoint
    assert [each.verdict for each in found.results] == [Verdict.PASS]


async def test_agent_named_by_the_url_is_judged() -> None:
    _, report = await examined(acp_0_2.SERVER, "/agents/thinker", "acp-0.2/run.agent", protocol="acp")
    (result,) = report.sets[0].results
    assert result.verdict is Verdict.PASS
    assert {each.request_json["agent_name"] for each in result.exchanges} == {"thinker"}


async def test_only_grpc_of_0_3_is_refused() -> None:
    class GrpcAlone(ScriptedServer):
        async def handle(self, request: Request) -> Answer:
            return Answer(body={"protocolVersion": "0.3.0", "url": "http://127.0.0.1:9", "preferredTransport": "GRPC"})

    async with serving(GrpcAlone()) as url:
        report = await examine(url, RequirementSelection("a2a"), ProbeOptions())
    assert not report.sets
    assert "the card offers only gRPC, and gRPC of A2A 0.3 is not checked" in report.refused["a2a-0.3"]


async def test_other_bindings_than_grpc_of_0_3_are_judged() -> None:
    _, report = await examined(a2a_0_3.SERVER, a2a_0_3.SERVER.path, "*/rest.not-found", protocol="a2a")
    (found,) = report.sets
    assert [each.verdict for each in found.results] == [Verdict.PASS]
    assert "HTTP+JSON at " in found.evidence
    assert "gRPC of A2A 0.3 is not checked" in found.evidence


@pytest.mark.parametrize(
    ("url", "sibling"),
    [
        ("http://host:1/agents/echo", "http://host:1/agents/slow"),
        ("http://host:1/echo/.well-known/agent-card.json", "http://host:1/slow"),
        ("http://host:1", None),
        ("http://host:1/", None),
        ("http://host:1/.well-known/agent-card.json", None),
    ],
)
def test_sibling_agent_has_the_origin_of_the_judged_one(url: str, sibling: str | None) -> None:
    assert sibling_of(url, "slow") == sibling


@pytest.mark.parametrize(
    ("url", "card", "endpoint", "agent_url"),
    [
        ("http://a/a2a/echo", "http://a/a2a/echo", "http://a/other/echo", "http://a/a2a/echo"),
        ("http://a/a2a/echo/", "http://a/a2a/echo", "http://a/other/echo", "http://a/a2a/echo/"),
        ("http://a/acp", "http://a", "http://a/a2a/echo", "http://a/a2a/echo"),
        ("http://a", "http://a", "http://a:80/a2a/echo", "http://a:80/a2a/echo"),
        ("http://localhost:1/v1", "http://localhost:1", "http://127.0.0.1:1/a2a/echo", "http://127.0.0.1:1/a2a/echo"),
        ("http://a/mcp", "http://a", "http://elsewhere/a2a/echo", "http://a/mcp"),
    ],
)
def test_url_of_an_agent_comes_from_its_card(url: str, card: str, endpoint: str, agent_url: str) -> None:
    assert own_url_of(url, card + WELL_KNOWN, [endpoint]) == agent_url
