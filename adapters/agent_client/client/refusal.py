"""Refusal of agents behind a URL: the gateway calls agents of this protocol only as programs that it starts."""

from collections.abc import Mapping
from typing import NoReturn

import httpx

from babelgate.canonical import AgentInfo, FaultCode, FaultError

_WORDS = "Agents of the Agent Client Protocol have no URL: set command, and no url"


async def discover(url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> list[AgentInfo]:
    """Refuse to detect the protocol at a URL. Raises agent_invalid."""
    raise FaultError(FaultCode.AGENT_INVALID, _WORDS)


def refuse_url(url: str, name: str, **connection: object) -> NoReturn:
    """Refuse to create a client for a URL. Raises agent_invalid."""
    raise FaultError(FaultCode.AGENT_INVALID, _WORDS)
