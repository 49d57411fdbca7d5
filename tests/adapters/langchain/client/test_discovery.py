"""Discovery of a server's agents: graphs, or agents of the Agent Protocol."""

from typing import Any

import httpx
import pytest

from babelgate.adapters.kit.upstream import Upstream
from babelgate.adapters.langchain import agent_protocol_upstream, upstream
from babelgate.adapters.langchain.agents import upstream_dialect, upstream_name
from babelgate.adapters.langchain.client import discover
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.agent import AGENT_NAME
from tests.adapters.langchain.far import Far

ID = "046b5dc7-2108-582c-9c6c-31d556d138f0"
OTHER = "99999999-2108-582c-9c6c-31d556d138f0"


def assistant(graph_id: str, *, assistant_id: str = ID, by: str = "system", **more: Any) -> dict[str, Any]:
    return {"assistant_id": assistant_id, "graph_id": graph_id, "metadata": {"created_by": by}, **more}


@pytest.fixture
def far() -> Far:
    return Far()


async def test_each_graph_is_a_stateful_agent(far: Far, http: httpx.AsyncClient) -> None:
    far.set("POST /assistants/search", [assistant("My Graph", description="Does\n things")])
    far.set("GET /assistants/T/schemas", {"graph_id": "My Graph", "input_schema": {"type": "object"}})
    [info] = await discover("http://far/", http)
    assert (info.name, upstream_name(info), info.description) == ("my-graph", "My Graph", "Does things")
    assert (info.stateful, info.remembers, upstream_dialect(info)) == (True, True, "langgraph")
    assert info.schemas == {"input": {"type": "object"}}
    assert far.bodies("POST /assistants/search")[0]["metadata"] == {"created_by": "system"}


async def test_a_graph_without_readable_schemas_is_still_an_agent(far: Far, http: httpx.AsyncClient) -> None:
    far.set("POST /assistants/search", [assistant("graph")])
    far.set("GET /assistants/T/schemas", {"detail": "no"}, status=500)
    assert [info.schemas for info in await discover("http://far", http)] == [{}]


@pytest.mark.parametrize("each", [upstream, agent_protocol_upstream])
def test_an_unlisted_agent_is_called_by_its_name(each: Upstream) -> None:
    assert each.assume is not None
    info = each.assume("My Graph")
    assert (info.name, each.name_of(info), upstream_dialect(info)) == ("my-graph", "My Graph", each.protocol)
    assert info.stateful is (each is upstream)


async def test_a_graph_without_system_assistant_uses_its_first_one(far: Far, http: httpx.AsyncClient) -> None:
    listed = [assistant("graph", assistant_id=OTHER, by="ann"), assistant("graph", by="bob")]
    far.answers["POST /assistants/search"] = [(200, []), (200, listed)]
    [info] = await discover("http://far", http)
    assert (info.name, upstream_name(info)) == ("graph", OTHER)


async def test_a_long_list_is_read_page_by_page(far: Far, http: httpx.AsyncClient) -> None:
    pages = [[assistant(f"g{n}") for n in range(start, start + count)] for start, count in ((0, 100), (100, 7))]
    far.answers["POST /assistants/search"] = [(200, page) for page in pages]
    assert len(await discover("http://far", http)) == 107
    assert [body["offset"] for body in far.bodies("POST /assistants/search")] == [0, 100]


async def test_reading_an_endless_list_stops(far: Far, http: httpx.AsyncClient) -> None:
    far.set("POST /assistants/search", [assistant(f"g{n}") for n in range(100)])
    assert len(await discover("http://far", http)) == 100
    assert len(far.bodies("POST /assistants/search")) == 10


async def test_a_server_without_assistants_speaks_the_agent_protocol(far: Far, http: httpx.AsyncClient) -> None:
    agents: Any = [
        {"agent_id": "a/1", "name": "Über Agent!", "capabilities": {}},
        {"agent_id": "b", "name": "Über Agent!"},
    ]
    far.set("POST /agents/search", agents)
    infos = await discover("http://far", http)
    assert [upstream_name(info) for info in infos] == ["a/1", "b"]
    assert len({info.name for info in infos}) == 2 and all(AGENT_NAME.fullmatch(info.name) for info in infos)
    assert {(info.stateful, upstream_dialect(info)) for info in infos} == {(False, "agent-protocol")}


async def test_discovery_of_one_dialect_ignores_the_other(far: Far, http: httpx.AsyncClient) -> None:
    far.set("POST /agents/search", [{"agent_id": "a"}])
    with pytest.raises(FaultError):
        await upstream.discover("http://far", http, {})
    assert [info.name for info in await agent_protocol_upstream.discover("http://far", http, {})] == ["a"]


@pytest.mark.parametrize("answer", [{}, [1], [{"agent_id": 5}], "text", None])
async def test_an_invalid_list_of_agents_is_the_agents_fault(far: Far, http: httpx.AsyncClient, answer: Any) -> None:
    far.set("POST /agents/search", answer)
    with pytest.raises(FaultError) as caught:
        await discover("http://far", http)
    assert caught.value.fault.code is FaultCode.AGENT_INVALID


async def test_discovery_sends_the_key(far: Far, http: httpx.AsyncClient) -> None:
    far.set("POST /assistants/search", [assistant("graph")])
    await discover("http://far", http, {"X-Api-Key": "secret"})
    assert all(headers["x-api-key"] == "secret" for _, headers, _ in far.requests)
