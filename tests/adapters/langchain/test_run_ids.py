"""The ids that a caller is told of its run, in headers and bodies, are those of that run and of no other: on a new
thread, a used one, a busy one in every strategy, and for answers."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.adapters.langchain.site import SHARED, Site, said
from tests.gateway.hubs import within

pytestmark = SHARED

MARK = {"mark": "mine"}
RUN = re.compile(r"/threads/([^/]+)/runs/([^/]+)")


@dataclass(frozen=True)
class Scene:
    """A thread on which something has happened."""

    site: Site
    thread_id: str

    async def fresh(self) -> dict[str, Any]:
        return {"assistant_id": "echo", "input": said("hi")}

    async def used(self) -> dict[str, Any]:
        await self.site.wait(self.thread_id)
        return await self.fresh()

    async def asked(self) -> dict[str, Any]:
        """A new input takes the question back."""
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
        return {"assistant_id": "echo", "input": said("hi"), "multitask_strategy": strategy}

    async def enqueued(self) -> dict[str, Any]:
        await self.site.run(self.thread_id)
        going = await self.site.agent.called()
        behind = asyncio.ensure_future(self.site.wait(self.thread_id, "echo", metadata={"mark": "another"}))
        await within(self._waits(), "the run before")
        going.end()
        await behind
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
    Scene.asked,
    Scene.answered,
    Scene.answered_in_part,
    Scene.answered_at_last,
    Scene.enqueued,
    Scene.interrupting,
    Scene.rolling_back,
)
PATHS = ("/threads/{}/runs", "/threads/{}/runs/wait", "/threads/{}/runs/stream", "/agent-protocol/threads/{}/runs/wait")


def told(answer: httpx.Response) -> set[str]:
    """All ids of runs in an answer."""
    headers = [answer.headers.get(name, "") for name in ("content-location", "location")]
    found = {match[2] for text in headers if (match := RUN.search(text))}
    return found | {answer.headers["babelgate-run"]} | set(re.findall(r'"run_id": ?"([^"]+)"', answer.text))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_the_ids_in_an_answer_lead_to_the_run_that_it_was_asked_for(
    site: Site, scene: Callable[[Scene], Awaitable[dict[str, Any]]], path: str
) -> None:
    thread_id = await site.thread()
    body = await scene(Scene(site, thread_id))
    answer = await site.post(path.format(thread_id), {**body, "metadata": MARK})
    assert answer.status_code == 200, answer.text
    (run_id,) = told(answer)
    run = await site.look(f"/threads/{thread_id}/runs/{run_id}")
    assert (run["run_id"], run["metadata"]["mark"]) == (run_id, "mine")
    for again in (f"/threads/{thread_id}/runs/{run_id}/join", f"/agent-protocol/runs/{run_id}/wait"):
        assert told(await site.get(again)) == {run_id}
    listed = await site.look(f"/threads/{thread_id}/runs?limit=100")
    assert json.dumps(listed[0]).count(run_id) >= 2, "and it is the newest"
