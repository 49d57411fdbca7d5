"""Dialect selection by path: paths below `/agent-protocol` use the Agent Protocol's dialect, all others that of
LangGraph Platform."""

from typing import Any, Final

from litestar.connection import ASGIConnection

from babelgate.adapters.langchain.codec.stream_modes import Dialect

PREFIX: Final = "/agent-protocol"


def both(path: str) -> list[str]:
    """Return two paths for a route: `path` itself, and `path` below `/agent-protocol`."""
    return [path, PREFIX + path]


def dialect_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Dialect:
    """Return the dialect of a connection's path."""
    path: str = connection.scope["path"]
    return "agent-protocol" if path == PREFIX or path.startswith(f"{PREFIX}/") else "langgraph"
