"""A killed gateway on PostgreSQL: every protocol shows the same as before, and questions can be answered."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.gateway.hubs import eventually, within
from tests.gateway.stage import Stage, nursery
from tests.pairs.acp import Acp
from tests.pairs.caller import Caller, TaskView
from tests.pairs.house import CALLERS
from tests.postgres import empty, url_of
from tests.running import running

pytestmark = pytest.mark.slow


async def test_every_protocol_shows_the_same_after_a_kill(postgres_tables: str, tmp_path: Path) -> None:
    empty(postgres_tables)
    agents = {"echo": {"python": "babelgate.gateway.demo:echo"}, "ask": {"python": "babelgate.gateway.demo:ask"}}
    async with nursery() as born:
        stage = Stage(tmp_path, born, {"agents": agents, "database": url_of(postgres_tables)})
        http = await stage.start()
        echoes, askers = ([new_caller(http, agent) for new_caller in CALLERS] for agent in agents)
        completed = await within(asyncio.gather(*(caller.run_to_end("Hello") for caller in echoes)))
        paused = await within(asyncio.gather(*(caller.send("go") for caller in askers)))
        assert [(view.state, view.text) for view in completed] == [("completed", "Hello")] * len(CALLERS)
        assert all(view.questions for view in paused)
        before = await _look(echoes, completed), await _look(askers, paused)
        http = await stage.restart()
        for caller in (*echoes, *askers):
            caller.http = http
        assert (await _look(echoes, completed), await _look(askers, paused)) == before
        answered = await within(
            asyncio.gather(*(caller.answer(view, "Ada") for caller, view in zip(askers, paused, strict=True)))
        )
        assert [(view.state, view.text) for view in answered] == [("completed", "Hello, Ada.")] * len(CALLERS)
        await stage.killed()
        await stage.close()
        assert "Traceback" not in stage.complaints()


async def test_a_standby_gateway_takes_over_after_a_kill(
    postgres_tables: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    empty(postgres_tables)
    database = url_of(postgres_tables)
    agents = {"ask": {"python": "babelgate.gateway.demo:ask"}}
    async with nursery() as born, AsyncExitStack() as stack:
        stage = Stage(tmp_path, born, {"agents": agents, "database": database})
        caller = Acp(await stage.start(), "ask")
        paused = await caller.send("go")
        second = running(tmp_path, configured=agents, database=database, standby=True)
        starting = asyncio.ensure_future(stack.enter_async_context(second))
        await within(eventually(lambda: "waiting until that gateway ends" in caplog.text), "the look at the lock")
        assert await caller.look(paused.task_id) == paused
        stage.kill()
        caller.http = (await within(starting)).http
        assert await caller.look(paused.task_id) == paused
        completed = await caller.answer(paused, "Ada")
        assert (completed.state, completed.text) == ("completed", "Hello, Ada.")


async def _look(callers: Sequence[Caller], views: Sequence[TaskView]) -> list[TaskView]:
    looks = (caller.look(view.task_id) for caller, view in zip(callers, views, strict=True))
    return await within(asyncio.gather(*looks))
