"""The routes of LangGraph Platform and the Agent Protocol. They exist twice: at the root, and below
`/agent-protocol`."""

from collections.abc import Sequence
from typing import Any

from litestar import Response
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.fanout import FanoutCache
from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.adapters.langchain.errors import encode as faults
from babelgate.adapters.langchain.server import (
    assistants,
    cancel,
    crons,
    event_stream,
    join,
    meta,
    runs,
    state,
    store,
    threads,
)
from babelgate.adapters.langchain.server.answers import answer
from babelgate.adapters.langchain.server.dialect import dialect_of
from babelgate.canonical import Fault, Hub

__all__ = ("answer_fault", "routes")


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    lines = FanoutCache()
    return [
        *threads.routes(hub),
        *state.routes(hub),
        *runs.routes(hub, lines),
        *join.routes(hub, lines),
        *event_stream.routes(hub),
        *cancel.routes(hub),
        *assistants.routes(hub),
        *crons.routes(hub),
        *store.routes(hub),
        *meta.routes(hub),
    ]


def answer_fault(fault: Fault, request: AnyRequest) -> Response[Any]:
    """Return the error response for a fault, in the dialect of the request's path."""
    status, body = faults.encode_fault(fault, dialect_of(request))
    return answer(body, status=status, headers=fault_headers(fault))
