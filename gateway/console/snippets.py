"""Snippets of an agent: short programs that call it, in every protocol."""

from collections.abc import Sequence
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath

from babelgate.adapters import ADAPTERS, Adapter
from babelgate.adapters.kit.server.caller import Caller, caller
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import FaultCode, FaultError, Hub


class SnippetHandlers(Handlers):
    """Handlers of an agent's snippets."""

    def __init__(self, hub: Hub, adapters: Sequence[Adapter] = ADAPTERS) -> None:
        """Create the handlers. `hub` checks which agents a caller may see."""
        self._hub = hub
        self._adapters = adapters

    async def list_snippets(self, request: Request[Any, Any, Any], name: FromPath[str]) -> Response[Any]:
        """Return the snippets of an agent, which may be broken. Raises not_found."""
        who = caller(request)
        if name not in (info.name for info in self._hub.agents(who.principal)):
            raise FaultError(FaultCode.NOT_FOUND, f"Agent {name[:100]!r} not found")
        snippets = [
            {
                "protocol": adapter.name,
                "version": snippet.version,
                "language": snippet.language,
                "title": snippet.title,
                "text": snippet.text,
            }
            for adapter in self._adapters
            for snippet in adapter.snippets(_base_url(who), name)
        ]
        return Response(snippets)


def _base_url(who: Caller) -> str:
    """Return the gateway's base URL, also if the caller addressed a single agent below it."""
    return who.base_url.removesuffix(f"/agent/{who.agent}") if who.agent else who.base_url
