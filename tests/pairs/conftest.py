"""Which pairs there are, and what one consists of."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.pairs.caller import Caller
from tests.pairs.house import HOUSES, House


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House]:
    """A house of the kind that the test asks for: one for all its tests in a row."""
    folder: Path = tmp_path_factory.mktemp("house")
    async with HOUSES[request.param](folder) as house:
        yield house


@pytest.fixture
def house(started: House) -> House:
    started.reset()
    return started


@pytest.fixture
def caller(request: pytest.FixtureRequest, started: House) -> Caller:
    made, agent = request.param
    return made(started.front.http, agent)
