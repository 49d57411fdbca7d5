"""Error answers, and the answers that a run goes on with."""

from collections.abc import Mapping
from typing import Any

from litestar import Response

from babelgate.adapters.kit.extension import Request
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.openai.errors.encode import encode_fault
from babelgate.canonical import Answers, Fault, RunInput
from babelgate.canonical.value import Json, JsonObject


def error_response(
    fault: Fault, headers: Mapping[str, str] | None = None, *, said: JsonObject | None = None, name: str = "completion"
) -> Response[Any]:
    """`said` = what there is of a completion, or of a response, that was not finished; told under `name`."""
    status, error, more = encode_fault(fault)
    told = error.model_dump()
    if said is not None:
        told[name] = said
    return json_response({"error": told}, {**(headers or {}), **more}, status=status)


def make_answers(task_id: str, values: Mapping[str, Json], given: RunInput, told: Request) -> Answers:
    """`told` = by the extension, which may decline what is asked."""
    declined = bool(told.declined) and values.keys() <= told.declined
    values_ = None if declined else values
    return Answers(
        task_id=task_id,
        values=values_,
        input=given,
        action="decline" if declined else "answer",
        protocol="openai",
    )
