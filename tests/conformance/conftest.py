"""Event loops of the tests of the judge."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Any]:
    """Return the event loops on which a test runs: those in `LOOPS` of its module, or the default loop."""
    module = item.getparent(pytest.Module)
    return getattr(module.obj if module else None, "LOOPS", {"asyncio": asyncio.new_event_loop})
