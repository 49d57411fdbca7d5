"""A gateway on PostgreSQL that is killed: every protocol shows what it showed before, and questions are answered."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.gateway.hubs import turned, within
from tests.gateway.stage import Stage, nursery
from tests.pairs.acp import Acp
from tests.pairs.caller import Caller, Seen
from tests.pairs.house import CALLERS
from tests.postgres import empty, url_of
from tests.running import running

pytestmark = pytest.mark.slow


async def test_every_protocol_goes_on_after_a_kill(postgres_tables: str, tmp_path: Path) -> None:
    empty(postgres_tables)
    agents = {"echo": {"python": "babelgate.gateway.demo:echo"}, "ask": {"python": "babelgate.gateway.demo:ask"}}
    async with nursery() as born:
        stage = Stage(tmp_path, born, {"agents": agents, "database": url_of(postgres_tables)})
        http = await stage.start()
        echoes, askers = ([made(http, agent) for made in CALLERS] for agent in agents)
        told = await within(asyncio.gather(*(caller.told("Hello") for caller in echoes)))
        asked = await within(asyncio.gather(*(caller.send("go") for caller in askers)))
        assert [(seen.state, seen.text) for seen in told] == [("completed", "Hello")] * len(CALLERS)
        assert all(seen.questions for seen in asked)
        shown = await _look(echoes, told), await _look(askers, asked)
        http = await stage.restart()
        for caller in (*echoes, *askers):
            caller.http = http
        assert (await _look(echoes, told), await _look(askers, asked)) == shown
        answered = await within(
            asyncio.gather(*(caller.answer(seen, "Ada") for caller, seen in zip(askers, asked, strict=True)))
        )
        assert [(seen.state, seen.text) for seen in answered] == [("completed", "Hello, Ada.")] * len(CALLERS)
        await stage.killed()
        await stage.close()
        assert "Traceback" not in stage.complaints()


async def test_a_gateway_that_stands_by_goes_on_where_one_was_killed(
    postgres_tables: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    empty(postgres_tables)
    database = url_of(postgres_tables)
    agents = {"ask": {"python": "babelgate.gateway.demo:ask"}}
    async with nursery() as born, AsyncExitStack() as stack:
        stage = Stage(tmp_path, born, {"agents": agents, "database": database})
        caller = Acp(await stage.start(), "ask")
        asked = await caller.send("go")
        second = running(tmp_path, configured=agents, database=database, standby=True)
        starting = asyncio.ensure_future(stack.enter_async_context(second))
        await within(turned(lambda: "waits until it is gone" in caplog.text), "the look at the lock")
        assert await caller.look(asked.task_id) == asked
        stage.kill()
        caller.http = (await within(starting)).http
        assert await caller.look(asked.task_id) == asked
        seen = await caller.answer(asked, "Ada")
        assert (seen.state, seen.text) == ("completed", "Hello, Ada.")


async def _look(callers: Sequence[Caller], seen: Sequence[Seen]) -> list[Seen]:
    looks = (caller.look(each.task_id) for caller, each in zip(callers, seen, strict=True))
    return await within(asyncio.gather(*looks))
