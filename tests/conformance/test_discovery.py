"""What a server speaks is found out from one URL, and from whichever of its URLs somebody has at hand."""

import pytest

from conformance.examine import Selection, examine
from conformance.report.model import Report
from conformance.verdict import Verdict
from tests.conformance.servers import acp_0_2, mcp_2025_11_25, openai_chat, openai_responses
from tests.conformance.servers.kit import Server
from tests.serving import serving

SERVERS = (acp_0_2.SERVER, mcp_2025_11_25.SERVER, openai_chat.SERVER, openai_responses.SERVER)


async def examined(server: Server, path: str, *only: str, protocol: str = "") -> tuple[str, Report]:
    async with serving(server.make("")) as url:
        return url, await examine(url + path, Selection(protocol, only=only), server.options)


@pytest.mark.parametrize("server", SERVERS, ids=lambda each: each.set)
async def test_a_server_is_judged_by_what_it_speaks_and_by_nothing_else(server: Server) -> None:
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
async def test_any_url_of_a_server_leads_to_it(server: Server, path: str, endpoint: str) -> None:
    url, report = await examined(server, path, "*/safe.errors")
    (found,) = report.sets
    assert found.endpoint == url + endpoint
    assert [each.verdict for each in found.results] == [Verdict.PASS]


async def test_the_agent_that_a_url_names_is_judged() -> None:
    _, report = await examined(acp_0_2.SERVER, "/agents/thinker", "acp-0.2/run.agent", protocol="acp")
    (result,) = report.sets[0].results
    assert result.verdict is Verdict.PASS
    assert {each.request_json["agent_name"] for each in result.exchanges} == {"thinker"}
