"""Almost valid responses: a seeded generator changes a value, an event or a byte in the servers' own responses.

Each run ends, successfully or by the agent's fault, every protocol can show it, and the gateway logs no failure.

`BABELGATE_FUZZ=300` sets the number of responses for each protocol; `BABELGATE_FUZZ_SEED=2` changes the seed.
"""

import json
import os
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from babelgate.canonical import Receipt
from tests.faults.proxy import Changed
from tests.faults.stage import WIRES, Stage, serves
from tests.gateway import fuzz
from tests.gateway.log_capture import capture_log

COUNT: Final = int(os.environ.get("BABELGATE_FUZZ", "16"))
SEED: Final = int(os.environ.get("BABELGATE_FUZZ_SEED", "1"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(0 if "BABELGATE_FUZZ" in os.environ else 120),
]


def changed(body: bytes, seed: str) -> bytes:
    """Return a stream with one changed event or another order, or a response with another value."""
    chance = random.Random(seed)
    if not body.startswith((b"event:", b"id:", b"data:", b":")):
        return mutated(body, chance)
    events = [event for event in body.replace(b"\r\n", b"\n").split(b"\n\n") if event.strip()]
    at = chance.randrange(len(events))
    match chance.randrange(8):
        case 0:
            del events[at]
        case 1:
            events.insert(chance.randrange(len(events) + 1), events[at])
        case 2:
            chance.shuffle(events)
        case _:
            head, mark, data = events[at].partition(b"data: ")
            events[at] = head + mark + mutated(data, chance).replace(b"\n", b" ").replace(b"\r", b" ")
    return b"\n\n".join(events) + b"\n\n"


def mutated(raw: bytes, chance: random.Random) -> bytes:
    try:
        value: Any = json.loads(raw)
    except ValueError:
        return chance.randbytes(20)
    ((_, body),) = fuzz.bodies(value, chance.random(), 1)
    return body


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.usefixtures("hurried")
async def test_an_almost_valid_response_is_the_agents_fault(stage: Stage, wire: str) -> None:
    agent, wrong = f"{wire}.tell.hasty", list[str]()
    for number in range(COUNT):
        seed = f"{SEED} {wire} {number}"
        change: Callable[[bytes], bytes] = partial(changed, seed=seed)
        stage.reset()
        stage.proxy(wire).befall(WIRES[wire].starts, Changed(change))
        with capture_log() as log:
            found = await stage.run(agent, stage.text())
            failures = await views(stage, agent, found.receipt)
        fault = found.run.fault
        is_over = found.ended_well or found.run.status in ("paused", "cancelled")
        is_theirs = fault is not None and fault.blame == "upstream" and len(fault.message) < 2000
        if not (is_over or is_theirs):
            wrong.append(f"{seed}: {found.run.status} {str(fault)[:300]}")
        wrong += [f"{seed}: {each}" for each in failures]
        if log.errors:
            wrong.append(f"{seed}: {log.errors[0][-600:]}")
        await serves(stage, agent)
    assert wrong == []


async def views(stage: Stage, agent: str, receipt: Receipt) -> list[str]:
    """Return the requests in any protocol that cannot show the run, with their errors."""
    thread, task, run = receipt.thread_id, receipt.task_id, receipt.run_id
    tasks = f"/agent/{agent}/ap/v1/agent/tasks/{thread}"
    wrong: list[str] = []
    for path in (
        f"/acp/runs/{task}",
        f"/acp/runs/{task}/events",
        f"/acp/sessions/{thread}",
        f"/a2a/{agent}/tasks/{task}",
        f"/a2a/{agent}/v1/tasks/{task}",
        tasks,
        f"{tasks}/steps",
        f"{tasks}/artifacts",
        f"/threads/{thread}",
        f"/threads/{thread}/state",
        f"/threads/{thread}/history",
        f"/threads/{thread}/runs/{run}/stream",
        f"/agent-protocol/threads/{thread}/runs/{run}/wait",
    ):
        headers = {"Last-Event-ID": "-1", **({"A2A-Version": "1.0"} if "/v1" not in path else {})}
        response = await stage.front.http.get(path, headers=headers)
        if response.status_code != 200:
            wrong.append(f"{path}: {response.status_code} {response.text[:300]}")
    return wrong
