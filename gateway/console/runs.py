"""Console API for the runs of all threads, and the records of each run."""

from typing import Any, Final

from litestar import Response
from litestar.params import FromPath

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.runtime.codec import encode_event
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.access.guard import GuardedHub
from babelgate.gateway.clock import Clock, format_time
from babelgate.gateway.console.gate import need_operator
from babelgate.gateway.console.parameters import Parameters, encode_ask, encode_page, read_id
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.storage.folded_log import FoldedRecord
from babelgate.gateway.storage.run_summaries import RunQuery, RunSummary

_MAX_RECORDS: Final = 1000
"""Maximum number of records in one page. Chosen: 300 KB of JSON if they are tokens."""
_MAX_SEQ: Final = 2**53 - 1


class RunOverviewHandlers(Handlers):
    """HTTP handlers of the console for runs."""

    def __init__(self, hub: GatewayHub, guarded_hub: GuardedHub, clock: Clock | None = None) -> None:
        self._hub = hub
        self._guarded_hub = guarded_hub
        self._clock = clock or Clock()

    async def list_runs(self, request: AnyRequest) -> Response[Any]:
        """List the caller's runs, newest first. With `all`, an operator gets those of all owners. Raises forbidden if
        the caller may not, and invalid for a wrong query parameter."""
        parameters = Parameters(request, "agent", "status", "since", "q", "after", "limit", "all")
        query = RunQuery(
            agent=parameters.text("agent"),
            status=parameters.statuses(),
            since=parameters.since(self._clock.now()),
            words=parameters.text("q") or "",
            after=parameters.cursor(),
            limit=parameters.limit(),
        )
        if parameters.flag("all"):
            need_operator(request)
            if query.words:
                words = "q: cannot be combined with all=1, because operators cannot search other owners' texts"
                raise FaultError(FaultCode.INVALID, words)
            page = await self._hub.overview.runs(None, query)
            return json_response(encode_page([encode_outline(each) for each in page.runs], page.next_cursor))
        page = await self._guarded_hub.overview.runs(caller(request).principal, query)
        return json_response(encode_page([encode_run(each) for each in page.runs], page.next_cursor))

    async def get_run(self, request: AnyRequest, run_id: FromPath[str]) -> Response[Any]:
        """Return one run. Raises forbidden if the policy does not allow it, and not_found for an unknown run."""
        principal = caller(request).principal
        return json_response(encode_run(await self._guarded_hub.overview.run(principal, read_id(run_id, "Run"))))

    async def list_records(self, request: AnyRequest, run_id: FromPath[str]) -> Response[Any]:
        """List the records of a run, oldest first. With `fold`, deltas are joined by part, or listed in one record with
        `deltas`. Raises forbidden if the policy does not allow it, invalid for a wrong query parameter, and not_found
        for an unknown run."""
        parameters, run_id = Parameters(request, "after", "limit", "fold", "deltas"), read_id(run_id, "Run")
        folds, lists = parameters.flag("fold"), parameters.flag("deltas")
        if lists and not folds:
            raise FaultError(FaultCode.INVALID, "deltas: needs fold=1; without it, each delta is a record")
        after = parameters.number("after", 0, 0, _MAX_SEQ)
        page = await self._guarded_hub.overview.records(
            caller(request).principal,
            run_id,
            after,
            limit=parameters.limit(_MAX_RECORDS, _MAX_RECORDS),
            folds=folds,
        )
        encode = _encode_listed if lists else _encode_folded if folds else _encode_whole
        return json_response(
            {
                "records": [encode(each, run_id) for each in page.records],
                "next": page.next_seq,
                "last": page.last_seq,
                "ended": page.has_ended,
            }
        )


def _encode_whole(folded: FoldedRecord, run_id: str) -> JsonObject:
    return encode_event(folded.record, run_id)


def _encode_folded(folded: FoldedRecord, run_id: str) -> JsonObject:
    """Return a record as the API shows it. Consecutive deltas of a part are joined into one record with the whole
    text."""
    record = encode_event(folded.join(), run_id)
    return record | _encode_extent(folded) | _encode_stretches(folded) if folded.texts else record


def _encode_listed(folded: FoldedRecord, run_id: str) -> JsonObject:
    """Return a record as the API shows it. Consecutive deltas of a part become one record with the member `deltas`,
    which has their texts.

    `deltas` is a list of groups. A group has the texts of deltas with consecutive ids and the same time, and only the
    first of these ids. So a token takes a few bytes instead of 270.
    """
    record = encode_event(folded.record, run_id)
    if not folded.texts:
        return record
    del record["payload"]["text"]
    groups = [{"event_id": seq, "timestamp": format_time(at), "texts": texts} for seq, at, texts in folded.groups()]
    return record | _encode_extent(folded) | {"deltas": groups}


def _encode_extent(folded: FoldedRecord) -> JsonObject:
    return {"n": folded.count, "to": folded.last_seq, "until": format_time(folded.last_at)}


def _encode_stretches(folded: FoldedRecord) -> JsonObject:
    """Return the member `stretches` of a joined record, if other records are between its first and last delta.
    Otherwise return an empty object.

    `stretches` is a list of numbers of consecutive ids, alternately of deltas of this record and of other records. For
    example, `[3, 2, 1]` means three deltas, two other records, and one more delta.
    """
    if folded.last_seq - folded.record.seq + 1 == folded.count:
        return {}
    lengths, end = [0], folded.record.seq
    for seq, _, texts in folded.groups():
        if seq > end:
            lengths += [seq - end, 0]
        lengths[-1] += len(texts)
        end = seq + len(texts)
    return {"stretches": lengths}


def encode_run(summary: RunSummary) -> JsonObject:
    """Return a run as its owner sees it, with its questions, losses, usage and first words."""
    run = summary.run
    fault = None if run.fault is None else {"code": str(run.fault.code), "message": run.fault.message}
    return {
        **_encode_times(summary),
        "fault": fault,
        "asks": [encode_ask(question) for question in summary.questions],
        "losses": [{"feature": loss.feature, "how": loss.how} for loss in dict.fromkeys(run.loss)],
        "usage": dict(run.usage) or None,
        "first_words": run.first_words or "",
    }


def encode_outline(summary: RunSummary) -> JsonObject:
    """Return a run as an operator sees it: its owner, times and status, but no content."""
    fault = summary.run.fault
    return {
        "owner": summary.owner,
        **_encode_times(summary),
        "fault": None if fault is None else {"code": str(fault.code)},
    }


def _encode_times(summary: RunSummary) -> JsonObject:
    run = summary.run
    return {
        "run_id": run.run_id,
        "task_id": run.task_id,
        "thread_id": run.thread_id,
        "agent": run.agent,
        "protocol": summary.protocol,
        "version": summary.version,
        "status": str(run.status),
        "reason": None if run.reason is None else str(run.reason),
        "attempt": run.attempt,
        "created_at": format_time(run.created_at),
        "started_at": format_time(run.started_at),
        "first_output_at": format_time(summary.first_output_at),
        "ended_at": format_time(run.ended_at),
        "node": summary.node,
    }
