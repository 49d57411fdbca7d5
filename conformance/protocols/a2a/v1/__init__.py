"""Checks of A2A 1.0: JSON-RPC, REST and gRPC."""

from typing import Final

from babelgate.conformance.probe import Probes, ProbeSuite
from babelgate.conformance.protocols.a2a.agent import A2aTarget
from babelgate.conformance.protocols.a2a.probes import (
    bindings,
    cancel,
    card,
    content,
    get,
    owner,
    push,
    question,
    robust,
    rpc,
    send,
    stream,
    subscribe,
)
from babelgate.conformance.protocols.a2a.v1 import calls, http, interfaces, listing, version
from babelgate.conformance.protocols.a2a.v1.opening import VERSION

__all__ = ("SUITE",)

SUITE: Final[ProbeSuite[A2aTarget]] = ProbeSuite(
    VERSION.open,
    Probes(
        bindings.probes,
        calls.probes,
        cancel.probes,
        card.probes,
        content.probes,
        get.probes,
        http.probes,
        interfaces.probes,
        listing.probes,
        owner.probes,
        push.probes,
        question.probes,
        robust.probes,
        rpc.probes,
        send.probes,
        stream.probes,
        subscribe.probes,
        subscribe.snapshot_probes,
        version.probes,
    ),
)
