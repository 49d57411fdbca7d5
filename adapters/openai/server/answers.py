"""Error answers."""

from collections.abc import Mapping
from typing import Any

from litestar import Response

from adapters._server.encoding import json_response
from adapters.openai.errors.encode import encode_fault
from canonical import Fault
from canonical.value import JsonObject


def error_response(
    fault: Fault, headers: Mapping[str, str] | None = None, *, said: JsonObject | None = None, name: str = "completion"
) -> Response[Any]:
    """`said` = what there is of a completion, or of a response, that was not finished; told under `name`."""
    status, error, more = encode_fault(fault)
    told = error.model_dump()
    if said is not None:
        told[name] = said
    return json_response({"error": told}, {**(headers or {}), **more}, status=status)
