"""Limits of chains of calls, in which agents call each other through gateways: their depth, and the number of runs.

The depth is a member of `tracestate` (W3C Trace Context, 3.3), `babelgate=h:3`, which OpenTelemetry passes on in agents
that trace their calls. An agent that drops the header begins a new chain: then only budgets end a circle of calls.
"""

import re
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Final

from babelgate.adapters.kit.tracing import BODY_HOPS, hops_of
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.exchange import find_request_header, note_headers
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver, parse_traceparent
from babelgate.gateway.settings.limits import ChainLimit

_CIRCLE: Final = "do agents call each other in a circle?"
_MEMBER: Final = re.compile(r"\s*babelgate\s*=")
_MAX_MEMBERS: Final = 32
"""Maximum number of members of `tracestate` (section 3.3.1.1)."""
_MAX_STATE: Final = 512
"""Maximum length of `tracestate`, in characters: the minimum that section 3.3.1.5 requires everyone to pass on."""


class Chains:
    """Limits of the depth of chains of calls and of their runs (`limits.chain`)."""

    def __init__(self, limit: Callable[[], ChainLimit | None], observer: GatewayObserver = NO_OBSERVER) -> None:
        """Create the limits. `limit` returns the current setting `limits.chain`, or None if it is not set."""
        self._limit = limit
        self._observer = observer
        self.instance = ""
        """UUID of the gateway's database, which names the gateway in the header `Via`."""

    @property
    def max_runs(self) -> int | None:
        """Maximum number of runs of one chain; None if there is no limit."""
        limit = self._limit()
        return None if limit is None else limit.runs

    def enter(self, trace: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers that a new run sends with its calls. Their depth is one more than that of the current
        request.

        `trace` has the headers of the current span; it is empty if the gateway sends no traces. Raises limited if the
        chain is too deep.
        """
        limit = self._limit()
        if limit is None:
            return trace
        sent = find_request_header(b"tracestate")
        depth = 1 + max(hops_of(sent), hops_of(trace.get("tracestate", "")), BODY_HOPS.get())
        via = f"1.1 babelgate-{self.instance[:8]}"
        note_headers({"via": via})
        if limit.depth is not None and depth > limit.depth:
            self._observer.note_limited("chain")
            raise FaultError(
                FaultCode.LIMITED,
                f"This call is {depth} deep, limits.chain.depth allows {limit.depth}: {_CIRCLE}",
                limit="chain",
                used=depth,
                allowed=limit.depth,
            )
        parent = trace.get("traceparent") or find_request_header(b"traceparent")
        if parse_traceparent(parent.encode("latin-1", "replace")) is None:
            parent = f"00-{token_hex(16)}-{token_hex(8)}-00"
        state = _add_depth(trace.get("tracestate") or sent, depth)
        return {**trace, "traceparent": parent, "tracestate": state, "via": via}

    def refuse_circle(self) -> FaultError:
        """Report a run that would wait for its own caller, and return the error that refuses it."""
        self._observer.note_limited("chain")
        return FaultError(
            FaultCode.LIMITED, f"This call would wait for the run that has caused it: {_CIRCLE}", limit="chain"
        )


def too_many_runs(runs: int, allowed: int) -> FaultError:
    """Return the error for a run of a chain of calls that has already started the `allowed` number of runs."""
    return FaultError(
        FaultCode.LIMITED,
        f"This chain of calls has started {runs} runs, limits.chain.runs allows {allowed}: {_CIRCLE}",
        limit="chain",
        used=runs,
        allowed=allowed,
    )


def _add_depth(state: str, depth: int) -> str:
    """Return a `tracestate` in which the member `babelgate` has this depth. The changed member is the first one
    (section 3.5)."""
    others = [member.strip() for member in state.split(",") if member.strip() and not _MEMBER.match(member)]
    result = f"babelgate=h:{depth}"
    for member in others[: _MAX_MEMBERS - 1]:
        if len(result) + 1 + len(member) <= _MAX_STATE:
            result += f",{member}"
    return result
