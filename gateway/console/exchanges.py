"""Console API for the recorded HTTP exchanges of a run with the server of its agent."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from litestar import Response
from litestar.params import FromPath

from babelgate.adapters.kit.client.exchanges import ExchangeRecorder, RecordedBody, RecordedExchange
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import FaultCode, FaultError, Run
from babelgate.canonical.value import JsonObject
from babelgate.gateway.access.guard import GuardedHub
from babelgate.gateway.agents.failover import ServerPool
from babelgate.gateway.clock import format_time
from babelgate.gateway.console.addresses import AddressFilter
from babelgate.gateway.console.gate import is_operator
from babelgate.gateway.console.parameters import AnyRequest, read_id
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.port import GatewayPort

Pieces = Sequence[tuple[float, bytes]]
_BETWEEN: Final = re.compile(rb"\r?\n\r?\n")
"""Empty line that ends a server-sent event."""
_STREAM: Final = "text/event-stream"
_OFF: Final = "Exchanges are not recorded: set console.wire to failures or all."
_IN_PROCESS: Final = "The agent of this run is in this process, so there is no exchange with a server."
_SUCCEEDED: Final = "Only runs that fail keep their exchanges: set console.wire to all to keep those of every run."
_NOTHING_YET: Final = "The run has not called the server of its agent yet."
_GONE: Final = (
    "The exchanges of this run are not in the memory of this gateway: it has no room for older ones, was restarted "
    "since, or another node has executed the run."
)


class ExchangeHandlers(Handlers):
    """HTTP handlers of the console for a run's recorded exchanges."""

    def __init__(self, hub: GatewayHub, guarded_hub: GuardedHub, port: GatewayPort) -> None:
        self._hub = hub
        self._guarded_hub = guarded_hub
        self._port = port

    async def list_exchanges(self, request: AnyRequest, run_id: FromPath[str]) -> Response[Any]:
        """List the exchanges of a run, the oldest first. An operator gets those of other owners' runs, too. Raises
        forbidden if the policy does not allow it, and not_found for an unknown run."""
        run, recorder = await self._find(request, read_id(run_id, "Run"))
        addresses = self._address_filter(request, recorder)
        items = [] if recorder is None else [_encode_summary(each, addresses) for each in recorder.exchanges]
        body: JsonObject = {"items": items, "mode": self._mode}
        if recorder is not None and recorder.omitted:
            body["omitted"] = recorder.omitted
        if not items:
            body["why_empty"] = self._why_empty(run, recorder)
        return json_response(body)

    async def get_exchange(self, request: AnyRequest, run_id: FromPath[str], number: FromPath[str]) -> Response[Any]:
        """Return one exchange of a run that the caller may read, with its headers and bodies. Raises not_found if it is
        not in memory, and forbidden for an operator who may not read the run."""
        run, recorder = await self._find(request, read_id(run_id, "Run"))
        found = None if recorder is None else next((x for x in recorder.exchanges if str(x.number) == number), None)
        if found is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Run {run_id} has no exchange {number[:20]!r} in memory")
        if run is None:
            words = (
                "Only callers who may read the run can read the headers and bodies of its exchanges. Operators get the "
                "list: the owner of the run can share its thread."
            )
            raise FaultError(FaultCode.FORBIDDEN, words)
        return json_response(encode_exchange(found, self._address_filter(request, recorder)))

    @property
    def _mode(self) -> str:
        console = self._port.settings().console
        return console.wire if console.enabled else "off"

    async def _find(self, request: AnyRequest, run_id: str) -> tuple[Run | None, ExchangeRecorder | None]:
        """Return a run and the recorder of its exchanges. An operator gets the recorder also for a run that the caller
        may not read: then the run is None.

        Raises forbidden if the policy does not allow the call, and not_found for an unknown run.
        """
        principal, exchanges = caller(request).principal, self._hub.engine.exchanges
        try:
            summary = await self._guarded_hub.overview.run(principal, run_id)
        except FaultError as error:
            recorder = exchanges.find_any(run_id) if is_operator(request) else None
            if error.fault.code is not FaultCode.NOT_FOUND or recorder is None:
                raise
            return None, recorder
        # A shared run has another owner than the caller.
        key = await self._hub.reads.key(summary.owner, summary.run.thread_id)
        return summary.run, exchanges.find(key, run_id)

    def _address_filter(self, request: AnyRequest, recorder: ExchangeRecorder | None) -> AddressFilter | None:
        """Return the filter that hides internal addresses from the caller, or None for an operator."""
        if is_operator(request):
            return None
        urls = [] if recorder is None else [exchange.url for exchange in recorder.exchanges]
        for registered in self._hub.registry.all():
            urls += [registered.server] if registered.server else []
            urls += registered.settings.servers if registered.settings else []
        return AddressFilter(urls)

    def _why_empty(self, run: Run | None, recorder: ExchangeRecorder | None) -> str:
        mode = self._mode
        if mode == "off":
            return _OFF
        if run is None or recorder is not None:
            return _NOTHING_YET
        if self._is_in_process(run.agent):
            return _IN_PROCESS
        if not run.has_ended:
            return _NOTHING_YET if run.started_at is None else _GONE
        return _SUCCEEDED if run.fault is None and mode == "failures" else _GONE

    def _is_in_process(self, agent: str) -> bool:
        try:
            registered = self._hub.registry.get_for_run(agent)
        except FaultError:  # removed from the configuration
            return False
        return registered.agent is not None and not isinstance(registered.agent, ServerPool)


def _encode_summary(exchange: RecordedExchange, addresses: AddressFilter | None) -> JsonObject:
    return {
        "number": exchange.number,
        "at": format_time(exchange.at),
        "method": exchange.method,
        "url": _show(exchange.url, addresses),
        "status": exchange.status,
        "seconds": round(exchange.seconds, 6),
        "request_bytes": exchange.request.size,
        "response_bytes": exchange.response.size,
        "failed": exchange.has_failed,
        "streamed": is_stream(exchange),
        "ended": exchange.has_ended,
    }


def _show(text: str, addresses: AddressFilter | None) -> str:
    return text if addresses is None else addresses.hide(text)


def is_stream(exchange: RecordedExchange) -> bool:
    """Return True if the response of an exchange is a stream of server-sent events."""
    names = {name.lower(): value for name, value in exchange.response_headers}
    return names.get("content-type", "").lower().startswith(_STREAM)


def encode_exchange(exchange: RecordedExchange, addresses: AddressFilter | None = None) -> JsonObject:
    """Return an exchange in the form in which the report of `babelgate check` has it. `addresses` hides internal
    addresses; None shows them."""
    sent, received = exchange.bodies()

    def headers(pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
        return [[name, value] for name, value in (pairs if addresses is None else addresses.hide_headers(pairs))]

    encoded: JsonObject = {
        "number": exchange.number,
        "request": {
            "method": exchange.method,
            "url": _show(exchange.url, addresses),
            "headers": headers(exchange.headers),
            "body": _show(_text(sent, exchange.request), addresses),
        },
        "seconds": round(exchange.seconds, 6),
    }
    if exchange.status is not None:
        streams = is_stream(exchange)
        events = [{"seconds": round(at, 6), "text": _show(text, addresses)} for at, text in split_events(received)]
        encoded["response"] = {
            "status": exchange.status,
            "headers": headers(exchange.response_headers),
            "body": "" if streams else _show(_text(received, exchange.response), addresses),
            "events": events if streams else [],
        }
    if exchange.error:
        # The text of an error names addresses in forms that a filter does not know, such as resolved ones.
        encoded["error"] = exchange.error if addresses is None else exchange.error.partition(":")[0]
    return encoded


def _text(pieces: Pieces, body: RecordedBody) -> str:
    """Return a recorded body as text. If it was cut, its whole size is appended."""
    text = b"".join(piece for _, piece in pieces).decode("utf-8", errors="backslashreplace")
    return f"{text}… ({body.size} bytes)" if body.is_cut else text


def split_events(pieces: Pieces) -> Iterator[tuple[float, str]]:
    """Yield the server-sent events of a body, each with the time at which its last byte arrived, in seconds. `pieces`
    are the received pieces with their times."""
    whole = b"".join(piece for _, piece in pieces)
    ends = list(accumulate(len(piece) for _, piece in pieces))
    start = 0
    while start < len(whole):
        match = _BETWEEN.search(whole, start)
        end, after = (len(whole), len(whole)) if match is None else match.span()
        if whole[start:end].strip():
            seconds = pieces[bisect_left(ends, min(after, len(whole)))][0]
            yield seconds, whole[start:end].decode("utf-8", errors="backslashreplace")
        start = after
