"""Open Responses 2026-04-24 against the gateway: all tests of llm-comply 0.5.0, and what the official compliance suite
asks of WebSockets, by the strict client openresponses-py 0.1.2. The suite itself is in a git repository only."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import Invocation, ReasoningPart, UseTool
from tests.interop.driver import OfficialClient, start_client
from tests.interop.peers import peer_python
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND: Final = 60
KEY: Final = "a-key-of-the-suite"
MODEL: Final = "gpt-5-suite"
"""By this name llm-comply takes it for a model that thinks; by any other it leaves `reasoning-summary` out."""
TESTS: Final = (
    "basic-response",
    "system-prompt",
    "multi-turn",
    "tool-calling",
    "streaming-response",
    "streaming-usage",
    "image-input",
    "assistant-phase",
    "response-output-phase-schema",
    "compact-response",
    "compact-missing-model",
    "reasoning-summary",
    "error-handling",
)
NOT_FOUND: Final = "previous_response_not_found"


async def suite(call: Invocation) -> AsyncGenerator[Any, Any]:
    """Calls the first tool of its caller, thinks where it is asked to, and answers."""
    if tools := call.config.get("tools"):
        yield UseTool(tools[0]["name"], {"location": "Paris"})
        return
    if call.config.get("reasoning"):
        yield ReasoningPart(text="Let me see.")
    for word in ("Hello, ", "here ", "I am."):
        yield word


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("suite"), {MODEL: suite}, keys={"suite": KEY}) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(gateway: Running) -> AsyncGenerator[OfficialClient]:
    async with start_client("open-responses", base_url=f"{gateway.url}/v1", key=KEY) as made:
        yield made


async def test_llm_comply_finds_nothing_wrong(gateway: Running) -> None:
    program = str(peer_python("open-responses").parent / "llm-comply")
    asked = ["-u", f"{gateway.url}/v1", "-k", KEY, "-m", MODEL, "--json", "--timeout", "30"]
    environment = {**os.environ, "no_proxy": "*", "NO_PROXY": "*"}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(program, *asked, env=environment, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(BOUND):
        said, wrong = await process.communicate()
    assert process.returncode == 0, wrong.decode() + said.decode()
    results = json.loads(said)["results"]
    assert {each["id"]: (each["status"], each.get("errors")) for each in results} == dict.fromkeys(
        TESTS, ("passed", None)
    )


def turn(given: Any = "Hello", **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": given, **more}


async def play(client: OfficialClient, *turns: dict[str, Any]) -> list[str]:
    """Over one WebSocket: the status of each response, or the code of the error."""
    told = await client.call("turns", turns=turns)
    return [each["error"]["code"] if each["type"] == "error" else each["response"]["status"] for each in told]


NOBODY: Final = {"type": "function_call_output", "call_id": "call_nobody", "output": "x"}


@pytest.mark.parametrize(
    ("turns", "outcomes"),
    [
        ([turn()], ["completed"]),
        ([turn(store=False), turn(store=False)], ["completed", "completed"]),
        ([turn(store=False), turn(previous_response_id=0)], ["completed", "completed"]),
        ([turn(previous_response_id="resp_nothing")], [NOT_FOUND]),
        (
            [
                turn(store=False),
                turn([NOBODY], store=False, previous_response_id=0),
                turn(store=False, previous_response_id=0),
            ],
            ["completed", "invalid_function_call_output", NOT_FOUND],
        ),
    ],
    ids=["response", "sequential", "continuation", "not-found", "failed-continuation-evicts-cache"],
)
async def test_websocket_turns_end_as_the_suite_wants(
    client: OfficialClient, turns: list[dict[str, Any]], outcomes: list[str]
) -> None:
    assert await play(client, *turns) == outcomes


async def test_websocket_reconnect_store_false_recovery(client: OfficialClient) -> None:
    (made,) = await client.call("turns", turns=[turn(store=False)])
    again = turn(store=False, previous_response_id=made["response"]["id"])
    assert await play(client, again, turn(store=False)) == [NOT_FOUND, "completed"]


async def test_websocket_compact_new_chain(client: OfficialClient) -> None:
    said = [{"type": "message", "role": role, "content": "Hello"} for role in ("user", "assistant")]
    compacted = await client.call("compact", model=MODEL, input=said, prompt_cache_key="suite")
    goes_on = {"type": "message", "role": "user", "content": "Go on."}
    assert await play(client, turn([*compacted["output"], goes_on], tools=[])) == ["completed"]
