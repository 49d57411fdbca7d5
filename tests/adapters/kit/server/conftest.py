"""Fixture of a hub, for tests that need no protocol."""

from tests.gateway.hubs import hubs as hubs
