"""Agents of google-adk behind the gateway, called by every protocol. Its client is tried in `test_shown`."""

from collections.abc import AsyncGenerator
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from tests.interop.driver import start_server
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

URI: Final = "https://google.github.io/adk-docs/a2a/a2a-extension/"
AGENTS: Final = ("adk", "adk-new")
ANSWER: Final = "weather gave {'temp': 21}"
THOUGHT: Final = "I should look."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with start_server("adk") as server:
        behind = {"url": server.url, "protocol": "a2a"}
        # What its newer executor is asked for by.
        headers = {"X-A2A-Extensions": URI, "A2A-Extensions": URI}
        configured = {"adk": behind, "adk-new": {**behind, "headers": headers}}
        async with running(tmp_path_factory.mktemp("gateway"), configured=configured) as made:
            yield made


async def post(http: httpx.AsyncClient, path: str, body: Any) -> Any:
    answer = await http.post(path, json=body, headers={"A2A-Version": "1.0"})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


@pytest.mark.parametrize("agent", AGENTS)
async def test_an_agent_of_adk_is_whole_by_responses(gateway: Running, agent: str) -> None:
    told = await post(gateway.http, "/v1/responses", {"model": agent, "input": "weather"})
    items = {item["type"]: item for item in told["output"]}
    assert list(items) == ["reasoning", "mcp_call", "message"]
    assert items["reasoning"]["summary"][0]["text"] == THOUGHT
    assert (items["mcp_call"]["name"], items["mcp_call"]["output"]) == ("weather", '{"temp":21.0}')
    assert [part["text"] for part in items["message"]["content"]] == [ANSWER]
    assert (told["usage"]["input_tokens"], told["usage"]["total_tokens"]) == (22, 36)


@pytest.mark.parametrize("agent", AGENTS)
async def test_every_other_protocol_gets_the_answer_and_no_thought_or_call_in_it(gateway: Running, agent: str) -> None:
    http = gateway.http
    chat = await post(
        http, "/v1/chat/completions", {"model": agent, "messages": [{"role": "user", "content": "weather"}]}
    )
    assert chat["choices"][0]["message"]["content"] == ANSWER
    assert chat["choices"][0]["message"]["reasoning_content"] == THOUGHT
    part = {"content_type": "text/plain", "content": "weather"}
    run = await post(
        http, "/acp/runs", {"agent_name": agent, "mode": "sync", "input": [{"role": "user", "parts": [part]}]}
    )
    parts = [part for message in run["output"] for part in message["parts"]]
    assert "".join(part["content"] or "" for part in parts if part.get("metadata") is None) == ANSWER
    kinds = [part["metadata"] for part in parts if part.get("metadata")]
    assert [each.get("message") for each in kinds if not each.get("tool_name")] == [THOUGHT]
    assert {each["tool_name"] for each in kinds if each.get("tool_name")} == {"weather"}
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "weather"}]}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    task = (await post(http, f"/a2a/{agent}", asked))["result"]["task"]
    assert [part for artifact in task["artifacts"] for part in artifact["parts"]] == [{"text": ANSWER}]
    wanted = {"assistant_id": agent, "input": {"messages": [{"role": "user", "content": "weather"}]}}
    state = await post(http, "/runs/wait", wanted)
    assert state["messages"][-1]["content"] == ANSWER


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(
    ("word", "answer", "result"),
    [("wipe", "yes", "wipe gave {'wiped': 'sda'}"), ("boss", "fine", "ask_boss gave {'result': 'fine'}")],
)
async def test_its_questions_take_plain_words_from_who_knows_nothing_of_adk(
    gateway: Running, agent: str, word: str, answer: str, result: str
) -> None:
    message: Any = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": word}]}
    body: Any = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    task = (await post(gateway.http, f"/a2a/{agent}", body))["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    body["params"]["message"] = {**message, "messageId": "n", "taskId": task["id"], "parts": [{"text": answer}]}
    task = (await post(gateway.http, f"/a2a/{agent}", body))["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    assert task["artifacts"][-1]["parts"][-1]["text"] == result
