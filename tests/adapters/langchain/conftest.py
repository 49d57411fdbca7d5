from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.adapters.langchain.site import Site, opened


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Site]:
    async with opened(tmp_path) as made:
        yield made
