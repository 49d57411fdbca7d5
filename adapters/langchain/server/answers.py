"""Helpers that build HTTP responses: status, body and headers."""

from collections.abc import Mapping, Sequence
from typing import Any

from litestar import Response
from pydantic_core import to_json

from babelgate.adapters.kit.server.caller import loss_header
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.canonical import Receipt, Run
from babelgate.canonical.value import JsonObject


def answer(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response[Any]:
    """Return an HTTP response with `value` as JSON."""
    if status == 200:
        return json_response(value, headers)
    return Response(to_json(value), status_code=status, media_type="application/json", headers=dict(headers or {}))


def empty_answer(status: int, headers: Mapping[str, str] | None = None) -> Response[Any]:
    """Return an HTTP response without a body."""
    return Response(b"", status_code=status, media_type="application/json", headers=dict(headers or {}))


def ids(run: Run | Receipt) -> dict[str, str]:
    """Return the headers `Babelgate-Thread`, `Babelgate-Task` and `Babelgate-Run`, whose ids identify a run in every
    protocol. For a `Run`, add the header with its losses."""
    headers = {"Babelgate-Thread": run.thread_id, "Babelgate-Task": run.task_id, "Babelgate-Run": run.run_id}
    return headers | (loss_header(run.loss) if isinstance(run, Run) else {})


def run_paths(thread_id: str, run_id: str, below: str = "") -> dict[str, str]:
    """Return the header `Content-Location` with the path of a run. With `below`, add `Location` with a path below it,
    such as `join`, at which the client gets the same response again.

    The paths have no host and no prefix, because clients append them to their base URL.
    """
    run = f"/threads/{thread_id}/runs/{run_id}"
    # langgraph-sdk 0.4.14 reads the ids of the run from `Content-Location` (`on_run_created`), and reconnects to
    # `Location`.
    headers = {"Content-Location": run}
    return headers | ({"Location": f"{run}/{below}"} if below else {})


def pagination(offset: int, count: int, *, more: bool) -> dict[str, str]:
    """Return the headers of a page with `count` items that begins at `offset`. `more` is True if another page follows;
    the total is then only the smallest number that is possible."""
    end = offset + count
    # langgraph-api 0.16.7: if there is a next page, the total is one more than its offset.
    if more:
        return {"X-Pagination-Total": str(end + 1), "X-Pagination-Next": str(end)}
    return {"X-Pagination-Total": str(end)}


def select_members(body: JsonObject, select: Sequence[str] | None) -> JsonObject:
    """Return the members of a body that `select` names. Return the whole body if `select` is empty or None."""
    return body if not select else {name: body[name] for name in select if name in body}
