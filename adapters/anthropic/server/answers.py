"""Responses of the gateway in this API: errors, and the headers that official clients read."""

from collections.abc import Mapping
from typing import Any, Final

from litestar import Response

from babelgate.adapters.anthropic import wire as w
from babelgate.adapters.anthropic.errors import encode_fault
from babelgate.adapters.kit.server.caller import run_headers
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.fault_headers import fault_headers
from babelgate.canonical import Fault, Receipt, Task
from babelgate.canonical.value import JsonObject

REQUEST_ID: Final = "request-id"
"""Response header with the id that official clients show with an error."""


def message_headers(target: Receipt | Task, run_id: str) -> dict[str, str]:
    """Return the headers of a response that shows a run."""
    return {**run_headers(target, run_id), REQUEST_ID: f"req_{run_id}"}


def error_response(
    fault: Fault, headers: Mapping[str, str] | None = None, unfinished: JsonObject | None = None
) -> Response[Any]:
    """Return the error response for a fault. `headers` are those of the run that has failed, if there is one, and
    `unfinished` is its incomplete message."""
    status, body, more = encode_fault(fault, (headers or {}).get(REQUEST_ID))
    if unfinished is not None:
        body[w.OWN] = {"message": unfinished}
    return json_response(body, {**(headers or {}), **more, **fault_headers(fault)}, status=status)
