"""Gateways and clients for the tests. Tests marked `SHARED` share the gateway of their module."""

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests import loopback
from tests.adapters.aief.far import Far, far_server
from tests.adapters.aief.site import Site, opened
from tests.adapters.langchain.site import shares


@pytest.fixture
async def own_site(tmp_path: Path) -> AsyncGenerator[Site]:
    async with opened(tmp_path) as opened_site:
        yield opened_site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with opened(tmp_path_factory.mktemp("site")) as opened_site:
        yield opened_site


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Site:
    if not shares(request):
        return request.getfixturevalue("own_site")
    shared: Site = request.getfixturevalue("shared_site")
    shared.gates.reset()
    return shared


@pytest.fixture
async def far() -> AsyncGenerator[Far]:
    async with far_server() as server:
        yield server


@pytest.fixture
async def http() -> AsyncGenerator[httpx.AsyncClient]:
    async with loopback.client() as client:
        yield client
