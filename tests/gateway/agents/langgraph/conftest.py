from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.gateway.graphs import GRAPHS
from tests.gateway.platform import Caller, graphs_running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def graphs(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Caller]:
    """Caller of a gateway with all graphs, shared by the tests of a module. Each test uses its own threads."""
    async with graphs_running(tmp_path_factory.mktemp("graphs"), *GRAPHS) as caller:
        yield caller
