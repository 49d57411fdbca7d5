"""Query parameters of the console's API, and the form of pages in its responses."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from babelgate.adapters.kit.request import AnyRequest
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.state import RunStatus
from babelgate.canonical.thread import Interrupt
from babelgate.canonical.value import JsonObject, is_uuid
from babelgate.gateway.clock import format_time
from babelgate.gateway.settings.fields import parse_period

MAX_ITEMS: Final = 100
"""Maximum number of items in one page of a list. Chosen."""
_DEFAULT_ITEMS: Final = 50
_MAX_TEXT: Final = 200
"""Maximum length of a text parameter, in characters. Chosen."""
_MAX_QUESTION: Final = 500
"""Maximum length of a question's text in lists, in characters. Chosen."""


class Parameters:
    """Query parameters of a request, converted and checked. Unknown and repeated parameters are refused."""

    def __init__(self, request: AnyRequest, *names: str, repeatable: Collection[str] = ()) -> None:
        """Read the query parameters of a request. `names` are those that it may have, and the `repeatable` ones of them
        may occur several times. Raises invalid for any other parameter, and for a repeated one."""
        self._values = request.query_params
        for name in self._values:
            if name not in names:
                words = f"There is no parameter {name[:40]!r}; there are {', '.join(sorted(names))}"
                raise FaultError(FaultCode.INVALID, words)
            count = len(self._values.getall(name))
            if count > 1 and name not in repeatable:
                raise FaultError(FaultCode.INVALID, f"{name}: expected one value, got {count}")

    def text(self, name: str) -> str | None:
        """Return a parameter as text, or None if it is absent or empty. Raises invalid if it is too long."""
        value = self._values.get(name, "")
        if len(value) > _MAX_TEXT:
            raise FaultError(FaultCode.INVALID, f"{name}: expected at most {_MAX_TEXT} characters")
        return value or None

    def cursor(self) -> str | None:
        """Return the parameter `after`, the cursor at which the previous page ended, or None for the first page."""
        return self._values.get("after") or None

    def limit(self, default: int = _DEFAULT_ITEMS, most: int = MAX_ITEMS) -> int:
        """Return the parameter `limit`, the maximum number of items in a page, or `default` if it is absent. Raises
        invalid if it is not a number from 1 to `most`."""
        return self.number("limit", default, 1, most)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a parameter as an integer, or `default` if it is absent. Raises invalid if it is not a number from
        `least` to `most`."""
        value = self._values.get(name, str(default))
        if not (value.isascii() and value.isdigit() and len(value) <= 16 and least <= int(value) <= most):
            words = f"{name}: expected a number from {least} to {most}, got {value[:20]!r}"
            raise FaultError(FaultCode.INVALID, words)
        return int(value)

    def flag(self, name: str) -> bool:
        """Return a parameter as a boolean: True for 1, and False for 0 or if it is absent. Raises invalid for any other
        value."""
        value = self._values.get(name, "0")
        if value not in ("0", "1"):
            raise FaultError(FaultCode.INVALID, f"{name}: expected 0 or 1, got {value[:20]!r}")
        return value == "1"

    def since(self, now: int) -> int | None:
        """Return the parameter `since` in microseconds since 1970, or None if it is absent. Its value is a time, or a
        period before `now` such as `24h`. Raises invalid for any other value."""
        value = self._values.get("since", "")
        if not value:
            return None
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1e6)
        try:
            seconds = parse_period(value)
        except (ValueError, OverflowError):
            seconds = None
        if not isinstance(seconds, int | float) or not 0 <= seconds < 1e10:
            words = f"since: expected a time in RFC 3339, or a period such as 24h, got {value[:40]!r}"
            raise FaultError(FaultCode.INVALID, words)
        return now - round(seconds * 1e6)

    def statuses(self) -> frozenset[RunStatus] | None:
        """Return the run statuses in the parameter `status`, which are separated by commas, or None if it is absent.
        Raises invalid for an unknown status."""
        value = self._values.get("status", "")
        try:
            return frozenset(map(RunStatus, value.split(","))) if value else None
        except ValueError:
            words = f"status: expected one or more of {', '.join(RunStatus)}, separated by commas, got {value[:40]!r}"
            raise FaultError(FaultCode.INVALID, words) from None

    def members(self, name: str) -> Mapping[str, str]:
        """Return the values of a repeatable parameter of the form `key:value`, by key. Raises invalid for another form,
        a text that is too long, and a repeated key."""
        members: dict[str, str] = {}
        for text in self._values.getall(name, []):
            key, colon, value = text.partition(":")
            if not key or not colon or len(text) > _MAX_TEXT:
                words = f"{name}: expected key:value, at most {_MAX_TEXT} characters, got {text[:40]!r}"
                raise FaultError(FaultCode.INVALID, words)
            if key in members:
                raise FaultError(FaultCode.INVALID, f"{name}: expected each key once, got {key[:40]!r} twice")
            members[key] = value
        return members


def read_id(value: str, kind: str) -> str:
    """Return the id of a thread, run or job in a path. `kind` names it in errors. Raises not_found for a text that
    cannot be an id."""
    if not is_uuid(value):
        raise FaultError(FaultCode.NOT_FOUND, f"{kind} {value[:40]!r} not found: its id is a UUID")
    return value.lower()


def encode_page(items: Sequence[JsonObject], next_cursor: object) -> JsonObject:
    """Return a page of a list as the API shows it. `next_cursor` is the cursor of the next page, or None after the
    last."""
    return {"items": items, "next": next_cursor}


def encode_ask(question: Interrupt) -> JsonObject:
    """Return a question as lists of threads and runs show it: its id, its kind, the time at which it was asked, and its
    text, cut to 500 characters."""
    text = question.message.text
    return {
        "interrupt_id": question.interrupt_id,
        "kind": question.ask,
        "message": text if len(text) <= _MAX_QUESTION else text[: _MAX_QUESTION - 1] + "…",
        "raised_at": format_time(question.raised_at),
    }
