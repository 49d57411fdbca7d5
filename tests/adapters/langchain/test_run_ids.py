"""Run ids in headers and bodies of an answer are those of the caller's run.

The scenes are a new thread, a used one, a busy one with each strategy, and answers.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.adapters.langchain.site import SHARED, Site, user_input
from tests.gateway.hubs import within

pytestmark = SHARED

MARK = {"mark": "mine"}
RUN = re.compile(r"/threads/([^/]+)/runs/([^/]+)")


@dataclass(frozen=True)
class Scene:
    """Preparations of a thread; each method returns the body of the next request."""

    site: Site
    thread_id: str

    async def fresh(self) -> dict[str, Any]:
        return {"assistant_id": "echo", "input": user_input("hi")}

    async def used(self) -> dict[str, Any]:
        await self.site.wait(self.thread_id)
        return await self.fresh()

    async def question_open(self) -> dict[str, Any]:
        """Leave a question open, which the new input replaces."""
        await self.site.wait(self.thread_id, "ask")
        return await self.fresh()

    async def answered(self) -> dict[str, Any]:
        await self.site.wait(self.thread_id, "ask")
        return {"assistant_id": "ask", "command": {"resume": "Ann"}}

    async def answered_in_part(self) -> dict[str, Any]:
        first, _ = (await self.site.wait(self.thread_id, "approve"))["__interrupt__"]
        return {"assistant_id": "approve", "command": {"resume": {first["id"]: {"approved": True}}}}

    async def answered_at_last(self) -> dict[str, Any]:
        body = await self.answered_in_part()
        (rest,) = (await self.site.ok(f"/threads/{self.thread_id}/runs/wait", body))["__interrupt__"]
        return {"assistant_id": "approve", "command": {"resume": {rest["id"]: {"approved": True}}}}

    async def _busy(self, strategy: str) -> dict[str, Any]:
        await self.site.run(self.thread_id)
        await self.site.agent.called()
        return {"assistant_id": "echo", "input": user_input("hi"), "multitask_strategy": strategy}

    async def enqueued(self) -> dict[str, Any]:
        await self.site.run(self.thread_id)
        activation = await self.site.agent.called()
        waiting = asyncio.ensure_future(self.site.wait(self.thread_id, "echo", metadata={"mark": "another"}))
        await within(self._waits(), "the run before")
        activation.end()
        await waiting
        return await self.fresh()

    async def _waits(self) -> None:
        while len(await self.site.look(f"/threads/{self.thread_id}/runs")) < 2:
            pass

    async def interrupting(self) -> dict[str, Any]:
        return await self._busy("interrupt")

    async def rolling_back(self) -> dict[str, Any]:
        return await self._busy("rollback")


SCENES: tuple[Callable[[Scene], Awaitable[dict[str, Any]]], ...] = (
    Scene.fresh,
    Scene.used,
    Scene.question_open,
    Scene.answered,
    Scene.answered_in_part,
    Scene.answered_at_last,
    Scene.enqueued,
    Scene.interrupting,
    Scene.rolling_back,
)
PATHS = ("/threads/{}/runs", "/threads/{}/runs/wait", "/threads/{}/runs/stream", "/agent-protocol/threads/{}/runs/wait")


def run_ids_in(answer: httpx.Response) -> set[str]:
    """Return all run ids in an answer."""
    headers = [answer.headers.get(name, "") for name in ("content-location", "location")]
    ids = {match[2] for text in headers if (match := RUN.search(text))}
    return ids | {answer.headers["babelgate-run"]} | set(re.findall(r'"run_id": ?"([^"]+)"', answer.text))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_run_ids_in_an_answer_are_those_of_its_run(
    site: Site, scene: Callable[[Scene], Awaitable[dict[str, Any]]], path: str
) -> None:
    thread_id = await site.thread()
    body = await scene(Scene(site, thread_id))
    answer = await site.post(path.format(thread_id), {**body, "metadata": MARK})
    assert answer.status_code == 200, answer.text
    (run_id,) = run_ids_in(answer)
    run = await site.look(f"/threads/{thread_id}/runs/{run_id}")
    assert (run["run_id"], run["metadata"]["mark"]) == (run_id, "mine")
    for again in (f"/threads/{thread_id}/runs/{run_id}/join", f"/agent-protocol/runs/{run_id}/wait"):
        assert run_ids_in(await site.get(again)) == {run_id}
    listed = await site.look(f"/threads/{thread_id}/runs?limit=100")
    assert json.dumps(listed[0]).count(run_id) >= 2, "the run is the newest"
