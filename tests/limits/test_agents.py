"""Agents in the gateway's process with too much output: their run fails, and other callers are not affected."""

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
    "pieces": "in pieces that together are larger than the limit of 8388608 bytes",
}
"""Agents of `hostile`, with their error messages.

Only the gateway imports that module, because it takes seconds and 600 MB.
"""

pytestmark = SLOW
SETTINGS: Final = {
    "agents": {**python_agents(*AGENTS, module="hostile"), **python_agents("words", "events")},
    "limits": {"output": "512MB"},
}


async def ask(gateway: Strained, agent: str) -> Any:
    body = {"assistant_id": agent, "input": {"message": "hi"}}
    return (await gateway.http.post("/runs/wait", json=body)).json()


@pytest.mark.parametrize("name", AGENTS)
async def test_too_large_an_output_fails_without_blocking_others(gateway: Strained, name: str) -> None:
    async with gateway.watched() as strain:
        state = await ask(gateway, name)
    assert state["__error__"]["error"] == "AgentInvalidError"
    assert AGENTS[name] in state["__error__"]["message"]
    strain.check(memory=100 * MB)


@pytest.mark.asyncio(loop_scope="function")
async def test_too_large_a_total_output_fails_without_blocking_others(tmp_path: Path) -> None:
    """Emit 280 MB, of which 64 MB are accepted.

    Each text is in memory several times while it is checked, stored and folded.
    """
    async with strained(tmp_path, agents=python_agents("much")) as gateway, gateway.watched() as strain:
        state = await ask(gateway, "much")
    assert state["__error__"]["error"] == "AgentInvalidError"
    assert "larger than the limit of 67108864 bytes (limits.output)" in state["__error__"]["message"]
    strain.check(memory=250 * MB)


async def test_the_largest_number_of_values_does_not_block_others(gateway: Strained) -> None:
    async with gateway.watched() as strain:
        state = await ask(gateway, "words")
    assert len(state["words"]) == 190_000
    strain.check()


async def test_large_events_for_a_slow_reader_stay_on_disk(gateway: Strained) -> None:
    """Emit 280 MB in events. Neither the writer nor the reader may hold them all at once."""
    body = {"assistant_id": "events", "input": {"message": "hi"}, "stream_mode": ["custom"]}
    size = 0
    async with gateway.watched() as strain, gateway.http.stream("POST", "/runs/stream", json=body) as slow:
        run = slow.headers["content-location"]
        joined = await gateway.http.get(f"{run}/join")  # the slow reader begins after the end of the run
        assert joined.json()["messages"][-1]["content"] == "done"
        async for chunk in slow.aiter_raw():
            size += len(chunk)
    assert size > 40 * 7 * MB
    strain.check(memory=250 * MB)
