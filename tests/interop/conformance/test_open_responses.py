"""Compliance of the gateway with Open Responses 2026-04-24.

All tests of llm-comply 0.5.0 run. The WebSocket tests of the official suite, which exists only as a git repository, are
repeated here with the strict client openresponses-py 0.1.2.
"""

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
"""Name that llm-comply recognizes as a reasoning model. For any other it skips `reasoning-summary`."""
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
    """Call the caller's first tool if there is one. Otherwise answer, with a thought if the request wants reasoning."""
    if tools := call.config.get("tools"):
        yield UseTool(tools[0]["name"], {"location": "Paris"})
        return
    if call.config.get("reasoning"):
        yield ReasoningPart(text="Let me see.")
    for word in ("Hello, ", "here ", "I am."):
        yield word


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("suite"), {MODEL: suite}, keys={"suite": KEY}) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(gateway: Running) -> AsyncGenerator[OfficialClient]:
    async with start_client("open-responses", base_url=f"{gateway.url}/v1", key=KEY) as client:
        yield client


async def test_llm_comply_reports_no_failure(gateway: Running) -> None:
    program = str(peer_python("open-responses").parent / "llm-comply")
    arguments = ["-u", f"{gateway.url}/v1", "-k", KEY, "-m", MODEL, "--json", "--timeout", "30"]
    environment = {**os.environ, "no_proxy": "*", "NO_PROXY": "*"}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(program, *arguments, env=environment, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(BOUND):
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode() + output.decode()
    results = json.loads(output)["results"]
    assert {each["id"]: (each["status"], each.get("errors")) for each in results} == dict.fromkeys(
        TESTS, ("passed", None)
    )


def turn(content: Any = "Hello", **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": content, **more}


async def play(client: OfficialClient, *turns: dict[str, Any]) -> list[str]:
    """Play the turns over one WebSocket. Return the status of each response, or the code of its error."""
    answers = await client.call("turns", turns=turns)
    return [each["error"]["code"] if each["type"] == "error" else each["response"]["status"] for each in answers]


UNKNOWN_CALL: Final = {"type": "function_call_output", "call_id": "call_unknown", "output": "x"}


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
                turn([UNKNOWN_CALL], store=False, previous_response_id=0),
                turn(store=False, previous_response_id=0),
            ],
            ["completed", "invalid_function_call_output", NOT_FOUND],
        ),
    ],
    ids=["response", "sequential", "continuation", "not-found", "failed-continuation-evicts-cache"],
)
async def test_websocket_turns_end_as_the_suite_expects(
    client: OfficialClient, turns: list[dict[str, Any]], outcomes: list[str]
) -> None:
    assert await play(client, *turns) == outcomes


async def test_websocket_reconnect_store_false_recovery(client: OfficialClient) -> None:
    (answer,) = await client.call("turns", turns=[turn(store=False)])
    again = turn(store=False, previous_response_id=answer["response"]["id"])
    assert await play(client, again, turn(store=False)) == [NOT_FOUND, "completed"]


async def test_websocket_compact_new_chain(client: OfficialClient) -> None:
    history = [{"type": "message", "role": role, "content": "Hello"} for role in ("user", "assistant")]
    compacted = await client.call("compact", model=MODEL, input=history, prompt_cache_key="suite")
    message = {"type": "message", "role": "user", "content": "Go on."}
    assert await play(client, turn([*compacted["output"], message], tools=[])) == ["completed"]
