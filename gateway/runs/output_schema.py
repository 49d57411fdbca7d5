"""Validation of values against JSON Schemas: structured output, and values of callers.

A schema of an agent often comes from another server and is not trusted. Values are accepted unchecked if such a schema
is invalid, or if the check exceeds its time limit.
"""

import asyncio
import logging
import subprocess
import sys
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from jsonschema import Draft202012Validator
from pydantic_core import from_json, to_json
from referencing.exceptions import Unresolvable

from babelgate.canonical.agent import AgentInfo
from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.value import Json
from babelgate.gateway.runs import schema_check
from babelgate.gateway.runs.schema_check import StepLimitExceeded, find_error, is_costly

log = logging.getLogger("babelgate.output")

_MAX_SCHEMA_SIZE: Final = 256 * 1024
"""Maximum size of a schema, in bytes. Chosen."""
_MAX_LOCAL_SIZE: Final = 4 * 1024
"""Maximum size of a value that is checked in the gateway's process, in bytes. Larger ones are checked in a subprocess.
Chosen."""
_MAX_LOCAL_STEPS: Final = 5_000
"""Maximum number of validation steps in the gateway's process. A check that needs more runs in a subprocess. Chosen."""
_SUBPROCESS_TIMEOUT: Final = 4.0
"""Time limit of a check in a subprocess, in seconds. Chosen."""
_pool: Final = ThreadPoolExecutor(2, thread_name_prefix="babelgate-schema")
"""Threads that wait for the subprocesses, one thread each."""
_CACHE_SIZE: Final = 256
"""Maximum number of schemas in the cache. Chosen."""


class _Unchecked(Exception):
    """Reason why a value could not be checked against a schema, for example that the schema is invalid."""


async def schema_error(info: AgentInfo, output: Json) -> Fault | None:
    """Return the fault of an output that does not match its agent's schema, or None.

    An output is not checked if the agent has declared no schema, or is stateful: the schema of a graph describes its
    state, and not its final output.
    """
    declared = info.schemas.get("output")
    if output is None or not declared or info.stateful:
        return None
    error = await find_mismatch(declared, output, f"output of agent {info.name}")
    if error is None:
        return None
    return Fault(code=FaultCode.AGENT_INVALID, message=f"The agent's output does not fit its own schema{error}")


async def find_mismatch(schema: Json, value: Json, what: str) -> str | None:
    """Return a message about the first mismatch between a value and an agent's schema.

    Return None if the value matches, or if the schema cannot be used, which is logged. `what` describes the value in
    the log, such as `output of agent weather`.
    """
    try:
        return await _find_error(await _schema(to_json(schema)), value)
    except _Unchecked as why:
        log.warning("%s is not checked against its schema: %s", what, why)
        return None


async def find_schema_error(schema: Json, value: Json) -> str | None:
    """Return a message about the first mismatch between a value and a caller's schema, or None if it matches.

    Raises invalid if the schema cannot be used.
    """
    try:
        return await _find_error(await _schema(to_json(schema)), value)
    except _Unchecked as why:
        raise FaultError(FaultCode.INVALID, f"The JSON Schema cannot be used: {why}") from why


_schemas: Final[OrderedDict[bytes, Json]] = OrderedDict()
"""Cache of parsed schemas, by their JSON text. The value None marks a text that is not a valid schema."""


async def _schema(text: bytes) -> Any:
    if len(text) > _MAX_SCHEMA_SIZE:
        raise _Unchecked(f"it is larger than {_MAX_SCHEMA_SIZE} bytes")
    if text not in _schemas:
        parsed: Any = from_json(text)
        error = await _find_error(Draft202012Validator.META_SCHEMA, parsed, trusted=True)
        if error is not None:
            log.warning("invalid JSON Schema%s", error)
        _schemas[text] = parsed if error is None else None
        if len(_schemas) > _CACHE_SIZE:
            _schemas.popitem(last=False)
    cached = _schemas.get(text)
    if cached is None:
        raise _Unchecked("it is not a valid JSON Schema")
    return cached


async def _find_error(schema: Any, value: Json, *, trusted: bool = False) -> str | None:
    if (trusted or not is_costly(schema)) and len(to_json(value)) <= _MAX_LOCAL_SIZE:
        try:
            return find_error(schema, value, _MAX_LOCAL_STEPS)
        except StepLimitExceeded:
            pass
        except (Unresolvable, ArithmeticError) as error:
            raise _Unchecked(f"it cannot be followed: {error}") from error
    return await asyncio.get_running_loop().run_in_executor(_pool, _find_error_in_process, to_json([schema, value]))


def _find_error_in_process(request: bytes) -> str | None:
    """Return a message about the first mismatch, or None, from a subprocess that is killed after `_SUBPROCESS_TIMEOUT`.

    `request` is the JSON of the schema and the value. Raises `_Unchecked` if the subprocess fails or is killed.
    """
    program = (sys.executable, "-I", schema_check.__file__)
    try:
        process = subprocess.run(program, input=request, capture_output=True, timeout=_SUBPROCESS_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise _Unchecked("it takes too long") from None
    if process.returncode != 0:
        raise _Unchecked("it cannot be followed")
    error: str | None = from_json(process.stdout)
    return error
