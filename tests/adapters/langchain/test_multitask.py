"""Inputs for a busy thread: each of the four strategies, and fifty random mixtures."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import pytest

from babelgate.canonical import Scope
from babelgate.canonical.event import RunEnded, RunStarted
from tests.adapters.langchain.site import SHARED, Site, user_input
from tests.gateway.hubs import Activation, within

pytestmark = SHARED

BUSY: Final = "Thread is already running a task. Wait for it to finish or choose a different multitask strategy."


async def start_two(site: Site, strategy: str | None, **fields: Any) -> tuple[str, str, Activation, Any]:
    """Start a run and send a second input.

    Returns the thread, the first run, its activation, and the second response.
    """
    thread_id = await site.thread()
    first = await site.run(thread_id, input={**user_input("first"), "n": 1})
    activation = await site.agent.called()
    if strategy is not None:
        fields["multitask_strategy"] = strategy
    return thread_id, first, activation, await site.create(thread_id, input=user_input("second"), **fields)


async def contents(site: Site, thread_id: str) -> list[str]:
    values = (await site.look(f"/threads/{thread_id}/state"))["values"]
    return [message["content"] for message in values["messages"]]


async def test_reject_is_a_conflict_and_keeps_the_first_run(site: Site) -> None:
    thread_id, first, activation, answer = await start_two(site, "reject")
    assert (answer.status_code, answer.json()) == (409, {"detail": BUSY})
    activation.say("done").end()
    assert await site.ends(thread_id, first) == "success"
    assert await contents(site, thread_id) == ["first", "done"]
    assert len(await site.look(f"/threads/{thread_id}/runs")) == 1


async def test_enqueue_is_the_platforms_default_and_waits(site: Site) -> None:
    for strategy in (None, "enqueue"):
        thread_id, first, activation, answer = await start_two(site, strategy)
        second = answer.json()["run_id"]
        assert answer.status_code == 200
        assert answer.json()["multitask_strategy"] == "enqueue"
        assert await site.status(thread_id, second) == "pending"
        assert not site.agent.waiting
        activation.say("done").end()
        assert await site.ends(thread_id, first) == "success"
        (await site.agent.called()).say("too").end()
        assert await site.ends(thread_id, second) == "success"
        assert await contents(site, thread_id) == ["first", "done", "second", "too"]


async def test_interrupt_keeps_the_state_of_the_first_run(site: Site) -> None:
    thread_id, first, activation, answer = await start_two(site, "interrupt")
    second = answer.json()["run_id"]
    assert answer.status_code == 200
    assert await site.ends(thread_id, first) == "interrupted"
    assert activation.cancelled.is_set()
    (await site.agent.called()).say("done").end()
    assert await site.ends(thread_id, second) == "success"
    assert await contents(site, thread_id) == ["first", "second", "done"]
    assert (await site.look(f"/threads/{thread_id}"))["values"]["n"] == 1


async def test_rollback_deletes_the_first_run_with_its_states(site: Site) -> None:
    thread_id, first, _, answer = await start_two(site, "rollback")
    second = answer.json()["run_id"]
    assert answer.status_code == 200
    (await site.agent.called()).say("done").end()
    assert await site.ends(thread_id, second) == "success"
    assert await site.status(thread_id, first) == 404
    assert [run["run_id"] for run in await site.look(f"/threads/{thread_id}/runs")] == [second]
    assert await contents(site, thread_id) == ["second", "done"]
    assert "n" not in (await site.look(f"/threads/{thread_id}"))["values"]
    assert {state["metadata"]["run_id"] for state in await site.look(f"/threads/{thread_id}/history")} == {second}


@pytest.mark.parametrize("path", ["/threads/{t}/runs", "/runs", "/agent-protocol/threads/{t}/runs/wait"])
async def test_the_agent_protocol_rejects_by_default(site: Site, path: str) -> None:
    thread_id, _, activation, _ = await start_two(site, "reject")
    answer = await site.post(path.format(t=thread_id), {"agent_id": "echo", "thread_id": thread_id, "input": "x"})
    assert answer.status_code == 409
    activation.end()


@pytest.mark.parametrize("strategy", ["enqueue", "interrupt"])
@pytest.mark.parametrize("path", ["/threads/{}/runs/wait", "/agent-protocol/threads/{}/runs/wait"])
async def test_each_of_two_waits_returns_its_run(site: Site, path: str, strategy: str) -> None:
    thread_id = await site.thread()

    def wait(text: str) -> asyncio.Future[httpx.Response]:
        body = {"assistant_id": "scripted", "input": user_input(text), "multitask_strategy": strategy}
        return asyncio.ensure_future(site.post(path.format(thread_id), {**body, "metadata": {"mark": text}}))

    async def runs() -> list[str]:
        listed = await site.look(f"/threads/{thread_id}/runs")
        return [run["run_id"] for run in sorted(listed, key=lambda run: run["metadata"]["mark"])]

    waits = [wait("first")]
    activation = await site.agent.called()
    waits.append(wait("second"))
    while len(ids := await runs()) < 2:
        pass
    if strategy == "enqueue":
        activation.say("done").end()
    (await site.agent.called()).say("too").end()
    first_answer, second_answer = await within(asyncio.gather(*waits), "the end of both")
    assert [first_answer.headers["babelgate-run"], second_answer.headers["babelgate-run"]] == ids
    first_contents = ["first", "done"] if strategy == "enqueue" else ["first"]
    assert _contents(first_answer.json(), ids[0]) == first_contents
    assert _contents(second_answer.json(), ids[1]) == [*first_contents, "second", "too"]


def _contents(body: Any, run_id: str) -> list[str]:
    if "run" in body:  # in the Agent Protocol
        assert body["run"]["run_id"] == run_id
    return [message["content"] for message in body["messages"]]


# Mixtures


@dataclass
class Model:
    """Expected state of a thread: the status of each run, and the queue."""

    status: dict[str, str | int] = field(default_factory=dict[str, str | int])
    queue: list[str] = field(default_factory=list[str])
    """Ids of unfinished runs; the first one is active."""

    def post(self, run_id: str | None, strategy: str) -> None:
        if run_id is None:
            return
        if strategy in ("interrupt", "rollback"):
            for other in self.queue:
                self.status[other] = "interrupted" if strategy == "interrupt" else 404
            self.queue.clear()
        self.queue.append(run_id)
        self.status[run_id] = "pending"

    def end(self, run_id: str, status: str | int) -> None:
        self.queue.remove(run_id)
        self.status[run_id] = status

    def accepts(self, strategy: str) -> bool:
        return strategy != "reject" or not self.queue


class Scene:
    def __init__(self, site: Site, thread_id: str) -> None:
        self.site = site
        self.thread_id = thread_id
        self.model = Model()
        self.activations: dict[str, Activation] = {}

    async def post(self, strategy: str) -> None:
        answer = await self.site.create(self.thread_id, multitask_strategy=strategy)
        assert answer.status_code == (200 if self.model.accepts(strategy) else 409)
        self.model.post(answer.json().get("run_id"), strategy)
        await self.settle()

    async def finish(self) -> None:
        if self.model.queue:
            run_id = self.model.queue[0]
            self.activations[run_id].say("done").end()
            self.model.end(run_id, "success")
            await self.settle()

    async def cancel(self, rng: random.Random, action: str) -> None:
        if self.model.queue:
            run_id = rng.choice(self.model.queue)
            path = f"/threads/{self.thread_id}/runs/{run_id}/cancel?wait=1&action={action}"
            assert (await self.site.post(path)).status_code == 200
            self.model.end(run_id, "interrupted" if action == "interrupt" else 404)
            await self.settle()

    async def settle(self) -> None:
        """Wait until the first run of the queue is active, and compare all runs with the model."""
        queue, site = self.model.queue, self.site
        if queue and queue[0] not in self.activations:
            activation = await site.agent.called()
            assert activation.call.run_id == queue[0]
            self.activations[queue[0]] = activation
            self.model.status[queue[0]] = "running"
        for run_id, status in self.model.status.items():
            if run_id not in queue:
                await site.get(f"/threads/{self.thread_id}/runs/{run_id}/join")
            assert await site.status(self.thread_id, run_id) == status
        runs = await site.look(f"/threads/{self.thread_id}/runs?limit=100")
        assert [run["status"] for run in runs].count("running") == min(1, len(queue))
        assert {run["run_id"] for run in runs} == {each for each, status in self.model.status.items() if status != 404}
        assert (await site.look(f"/threads/{self.thread_id}"))["status"] == ("busy" if queue else "idle")

    async def check_log(self) -> None:
        """Check in the order of the log that at most one run was active at any time."""
        active: set[str | None] = set()
        for record in await self.site.gateway.hub.reads.records("default", Scope(self.thread_id)):
            if isinstance(record.event, RunStarted):
                active.add(record.run_id)
            elif isinstance(record.event, RunEnded):
                active.discard(record.run_id)
            assert len(active) <= 1
        assert not active


async def play(site: Site, seed: int) -> None:
    rng = random.Random(seed)
    scene = Scene(site, await site.thread())
    for _ in range(7):
        match rng.choices(["post", "finish", "cancel", "roll back"], [5, 2, 1, 1])[0]:
            case "post":
                await scene.post(rng.choice(["reject", "enqueue", "interrupt", "rollback"]))
            case "finish":
                await scene.finish()
            case "cancel":
                await scene.cancel(rng, "interrupt")
            case _:
                await scene.cancel(rng, "rollback")
    while scene.model.queue:
        await scene.finish()
    await scene.check_log()


@pytest.mark.parametrize("tens", range(5))
async def test_any_mixture_of_strategies_matches_the_model(site: Site, tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        await play(site, seed)
