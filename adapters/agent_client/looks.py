"""Requests that read a run: none, because sessions are read over a WebSocket."""

from collections.abc import Sequence

from babelgate.adapters.agent_client.carries import VERSION
from babelgate.adapters.kit.adapter import Look, LookTarget


def looks(target: LookTarget) -> Sequence[Look]:
    """Return the reason why no HTTP request reads a run."""
    words = "Sessions are read over a WebSocket, by session/load."
    return (Look(version=VERSION, title="Agent Client Protocol session", why_not=words),)
