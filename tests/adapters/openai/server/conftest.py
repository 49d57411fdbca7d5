"""Hubs without HTTP before them, for what servers ask of one."""

from tests.gateway.hubs import hubs as hubs
