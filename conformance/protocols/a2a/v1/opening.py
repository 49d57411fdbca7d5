"""Detection of agents that speak A2A 1.0."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from babelgate.conformance.protocols.a2a import opening
from babelgate.conformance.protocols.a2a.binding import Binding
from babelgate.conformance.protocols.a2a.jsonrpc import VersionConversion
from babelgate.conformance.protocols.a2a.v1.grpc import GrpcBinding, rpc_url
from babelgate.conformance.protocols.a2a.v1.rest import RestBinding
from babelgate.conformance.wire import rpc
from babelgate.conformance.wire.exchange import as_list, dig
from babelgate.conformance.wire.http import Wire

NOT_INSTALLED: Final = f"gRPC is not checked: it needs grpcio, which is not installed; run {rpc.INSTALL}"


class A2aV1(opening.A2aVersion):
    version = "1.0"
    interface = "interface of version 1.x"
    dialect = VersionConversion(
        is_first_generation=False,
        method=lambda operation: operation,
        params=lambda operation, params: dict(params),
        result=lambda operation, result: result,
        event=lambda result: result,
    )
    rest = RestBinding

    def interfaces(self, card: Any) -> Iterator[opening.CardInterface]:
        """Yield each interface with a version 1.x in the card.

        An interface without a version violates the specification (4.4.6) and is judged, because only cards of 1.0 have
        interfaces of this form.
        """
        for each in as_list(dig(card, "supportedInterfaces")):
            if str(dig(each, "protocolVersion") or "1.0").startswith("1"):
                yield opening.CardInterface(dig(each, "url"), dig(each, "protocolBinding"), dig(each, "tenant"))

    def why_no_grpc(self) -> str:
        return "" if rpc.is_installed() else NOT_INSTALLED

    def grpc(self, wire: Wire, interface: opening.CardInterface, card_url: str, headers: Mapping[str, str]) -> Binding:
        tenant = interface.tenant if isinstance(interface.tenant, str) else ""
        return GrpcBinding(wire, rpc_url(interface.url, card_url), tenant, headers)

    def untestable(self, transports: Iterable[Any]) -> Mapping[str, str]:
        why = self.why_no_grpc()
        return {"grpc": why} if why and "GRPC" in transports else {}

    def capabilities(self, card: Any) -> Mapping[str, bool]:
        declared = dig(card, "capabilities")
        extensions = as_list(dig(declared, "extensions"))
        versions = [str(dig(each, "protocolVersion")) for each in as_list(dig(card, "supportedInterfaces"))]
        return {
            "streaming": dig(declared, "streaming") is True,
            "push": dig(declared, "pushNotifications") is True,
            "extended-card": dig(declared, "extendedAgentCard") is True,
            "extensions": bool(extensions),
            "required-extension": any(dig(each, "required") is True for each in extensions),
            "security": bool(as_list(dig(card, "securityRequirements"))),
            "signatures": bool(as_list(dig(card, "signatures"))),
            "0.3": any(version.startswith("0.") for version in versions),
        }

    def headers(self, card: Any) -> Mapping[str, str]:
        """Return the header with the version, and if the card requires extensions, that with the extensions."""
        extensions = as_list(dig(card, "capabilities", "extensions"))
        required = [str(dig(each, "uri")) for each in extensions if dig(each, "required") is True]
        return {"A2A-Version": "1.0", **({"A2A-Extensions": ",".join(required)} if required else {})}


VERSION: Final = A2aV1()
