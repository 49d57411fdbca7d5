from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.adapters.a2a.receiver import Receiver, receiving
from tests.adapters.a2a.site import ALICE, KEYS, Site, opened


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Site]:
    async with opened(tmp_path) as made:
        yield made


@pytest.fixture
async def owned(tmp_path: Path) -> AsyncGenerator[Site]:
    """With keys, and Alice's in every call."""
    folder = tmp_path / "owned"
    folder.mkdir()
    async with opened(folder, keys=KEYS) as made:
        made.client.headers.update(ALICE)
        yield made


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    async with receiving() as made:
        yield made
