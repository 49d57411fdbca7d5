from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.adapters.a2a.receiver import Receiver, receiving
from tests.adapters.a2a.site import Site, opened


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Site]:
    async with opened(tmp_path) as made:
        yield made


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    async with receiving() as made:
        yield made
