"""Detection of agents that speak A2A 1.0."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from babelgate.conformance.protocols.a2a import opening
from babelgate.conformance.protocols.a2a.jsonrpc import VersionConversion
from babelgate.conformance.protocols.a2a.v1.rest import RestBinding
from babelgate.conformance.wire.exchange import as_list, dig


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

    def interfaces(self, card: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the URL and the binding name of each interface with a version 1.x in the card.

        An interface without a version violates the specification (4.4.6) and is judged, because only cards of 1.0 have
        interfaces of this form.
        """
        for each in as_list(dig(card, "supportedInterfaces")):
            if str(dig(each, "protocolVersion") or "1.0").startswith("1"):
                yield dig(each, "url"), dig(each, "protocolBinding")

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
