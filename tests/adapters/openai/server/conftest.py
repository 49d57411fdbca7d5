"""A gateway with agents, and hubs without HTTP before them, for what servers ask of one."""

from tests.adapters.openai.server.agents import closed as closed
from tests.adapters.openai.server.agents import gateway as gateway
from tests.gateway.hubs import hubs as hubs
