"""Events and records: what is stored comes back."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import ValidationError

from babelgate.canonical import Event, FilePart, Message, Record, TextPart
from babelgate.canonical import event as module
from babelgate.canonical.event import (
    AgentEvent,
    Custom,
    HubEvent,
    InterruptRaised,
    Native,
    PartAdded,
    PartDelta,
    RunEnded,
    StateSaved,
    UpstreamBound,
    encode_event,
)
from babelgate.canonical.stored import decode_event
from tests import strategies

KINDS = get_args(Event)


def back(event: Event) -> Event:
    return decode_event(encode_event(event))


@given(strategies.records())
def test_every_event_of_a_log_comes_back_from_json(records: list[Record]):
    for record in records:
        assert back(record.event) == record.event


@given(strategies.json_values(), strategies.json_objects(), strategies.texts())
def test_events_that_hold_any_json_come_back(value: Any, members: dict[str, Any], text: str):
    for event in (
        Custom(name=text, ns=(text,), value=value),
        Native(protocol="x", event=text, data=value, extra={"x": members}),
        RunEnded(output=value, usage=members),
        StateSaved(values=members, delta=None, next=("a", "b")),
        UpstreamBound(protocol="x", ids={"task": text}),
        InterruptRaised(interrupt_id="i", message=Message.of(text), value=value, answer_schema=members),
        PartDelta(text=text, extra={"x": members}),
    ):
        assert back(event) == event


@given(st.integers())
def test_integers_of_any_size_come_back(number: int):
    assert back(Custom(value=number)) == Custom(value=number)


def test_every_event_belongs_to_agents_or_to_the_hub():
    by_agents, by_hub = set(get_args(AgentEvent)), set(get_args(HubEvent))
    assert not by_agents & by_hub
    defined = {each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__}
    assert len({kind.kind for kind in KINDS}) == len(KINDS)
    assert by_agents | by_hub == set(KINDS) == {each for each in defined if hasattr(each, "kind")}


@pytest.mark.parametrize("kind", KINDS)
def test_events_are_frozen_and_closed(kind: Any):
    with pytest.raises(ValidationError, match="unknown field `nonsense`"):
        kind.of_members({"nonsense": 1})
    assert kind.__struct_config__.frozen


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValidationError):
        decode_event(b'{"kind": "nonsense"}')


def test_the_bytes_of_a_file_never_reach_the_log():
    part = FilePart(name="a", inline=b"secret bytes")
    stored = encode_event(PartAdded(part=part))
    assert b"secret" not in stored
    assert b"inline" not in stored
    assert "secret" not in repr(part)


def test_a_lone_surrogate_cannot_be_stored():
    with pytest.raises(ValueError, match="surrogate"):
        encode_event(PartAdded(part=TextPart(text="\ud800")))
