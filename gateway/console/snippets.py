"""Console API for snippets: short programs that call an agent, in every protocol."""

from collections.abc import Sequence
from typing import Any

from litestar import Response
from litestar.params import FromPath

from babelgate.adapters import ADAPTERS, Adapter
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import FaultCode, FaultError, Hub


class SnippetHandlers(Handlers):
    """HTTP handler of the console for an agent's snippets."""

    def __init__(self, hub: Hub, adapters: Sequence[Adapter] = ADAPTERS) -> None:
        """Create the handlers. `hub` checks which agents a caller may see, and `adapters` write the snippets."""
        self._hub = hub
        self._adapters = adapters

    async def list_snippets(self, request: AnyRequest, name: FromPath[str]) -> Response[Any]:
        """Return the snippets for an agent, even if the agent is broken. Raises not_found."""
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
            for snippet in adapter.snippets(who.root_url, name)
        ]
        return Response(snippets)
