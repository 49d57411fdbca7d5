"""Exchanges of a run with the server of its agent, as the console shows them."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final
from urllib.parse import urlsplit

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
from babelgate.gateway.console.gate import is_operator
from babelgate.gateway.console.parameters import AnyRequest, read_id
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.port import GatewayPort

Pieces = Sequence[tuple[float, bytes]]
_BETWEEN: Final = re.compile(rb"\r?\n\r?\n")
"""End of a server-sent event."""
_STREAM: Final = "text/event-stream"
_SERVER: Final = "***"
"""Text that replaces the host of the agent's server, which only operators see."""
_OFF: Final = "Exchanges are not recorded: set console.wire to failures or all."
_IN_PROCESS: Final = "The agent of this run is in this process, so there is no exchange with a server."
_SUCCEEDED: Final = "Only runs that fail keep their exchanges: set console.wire to all to keep those of every run."
_NOTHING_YET: Final = "The run has not called the server of its agent yet."
_GONE: Final = (
    "The exchanges of this run are not in the memory of this gateway: it has no room for older ones, was restarted "
    "since, or another node has executed the run."
)


class ExchangeHandlers(Handlers):
    """Handlers of a run's exchanges."""

    def __init__(self, hub: GatewayHub, guarded_hub: GuardedHub, port: GatewayPort) -> None:
        self._hub = hub
        self._guarded_hub = guarded_hub
        self._port = port

    async def list_exchanges(self, request: AnyRequest, run_id: FromPath[str]) -> Response[Any]:
        """List the exchanges of a run, the oldest first. An operator gets those of other owners' runs, too. Raises
        forbidden, not_found."""
        run, recorder = await self._find(request, read_id(run_id, "Run"))
        show = _server_filter(request)
        items = [] if recorder is None else [_encode_summary(each, show) for each in recorder.exchanges]
        body: JsonObject = {"items": items, "mode": self._mode}
        if recorder is not None and recorder.omitted:
            body["omitted"] = recorder.omitted
        if not items:
            body["why_empty"] = self._why_empty(run, recorder)
        return json_response(body)

    async def get_exchange(self, request: AnyRequest, run_id: FromPath[str], number: FromPath[str]) -> Response[Any]:
        """Return one exchange of the caller's own run, with its headers and bodies. Raises forbidden, not_found."""
        run, recorder = await self._find(request, read_id(run_id, "Run"))
        found = None if recorder is None else next((x for x in recorder.exchanges if str(x.number) == number), None)
        if found is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Run {run_id} has no exchange {number[:20]!r} in memory")
        if run is None:
            words = (
                "Only the owner of the run can read the headers and bodies of its exchanges. Operators get the list."
            )
            raise FaultError(FaultCode.FORBIDDEN, words)
        return json_response(encode_exchange(found, _server_filter(request)))

    @property
    def _mode(self) -> str:
        console = self._port.settings().console
        return console.wire if console.enabled else "off"

    async def _find(self, request: AnyRequest, run_id: str) -> tuple[Run | None, ExchangeRecorder | None]:
        """Return a run, which is None if it is another owner's, and its recorder. Raises forbidden, not_found."""
        principal, exchanges = caller(request).principal, self._hub.engine.exchanges
        try:
            run = await self._guarded_hub.reads.run(principal, run_id)
        except FaultError as error:
            recorder = exchanges.find_any(run_id) if is_operator(request) else None
            if error.fault.code is not FaultCode.NOT_FOUND or recorder is None:
                raise
            return None, recorder
        if run.removed:
            raise FaultError(FaultCode.NOT_FOUND, f"Run {run_id} not found")
        return run, exchanges.find(await self._hub.reads.key(principal.owner, run.thread_id), run_id)

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


def _server_filter(request: AnyRequest) -> Callable[[str, str], str]:
    """Return the function that prepares a text of an exchange with a URL: operators see the server's address."""
    if is_operator(request):
        return lambda text, _: text
    return _hide_server


def _hide_server(text: str, url: str) -> str:
    netloc = urlsplit(url).netloc
    return text.replace(netloc, _SERVER) if netloc else text


def _encode_summary(exchange: RecordedExchange, show: Callable[[str, str], str]) -> JsonObject:
    return {
        "n": exchange.number,
        "at": format_time(exchange.at),
        "method": exchange.method,
        "url": show(exchange.url, exchange.url),
        "status": exchange.status,
        "seconds": round(exchange.seconds, 6),
        "request_bytes": exchange.request.size,
        "response_bytes": exchange.response.size,
        "failed": exchange.has_failed,
        "streamed": is_stream(exchange),
        "ended": exchange.has_ended,
    }


def is_stream(exchange: RecordedExchange) -> bool:
    """Return True if the response is a stream of server-sent events."""
    names = {name.lower(): value for name, value in exchange.response_headers}
    return names.get("content-type", "").lower().startswith(_STREAM)


def encode_exchange(exchange: RecordedExchange, show: Callable[[str, str], str] = lambda text, _: text) -> JsonObject:
    """Return an exchange in the form of the report of `babelgate check`. `show` prepares each text."""
    sent, received = exchange.bodies()
    url = exchange.url

    def headers(pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
        return [[name, show(value, url)] for name, value in pairs]

    encoded: JsonObject = {
        "n": exchange.number,
        "number": exchange.number,
        "request": {
            "method": exchange.method,
            "url": show(url, url),
            "headers": headers(exchange.headers),
            "body": show(_text(sent, exchange.request), url),
        },
        "seconds": round(exchange.seconds, 6),
    }
    if exchange.status is not None:
        streams = is_stream(exchange)
        events = [{"seconds": round(at, 6), "text": show(text, url)} for at, text in split_events(received)]
        encoded["response"] = {
            "status": exchange.status,
            "headers": headers(exchange.response_headers),
            "body": "" if streams else show(_text(received, exchange.response), url),
            "events": events if streams else [],
        }
    if exchange.error:
        encoded["error"] = show(exchange.error, url)
    return encoded


def _text(pieces: Pieces, body: RecordedBody) -> str:
    """Return a body as text. The rest of a longer one is named by its size."""
    text = b"".join(piece for _, piece in pieces).decode("utf-8", errors="backslashreplace")
    return f"{text}… ({body.size} bytes)" if body.is_cut else text


def split_events(pieces: Pieces) -> Iterator[tuple[float, str]]:
    """Yield the server-sent events of a body, each with the time of its last byte."""
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
