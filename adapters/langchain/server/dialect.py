"""Dialect selection by path prefix: everything below it is said in the Agent Protocol's own dialect, the rest in that
of LangGraph Platform."""

from typing import Any, Final

from litestar.connection import ASGIConnection

from babelgate.adapters.langchain.codec.stream_modes import Dialect

PREFIX: Final = "/agent-protocol"


def both(path: str) -> list[str]:
    """A path of both dialects."""
    return [path, PREFIX + path]


def dialect_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Dialect:
    path: str = connection.scope["path"]
    return "agent-protocol" if path == PREFIX or path.startswith(f"{PREFIX}/") else "langgraph"
