"""Error responses, and answers to questions of runs."""

from collections.abc import Mapping
from typing import Any

from litestar import Response

from babelgate.adapters.kit.extension import Request
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.openai.errors.encode import encode_fault
from babelgate.canonical import Answers, Fault, RunInput
from babelgate.canonical.value import Json, JsonObject


def error_response(
    fault: Fault,
    headers: Mapping[str, str] | None = None,
    *,
    unfinished: JsonObject | None = None,
    name: str = "completion",
) -> Response[Any]:
    """Return a fault as an HTTP response. `unfinished`: the incomplete completion or response, added to the error as
    `name`."""
    status, error, more = encode_fault(fault)
    members = error.model_dump()
    if unfinished is not None:
        members[name] = unfinished
    return json_response({"error": members}, {**(headers or {}), **more}, status=status)


def make_answers(task_id: str, values: Mapping[str, Json], run_input: RunInput, extension: Request) -> Answers:
    """Return the answers to a task's questions. They are declined if `extension` declines all of them."""
    is_declined = bool(extension.declined) and values.keys() <= extension.declined
    values_ = None if is_declined else values
    return Answers(
        task_id=task_id,
        values=values_,
        input=run_input,
        action="decline" if is_declined else "answer",
        protocol="openai",
    )
