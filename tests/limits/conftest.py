"""Fixture of the limit tests. One gateway serves all tests of a module that use it."""

from collections.abc import AsyncGenerator
from types import ModuleType
from typing import Any, cast

import pytest
import pytest_asyncio

from tests.limits.strain import Strained, strained


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Strained]:
    """A gateway with the `SETTINGS` of the module."""
    module: ModuleType = cast("pytest.Module", request.node).obj
    settings: dict[str, Any] = getattr(module, "SETTINGS", {})
    async with strained(tmp_path_factory.mktemp("gateway"), **settings) as running:
        yield running
