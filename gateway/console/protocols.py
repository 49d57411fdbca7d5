"""Console API for protocols: the protocols of the gateway, and the features that each of their versions carries."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from litestar import Response

from babelgate.adapters import ADAPTERS, Adapter
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import Carry, Feature
from babelgate.canonical.value import JsonObject

_LEVELS: Final = {"full": "whole", "lossy": "loss", "dropped": "none"}


class ProtocolHandlers(Handlers):
    """HTTP handler of the console for protocols."""

    def __init__(self, adapters: Sequence[Adapter] = ADAPTERS) -> None:
        self._protocols = [_encode(adapter) for adapter in adapters]

    async def list_protocols(self) -> Response[Any]:
        """Return the protocols in the order of `ADAPTERS`, with the features that each of their versions carries."""
        return Response(self._protocols)


def _encode(adapter: Adapter) -> JsonObject:
    versions = [
        {"version": version, "carries": _encode_carries(adapter.carries[version])} for version in adapter.versions
    ]
    return {"name": adapter.name, "title": adapter.title, "versions": versions}


def _encode_carries(carries: Mapping[Feature, Carry]) -> JsonObject:
    return {
        feature.value: {
            "level": _LEVELS[carry.level],
            "how": carry.how,
            "source": carry.source,
            **({"streamed_only": True} if carry.streamed_only else {}),
        }
        for feature, carry in carries.items()
    }
