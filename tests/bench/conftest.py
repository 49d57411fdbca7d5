"""Fixtures of the tests of benchmarks."""

from tests.gateway.hubs import hubs as hubs
