"""What a request says, checked: who calls, the parameters in its path and query, and its body."""

from collections.abc import Iterable
from typing import Any, TypeVar
from uuid import UUID

from litestar import Request
from litestar.connection import ASGIConnection
from pydantic import BaseModel

from babelgate.adapters.kit.json import ABSENT, read_json, validate
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.langchain.wire.requests import Checkpoint
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import is_uuid

AnyRequest = Request[Any, Any, Any]
Connection = ASGIConnection[Any, Any, Any, Any]
"""A request or a WebSocket."""

M = TypeVar("M", bound=BaseModel)


def owner_of(connection: Connection) -> str:
    return caller(connection).owner


def uuid(text: object, what: str) -> str:
    """As the hub keeps it. Raises invalid."""
    # OpenAPI 0.1.6 (`format: uuid`) and langgraph-api 0.16.7, whose words these are; aegra 0.11.0 takes any string.
    if not isinstance(text, str) or not is_uuid(text):
        raise FaultError(FaultCode.INVALID, f"Invalid {what} ID: must be a UUID")
    return str(UUID(text))


def path_id(connection: Connection, what: str) -> str:
    return uuid(connection.path_params[f"{what}_id"], what)


def number(request: AnyRequest, name: str, default: int, least: int, most: int | None = None) -> int:
    """Raises invalid."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10) or not least <= int(text) <= (most or int(text)):
        range_ = f"from {least}" + (f" to {most}" if most else "")
        raise FaultError(FaultCode.INVALID, f"{name}: must be an integer {range_}")
    return int(text)


def flag(request: AnyRequest, name: str) -> bool:
    """Raises invalid."""
    text = str(request.query_params.get(name, "")).lower()
    if text not in ("", "0", "1", "true", "false"):
        raise FaultError(FaultCode.INVALID, f"{name}: must be true or false")
    # langgraph-api 0.16.7 takes `wait=1` and `wait=true`.
    return text in ("1", "true")


def words(request: AnyRequest, name: str) -> list[str]:
    """A query parameter that may be given several times, or once with commas."""
    given: list[str] = request.query_params.getall(name, [])
    return [word for text in given for word in text.split(",") if word]


def check_selection(names: Iterable[str], known: frozenset[str], what: str) -> list[str]:
    """A selection of members by name. Raises invalid for one that there is not."""
    found = list(names)
    for name in found:
        if name not in known:
            raise FaultError(FaultCode.INVALID, f"{what}: {name[:100]!r} is not one of {', '.join(sorted(known))}")
    return found


async def read_body(request: AnyRequest, model: type[M]) -> M:
    """Raises invalid, too_large."""
    return validate(model, await read_json(request))


async def read_optional_body(request: AnyRequest, model: type[M]) -> M:
    """The same, of a model in which every member has a default: then the body has one, too. Raises invalid,
    too_large."""
    given = await read_json(request)
    return validate(model, {} if given is ABSENT else given)


def checkpoint_of(checkpoint: Checkpoint | None, checkpoint_id: str | None = None, config: Any = None) -> str | None:
    """The id of a revision, from wherever the caller says it. Raises invalid where it is said in two ways."""
    said = [given for given in (checkpoint_id, checkpoint and checkpoint.checkpoint_id, config) if given]
    if any(given != said[0] or not isinstance(given, str) for given in said):
        raise FaultError(FaultCode.INVALID, "checkpoint: must be one id; several different ones were given")
    return said[0] if said else None
