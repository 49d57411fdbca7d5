"""Structured output: checked against the schema that its agent has declared, often another server's and not to be
trusted. What cannot be checked within its time limit is not checked, and neither is anything against an invalid
schema."""

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
from babelgate.gateway.runs.schema_check import TooLong, find_error, is_costly

log = logging.getLogger("babelgate.output")

_LARGEST: Final = 256 * 1024
"""Bytes of a schema."""
_SMALL: Final = 4 * 1024
"""Bytes of a value that is looked at in this process."""
_STEPS: Final = 5_000
"""What is done there, before a process of its own is begun for it."""
_PATIENCE: Final = 4.0
"""Seconds that it has."""
_pool: Final = ThreadPoolExecutor(2, thread_name_prefix="babelgate-schema")
"""A thread for each such process."""
_KNOWN: Final = 256


class _Unchecked(Exception):
    """Why it could not be."""


async def schema_error(info: AgentInfo, output: Json) -> Fault | None:
    """What is wrong with an output; None if nothing is, or if the agent has declared no schema. A graph's schema is of
    its state, not of what it says at the end."""
    declared = info.schemas.get("output")
    if output is None or not declared or info.stateful:
        return None
    try:
        error = await _find_error(await _schema(to_json(declared)), output)
    except _Unchecked as why:
        log.warning("the output of agent %s is not checked against its schema: %s", info.name, why)
        return None
    if error is None:
        return None
    return Fault(code=FaultCode.AGENT_INVALID, message=f"The agent's output does not fit its own schema{error}")


async def find_schema_error(schema: Json, value: Json) -> str | None:
    """What does not fit a caller's schema; None if all does. Raises invalid."""
    try:
        return await _find_error(await _schema(to_json(schema)), value)
    except _Unchecked as why:
        raise FaultError(FaultCode.INVALID, f"The JSON Schema cannot be used: {why}") from why


_schemas: Final[OrderedDict[bytes, Json]] = OrderedDict()
"""By their text, the newest that were looked at; None = it is none."""


async def _schema(text: bytes) -> Any:
    if len(text) > _LARGEST:
        raise _Unchecked(f"it is larger than {_LARGEST} bytes")
    if text not in _schemas:
        read: Any = from_json(text)
        error = await _find_error(Draft202012Validator.META_SCHEMA, read, trusted=True)
        if error is not None:
            log.warning("this is no schema%s", error)
        _schemas[text] = read if error is None else None
        if len(_schemas) > _KNOWN:
            _schemas.popitem(last=False)
    known = _schemas.get(text)
    if known is None:
        raise _Unchecked("it is none")
    return known


async def _find_error(schema: Any, value: Json, *, trusted: bool = False) -> str | None:
    if (trusted or not is_costly(schema)) and len(to_json(value)) <= _SMALL:
        try:
            return find_error(schema, value, _STEPS)
        except TooLong:
            pass
        except (Unresolvable, ArithmeticError) as error:
            raise _Unchecked(f"it cannot be followed: {error}") from error
    return await asyncio.get_running_loop().run_in_executor(_pool, _find_error_in_process, to_json([schema, value]))


def _find_error_in_process(asked: bytes) -> str | None:
    """In a process, which is ended when it takes too long."""
    program = (sys.executable, "-I", schema_check.__file__)
    try:
        done = subprocess.run(program, input=asked, capture_output=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise _Unchecked("it takes too long") from None
    if done.returncode != 0:
        raise _Unchecked("it cannot be followed")
    found: str | None = from_json(done.stdout)
    return found
