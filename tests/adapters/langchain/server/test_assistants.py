"""Agents, and their assistants in LangGraph's dialect."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

import httpx
import pytest

from babelgate.canonical import AgentInfo, Invocation
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.gateway.hubs import Echo
from tests.running import running

AP = "/agent-protocol"
IDS = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
ECHO = str(uuid5(IDS, "echo"))
NOBODY = str(uuid4())
FIELDS = {
    *("assistant_id", "graph_id", "name", "description", "version"),
    *("config", "context", "metadata", "created_at", "updated_at"),
}


@pytest.fixture
async def http(tmp_path: Path) -> AsyncGenerator[httpx.AsyncClient]:
    async with running(tmp_path) as gateway:
        yield gateway.http


async def search(http: httpx.AsyncClient, path: str = "/assistants/search", **query: Any) -> list[Any]:
    answer = await http.post(path, json=query)
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


async def test_an_assistant_has_the_id_that_langgraph_derives(tmp_path: Path) -> None:
    async with running(tmp_path, {"agent": Echo()}) as gateway:
        (assistant,) = await search(gateway.http)
    assert assistant["assistant_id"] == "fe096781-5601-53d2-b2f6-0d3403f7e9ca"


async def test_an_assistant_is_found_by_its_uuid_in_any_case(http: httpx.AsyncClient) -> None:
    for text in (ECHO, ECHO.upper()):
        answer = await http.get(f"/assistants/{text}")
        assert (answer.status_code, answer.json()["graph_id"]) == (200, "echo")


async def test_a_graph_is_found_by_name_but_its_assistant_not(http: httpx.AsyncClient) -> None:
    assert "UUID" in detail(await http.get("/assistants/echo"))
    assert "UUID" in detail(await http.post("/assistants/echo/versions", json={}))
    assert (await http.get("/assistants/echo/graph")).json() == (await http.get(f"/assistants/{ECHO}/graph")).json()


async def test_an_unknown_assistant_is_not_found(http: httpx.AsyncClient) -> None:
    for below in ("", "/graph", "/schemas", "/subgraphs", "/subgraphs/x"):
        assert NOBODY in detail(await http.get(f"/assistants/{NOBODY}{below}"), 404)
    assert NOBODY in detail(await http.post(f"/assistants/{NOBODY}/versions"), 404)
    for name in ("nope", "%00", "%2e%2e", "x" * 5000, "%FF"):
        message = detail(await http.get(f"/assistants/{name}/graph"))
        assert "echo" in message and len(message) < 1000


async def test_a_graph_has_the_agent_between_start_and_end(http: httpx.AsyncClient) -> None:
    graph = (await http.get(f"/assistants/{ECHO}/graph?xray=true")).json()
    assert [node["id"] for node in graph["nodes"]] == ["__start__", "echo", "__end__"]
    assert all(set(node) == {"id", "type", "data"} for node in graph["nodes"])
    assert graph["edges"] == [{"source": "__start__", "target": "echo"}, {"source": "echo", "target": "__end__"}]


async def test_schemas_have_messages_unless_the_agent_declares_others(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    declared = RegisteredAgent(AgentInfo(name="declared", schemas={"input": schema, "config": schema}), Echo())
    async with running(tmp_path, {"plain": Echo()}, registered={"declared": declared}) as gateway:
        plain = (await gateway.http.get("/assistants/plain/schemas")).json()
        schemas = (await gateway.http.get("/assistants/declared/schemas")).json()
        assert (await gateway.http.get("/assistants/declared/subgraphs?recurse=true")).json() == {}
    assert set(plain) == {"graph_id", *(f"{of}_schema" for of in ("input", "output", "state", "config", "context"))}
    assert plain["graph_id"] == "plain"
    assert "messages" in plain["input_schema"]["properties"] and "messages" in plain["state_schema"]["properties"]
    assert schemas["input_schema"] == schemas["config_schema"] == schema


async def test_an_assistant_has_one_version(http: httpx.AsyncClient) -> None:
    (version,) = (await http.post(f"/assistants/{ECHO}/versions", json={"limit": 10, "offset": 0})).json()
    assert (version["assistant_id"], version["version"]) == (ECHO, 1)
    assert set(version) == FIELDS - {"updated_at"}
    for query in ({"offset": 1}, {"metadata": {"created_by": "me"}}):
        assert (await http.post(f"/assistants/{ECHO}/versions", json=query)).json() == []


async def test_assistants_are_filtered_by_graph_name_part_and_metadata(http: httpx.AsyncClient) -> None:
    async def names(**query: Any) -> set[str]:
        found = {assistant["name"] for assistant in await search(http, limit=100, **query)}
        assert (await http.post("/assistants/count", json=query)).json() == len(found)
        return found

    assert await names(graph_id="echo") == {"echo"}
    assert await names(graph_id="ech") == set()
    assert await names(name="ECH") == {"echo"}
    assert await names(metadata={"created_by": "system"}, name="echo") == {"echo"}
    assert await names(metadata={"created_by": "user"}) == set()


async def test_assistants_are_sorted_and_have_the_selected_members(http: httpx.AsyncClient) -> None:
    up = await search(http, limit=100, sort_by="name", sort_order="asc", select=["name", "version"])
    down = await search(http, limit=100, sort_by="graph_id", sort_order="desc", select=["name", "version"])
    assert up == sorted(up, key=lambda each: each["name"])
    assert down == up[::-1]
    assert all(set(each) == {"name", "version"} for each in up)


async def test_the_total_is_a_lower_bound_before_the_last_page(http: httpx.AsyncClient) -> None:
    every = len(await search(http, limit=100))
    answer = await http.post("/assistants/search", json={"limit": 3, "offset": 2})
    assert len(answer.json()) == 3
    assert (answer.headers["x-pagination-next"], answer.headers["x-pagination-total"]) == ("5", "6")
    answer = await http.post("/assistants/search", json={"limit": 100, "offset": 2})
    assert answer.headers["x-pagination-total"] == str(every)
    assert "x-pagination-next" not in answer.headers


async def test_an_invalid_search_is_rejected(http: httpx.AsyncClient) -> None:
    invalid: list[Any] = [{"limit": 0}, {"limit": 1001}, {"limit": True}, {"offset": -1}, {"select": ["secret"]}]
    invalid += [{"sort_by": "age"}, {"metadata": []}, {"name": 1}, []]
    for query in invalid:
        detail(await http.post("/assistants/search", json=query))


async def test_an_empty_body_asks_for_the_first_page(http: httpx.AsyncClient) -> None:
    assert len((await http.post("/assistants/search")).json()) == 10
    assert (await http.post("/assistants/count")).json() >= 10
    assert len((await http.post("/agents/search")).json()) == 10


# Assistants of callers


async def create(http: httpx.AsyncClient, **fields: Any) -> Any:
    answer = await http.post("/assistants", json={"graph_id": "echo", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_an_assistant_is_created_changed_and_deleted(http: httpx.AsyncClient) -> None:
    one = await create(http, name="mine", description="of me", metadata={"a": 1}, config={"configurable": {"b": 2}})
    at = f"/assistants/{one['assistant_id']}"
    assert set(one) == FIELDS
    assert (one["graph_id"], one["name"], one["version"], one["metadata"]) == ("echo", "mine", 1, {"a": 1})
    assert one["config"] == {"configurable": {"b": 2}} and one["context"] == {"b": 2}
    assert (await http.get(at)).json() == one
    changed = (await http.patch(at, json={"context": {"c": 3}, "metadata": {"d": 4}})).json()
    assert (changed["version"], changed["name"], changed["metadata"]) == (2, "mine", {"a": 1, "d": 4})
    assert changed["config"] == {"configurable": {"c": 3}} and changed["context"] == {"c": 3}
    assert changed["updated_at"] > changed["created_at"] == one["created_at"]
    answer = await http.delete(at)
    assert (answer.status_code, answer.content) == (204, b"")
    for method in ("GET", "PATCH", "DELETE"):
        assert one["assistant_id"] in detail(await http.request(method, at, json={}), 404)


async def test_an_assistant_without_a_name_is_untitled(http: httpx.AsyncClient) -> None:
    assert (await create(http))["name"] == "Untitled"


async def test_any_version_of_an_assistant_can_become_the_latest(http: httpx.AsyncClient) -> None:
    one = await create(http, name="first", config={"tags": ["t"]})
    at = f"/assistants/{one['assistant_id']}"
    await http.patch(at, json={"name": "second"})
    versions = (await http.post(f"{at}/versions", json={})).json()
    assert [(each["version"], each["name"]) for each in versions] == [(2, "second"), (1, "first")]
    assert all(set(each) == FIELDS - {"updated_at"} for each in versions)
    assert [each["version"] for each in (await http.post(f"{at}/versions", json={"offset": 1})).json()] == [1]
    back = (await http.post(f"{at}/latest", json={"version": 1})).json()
    assert (back["version"], back["name"], back["config"]) == (1, "first", {"tags": ["t"]})
    assert (await http.patch(at, json={"description": "after"})).json()["version"] == 3
    assert "99" in detail(await http.post(f"{at}/latest", json={"version": 99}), 404)
    detail(await http.post(f"{at}/latest", json={"version": 0}))


async def test_an_existing_id_is_a_conflict_unless_do_nothing(http: httpx.AsyncClient) -> None:
    one = await create(http, name="mine")
    for existing_id in (one["assistant_id"], ECHO):
        again = {"graph_id": "echo", "assistant_id": existing_id}
        assert existing_id in detail(await http.post("/assistants", json=again), 409)
        answer = await http.post("/assistants", json={**again, "name": "other", "if_exists": "do_nothing"})
        assert answer.json() == (await http.get(f"/assistants/{existing_id}")).json()
        assert answer.json()["name"] != "other"


async def test_an_invalid_assistant_is_rejected(http: httpx.AsyncClient) -> None:
    assert "echo" in detail(await http.post("/assistants", json={"graph_id": "nope"}), 404)
    both = {"graph_id": "echo", "context": {"a": 1}, "config": {"configurable": {"a": 1}}}
    detail(await http.post("/assistants", json=both), 400)
    invalid: list[Any] = [{}, {"graph_id": "echo", "assistant_id": "me"}, {"graph_id": "echo", "metadata": []}]
    for body in invalid:
        detail(await http.post("/assistants", json=body))


async def test_a_system_assistant_can_be_changed_and_reset(http: httpx.AsyncClient) -> None:
    at = f"/assistants/{ECHO}"
    before = (await http.get(at)).json()
    changed = (await http.patch(at, json={"metadata": {"mine": True}})).json()
    assert (changed["version"], changed["metadata"]["created_by"], changed["metadata"]["mine"]) == (2, "system", True)
    assert [each["version"] for each in (await http.post(f"{at}/versions", json={})).json()] == [2, 1]
    (only,) = await search(http, graph_id="echo")
    assert only["version"] == 2
    assert (await http.delete(at)).status_code == 204
    assert (await http.get(at)).json() == before
    answer = await http.delete(at)
    assert "cannot be deleted" in detail(answer, 405)
    assert "DELETE" not in answer.headers["allow"]


async def test_an_assistants_config_is_the_default_of_its_runs(tmp_path: Path) -> None:
    async def report(call: Invocation) -> Any:
        return dict(call.config)

    async with running(tmp_path, {"report": report}) as gateway:
        http = gateway.http
        config = {"tags": ["t"], "recursion_limit": 7, "configurable": {"a": 1, "b": 1}}
        one = (
            await http.post("/assistants", json={"graph_id": "report", "config": config, "metadata": {"m": 1}})
        ).json()

        async def run(**fields: Any) -> Any:
            body = {"assistant_id": one["assistant_id"], "input": "hi", **fields}
            values = (await http.post("/runs/wait", json=body)).json()
            return {name: values.get(name) for name in ("tags", "configurable", "context", "metadata")}

        defaults = {"tags": ["t"], "configurable": {"a": 1, "b": 1}, "context": None, "metadata": {"m": 1}}
        assert await run() == defaults
        config_ = {"configurable": {"b": 2}}
        merged = {"configurable": {"a": 1, "b": 2}, "metadata": {"m": 1, "n": 2}}
        assert await run(config=config_, metadata={"n": 2}) == {**defaults, **merged}
        assert await run(context={"c": 3}) == {**defaults, "configurable": None, "context": {"a": 1, "b": 1, "c": 3}}
        thread_id = (await http.post("/threads", json={})).json()["thread_id"]
        created = await http.post(
            f"/threads/{thread_id}/runs", json={"assistant_id": one["assistant_id"], "input": "hi"}
        )
        assert created.json()["assistant_id"] == one["assistant_id"]
        thread = (await http.get(f"/threads/{thread_id}")).json()
        assert thread["metadata"]["assistant_id"] == one["assistant_id"]
        await http.get(f"/threads/{thread_id}/runs/{created.json()['run_id']}/join")
        # The caller can request that its threads are deleted too.
        assert (await http.delete(f"/assistants/{one['assistant_id']}?delete_threads=true")).status_code == 204
        assert (await http.get(f"/threads/{thread_id}")).status_code == 404
        body = {"assistant_id": one["assistant_id"], "input": "hi"}
        detail(await http.post("/runs/wait", json=body), 404)


async def test_assistants_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        one = await create(gateway.http, name="mine")
        await gateway.http.patch(f"/assistants/{one['assistant_id']}", json={"name": "still mine"})
    async with running(tmp_path) as gateway:
        found = (await gateway.http.get(f"/assistants/{one['assistant_id']}")).json()
        assert (found["name"], found["version"]) == ("still mine", 2)
        assert [each["assistant_id"] for each in await search(gateway.http, name="MINE")] == [one["assistant_id"]]
        run = {"assistant_id": one["assistant_id"], "input": "hi"}
        assert (await gateway.http.post("/runs/wait", json=run)).status_code == 200


async def test_the_path_of_an_agent_has_only_its_assistants(http: httpx.AsyncClient) -> None:
    one = await create(http, name="mine")
    assert (await http.get(f"/agent/echo/assistants/{one['assistant_id']}")).status_code == 200
    assert (await http.get(f"/agent/slow/assistants/{one['assistant_id']}")).status_code == 404
    assert [each["name"] for each in await search(http, "/agent/echo/assistants/search")] == ["mine", "echo"]
    graph = (await http.get(f"/assistants/{one['assistant_id']}/graph")).json()
    assert graph == (await http.get("/assistants/echo/graph")).json()
    detail(await http.post("/agent/slow/assistants", json={"graph_id": "echo"}), 404)


async def test_a_broken_agent_is_listed(tmp_path: Path) -> None:
    broken = RegisteredAgent(AgentInfo(name="broken"), None, "it does not answer")
    async with running(tmp_path, {"echo": Echo()}, registered={"broken": broken}) as gateway:
        assert [each["name"] for each in await search(gateway.http)] == ["echo", "broken"]
        broken_id = uuid5(IDS, "broken")
        for path in (f"/assistants/{broken_id}", "/assistants/broken/graph", "/agents/broken"):
            assert (await gateway.http.get(path)).status_code == 200


async def test_the_path_of_an_agent_has_only_that_agent(http: httpx.AsyncClient) -> None:
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
async def test_an_agent_has_the_members_of_the_agent_protocol(http: httpx.AsyncClient, base: str) -> None:
    agents = (await http.post(f"{base}/agents/search", json={"limit": 100})).json()
    assert "echo" in [agent["name"] for agent in agents]
    for agent in agents:
        assert {"agent_id", "name", "capabilities"} <= set(agent)
        assert isinstance(agent["capabilities"]["ap.io.messages"], bool)
        assert (await http.get(f"{base}/agents/{agent['agent_id']}")).json() == agent
    schemas = (await http.get(f"{base}/agents/echo/schemas")).json()
    assert {"agent_id", "input_schema", "output_schema"} <= set(schemas)
    assert all(isinstance(schemas[name], dict) for name in schemas if name != "agent_id")


async def test_agents_are_found_by_name_uuid_or_name_part(http: httpx.AsyncClient) -> None:
    assert (await http.get(f"/agents/{ECHO}")).json() == (await http.get("/agents/echo")).json()
    assert [each["name"] for each in await search(http, "/agents/search", name="Ech")] == ["echo"]
    assert await search(http, "/agents/search", metadata={"no": "such"}) == []
    assert len(await search(http, "/agents/search", limit=2, offset=1)) == 2


async def test_assistants_exist_only_in_langgraphs_dialect(http: httpx.AsyncClient) -> None:
    assert (await http.post(f"{AP}/assistants/search", json={})).status_code == 404
