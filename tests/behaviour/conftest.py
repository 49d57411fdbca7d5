"""Behaviour of the gateway as a whole, with the fixtures of its own tests."""

from tests.gateway.conftest import hubs as hubs
from tests.gateway.conftest import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
