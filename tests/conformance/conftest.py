"""Which event loop the tests of the judge run on."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Any]:
    """A module that says `LOOPS` is run on each of them."""
    module = item.getparent(pytest.Module)
    return getattr(module.obj if module else None, "LOOPS", {"asyncio": asyncio.new_event_loop})
