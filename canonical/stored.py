"""Schema evolution (upcasting): stored events of every release can be read.

`_CHANGED` alone defines how events of earlier releases are converted; other code never sees how old an event is.
Members that this release does not define are neither rejected nor lost. They are stored verbatim in `extra` under
`UNKNOWN`, and folds and copies preserve them there.
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
"""Key in `extra` for members that this release does not define. No protocol has this name, so no view shows them."""

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
"""Types for decoding those members of stored events that hold a canonical value or a list of them, by name. A member
that can hold several types has a table of these types by their `kind`."""


def decode_event(body: bytes) -> Event:
    """Return an event from the log. Nearly all events were written by this release and are decoded directly.

    Raises:
        msgspec.DecodeError: if the body is not an event.
    """
    try:
        return _EVENT.decode(body)
    except msgspec.ValidationError:
        body_members = msgspec.json.decode(body)
        if not isinstance(body_members, dict):
            raise
    event = cast("JsonObject", body_members)
    change = _CHANGED.get(str(event.get("kind")))
    members, _ = _keep_unknown(event if change is None else change(event), _EVENTS)
    return msgspec.convert(members, Event)


def decode_snapshot(kind: type[V], body: bytes) -> V:
    """Return a thread, task, run, question or file from its row. Members that another release added are dropped,
    because the log has them.

    Raises:
        msgspec.DecodeError: if the body is not such a value.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        members: JsonObject = msgspec.json.decode(body)
        known_members = {name: _known_member(name, members[name])[0] for name in _fields(kind) if name in members}
        return msgspec.convert(known_members, kind)


def encode_snapshot(value: object) -> bytes:
    """Return a thread, task, run, question or file as JSON for its row."""
    return _ENCODER.encode(value)


def _run_created(event: JsonObject) -> JsonObject:
    """Return the stored event without two members that early releases wrote and never used."""
    return {name: value for name, value in event.items() if name not in ("webhook", "reserved")}


_CHANGED: Final[Mapping[str, Callable[[JsonObject], JsonObject]]] = {"run_created": _run_created}
"""Conversions of stored events of earlier releases, by kind of event."""


def _keep_unknown(value: JsonObject, types: Mapping[str, type[Value]] | type[Value]) -> tuple[JsonObject, JsonObject]:
    """Return a value with only the members that this release defines, and a mapping of the unknown members that the
    value itself cannot hold.

    If the value has a field `extra`, unknown members are moved there, and the mapping is empty. Otherwise they move to
    the `extra` of the value that contains this one. Every event has `extra`.
    """
    kind = types if isinstance(types, type) else types.get(str(value.get("kind")))
    if kind is None:
        return value, {}
    fields = _fields(kind)
    unknown = {name: member for name, member in value.items() if name not in fields}
    result: JsonObject = {}
    for name, member in value.items():
        if name in fields:
            result[name], left = _known_member(name, member)
            if left:
                unknown[name] = left
    if unknown and "extra" in fields:
        extra: JsonObject = result.get("extra") or {}
        result["extra"] = {**extra, UNKNOWN: {**extra.get(UNKNOWN, {}), **unknown}}
        unknown = {}
    return result, unknown


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
