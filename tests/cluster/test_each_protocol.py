"""Two gateways on one database: callers of every protocol go from one to the other, and see what they would on one."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.hubs import within
from tests.gateway.stage import Stage, nursery
from tests.pairs.caller import Caller, Seen
from tests.pairs.house import CALLERS
from tests.postgres import empty, url_of
from tests.running import running

pytestmark = pytest.mark.slow


async def test_every_protocol_is_told_on_one_node_what_was_said_on_the_other_and_answers_there(
    postgres_tables: str, tmp_path: Path
) -> None:
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
        echoes, askers = ([made(there, agent) for made in CALLERS] for agent in agents)
        told = await within(asyncio.gather(*(caller.told("Hello") for caller in echoes)))
        asked = await within(asyncio.gather(*(caller.send("go") for caller in askers)))
        assert [(seen.state, seen.text) for seen in told] == [("completed", "Hello")] * len(CALLERS)
        shown = await look(echoes, told), await look(askers, asked)
        for caller in (*echoes, *askers):
            caller.http = here.http
        assert (await look(echoes, told), await look(askers, asked)) == shown
        answered = await within(
            asyncio.gather(*(caller.answer(seen, "Ada") for caller, seen in zip(askers, asked, strict=True)))
        )
        assert [(seen.state, seen.text) for seen in answered] == [("completed", "Hello, Ada.")] * len(CALLERS)
        after = await look(askers, answered)
        for caller in askers:
            caller.http = there
        assert await look(askers, answered) == after
        await stage.close()
        assert "Traceback" not in stage.complaints()


async def look(callers: Sequence[Caller], seen: Sequence[Seen]) -> list[Seen]:
    looks = (caller.look(each.task_id) for caller, each in zip(callers, seen, strict=True))
    return await within(asyncio.gather(*looks))
