"""Validation of request bodies: size, UTF-8, number of values, JSON syntax, depth, finite numbers, and then a wire
model. Every request body passes through this module.

Each web framework and JSON library accepts input that fails later: NaN that cannot be encoded again, lone surrogates
that no database stores, or a thousand levels that no parser survives. Everything that passes here is plain JSON.
"""

from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar, overload

from litestar.connection import ASGIConnection
from litestar.exceptions import ClientException
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from babelgate.adapters.kit.aside import aside
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.values import count_values
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.json import MAX_DEPTH, NotJson, TooDeep, check_json
from babelgate.canonical.value import Json, JsonObject

DEFAULT_LIMIT: Final = 64 * 1024 * 1024
"""Maximum size of one body, in bytes, if no other limit is configured. Chosen."""
DEFAULT_VALUES: Final = 100_000
"""Maximum number of JSON values in one body. Chosen: a million small values, which are 2 MB on the wire, take fifty
times as much memory."""
MAX_INTEGER: Final = 10**300
"""Largest integer. Longer integers are legal JSON, but Python and databases refuse to print them. Chosen: no protocol
needs a larger one."""

_SMALL: Final = 64 * 1024
"""Maximum size of a JSON text that is parsed on the event loop, in bytes. Handing it to a thread would take longer."""

_PLAIN: Final = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type", "mapping_type"), "Input should be an object"),
    "extra_forbidden": "There is no such member",
    **dict.fromkeys(("list_type", "tuple_type", "set_type"), "Input should be a list"),
}
"""Error texts, by pydantic's error type. Pydantic's own texts use Python terms, and may name an internal class."""

_NAME: Final = 100
"""Maximum length of a member's name in an error text, in characters. Chosen, because a caller may send a name of any
length."""

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


class Absent(Enum):
    """Type of `ABSENT`. It distinguishes an empty body from every JSON value."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
"""Result of reading an empty body, or a body that is `null`."""


async def read_bytes(request: AnyRequest, *, limit: int | None = None) -> bytes:
    """Return the whole body of a request. Raises too_large as soon as it exceeds `limit` bytes; None = the limit of the
    caller. Raises invalid if the request is malformed."""
    most = most_bytes(request) if limit is None else limit
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > most:
                raise FaultError(FaultCode.TOO_LARGE, f"The body is larger than {most} bytes.", limit=most)
            chunks.append(chunk)
    except ClientException as error:  # Litestar's own limit, or a Content-Length that is not a number
        code = FaultCode.TOO_LARGE if error.status_code == 413 else FaultCode.INVALID
        raise FaultError(code, "The body cannot be read.") from error
    return b"".join(chunks)


async def read_json(request: AnyRequest, *, limit: int | None = None) -> Json | Absent:
    """Return the body as JSON, even if its Content-Type is not JSON, or ABSENT if it is empty or `null`. `limit` is its
    maximum size in bytes; the default is that of the caller. Raises invalid for a body that is not JSON, and too_large
    for too many bytes or values."""
    raw = await read_bytes(request, limit=limit)
    if raw.isspace() or not raw:
        return ABSENT
    value = await parse(raw, most_values(request))
    return ABSENT if value is None else value


def most_bytes(connection: ASGIConnection[Any, Any, Any, Any]) -> int:
    """Return the maximum size of a body of this caller, in bytes."""
    return connection.scope["state"].get("body_limit", DEFAULT_LIMIT)


def most_values(connection: ASGIConnection[Any, Any, Any, Any]) -> int:
    """Return the maximum number of JSON values in one JSON text that this caller sends."""
    return connection.scope["state"].get("values_limit", DEFAULT_VALUES)


async def parse(raw: bytes, values: int = DEFAULT_VALUES) -> Json:
    """Parse JSON as `parse_json` does, in a thread if the text is long. Raises invalid for a text that is not JSON, and
    too_large for too many values."""
    return parse_json(raw, values) if len(raw) <= _SMALL else await aside(partial(parse_json, raw, values))


def parse_json(raw: bytes, values: int = DEFAULT_VALUES) -> Json:
    """Return JSON text as a value that can be stored, nested and encoded again. Raises invalid if the text is not
    valid. Raises too_large if it has more than `values` values, counting objects, lists and their members."""
    if len(raw) > values and count_values(raw, values) > values:
        raise FaultError(FaultCode.TOO_LARGE, f"The body holds more than {values} JSON values.", limit=values)
    try:
        # RFC 8259, section 6: NaN and Infinity are not JSON, but pydantic's parser would accept them.
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
    """Return the JSON value of a text that an agent or a model wrote. Return ABSENT if the text is not JSON."""
    try:
        return parse_json(text.encode())
    except (FaultError, UnicodeEncodeError):
        return ABSENT


def is_text_schema(schema: JsonObject) -> bool:
    """Return True if the values of a JSON Schema are texts, so that a text which looks like JSON must stay a text."""
    return schema.get("type") == "string"


@overload
def validate(model: type[M], value: object) -> M: ...


@overload
def validate(model: TypeAdapter[T], value: object) -> T: ...


def validate(model: type[BaseModel] | TypeAdapter[Any], value: object) -> Any:
    """Return `value` as a wire model. Raises invalid, with `errors` = [{field, description}]."""
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
    """Return a value as JSON text, without whitespace between tokens."""
    return to_json(value).decode()
