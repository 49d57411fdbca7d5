"""Two gateways on one database: callers of every protocol switch from one to the other, and see the same as on one."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.hubs import within
from tests.gateway.stage import Stage, nursery
from tests.pairs.caller import Caller, TaskView
from tests.pairs.house import CALLERS
from tests.postgres import empty, url_of
from tests.running import running

pytestmark = pytest.mark.slow


async def test_every_protocol_shows_and_answers_tasks_of_another_node(postgres_tables: str, tmp_path: Path) -> None:
    empty(postgres_tables)
    agents = {"echo": {"python": "babelgate.gateway.demo:echo"}, "ask": {"python": "babelgate.gateway.demo:ask"}}
    shared: dict[str, Any] = {
        "database": url_of(postgres_tables),
        "cluster": True,
        "blobs": str(tmp_path / "blobs"),
    }
    async with nursery() as born, running(tmp_path, configured=agents, **shared) as here:
        stage = Stage(tmp_path, born, {"agents": agents, **shared})
        there = await stage.start()
        echoes, askers = ([new_caller(there, agent) for new_caller in CALLERS] for agent in agents)
        completed = await within(asyncio.gather(*(caller.run_to_end("Hello") for caller in echoes)))
        paused = await within(asyncio.gather(*(caller.send("go") for caller in askers)))
        assert [(view.state, view.text) for view in completed] == [("completed", "Hello")] * len(CALLERS)
        before = await look(echoes, completed), await look(askers, paused)
        for caller in (*echoes, *askers):
            caller.http = here.http
        assert (await look(echoes, completed), await look(askers, paused)) == before
        answered = await within(
            asyncio.gather(*(caller.answer(view, "Ada") for caller, view in zip(askers, paused, strict=True)))
        )
        assert [(view.state, view.text) for view in answered] == [("completed", "Hello, Ada.")] * len(CALLERS)
        after = await look(askers, answered)
        for caller in askers:
            caller.http = there
        assert await look(askers, answered) == after
        await stage.close()
        assert "Traceback" not in stage.complaints()


async def look(callers: Sequence[Caller], views: Sequence[TaskView]) -> list[TaskView]:
    looks = (caller.look(view.task_id) for caller, view in zip(callers, views, strict=True))
    return await within(asyncio.gather(*looks))
