"""Bodies and query parameters of requests to the administration API."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TypeVar

import msgspec

from babelgate.adapters.kit.json import ABSENT, read_json
from babelgate.adapters.kit.request import AnyRequest
from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.settings.fields import parse_period

T = TypeVar("T", bound=msgspec.Struct)

MAX_BODY: Final = 2**20
"""Maximum size of a request's body, in bytes. Chosen: the settings of an agent take about 1 KB."""
_MAX_GRACE: Final = 30 * 86_400.0
"""Maximum period for which the old secret of a rotated key is still accepted, in seconds. Chosen: 30 days."""


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a request for a new API key."""

    owner: str
    groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    expires: str | None = None
    """Expiry of the key: a date or a time in ISO 8601, or a period from now, such as `90d`. None means never."""


class Rotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a request that rotates an API key."""

    grace: str | int | float = 0
    """Period for which the old secret of the key is still accepted, such as `1h`, or a number of seconds."""


class Disabling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a request that disables an agent."""

    reason: str
    """Reason, which is sent to every caller of the agent."""
    running: Literal["drain", "cancel"] = "drain"


async def read_body(request: AnyRequest, kind: type[T]) -> T:
    """Return the body of a request, converted to `kind`. A request without a body is read as an empty object. Raises
    invalid for a body that is not JSON, or that has wrong or unknown members."""
    body = await read_json(request, limit=MAX_BODY)
    try:
        return msgspec.convert({} if body is ABSENT else body, kind)
    except msgspec.ValidationError as error:
        members = ", ".join(field.encode_name for field in msgspec.structs.fields(kind))
        raise FaultError(FaultCode.INVALID, f"{error}. The members of the body are {members}.") from None


def read_grace(value: str | float) -> float:
    """Return a grace period in seconds, from a text such as `1h` or a number. Raises invalid for another form, and for
    more than 30 days."""
    seconds = _period(value, "grace")
    if not 0 <= seconds <= _MAX_GRACE:
        raise FaultError(FaultCode.INVALID, "grace: expected a period from 0 to 30d, such as 1h")
    return seconds


def read_expiry(value: str | None, now: int) -> int | None:
    """Return the time at which a key expires, in microseconds since 1970, or None if it does not expire.

    `value` is a time in ISO 8601, or a period after `now`, such as `90d`. Raises invalid for a time in the past.
    """
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        expires = now + round(_period(value, "expires") * 1e6)
    else:
        expires = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1e6)
    if not now < expires < 2**53:
        raise FaultError(FaultCode.INVALID, f"expires: {value[:40]!r} is not in the future")
    return expires


def _period(value: object, name: str) -> float:
    try:
        seconds = parse_period(value)
    except (ValueError, OverflowError) as error:
        raise FaultError(FaultCode.INVALID, f"{name}: {error}") from None
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        raise FaultError(FaultCode.INVALID, f"{name}: expected a period, such as 1h")
    return float(seconds)


def read_time(value: str, name: str) -> int:
    """Return the time in a query parameter in microseconds since 1970. `name` is that of the parameter, for errors.
    Raises invalid for a text that is not a time in ISO 8601."""
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        words = f"{name}: expected a date or a time in ISO 8601, such as 2026-11-29T12:00:00Z, got {value[:40]!r}"
        raise FaultError(FaultCode.INVALID, words) from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1e6)


def read_query(request: AnyRequest) -> Mapping[str, str]:
    """Return the query parameters of a request by name. Raises invalid for one that occurs several times."""
    values = request.query_params
    for name in values:
        if (count := len(values.getall(name))) > 1:
            raise FaultError(FaultCode.INVALID, f"{name[:40]}: expected one value, got {count}")
    return {name: values[name] for name in values}


def read_limit(request: AnyRequest, default: int, most: int) -> int:
    """Return the query parameter `limit` of a request, or `default` if it is absent. Raises invalid if it is not a
    number from 1 to `most`, and for any parameter that occurs several times."""
    value = read_query(request).get("limit", str(default))
    if not (value.isascii() and value.isdigit() and len(value) <= 6 and 1 <= int(value) <= most):
        raise FaultError(FaultCode.INVALID, f"limit: expected a number from 1 to {most}, got {value[:20]!r}")
    return int(value)
