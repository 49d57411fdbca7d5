"""Which pairs there are, and what one consists of."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from adapters.mcp.server import calls
from tests.pairs.caller import Caller
from tests.pairs.house import HOUSES, House


class Houses:
    """Each is started for the first test that asks for it, and serves all that follow in the module."""

    def __init__(self, stack: AsyncExitStack, tmp: pytest.TempPathFactory) -> None:
        self._stack = stack
        self._tmp = tmp
        self._started: dict[str, House] = {}

    async def get(self, kind: str) -> House:
        if kind not in self._started:
            opened = HOUSES[kind].open(self._tmp.mktemp(kind), HOUSES[kind])
            self._started[kind] = await self._stack.enter_async_context(opened)
        return self._started[kind]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def houses(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Houses]:
    async with AsyncExitStack() as stack:
        yield Houses(stack, tmp_path_factory)


@pytest_asyncio.fixture(loop_scope="module")
async def house(request: pytest.FixtureRequest, houses: Houses) -> House:
    """With the kind of agents that the test asks for."""
    found = await houses.get(request.param)
    found.reset()
    return found


@pytest.fixture(autouse=True)
def callers_of_mcp_are_answered_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """They ask again and again what becomes of a run, and each answer is held back while there is nothing new."""
    monkeypatch.setattr(calls, "_HOLD", 0.1)


@pytest.fixture
def caller(request: pytest.FixtureRequest, house: House) -> Caller:
    """One who has not talked with the agent yet."""
    made, agent = request.param
    return made(house.front.http, agent)
