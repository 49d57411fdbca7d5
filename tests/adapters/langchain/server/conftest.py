"""Fixture of hubs without HTTP, for tests of functions that use a hub."""

from tests.gateway.hubs import hubs as hubs
