"""Detection of agents that speak A2A 0.2.5 to 0.3."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from babelgate.conformance.protocols.a2a import opening
from babelgate.conformance.protocols.a2a.jsonrpc import VersionConversion
from babelgate.conformance.protocols.a2a.v0.rest import RestBinding
from babelgate.conformance.protocols.a2a.v0.translation import event_of, method_of, params_of, result_of
from babelgate.conformance.wire.exchange import as_list, dig


class A2aV0(opening.A2aVersion):
    version = "0.3"
    interface = "JSON-RPC or HTTP+JSON of version 0.x"
    dialect = VersionConversion(
        is_first_generation=True, method=method_of, params=params_of, result=result_of, event=event_of
    )
    rest = RestBinding

    def interfaces(self, card: Any) -> Iterator[opening.CardInterface]:
        """Yield each interface in a card of version 0.x, without duplicates. The first is that of the card's `url`."""
        version = str(dig(card, "protocolVersion") or "0.3")
        where = dig(card, "url")
        if not isinstance(where, str) or not version.startswith("0."):
            return
        others = as_list(dig(card, "additionalInterfaces"))
        preferred = dig(card, "preferredTransport") or "JSONRPC"
        all_of_them = [(where, str(preferred)), *((dig(each, "url"), dig(each, "transport")) for each in others)]
        seen_places: set[tuple[str, str]] = set()
        for url, name in all_of_them:
            place = (str(url), str(name))
            if place not in seen_places:
                seen_places.add(place)
                yield opening.CardInterface(url, name)

    def why_no_grpc(self) -> str:
        return "gRPC of A2A 0.3 is not checked"

    def capabilities(self, card: Any) -> Mapping[str, bool]:
        declared = dig(card, "capabilities")
        return {
            "streaming": dig(declared, "streaming") is True,
            "push": dig(declared, "pushNotifications") is True,
            "extended-card": dig(card, "supportsAuthenticatedExtendedCard") is True,
            "extensions": bool(as_list(dig(declared, "extensions"))),
            "security": bool(as_list(dig(card, "security"))),
            "signatures": bool(as_list(dig(card, "signatures"))),
            "interfaces": bool(as_list(dig(card, "additionalInterfaces"))),
        }

    def version_note(self, card: Any) -> str:
        return f", version {dig(card, 'protocolVersion')}"


VERSION: Final = A2aV0()
