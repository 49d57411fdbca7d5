"""Gateways for the tests.

Tests marked `SHARED` share the gateway of their module. Each has its own thread and its own scripted agent.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio

from babelgate.canonical import Event, Invocation
from tests.adapters.langchain.far import Far
from tests.adapters.langchain.site import Site, opened, shares
from tests.bridge import client as bridge
from tests.gateway.hubs import Scripted


class _CurrentAgent:
    """Proxy of the current test's scripted agent."""

    scripted: Scripted

    def run(self, call: Invocation) -> AsyncIterator[Event]:
        return self.scripted.run(call)


@pytest.fixture
async def own_site(tmp_path: Path) -> AsyncGenerator[Site]:
    async with opened(tmp_path) as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[tuple[Site, _CurrentAgent]]:
    current = _CurrentAgent()
    async with opened(tmp_path_factory.mktemp("site"), {"scripted": current}) as site:
        yield site, current


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Site:
    if not shares(request):
        return request.getfixturevalue("own_site")
    shared, current = request.getfixturevalue("shared_site")
    current.scripted = Scripted()
    return Site(shared.gateway, current.scripted)


@pytest.fixture
async def own_thread(site: Site) -> str:
    return await site.thread()


@pytest_asyncio.fixture(loop_scope="module")
async def shared_thread(site: Site) -> str:
    return await site.thread()


@pytest.fixture
def thread_id(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("shared_thread" if shares(request) else "own_thread")


@pytest.fixture
async def http(far: Far) -> AsyncGenerator[httpx.AsyncClient]:
    async with bridge(cast("Any", far)) as client:
        yield client
