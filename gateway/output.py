"""Structured output against the schema that its agent has declared."""

import logging
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic_core import from_json, to_json

from canonical.agent import AgentInfo
from canonical.fault import Fault, FaultCode
from canonical.value import Json

__all__ = ("misfit",)

log = logging.getLogger("babelgate.output")


def misfit(info: AgentInfo, output: Json) -> Fault | None:
    """What is wrong with an output; None if nothing is, or if the agent has declared no schema. A graph's schema is of
    its state, not of what it says at the end."""
    schema = info.schemas.get("output")
    if output is None or not schema or info.stateful:
        return None
    validator = _validator(to_json(schema), info.name)
    if validator is None:
        return None
    error: Any = next(validator.iter_errors(output), None)
    if error is None:
        return None
    where = f" at {error.json_path}" if error.json_path != "$" else ""
    return Fault(
        code=FaultCode.AGENT_INVALID,
        message=f"The agent's output does not fit its own schema{where}: {error.message[:300]}",
    )


@lru_cache(256)
def _validator(schema: bytes, agent: str) -> Any:
    """None if it is no schema."""
    read: Any = from_json(schema)
    try:
        Draft202012Validator.check_schema(read)
    except SchemaError as error:
        log.warning("the output schema of agent %s is none, and its output is not checked: %s", agent, error.message)
        return None
    return Draft202012Validator(read)
