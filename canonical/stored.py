"""Schema evolution (upcasting): stored events are read again, whichever release has written them.

What an earlier release wrote otherwise is told in `_CHANGED`, here and nowhere else: nobody who is given an event can
see how old it is. Members that this release has no word for are not refused and not lost: they are kept verbatim in
`extra` under `UNKNOWN`, from where folds and copies take them along.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast, get_args

import msgspec

from babelgate.canonical.event import Event
from babelgate.canonical.fault import Fault
from babelgate.canonical.message import Message, Part
from babelgate.canonical.value import JsonObject, Value

V = TypeVar("V", bound=Value)

UNKNOWN: Final = "babelgate"
"""Where in `extra` they are. No protocol has this name, so no view shows them."""

_EVENT: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)
_ENCODER: Final = msgspec.json.Encoder()
_EVENTS: Final[Mapping[str, type[Value]]] = {each.kind: each for each in get_args(Event)}
_PARTS: Final[Mapping[str, type[Value]]] = {each.kind: each for each in get_args(Part)}
_MEMBERS: Final[Mapping[str, Mapping[str, type[Value]] | type[Value]]] = {
    "part": _PARTS,
    "parts": _PARTS,
    "message": Message,
    "messages": Message,
    "uploads": _PARTS,
    "fault": Fault,
}
"""Members that hold values, or lists of them, wherever they stand; by kind, where there are several."""


def decode_event(body: bytes) -> Event:
    """An event as the log keeps it. What this release has written itself is read as it stands, and that is nearly all.

    Raises:
        msgspec.DecodeError: if it is none.
    """
    try:
        return _EVENT.decode(body)
    except msgspec.ValidationError:
        told = msgspec.json.decode(body)
        if not isinstance(told, dict):
            raise
    event = cast("JsonObject", told)
    change = _CHANGED.get(str(event.get("kind")))
    known, _ = _keep_unknown(event if change is None else change(event), _EVENTS)
    return msgspec.convert(known, Event)


def decode_snapshot(kind: type[V], body: bytes) -> V:
    """A thread, a task, a run, a question or a file as its row keeps it. What another release has said in it beyond
    that is in the log.

    Raises:
        msgspec.DecodeError: if it is none.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        told: JsonObject = msgspec.json.decode(body)
        known = {name: _known_member(name, told[name])[0] for name in _fields(kind) if name in told}
        return msgspec.convert(known, kind)


def encode_snapshot(value: object) -> bytes:
    """A thread, a task, a run, a question or a file, as its row keeps it."""
    return _ENCODER.encode(value)


def _run_created(event: JsonObject) -> JsonObject:
    """Before revision 0002 it had two members that nothing was ever said with."""
    return {name: value for name, value in event.items() if name not in ("webhook", "reserved")}


_CHANGED: Final[Mapping[str, Callable[[JsonObject], JsonObject]]] = {"run_created": _run_created}
"""By kind of event, what makes today's form of what was written before."""


def _keep_unknown(told: JsonObject, types: Mapping[str, type[Value]] | type[Value]) -> tuple[JsonObject, JsonObject]:
    """The value as JSON of this release, with what is unknown in it where it can be kept; and what is left, for the
    value around it to keep. An event has `extra`, so nothing is left of one."""
    kind = types if isinstance(types, type) else types.get(str(told.get("kind")))
    if kind is None:
        return told, {}
    fields = _fields(kind)
    unknown = {name: member for name, member in told.items() if name not in fields}
    known: JsonObject = {}
    for name, member in told.items():
        if name in fields:
            known[name], left = _known_member(name, member)
            if left:
                unknown[name] = left
    if unknown and "extra" in fields:
        extra: JsonObject = known.get("extra") or {}
        known["extra"] = {**extra, UNKNOWN: {**extra.get(UNKNOWN, {}), **unknown}}
        unknown = {}
    return known, unknown


def _fields(kind: type[Value]) -> frozenset[str]:
    tag = kind.__struct_config__.tag_field
    return frozenset((*kind.__struct_encode_fields__, *([tag] if tag else [])))


def _known_member(name: str, member: Any) -> tuple[Any, JsonObject]:
    types = _MEMBERS.get(name)
    if types is None or not member:
        return member, {}
    if isinstance(member, dict):
        return _keep_unknown(cast("JsonObject", member), types)
    if not isinstance(member, list):
        return member, {}
    items = [_known_member(name, item) for item in cast("list[Any]", member)]
    return [item for item, _ in items], {str(number): left for number, (_, left) in enumerate(items) if left}
