from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.adapters.a2a.far import Far, far_server
from tests.adapters.a2a.receiver import Receiver, receiving
from tests.adapters.a2a.site import ALICE, KEYS, Site, opened
from tests.adapters.a2a.through import Through, through


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with opened(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def site(shared_site: Site) -> Site:
    """The module's gateway, without waiting agents of an earlier test."""
    shared_site.gates.close()
    return shared_site


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(tmp_path: Path) -> AsyncGenerator[Site]:
    """A gateway for one test: for lists and shutdowns."""
    async with opened(tmp_path) as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keyed(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with opened(tmp_path_factory.mktemp("keyed"), keys=KEYS) as site:
        yield site


@pytest.fixture
def owned(keyed: Site) -> Site:
    """A gateway with keys, and Alice's key in every call."""
    keyed.client.headers.update(ALICE)
    return keyed


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Through]:
    async with through(tmp_path_factory.mktemp("through")) as both:
        yield both


@pytest.fixture
async def far() -> AsyncGenerator[Far]:
    async with far_server() as far:
        yield far


@pytest_asyncio.fixture(loop_scope="module")
async def receiver() -> AsyncGenerator[Receiver]:
    async with receiving() as receiver:
        yield receiver
