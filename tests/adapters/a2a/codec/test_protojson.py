"""ProtoJSON of all messages of A2A: the results are those of `google.protobuf.json_format`."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from babelgate.adapters.a2a.codec.protobuf import from_message, to_bytes
from babelgate.adapters.a2a.wire.protobuf import POOL, REPLIES, REQUESTS, message_type
from babelgate.canonical import FaultError

_PARSER: Final = cast("Any", json_format)._Parser
_fill: Final[Any] = _PARSER._ConvertFieldValuePair
_ERRORS: Final = ("google.rpc.Status", "google.rpc.ErrorInfo", "google.rpc.BadRequest")


class StrictParser(_PARSER):
    """`json_format` that refuses a text or list instead of a message."""

    def _ConvertFieldValuePair(self, js: Any, message: Message, path: str) -> None:
        if not isinstance(js, dict):
            raise json_format.ParseError(path)
        _fill(self, js, message, path)


def reference(value: Any, message: Message) -> bytes | None:
    """Return the message for JSON by `json_format`, or None if it refuses the JSON."""
    try:
        StrictParser(True, POOL, 100).ConvertMessage(value, message, "")
        return message.SerializeToString(deterministic=True)
    except Exception:
        return None


def outcome(value: Any, message: Message) -> bytes | None:
    try:
        return to_bytes(value, message)
    except FaultError:
        return None


def _reachable() -> Iterator[Any]:
    """Yield the descriptors of all messages in requests, responses and errors."""
    left = [each.DESCRIPTOR for each in (*REQUESTS.values(), *REPLIES.values(), *map(message_type, _ERRORS))]
    names = set[str]()
    while left:
        descriptor: Any = left.pop()
        if descriptor.full_name in names:
            continue
        names.add(descriptor.full_name)
        left += [field.message_type for field in descriptor.fields if field.message_type is not None]
        if not descriptor.GetOptions().map_entry:
            yield descriptor


TYPES: Final = sorted({each.full_name for each in _reachable()} - {"google.protobuf.Any"})
TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
LEAVES: Final = (
    st.none() | st.booleans() | TEXTS | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES: Final = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6
)
TIMES: Final = st.sampled_from(
    [
        *("2026-11-30T00:00:00Z", "2026-11-30T23:59:59.123Z", "2026-11-30T00:00:00.123456Z", "0001-01-01T00:00:00Z"),
        *("2026-11-30T00:00:00.123456789Z", "2026-11-30T01:00:00+01:00", "1969-12-31T23:59:59.999Z"),
    ]
)
_WRONG: Final[list[Any]] = [
    *(None, True, 0, -1, 7, 2**31, 1.5, 3.0),
    *("", "x", "7", "7.0", "true", "Infinity", "ROLE_USER", "é=", "half \ud800"),
    *([], {}, [None], [[]], {"x": None}, [1, "x"], {"@type": "x"}),
    *("2026-11-30", "2026-W48-1T00:00:00Z", "2026-11-30t00:00:00Z", "2026-11-30T00:00:60Z", "2026-02-30T00:00:00Z"),
    *("2026-11-30T00:00:00,123Z", "2026-11-30T24:00:00Z", "٢026-11-30T00:00:00Z"),
]
WRONG: Final = st.sampled_from(_WRONG)
_SLOW: Final = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
_SCALARS: Final[dict[int, st.SearchStrategy[Any]]] = {
    5: st.integers(-(2**31), 2**31 - 1),
    8: st.booleans(),
    9: TEXTS,
    12: st.sampled_from(["", "AA==", "AAEC", "-_-_", "+/+/", "AAE"]),
}
"""JSON of scalars by the type of the field (google/protobuf/descriptor.proto)."""


def json_of(descriptor: Any) -> st.SearchStrategy[Any]:
    """Return the strategy for valid JSON of a type of message."""
    match descriptor.full_name:
        case "google.protobuf.Value":
            return VALUES
        case "google.protobuf.Struct":
            return st.dictionaries(TEXTS, VALUES, max_size=3)
        case "google.protobuf.ListValue":
            return st.lists(VALUES, max_size=3)
        case "google.protobuf.Timestamp":
            return TIMES
        case "google.protobuf.Any":
            # json_format writes the map of an Any in any order, so it has one entry here
            info = st.fixed_dictionaries({"reason": TEXTS, "metadata": st.dictionaries(TEXTS, TEXTS, max_size=1)})
            return info.map(lambda each: {"@type": "type.googleapis.com/google.rpc.ErrorInfo", **each})
        case _:
            return st.composite(_draw_object)(list(descriptor.fields))


def _draw_object(draw: Callable[[st.SearchStrategy[Any]], Any], fields: list[Any]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    filled = set[str]()
    for field in draw(st.permutations(fields)):
        if draw(st.booleans()) and (field.containing_oneof is None or field.containing_oneof.name not in filled):
            filled |= {field.containing_oneof.name} if field.containing_oneof is not None else set()
            value[draw(st.sampled_from([field.json_name, field.json_name, field.name]))] = draw(field_json(field))
    if draw(st.booleans()):
        value["unknown"] = draw(VALUES)
    return value


def field_json(field: Any) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return st.dictionaries(TEXTS, field_json(field.message_type.fields_by_name["value"]), max_size=2)
    if field.message_type is not None:
        one = st.deferred(lambda: json_of(field.message_type))
    elif field.enum_type is not None:
        names = [each.name for each in field.enum_type.values]
        one = st.sampled_from([*names, 0, 1, 99, "1", "NO_SUCH_NAME"])
    else:
        one = _SCALARS[field.type]
    return st.lists(one, max_size=3) if field.is_repeated else one


def replaced(value: Any, place: int, by: Any) -> tuple[Any, int]:
    """Return a value whose part at a place, counted depth first, is replaced, and the number of places left."""
    if place == 0:
        return by, -1
    place -= 1
    if isinstance(value, dict):
        members: dict[str, Any] = {}
        for name, each in cast("dict[str, Any]", value).items():
            members[name], place = replaced(each, place, by) if place >= 0 else (each, place)
        return members, place
    if isinstance(value, list):
        items: list[Any] = []
        for each in cast("list[Any]", value):
            item, place = replaced(each, place, by) if place >= 0 else (each, place)
            items.append(item)
        return items, place
    return value, place


def normal(value: Any) -> str:
    """Return JSON in which doubles without a fraction are integers, with the members in their order."""
    return json.dumps(
        json.loads(json.dumps(value), parse_float=lambda text: int(float(text)) if _is_whole(text) else float(text))
    )


def _is_whole(text: str) -> bool:
    return float(text).is_integer() and abs(float(text)) <= 2**53


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=10, deadline=None, suppress_health_check=_SLOW)
@given(data=st.data())
def test_json_and_messages_are_those_of_json_format(name: str, data: st.DataObject) -> None:
    kind = message_type(name)
    value = data.draw(json_of(kind.DESCRIPTOR))
    encoded = outcome(value, kind())
    assert encoded is not None
    assert encoded == reference(value, kind())
    message = kind.FromString(encoded + b"\xf2\x3f\x01x")  # with field 1022, which is unknown
    assert normal(from_message(message)) == normal(json_format.MessageToDict(message, descriptor_pool=POOL))
    wrong, _ = replaced(value, data.draw(st.integers(0, 12)), data.draw(WRONG))
    assert outcome(wrong, kind()) == reference(wrong, kind())


@pytest.mark.parametrize("levels", range(44, 52))
@pytest.mark.parametrize("leaf", [1, "x", None, [], {}], ids=repr)
def test_the_depth_of_values_is_that_of_json_format(levels: int, leaf: Any) -> None:
    value = leaf
    for _ in range(levels):
        value = [{"x": value}] if levels % 2 else {"x": value}
    request = {"message": {"parts": [{"data": value}]}}
    message = REQUESTS["SendMessage"]
    assert outcome(request, message()) == reference(request, message())


@pytest.mark.parametrize(
    "message",
    [
        {"parts": [{"text": "x", "url": "y"}]},
        {"parts": [{"text": "x", "data": None}]},
        {"parts": [{"data": None, "text": "x"}]},
        {"parts": [{"text": None, "data": 1}]},
        {"parts": ["x"]},
        {"messageId": "1", "message_id": "2"},
        {"messageId": "1", "message_id": None},
        {"metadata": {"half \ud800": 1}},
        {"metadata": None, "extensions": None, "role": None},
        "x",
        ["messageId"],
    ],
    ids=str,
)
def test_doubled_and_empty_members_are_those_of_json_format(message: Any) -> None:
    request = {"message": message}
    kind = REQUESTS["SendMessage"]
    assert outcome(request, kind()) == reference(request, kind())
