"""Fixtures of the gateway's tests, and the event loops that they run on."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.gateway.hubs import hubs as hubs


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Any]:
    """Return the event loops of a test: those in `LOOPS` of its module, or the default."""
    module = item.getparent(pytest.Module)
    return getattr(module.obj if module else None, "LOOPS", {"asyncio": asyncio.new_event_loop})
