"""Options in the query and the headers of a request."""

from typing import Any, Final

import msgspec
from litestar.connection import ASGIConnection

from babelgate.adapters.kit.integer import read_integer
from babelgate.adapters.vercel_ui import wire as w
from babelgate.canonical import AgentInfo, FaultCode, FaultError

_SDK: Final = "Babelgate-Sdk"
"""Request header with the major version of the page's SDK, for example `6`. The query parameter `sdk` in the URL of a
transport is lost when the page reconnects."""
_TRUE: Final = frozenset({"1", "true"})


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a request that sends or reads a message, from its query and headers."""

    sdk: int = w.DEFAULT_SDK
    """Major version of the page's SDK."""
    steps: bool = False
    """True if the page requests the named steps of the agent (`steps=true`)."""
    skip: int = 0
    """Number of chunks to leave out at the beginning (`startIndex`)."""
    cancels: bool = False
    """True if a disconnect of the client cancels the run (`on_disconnect=cancel`)."""

    @classmethod
    def of(cls, connection: ASGIConnection[Any, Any, Any, Any], agent: AgentInfo) -> "StreamOptions":
        """Return the options of a request for the agent. The version of the SDK is that of the query, else that of the
        header, else that of the agent. Raises invalid for an option with an unknown value."""
        query: dict[str, str] = dict(connection.query_params) if connection.scope["query_string"] else {}
        choice = query.get("on_disconnect", "continue")
        if choice not in ("cancel", "continue"):
            raise FaultError(FaultCode.INVALID, f"on_disconnect: expected cancel or continue, got {choice[:20]!r}")
        return cls(
            sdk=_sdk(query.get("sdk") or connection.headers.get(_SDK), agent.ai_sdk or w.DEFAULT_SDK),
            steps=query.get("steps", "") in _TRUE,
            skip=_start_index(query.get("startIndex", "0")),
            cancels=choice == "cancel",
        )


def _sdk(text: str | None, default: int) -> int:
    if text is None:
        return default
    found = next((sdk for sdk in w.SDKS if str(sdk) == text), None)
    if found is None:
        raise FaultError(FaultCode.INVALID, f"sdk: expected 5, 6 or 7, got {text[:20]!r}")
    return found


def _start_index(text: str) -> int:
    """Return the number of chunks to skip for a `startIndex`. A negative one counts from an end that is not known, so
    the result is 0: `WorkflowChatTransport` expects all chunks if no response header names the end."""
    skip = read_integer(text.removeprefix("-"), "startIndex", 0)
    return 0 if text.startswith("-") else skip
