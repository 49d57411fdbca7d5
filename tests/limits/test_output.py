"""`limits.output` in every protocol: the run fails, in the agent's fault, and what it said by then is kept."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.canonical.value import JsonObject
from tests.running import Running, running

LIMIT: Final = 10_000
WORDS: Final = f"The agent said more in one run than the limit of {LIMIT} bytes"
FIRST: Final = "first " + "x" * 4000
V0: Final = {"A2A-Version": "0.3"}
V1: Final = {"A2A-Version": "1.0"}


async def talks(text: str) -> AsyncGenerator[str]:
    """Says no single thing that is too large."""
    yield FIRST
    for _ in range(100):
        yield "y" * 500


def of_langgraph(told: Any) -> tuple[str, str]:
    return told["__error__"]["error"], told["__error__"]["message"]


def of_a2a(told: Any) -> tuple[str, str]:
    status = told["result"].get("task", told["result"])["status"]
    return status["state"], status["message"]["parts"][0]["text"]


ASKED: Final[dict[str, tuple[str, JsonObject, dict[str, str], Callable[[Any], tuple[str, str]], str]]] = {
    # Path, body, headers, (state, error) of the answer, state
    "langgraph": (
        "/runs/wait",
        {"assistant_id": "talks", "input": {"message": "hi"}},
        {},
        of_langgraph,
        "AgentInvalidError",
    ),
    "agent-protocol": (
        "/agent-protocol/runs/wait",
        {"agent_id": "talks", "input": {"message": "hi"}},
        {},
        lambda told: (told["run"]["status"], told["__error__"]["message"]),
        "error",
    ),
    "acp": (
        "/acp/runs",
        {"agent_name": "talks", "input": [{"role": "user", "parts": [{"content": "hi"}]}]},
        {},
        lambda told: (told["status"], told["error"]["message"]),
        "failed",
    ),
    "a2a-0.3": (
        "/a2a/talks",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "message/send",
            "params": {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}},
        },
        V0,
        of_a2a,
        "failed",
    ),
    "a2a-1.0": (
        "/a2a/talks",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendMessage",
            "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}},
        },
        V1,
        of_a2a,
        "TASK_STATE_FAILED",
    ),
}


@pytest.mark.parametrize("protocol", ASKED)
async def test_an_agent_that_says_more_than_a_run_may_fails_and_what_it_said_is_kept(
    tmp_path: Path, protocol: str
) -> None:
    path, body, headers, read, state = ASKED[protocol]
    async with running(tmp_path, {"talks": talks}, limits={"output": LIMIT}) as gateway:
        answer = await gateway.http.post(path, json=body, headers=headers)
        assert FIRST in await kept(gateway)
    assert answer.status_code == 200, answer.text
    found, words = read(answer.json())
    assert found == state
    assert WORDS in words


async def kept(gateway: Running) -> str:
    """What there is to be read afterwards of the newest task."""
    tasks = (await gateway.http.get("/a2a/talks/tasks?includeArtifacts=true&historyLength=10", headers=V1)).json()
    return (await gateway.http.get(f"/a2a/talks/tasks/{tasks['tasks'][0]['id']}", headers=V1)).text


async def test_an_agent_that_says_more_than_a_run_may_fails_over_aief(tmp_path: Path) -> None:
    async with running(tmp_path, {"talks": talks}, limits={"output": LIMIT}) as gateway:
        task = (await gateway.http.post("/ap/v1/agent/tasks", json={"input": "hi"})).json()
        answer = await gateway.http.post(f"/ap/v1/agent/tasks/{task['task_id']}/steps", json={})
        assert FIRST in await kept(gateway)
    step = answer.json()
    assert step["additional_output"]["error"]["code"] == "agent_invalid"
    assert WORDS in step["additional_output"]["error"]["message"]
    assert FIRST in step["output"]
