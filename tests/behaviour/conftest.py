"""Behaviour of the gateway as a whole, with the fixtures of its own tests."""

from tests.gateway.conftest import hubs, pytest_asyncio_loop_factories

__all__ = ("hubs", "pytest_asyncio_loop_factories")
