"""A hub of its own, for what needs no protocol."""

from tests.gateway.hubs import hubs as hubs
