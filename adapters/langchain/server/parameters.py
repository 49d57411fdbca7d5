"""Validated parts of a request: its caller, the parameters in its path and query, and its body."""

from collections.abc import Iterable
from typing import Any, TypeVar
from uuid import UUID

from litestar.connection import ASGIConnection
from pydantic import BaseModel

from babelgate.adapters.kit.integer import read_integer
from babelgate.adapters.kit.json import ABSENT, read_json, validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.langchain.wire.requests import Checkpoint
from babelgate.canonical import FaultCode, FaultError, Principal
from babelgate.canonical.value import is_uuid

Connection = ASGIConnection[Any, Any, Any, Any]
"""Litestar's common base of requests and WebSockets."""

M = TypeVar("M", bound=BaseModel)


def principal_of(connection: Connection) -> Principal:
    """Return the principal of a request."""
    return caller(connection).principal


def uuid(text: object, what: str) -> str:
    """Return a UUID in lower case with dashes. `what` names the kind of id in the error, such as `thread`. Raises
    invalid if the text is no UUID."""
    # OpenAPI 0.1.6 (`format: uuid`) and langgraph-api 0.16.7, which has this text. aegra 0.11.0 accepts any string.
    if not isinstance(text, str) or not is_uuid(text):
        raise FaultError(FaultCode.INVALID, f"Invalid {what} ID: must be a UUID")
    return str(UUID(text))


def path_id(connection: Connection, what: str) -> str:
    """Return the id in the path parameter `<what>_id`, for example that of a thread. Raises invalid if it is not a
    UUID."""
    return uuid(connection.path_params[f"{what}_id"], what)


def number(request: AnyRequest, name: str, default: int, least: int, most: int | None = None) -> int:
    """Return an integer query parameter between `least` and `most` (None: no maximum), or `default` if it is missing.
    Raises invalid for any other text."""
    text = request.query_params.get(name)
    return default if text is None else read_integer(text, name, least, most)


def flag(request: AnyRequest, name: str) -> bool:
    """Return a query parameter as a boolean: true for `1` and `true`, False if it is missing. Raises invalid for other
    values."""
    text = str(request.query_params.get(name, "")).lower()
    if text not in ("", "0", "1", "true", "false"):
        raise FaultError(FaultCode.INVALID, f"{name}: must be true or false")
    # langgraph-api 0.16.7 accepts `wait=1` and `wait=true`.
    return text in ("1", "true")


def words(request: AnyRequest, name: str) -> list[str]:
    """Return the values of a query parameter. It may be repeated, and each occurrence may be a list separated by
    commas."""
    texts: list[str] = request.query_params.getall(name, [])
    return [word for text in texts for word in text.split(",") if word]


def check_selection(names: Iterable[str], allowed: frozenset[str], what: str) -> list[str]:
    """Return the names of members that a caller selects, as a list. `what` is the parameter's name in the error. Raises
    invalid for a name that is not in `allowed`."""
    selection = list(names)
    for name in selection:
        if name not in allowed:
            raise FaultError(FaultCode.INVALID, f"{what}: {name[:100]!r} is not one of {', '.join(sorted(allowed))}")
    return selection


async def read_body(request: AnyRequest, model: type[M]) -> M:
    """Return the JSON body of a request, validated as a model. Raises invalid for a body that is not JSON or violates
    the model, and too_large."""
    return validate(model, await read_json(request))


async def read_optional_body(request: AnyRequest, model: type[M]) -> M:
    """Return the JSON body of a request, validated as a model. A missing body counts as an empty object. Raises invalid
    for a body that is not JSON or violates the model, and too_large."""
    body = await read_json(request)
    return validate(model, {} if body is ABSENT else body)


def checkpoint_of(checkpoint: Checkpoint | None, checkpoint_id: str | None = None, config: Any = None) -> str | None:
    """Return the id of the checkpoint that a request names, or None. A request can have it in three members:
    `checkpoint`, `checkpoint_id` and `config.configurable.checkpoint_id` (`config`). Raises invalid if they differ."""
    checkpoint_ids = [id_ for id_ in (checkpoint_id, checkpoint and checkpoint.checkpoint_id, config) if id_]
    if any(id_ != checkpoint_ids[0] or not isinstance(id_, str) for id_ in checkpoint_ids):
        raise FaultError(FaultCode.INVALID, "checkpoint: must be one id; several different ones were given")
    return checkpoint_ids[0] if checkpoint_ids else None
