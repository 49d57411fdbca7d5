"""What agents in the gateway's own process say too much of: their run fails, and nobody else notices."""

from pathlib import Path
from typing import Any, Final

import pytest

from tests.limits.strain import MB, SLOW, Strained, python_agents, strained

AGENTS: Final = {
    "numbers": "more than 200000 values",
    "objects": "more than 200000 values",
    "levels": "nested deeper than 64 levels",
    "many_levels": "nested deeper than 64 levels",
    "text": "larger than the limit of 8388608 bytes",
    "texts": "larger than the limit of 8388608 bytes",
    "pieces": "piece by piece, that is larger than the limit of 8388608 bytes",
}
"""Of `hostile`, and what is said of each. Only the gateway imports that: it takes seconds and 600 MB."""

pytestmark = SLOW
SETTINGS: Final = {
    "agents": {**python_agents(*AGENTS, module="hostile"), **python_agents("words", "events")},
    "limits": {"output": "512MB"},
}


async def ask(gateway: Strained, agent: str) -> Any:
    body = {"assistant_id": agent, "input": {"message": "hi"}}
    return (await gateway.http.post("/runs/wait", json=body)).json()


@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_that_says_too_much_fails_and_holds_nobody_up(gateway: Strained, name: str) -> None:
    async with gateway.watched() as strain:
        told = await ask(gateway, name)
    assert told["__error__"]["error"] == "AgentInvalidError"
    assert AGENTS[name] in told["__error__"]["message"]
    strain.check(memory=100 * MB)


@pytest.mark.asyncio(loop_scope="function")
async def test_an_agent_that_says_too_much_in_all_fails_and_holds_nobody_up(tmp_path: Path) -> None:
    """280 MB, of which 64 are taken. Each text is there several times while it is checked, stored and folded."""
    async with strained(tmp_path, agents=python_agents("much")) as gateway, gateway.watched() as strain:
        told = await ask(gateway, "much")
    assert told["__error__"]["error"] == "AgentInvalidError"
    assert "more in one run than the limit of 67108864 bytes" in told["__error__"]["message"]
    strain.check(memory=250 * MB)


async def test_as_many_values_as_an_agent_may_say_hold_nobody_up(gateway: Strained) -> None:
    async with gateway.watched() as strain:
        told = await ask(gateway, "words")
    assert len(told["words"]) == 190_000
    strain.check()


async def test_large_events_wait_on_the_disk_for_a_reader_who_is_slow(gateway: Strained) -> None:
    """280 MB of them: neither who writes them down nor who reads them is given all at once."""
    asked = {"assistant_id": "events", "input": {"message": "hi"}, "stream_mode": ["custom"]}
    size = 0
    async with gateway.watched() as strain, gateway.http.stream("POST", "/runs/stream", json=asked) as slow:
        run = slow.headers["content-location"]
        joined = await gateway.http.get(f"{run}/join")  # when it has ended, the other one begins to read
        assert joined.json()["messages"][-1]["content"] == "done"
        async for chunk in slow.aiter_raw():
            size += len(chunk)
    assert size > 40 * 7 * MB
    strain.check(memory=250 * MB)
