"""Console API for the caller's identity: its name, and what it may do."""

from importlib.metadata import version
from typing import Any, Final

from litestar import Response

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.gateway.console.gate import is_operator
from babelgate.gateway.console.jobs import has_jobs
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.port import GatewayPort

_VERSION: Final = version("babelgate")


class IdentityHandlers(Handlers):
    """HTTP handler of the console for the caller's identity."""

    def __init__(self, hub: GatewayHub, port: GatewayPort) -> None:
        self._hub = hub
        self._port = port

    async def get_me(self, request: AnyRequest) -> Response[Any]:
        """Return the caller, its rights in the console, and the gateway that answers."""
        principal, settings = caller(request).principal, self._port.settings()
        operates = is_operator(request)
        cluster = self._hub.cluster
        return Response(
            {
                "owner": principal.owner,
                "subject": principal.subject,
                "groups": sorted(principal.groups),
                "operator": operates,
                "keyed": settings.has_credentials,
                "version": _VERSION,
                "instance": self._hub.instance,
                "node": settings.node if cluster is None else cluster.nodes.name,
                "limits": {"file_bytes": settings.limits.artifact, "body_bytes": settings.limits.body},
                "can": {
                    "jobs": operates and has_jobs(settings),
                    "wire": settings.console.wire != "off",
                    "settings": operates,
                },
            }
        )
