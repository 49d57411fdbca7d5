"""Event stream with hints about changed threads, runs, agents and jobs. After each hint, the page requests the named
object again."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

import msgspec
from litestar import Response

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.encoding import as_bytes, encode
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.sse import event_stream, frame
from babelgate.gateway.access.guard import GuardedHub
from babelgate.gateway.clock import format_time
from babelgate.gateway.console.gate import is_operator, need_operator
from babelgate.gateway.console.parameters import Parameters
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.storage.change_feed import HintStream

_HEARTBEAT: Final = 15.0
"""Seconds of silence after which the stream sends a heartbeat. Chosen."""
_FOLLOWS: Final = b": following\n\n"


class ChangeHandlers(Handlers):
    """HTTP handler of the console's event stream."""

    def __init__(self, hub: GatewayHub, guarded_hub: GuardedHub) -> None:
        self._hub = hub
        self._guarded_hub = guarded_hub

    async def follow_changes(self, request: AnyRequest) -> Response[Any]:
        """Stream hints about the caller's rows. With `all`, an operator gets those of all owners. Raises forbidden if
        the caller may not, and invalid for a wrong query parameter."""
        if Parameters(request, "all").flag("all"):
            need_operator(request)
            stream = self._hub.changes.open(None, is_operator=True)
        else:
            principal = caller(request).principal
            stream = self._guarded_hub.overview.changes(principal, is_operator=is_operator(request))
        return event_stream(_frames(stream), ping=_HEARTBEAT, headers={"Cache-Control": "no-store"})


async def _frames(stream: HintStream) -> AsyncIterator[bytes]:
    """Yield the frames of the event stream: a comment once the subscription is active, then one for each hint."""
    with stream:
        yield _FOLLOWS
        async with aclosing(stream.read()) as hints:
            async for hint in hints:
                body = {**msgspec.structs.asdict(hint), "at": format_time(hint.at)}
                yield frame(await as_bytes(encode(body)))
