"""Administration API for usage: numbers of runs and tokens, by owner, agent, day and key."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any, Final

from litestar import Response

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.admin.bodies import read_query, read_time
from babelgate.gateway.admin.budgets import encode_budgets
from babelgate.gateway.clock import Clock, format_time
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.runs.run_reports import count_tokens
from babelgate.gateway.storage.run_rows import read_used_runs

_DEFAULT: Final = 30 * 86_400_000_000
"""Length of the reported period if a request has no `since`, in microseconds. Chosen: 30 days."""
_LONGEST: Final = 92 * 86_400_000_000
"""Maximum length of the period of one request, in microseconds. Chosen: three months."""
_GROUPS: Final = ("owner", "agent", "day", "key")
_SCOPES: Final = 100
"""Maximum number of scopes of one budget in the response. Chosen: `GET /admin/budgets` can show more."""
_COUNTS: Final = ("runs", "input_tokens", "output_tokens")


class UsageHandlers(Handlers):
    """HTTP handlers of the administration API for usage."""

    def __init__(self, hub: GatewayHub, clock: Clock | None = None) -> None:
        self._hub = hub
        self._clock = clock or Clock()

    async def get_usage(self, request: AnyRequest) -> Response[Any]:
        """Return the runs that were created in a period, and the tokens that their agents have reported.

        Raises invalid for a repeated or malformed query parameter, and for a period of more than 92 days.
        """
        parameters = read_query(request)
        by = parameters.get("by", "owner,agent").split(",")
        if not by or not set(by) <= set(_GROUPS) or len(set(by)) != len(by):
            raise FaultError(FaultCode.INVALID, f"by: expected some of {', '.join(_GROUPS)}, with commas between")
        until = read_time(parameters["until"], "until") if "until" in parameters else self._clock.now()
        since = read_time(parameters["since"], "since") if "since" in parameters else until - _DEFAULT
        if not 0 < until - since <= _LONGEST:
            raise FaultError(FaultCode.INVALID, "since: expected a time before until, at most 92 days")
        counts: dict[tuple[str, ...], Counter[str]] = {}
        after: tuple[str, str] | None = ("", "")
        while after is not None:
            page, after = await self._hub.journal.query(read_used_runs, after, since, until)
            for owner, run in page:
                day = datetime.fromtimestamp(run.created_at / 1e6, UTC).date().isoformat()
                values = {"owner": owner, "agent": run.agent, "day": day, "key": run.key_id}
                group = counts.setdefault(tuple(values[name] for name in by), Counter())
                group["runs"] += 1
                for kind, count in count_tokens(run.usage).items():
                    group[f"{kind}_tokens"] += round(count)
        usage = [
            {**dict(zip(by, group, strict=True)), **{name: counts[group][name] for name in _COUNTS}}
            for group in sorted(counts)
        ]
        body: dict[str, Any] = {"since": format_time(since), "until": format_time(until), "usage": usage}
        if self._hub.budgets.current:
            body["budgets"] = await encode_budgets(self._hub, _SCOPES)
        return Response(body)
