"""Fixtures: a gateway with agents, and hubs without HTTP for tests that call a server's parts directly."""

from tests.adapters.openai.server.agents import closed as closed
from tests.adapters.openai.server.agents import gateway as gateway
from tests.gateway.hubs import hubs as hubs
