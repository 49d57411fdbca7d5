"""HTTP response helpers: a status, a body and headers."""

from collections.abc import Mapping, Sequence
from typing import Any

from litestar import Response
from pydantic_core import to_json

from babelgate.adapters.kit.server.caller import loss_header
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.canonical import Receipt, Run
from babelgate.canonical.value import JsonObject


def answer(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response[Any]:
    if status == 200:
        return json_response(value, headers)
    return Response(to_json(value), status_code=status, media_type="application/json", headers=dict(headers or {}))


def empty_answer(status: int, headers: Mapping[str, str] | None = None) -> Response[Any]:
    """An answer without a body."""
    return Response(b"", status_code=status, media_type="application/json", headers=dict(headers or {}))


def ids(made: Run | Receipt) -> dict[str, str]:
    """The gateway's own ids of a run: they lead to it in every other protocol."""
    headers = {"Babelgate-Thread": made.thread_id, "Babelgate-Task": made.task_id, "Babelgate-Run": made.run_id}
    return headers | (loss_header(made.loss) if isinstance(made, Run) else {})


def run_paths(thread_id: str, run_id: str, below: str = "") -> dict[str, str]:
    """Where the run is, and with `below` where the answer can be had again: paths without host and prefix, because
    clients join them to their base URL; they read the ids from them."""
    run = f"/threads/{thread_id}/runs/{run_id}"
    # langgraph-sdk 0.4.14 reads the ids of the run from it (`on_run_created`), and reconnects by `Location`.
    headers = {"Content-Location": run}
    return headers | ({"Location": f"{run}/{below}"} if below else {})


def pagination(offset: int, shown: int, *, more: bool) -> dict[str, str]:
    """The total is a hint: with another page to come it says that there is at least one more."""
    end = offset + shown
    # langgraph-api 0.16.7: the total is one more than the next offset where there is a next page.
    if more:
        return {"X-Pagination-Total": str(end + 1), "X-Pagination-Next": str(end)}
    return {"X-Pagination-Total": str(end)}


def select_members(body: JsonObject, select: Sequence[str] | None) -> JsonObject:
    """The members that the caller selected."""
    return body if not select else {name: body[name] for name in select if name in body}
