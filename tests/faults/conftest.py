"""Fixtures of the fault tests. One stage serves all tests of a module."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.faults.stage import Stage, hurry, staged


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole_stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    async with staged(tmp_path_factory.mktemp("faults")) as new_stage:
        yield new_stage


@pytest.fixture
def stage(whole_stage: Stage) -> Stage:
    whole_stage.reset()
    return whole_stage


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
