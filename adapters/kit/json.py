"""Request body validation: bytes, size, UTF-8, number of values, JSON, depth, finite numbers, and only then a wire
model. All bodies come in here.

Web frameworks and JSON libraries each let something through that breaks later: NaN that cannot be written again, lone
surrogates that no database stores, a thousand levels that no reader survives. Whatever passes here is plain JSON.
"""

from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar, overload

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.exceptions import ClientException
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from babelgate.adapters.kit.aside import aside
from babelgate.adapters.kit.values import count_values
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.json import MAX_DEPTH, NotJson, TooDeep, check_json
from babelgate.canonical.value import Json

DEFAULT_LIMIT: Final = 64 * 1024 * 1024
DEFAULT_VALUES: Final = 100_000
"""Values of one body. A million of them are two megabytes on the wire, and in memory and in time fifty times that."""
MAX_INTEGER: Final = 10**300
"""Longer integers are legal JSON that Python and databases refuse to print; no protocol has a use for them."""

_SMALL: Final = 64 * 1024
"""Bytes that are parsed in less time than it takes to hand them to another thread."""

_PLAIN: Final = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type", "mapping_type"), "Input should be an object"),
    "extra_forbidden": "There is no such member",
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), "Input should be a list"),
}
"""By pydantic's type of an error. Its own words are of Python, and may name a class of ours."""

_NAME: Final = 100
"""Characters of a member's name that an error shows: the caller may have made it up."""

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


class Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
"""An empty body, or `null`."""


async def read_bytes(request: Request[Any, Any, Any], *, limit: int | None = None) -> bytes:
    """The whole body. Raises too_large as soon as it is longer than `limit`, or than what the gateway allows."""
    most = most_bytes(request) if limit is None else limit
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > most:
                raise FaultError(FaultCode.TOO_LARGE, f"The body is larger than {most} bytes.", limit=most)
            chunks.append(chunk)
    except ClientException as error:  # Litestar's own limit, or a Content-Length that is no number
        code = FaultCode.TOO_LARGE if error.status_code == 413 else FaultCode.INVALID
        raise FaultError(code, "The body cannot be read.") from error
    return b"".join(chunks)


async def read_json(request: Request[Any, Any, Any], *, limit: int | None = None) -> Json | Absent:
    """The body as JSON, whatever its Content-Type says. Raises invalid, too_large."""
    raw = await read_bytes(request, limit=limit)
    if raw.isspace() or not raw:
        return ABSENT
    value = await parse(raw, most_values(request))
    return ABSENT if value is None else value


def most_bytes(connection: ASGIConnection[Any, Any, Any, Any]) -> int:
    """How long a body of the caller may be."""
    return connection.scope["state"].get("body_limit", DEFAULT_LIMIT)


def most_values(connection: ASGIConnection[Any, Any, Any, Any]) -> int:
    """How many values one JSON text of the caller may hold."""
    return connection.scope["state"].get("values_limit", DEFAULT_VALUES)


async def parse(raw: bytes, values: int = DEFAULT_VALUES) -> Json:
    """The same as `parse_json`, beside the loop where it takes long. Raises invalid, too_large."""
    return parse_json(raw, values) if len(raw) <= _SMALL else await aside(partial(parse_json, raw, values))


def parse_json(raw: bytes, values: int = DEFAULT_VALUES) -> Json:
    """JSON text as a value that can be stored, nested and written again. Raises invalid; too_large for more than so
    many `values`, objects and lists and what is in them."""
    if len(raw) > values and count_values(raw, values) > values:
        raise FaultError(FaultCode.TOO_LARGE, f"The body holds more than {values} JSON values.", limit=values)
    try:
        # RFC 8259, 6: no NaN and no Infinity, which pydantic's parser would take.
        value: Json = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise FaultError(FaultCode.INVALID, f"The body is not JSON: {error}") from error
    try:
        check_json(value, most=values, largest=MAX_INTEGER)
    except TooDeep as error:
        raise FaultError(FaultCode.INVALID, f"The body is nested deeper than {MAX_DEPTH} levels.") from error
    except NotJson as error:
        raise FaultError(FaultCode.INVALID, "The body holds a number that is out of range.") from error
    return value


def parse_text(text: str) -> Json | Absent:
    """The JSON in a text, which need not be any: an agent or a model wrote it. ABSENT where it is none."""
    try:
        return parse_json(text.encode())
    except (FaultError, UnicodeEncodeError):
        return ABSENT


@overload
def validate(model: type[M], value: object) -> M: ...


@overload
def validate(model: TypeAdapter[T], value: object) -> T: ...


def validate(model: type[BaseModel] | TypeAdapter[Any], value: object) -> Any:
    """`value` as a wire model. Raises invalid, with `errors` = [{field, description}]."""
    if value is ABSENT:
        raise FaultError(FaultCode.INVALID, "The request has no body.", errors=[])
    try:
        return model.validate_python(value) if isinstance(model, TypeAdapter) else model.model_validate(value)
    except ValidationError as error:
        errors = [
            {
                "field": ".".join(str(step)[:_NAME] for step in each["loc"]),
                "description": _PLAIN.get(each["type"], each["msg"]),
            }
            for each in error.errors(include_url=False, include_context=False, include_input=False)[:20]
        ]
        message = "; ".join(
            f"{each['field']}: {each['description']}" if each["field"] else each["description"] for each in errors
        )
        raise FaultError(FaultCode.INVALID, message, errors=errors) from error


def json_text(value: Json) -> str:
    """Return a value as JSON text, without blanks."""
    return to_json(value).decode()
