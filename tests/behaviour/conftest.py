"""Behaviour of the gateway as a whole, with the fixtures that its tests share."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.gateway.conftest import hubs as hubs
from tests.gateway.conftest import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
from tests.gateway.owning import Place, two_owners
from tests.gateway.siege import besieged
from tests.running import Running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    """A gateway for hostile requests."""
    async with besieged(tmp_path_factory.mktemp("besieged")) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Place]:
    """A gateway with resources of two owners."""
    async with two_owners(tmp_path_factory.mktemp("owners")) as place:
        yield place
