"""Fixtures of the gateway's tests."""

from tests.gateway.hubs import hubs

__all__ = ("hubs",)
