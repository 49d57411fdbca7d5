"""Checks of A2A 0.2.5 to 0.3: JSON-RPC and REST."""

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
from babelgate.conformance.protocols.a2a.v0 import http, shape
from babelgate.conformance.protocols.a2a.v0.opening import VERSION

__all__ = ("SUITE",)

SUITE: Final[ProbeSuite[A2aTarget]] = ProbeSuite(
    VERSION.open,
    Probes(
        bindings.probes,
        cancel.probes,
        card.probes,
        content.probes,
        get.probes,
        http.probes,
        owner.probes,
        push.probes,
        question.probes,
        robust.probes,
        rpc.probes,
        send.probes,
        shape.probes,
        stream.probes,
        subscribe.probes,
    ),
)
