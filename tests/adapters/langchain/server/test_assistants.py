"""Agents, and the assistants that they are to LangGraph."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

import httpx
import pytest

from canonical import AgentInfo
from gateway.fronted import Fronted
from tests.gateway.hubs import Echo
from tests.running import running

AP = "/agent-protocol"
IDS = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
ECHO = str(uuid5(IDS, "echo"))
NOBODY = str(uuid4())
FIELDS = {
    "assistant_id",
    "graph_id",
    "config",
    "context",
    "created_at",
    "updated_at",
    "metadata",
    "version",
    "name",
    "description",
}


@pytest.fixture
async def http(tmp_path: Path) -> AsyncGenerator[httpx.AsyncClient]:
    async with running(tmp_path) as gateway:
        yield gateway.http


async def search(http: httpx.AsyncClient, path: str = "/assistants/search", **asked: Any) -> list[Any]:
    answer = await http.post(path, json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def detail(answer: httpx.Response, status: int = 422) -> str:
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"detail"}
    return answer.json()["detail"]


# Assistants


async def test_every_agent_is_a_graph_with_a_system_assistant(http: httpx.AsyncClient) -> None:
    assistants = await search(http, limit=100)
    names = [assistant["name"] for assistant in assistants]
    assert {"echo", "ask", "slow"} <= set(names) and len(names) == len(set(names))
    for assistant in assistants:
        assert set(assistant) == FIELDS
        assert assistant["assistant_id"] == str(uuid5(IDS, assistant["graph_id"]))
        assert assistant["name"] == assistant["graph_id"]
        assert assistant["metadata"]["created_by"] == "system"
        assert (assistant["config"], assistant["context"], assistant["version"]) == ({}, {}, 1)


async def test_the_id_of_an_assistant_is_the_one_that_langgraph_gives_to_a_graph_of_that_name(tmp_path: Path) -> None:
    async with running(tmp_path, {"agent": Echo()}) as gateway:
        (assistant,) = await search(gateway.http)
    assert assistant["assistant_id"] == "fe096781-5601-53d2-b2f6-0d3403f7e9ca"


async def test_an_assistant_is_found_by_its_uuid_in_any_case(http: httpx.AsyncClient) -> None:
    for text in (ECHO, ECHO.upper()):
        answer = await http.get(f"/assistants/{text}")
        assert (answer.status_code, answer.json()["graph_id"]) == (200, "echo")


async def test_an_assistant_is_not_found_by_its_name_but_its_graph_is(http: httpx.AsyncClient) -> None:
    assert "UUID" in detail(await http.get("/assistants/echo"))
    assert "UUID" in detail(await http.post("/assistants/echo/versions", json={}))
    assert (await http.get("/assistants/echo/graph")).json() == (await http.get(f"/assistants/{ECHO}/graph")).json()


async def test_an_assistant_that_is_not_there_is_not_found(http: httpx.AsyncClient) -> None:
    for below in ("", "/graph", "/schemas", "/subgraphs", "/subgraphs/x"):
        assert NOBODY in detail(await http.get(f"/assistants/{NOBODY}{below}"), 404)
    assert NOBODY in detail(await http.post(f"/assistants/{NOBODY}/versions"), 404)
    for name in ("nope", "%00", "%2e%2e", "x" * 5000, "%FF"):
        said = detail(await http.get(f"/assistants/{name}/graph"))
        assert "echo" in said and len(said) < 1000


async def test_reserved_words_are_no_assistants(http: httpx.AsyncClient) -> None:
    for path in ("search", "count"):
        detail(await http.get(f"/assistants/{path}"), 405)


async def test_a_graph_goes_from_the_start_through_the_agent_to_the_end(http: httpx.AsyncClient) -> None:
    graph = (await http.get(f"/assistants/{ECHO}/graph?xray=true")).json()
    assert [node["id"] for node in graph["nodes"]] == ["__start__", "echo", "__end__"]
    assert all(set(node) == {"id", "type", "data"} for node in graph["nodes"])
    assert graph["edges"] == [{"source": "__start__", "target": "echo"}, {"source": "echo", "target": "__end__"}]


async def test_the_schemas_of_a_graph_take_messages_unless_the_agent_says_something_else(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    known = Fronted(AgentInfo(name="known", schemas={"input": schema, "config": schema}), Echo())
    async with running(tmp_path, {"plain": Echo()}, fronted={"known": known}) as gateway:
        plain = (await gateway.http.get("/assistants/plain/schemas")).json()
        asked = (await gateway.http.get("/assistants/known/schemas")).json()
        assert (await gateway.http.get("/assistants/known/subgraphs?recurse=true")).json() == {}
    assert set(plain) == {
        "graph_id",
        "input_schema",
        "output_schema",
        "state_schema",
        "config_schema",
        "context_schema",
    }
    assert plain["graph_id"] == "plain"
    assert "messages" in plain["input_schema"]["properties"] and "messages" in plain["state_schema"]["properties"]
    assert asked["input_schema"] == asked["config_schema"] == schema


async def test_an_assistant_has_one_version(http: httpx.AsyncClient) -> None:
    (version,) = (await http.post(f"/assistants/{ECHO}/versions", json={"limit": 10, "offset": 0})).json()
    assert (version["assistant_id"], version["version"]) == (ECHO, 1)
    assert set(version) == FIELDS - {"updated_at"}
    for asked in ({"offset": 1}, {"metadata": {"created_by": "me"}}):
        assert (await http.post(f"/assistants/{ECHO}/versions", json=asked)).json() == []


async def test_assistants_are_filtered_by_graph_by_a_part_of_the_name_and_by_metadata(http: httpx.AsyncClient) -> None:
    async def names(**asked: Any) -> set[str]:
        found = {assistant["name"] for assistant in await search(http, limit=100, **asked)}
        assert (await http.post("/assistants/count", json=asked)).json() == len(found)
        return found

    assert await names(graph_id="echo") == {"echo"}
    assert await names(graph_id="ech") == set()
    assert await names(name="ECH") == {"echo"}
    assert await names(metadata={"created_by": "system"}, name="echo") == {"echo"}
    assert await names(metadata={"created_by": "user"}) == set()


async def test_assistants_are_sorted_and_reduced_to_what_was_selected(http: httpx.AsyncClient) -> None:
    up = await search(http, limit=100, sort_by="name", sort_order="asc", select=["name", "version"])
    down = await search(http, limit=100, sort_by="graph_id", sort_order="desc", select=["name", "version"])
    assert up == sorted(up, key=lambda each: each["name"])
    assert down == up[::-1]
    assert all(set(each) == {"name", "version"} for each in up)


async def test_the_total_is_one_more_than_what_was_seen_where_there_is_more(http: httpx.AsyncClient) -> None:
    every = len(await search(http, limit=100))
    answer = await http.post("/assistants/search", json={"limit": 3, "offset": 2})
    assert len(answer.json()) == 3
    assert (answer.headers["x-pagination-next"], answer.headers["x-pagination-total"]) == ("5", "6")
    answer = await http.post("/assistants/search", json={"limit": 100, "offset": 2})
    assert answer.headers["x-pagination-total"] == str(every)
    assert "x-pagination-next" not in answer.headers


NO_SEARCH: list[Any] = [
    {"limit": 0},
    {"limit": 1001},
    {"limit": True},
    {"offset": -1},
    {"select": ["secret"]},
    {"sort_by": "age"},
    {"metadata": []},
    {"name": 1},
    [],
]


async def test_a_search_that_is_none_is_refused(http: httpx.AsyncClient) -> None:
    for asked in NO_SEARCH:
        detail(await http.post("/assistants/search", json=asked))


async def test_an_empty_body_asks_for_the_first_page(http: httpx.AsyncClient) -> None:
    assert len((await http.post("/assistants/search")).json()) == 10
    assert (await http.post("/assistants/count")).json() >= 10
    assert len((await http.post("/agents/search")).json()) == 10


async def test_changing_assistants_is_refused_in_plain_words(http: httpx.AsyncClient) -> None:
    one = f"/assistants/{ECHO}"
    for method, path in (("POST", "/assistants"), ("PATCH", one), ("DELETE", one), ("POST", f"{one}/latest")):
        answer = await http.request(method, path, json={"graph_id": "echo"})
        assert "not made or changed" in detail(answer, 405)
        assert method not in answer.headers["allow"]
    assert (await http.get(one)).status_code == 200


async def test_assistants_are_not_listed_by_a_get(http: httpx.AsyncClient) -> None:
    answer = await http.get("/assistants")
    detail(answer, 405)
    assert "POST" in answer.headers["allow"]


async def test_an_agent_that_is_broken_is_still_shown(tmp_path: Path) -> None:
    broken = Fronted(AgentInfo(name="broken"), None, "it does not answer")
    async with running(tmp_path, {"echo": Echo()}, fronted={"broken": broken}) as gateway:
        assert [each["name"] for each in await search(gateway.http)] == ["echo", "broken"]
        broken_id = uuid5(IDS, "broken")
        for path in (f"/assistants/{broken_id}", "/assistants/broken/graph", "/agents/broken"):
            assert (await gateway.http.get(path)).status_code == 200


async def test_below_an_agents_own_path_it_is_the_only_one(http: httpx.AsyncClient) -> None:
    base = "/agent/echo"
    assert [each["name"] for each in await search(http, f"{base}/assistants/search")] == ["echo"]
    assert [each["name"] for each in await search(http, f"{base}/agents/search")] == ["echo"]
    assert (await http.post(f"{base}/assistants/count", json={})).json() == 1
    assert (await http.get(f"{base}/assistants/{ECHO}")).status_code == 200
    assert (await http.get(f"{base}/assistants/{uuid5(IDS, 'slow')}")).status_code == 404
    assert (await http.get(f"{base}/agents/slow")).status_code == 404
    assert (await http.get("/agents/slow")).status_code == 200


# Agents


@pytest.mark.parametrize("base", ["", AP])
async def test_an_agent_has_what_the_agent_protocol_asks_for(http: httpx.AsyncClient, base: str) -> None:
    agents = (await http.post(f"{base}/agents/search", json={"limit": 100})).json()
    assert "echo" in [agent["name"] for agent in agents]
    for agent in agents:
        assert {"agent_id", "name", "capabilities"} <= set(agent)
        assert isinstance(agent["capabilities"]["ap.io.messages"], bool)
        assert (await http.get(f"{base}/agents/{agent['agent_id']}")).json() == agent


@pytest.mark.parametrize("base", ["", AP])
async def test_the_schemas_of_an_agent_are_json_schemas(http: httpx.AsyncClient, base: str) -> None:
    schemas = (await http.get(f"{base}/agents/echo/schemas")).json()
    assert {"agent_id", "input_schema", "output_schema"} <= set(schemas)
    assert all(isinstance(schemas[name], dict) for name in schemas if name != "agent_id")


async def test_agents_are_found_by_name_or_uuid_and_searched_by_a_part_of_the_name(http: httpx.AsyncClient) -> None:
    assert (await http.get(f"/agents/{ECHO}")).json() == (await http.get("/agents/echo")).json()
    assert [each["name"] for each in await search(http, "/agents/search", name="Ech")] == ["echo"]
    assert await search(http, "/agents/search", metadata={"no": "such"}) == []
    assert len(await search(http, "/agents/search", limit=2, offset=1)) == 2


async def test_an_agent_that_is_not_there_is_not_found_in_the_words_of_the_dialect(http: httpx.AsyncClient) -> None:
    for name in ("nope", NOBODY, "%00", "x" * 5000):
        for below in ("", "/schemas"):
            detail(await http.get(f"/agents/{name}{below}"), 404)
            answer = await http.get(f"{AP}/agents/{name}{below}")
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_assistants_are_langgraphs_alone(http: httpx.AsyncClient) -> None:
    assert (await http.post(f"{AP}/assistants/search", json={})).status_code == 404
