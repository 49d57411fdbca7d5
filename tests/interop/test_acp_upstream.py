"""Agents of a server built with the unmodified official ACP SDK, behind the gateway."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters.acp.agents import upstream_name
from babelgate.adapters.acp.client import Client, discover
from babelgate.gateway.registered_agent import RegisteredAgent
from tests import loopback
from tests.interop.acp import texts
from tests.interop.driver import BOUND, OfficialClient, OfficialServer, start_client, start_server
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncGenerator[OfficialServer]:
    async with start_server("acp") as server:
        yield server


async def registered(server: OfficialServer) -> dict[str, RegisteredAgent]:
    async with loopback.client() as http:
        infos = await discover(server.url, http)
    return {info.name: RegisteredAgent(info, Client(server.url, upstream_name(info))) for info in infos}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, server: OfficialServer) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("acp"), registered=await registered(server)) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(gateway: Running) -> AsyncGenerator[OfficialClient]:
    async with start_client("acp", base_url=f"{gateway.url}/acp") as client:
        yield client


def parts(run: Any) -> list[Any]:
    return [part for message in run["output"] for part in message["parts"]]


async def test_the_agents_are_listed_with_their_descriptions(client: OfficialClient) -> None:
    agents = {agent["name"]: agent for agent in await client.call("agents")}
    assert {"echo", "ask", "ask_twice"} <= set(agents)
    assert agents["echo"]["description"] == "Gives the caller's text back."


async def test_a_run_has_the_text_and_role_of_its_agent(client: OfficialClient) -> None:
    run = await client.call("run_sync", agent="echo", input="Hello")
    assert (run["status"], texts(run["output"])) == ("completed", ["Hello"])
    assert run["output"][0]["role"] == "agent/echo"


async def test_tokens_are_forwarded_as_they_arrive(server: OfficialServer, client: OfficialClient) -> None:
    tokens: list[str] = []
    async with client.stream("run_stream", agent="stream", input="one two three") as events:
        async for event in events:
            if event["type"] == "message.part":
                tokens.append(event["part"]["content"])
                if len(tokens) < 3:
                    server.release()
    assert tokens == ["one", " two", " three"]


async def test_a_whole_message_arrives_once(client: OfficialClient) -> None:
    assert texts((await client.call("run_sync", agent="message", input="Hello"))["output"]) == ["Hello!"]


async def test_a_question_arrives_and_is_answered(client: OfficialClient) -> None:
    run = await client.call("run_sync", agent="ask", input="x")
    assert texts([run["await_request"]["message"]]) == ["What is your name?"]
    done = await client.call("run_resume_sync", run_id=run["run_id"], answer="Ada")
    assert (done["status"], texts(done["output"])) == ("completed", ["Hello, Ada."])


async def _headers(gateway: Running, run: Any) -> httpx.Headers:
    return (await gateway.http.get(f"/acp/runs/{run['run_id']}")).headers


async def test_a_cancel_reaches_the_upstream(server: OfficialServer, gateway: Running, client: OfficialClient) -> None:
    async with client.stream("run_stream", agent="slow", input="x") as events:
        run_id = (await anext(events))["run"]["run_id"]
        last = ""
        async for event in events:
            last = event["type"]
            if last == "message.part":
                await gateway.http.post(f"/acp/runs/{run_id}/cancel")
    assert last == "run.cancelled"
    headers = await _headers(gateway, {"run_id": run_id})
    bound = (await gateway.hub.reads.run("default", headers["babelgate-run"])).upstream
    async with loopback.client(base_url=server.url) as http, asyncio.timeout(BOUND):
        while (await http.get(f"/runs/{bound['run']}")).json()["status"] != "cancelled":
            pass


async def test_a_failure_keeps_the_message_of_its_agent(client: OfficialClient) -> None:
    run = await client.call("run_sync", agent="fail", input="Boom")
    assert (run["status"], run["error"]["message"]) == ("failed", "Boom")
    assert texts(run["output"]) == ["Before the fault."]


async def test_files_keep_their_form(client: OfficialClient) -> None:
    uploads = [
        {"content": "A report"},
        {"name": "a.txt", "content": "A note"},
        {"name": "b.bin", "content": "AAEC", "content_encoding": "base64", "content_type": "image/png"},
    ]
    run = await client.call("run_sync", agent="files", input=[{"parts": uploads}])
    named = {part["name"]: part for part in parts(run)}
    assert (named["a.txt"]["content"], named["a.txt"]["content_encoding"]) == ("A note", "plain")
    assert (named["b.bin"]["content"], named["b.bin"]["content_type"]) == ("AAEC", "image/png")
    assert base64.b64decode(named["report.txt"]["content"]).decode().startswith("A report")


async def test_thoughts_tool_calls_citations_and_generic_events_arrive(client: OfficialClient) -> None:
    events = await client.call("run_stream", agent="metadata", input="a b")
    assert [event["generic"] for event in events if event["type"] == "generic"] == [{"progress": 0.5}]
    metadata = [part["metadata"] for part in parts(events[-1]["run"]) if part["metadata"]]
    assert [(each["kind"], each.get("message"), each.get("tool_name")) for each in metadata] == [
        ("trajectory", "Thinking about it.", None),
        ("trajectory", None, "word_count"),
        ("citation", None, None),
    ]
    assert metadata[1]["tool_output"] == {"words": 2}
    assert metadata[2]["url"] == "https://example.com/source"


async def test_the_server_receives_each_message_of_a_session_once(client: OfficialClient) -> None:
    answers = [
        texts((await client.call("run_sync", agent="history", input=text, session="s"))["output"])
        for text in ("One", "Two")
    ]
    assert answers == [["0 before: One"], ["2 before: Two"]]


async def test_an_a2a_client_calls_an_acp_agent(gateway: Running) -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    answer = await gateway.http.post("/a2a/echo", json=body, headers={"A2A-Version": "1.0"})
    task = answer.json()["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [part["text"] for artifact in task["artifacts"] for part in artifact["parts"]] == ["Hello"]
