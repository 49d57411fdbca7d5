"""Fixtures of the pair suite: the houses and their callers."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from babelgate.adapters.mcp.server import calls
from tests import opened
from tests.pairs.caller import Caller
from tests.pairs.house import HOUSES, House
from tests.postgres_server import postgres_server


class Houses:
    """Gateways, each started for the first test that needs it, and shared by all later tests of the module."""

    def __init__(self, stack: AsyncExitStack, tmp: pytest.TempPathFactory) -> None:
        self._stack = stack
        self._tmp = tmp
        self._started: dict[str, House] = {}

    async def get(self, kind: str) -> House:
        if kind not in self._started:
            opened = HOUSES[kind].open(self._tmp.mktemp(kind), HOUSES[kind])
            self._started[kind] = await self._stack.enter_async_context(opened)
        return self._started[kind]


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Generator[None]:
    """Patch of the default database: with `--postgres`, each gateway without a configured database gets a PostgreSQL
    schema.

    The server allows more connections than by default, because there are many gateways.
    """
    if not request.config.option.postgres:
        yield
        return
    with postgres_server(max_connections="1000") as server, pytest.MonkeyPatch.context() as patch:
        schemas = defaultdict[Path, str](lambda: server.add_schema(f"pair_{uuid4().hex}"))
        patch.setattr(opened, "database_in", schemas.__getitem__)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def houses(databases: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Houses]:
    async with AsyncExitStack() as stack:
        yield Houses(stack, tmp_path_factory)


@pytest_asyncio.fixture(loop_scope="module")
async def house(request: pytest.FixtureRequest, houses: Houses) -> House:
    """A gateway in front of the test's kind of agents."""
    found = await houses.get(request.param)
    found.reset()
    return found


@pytest.fixture(autouse=True)
def callers_of_mcp_are_answered_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter polls of MCP callers: the gateway delays a poll while there is nothing new."""
    monkeypatch.setattr(calls, "_HOLD", 0.1)


@pytest.fixture
def caller(request: pytest.FixtureRequest, house: House) -> Caller:
    """A caller that has not yet used the agent."""
    caller_class, agent = request.param
    return caller_class(house.front.http, agent)


@pytest.fixture
def other(request: pytest.FixtureRequest, house: House) -> Caller:
    """A second caller, which reads the run of the first one."""
    caller_class, agent = request.param
    return caller_class(house.front.http, agent)
