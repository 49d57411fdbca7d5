"""Schema evolution (upcasting): stored events are read again, whichever release has written them.

What an earlier release wrote otherwise is told in `_CHANGED`, here and nowhere else: nobody who is given an event can
see how old it is. Members that this release has no word for are not refused and not lost: they are kept verbatim in
`extra` under `UNKNOWN`, from where folds and copies take them along.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from canonical.event import EVENT, Event
from canonical.value import JsonObject, Value

UNKNOWN: Final = "babelgate"
"""Where in `extra` they are. No protocol has this name, so no view shows them."""


def decode_event(body: bytes) -> Event:
    """An event as the log keeps it. What this release has written itself is read as it stands, and that is nearly all.

    Raises:
        ValidationError: if it is none.
    """
    try:
        return EVENT.validate_json(body)
    except ValidationError:
        event, _ = _keep_unknown(EVENT.validate_json(_upgrade_event(body), extra="allow"))
        return cast("Event", event)


def _upgrade_event(body: bytes) -> bytes:
    event: JsonObject = from_json(body)
    change = _CHANGED.get(str(event.get("kind")))
    return body if change is None else to_json(change(event))


def _run_created(event: JsonObject) -> JsonObject:
    """Before revision 0002 it had two members that nothing was ever said with."""
    return {name: value for name, value in event.items() if name not in ("webhook", "reserved")}


_CHANGED: Final[Mapping[str, Callable[[JsonObject], JsonObject]]] = {"run_created": _run_created}
"""By kind of event, what makes today's form of what was written before."""


def _keep_unknown(value: Any) -> tuple[Any, JsonObject]:
    """The value, with what is unknown in it where it can be kept; and what is left, for the value around it to keep. An
    event has `extra`, so nothing is left of one."""
    if isinstance(value, tuple):
        items = [_keep_unknown(item) for item in cast("tuple[Any, ...]", value)]
        return tuple(item for item, _ in items), {str(number): left for number, (_, left) in enumerate(items) if left}
    if not isinstance(value, Value):
        return value, {}
    told = {name: _keep_unknown(getattr(value, name)) for name in type(value).model_fields}
    members = {name: member for name, (member, _) in told.items()}
    unknown = {**(value.__pydantic_extra__ or {}), **{name: left for name, (_, left) in told.items() if left}}
    if unknown and "extra" in members:
        members["extra"] = {**members["extra"], UNKNOWN: {**members["extra"].get(UNKNOWN, {}), **unknown}}
        unknown = {}
    return type(value).model_construct(value.model_fields_set & members.keys(), **members), unknown
