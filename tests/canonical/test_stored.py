"""Events of other releases: this release reads them, and keeps the members that it does not know."""

import json
from typing import Any, cast

import pytest
from hypothesis import given

from babelgate.canonical import Event, Fault, FaultCode, Record, Task, TaskState
from babelgate.canonical.event import LossNoted, MessageStarted, RunCreated, RunEnded, encode_event
from babelgate.canonical.fold import Fold
from babelgate.canonical.json import to_json
from babelgate.canonical.stored import UNKNOWN, decode_event, decode_snapshot, encode_snapshot
from babelgate.canonical.value import JsonObject, Value
from tests import strategies

LATER = {"a_later_member": [{"n": 1}]}


def grown(value: Any) -> Any:
    """Return the value as JSON, with one more member in every object."""
    if isinstance(value, Value):
        return {**{name: grown(member) for name, member in value.members().items()}, **LATER}
    return [grown(item) for item in cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else value


def count(value: Any) -> int:
    """Return the number of members in the value that `grown` has added, at any depth."""
    if isinstance(value, dict):
        members = cast("JsonObject", value)
        return sum(1 if name == "a_later_member" else count(member) for name, member in members.items())
    return sum(count(item) for item in cast("list[Any]", value)) if isinstance(value, list | tuple) else 0


def without(value: Any) -> Any:
    """Return the value without its unknown members."""
    if isinstance(value, Value):
        members = {name: without(getattr(value, name)) for name in value.__struct_fields__}
        if "extra" in members:
            members["extra"] = {name: each for name, each in members["extra"].items() if name != UNKNOWN}
        return type(value)(**members)
    return tuple(without(item) for item in cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


@given(strategies.records())
def test_unknown_members_are_preserved_at_every_level(records: list[Record]):
    for event in (record.event for record in records):
        body = json.dumps(grown(event), ensure_ascii=False).encode()
        read = decode_event(body)
        assert without(read) == event
        again = encode_event(read)
        assert count(to_json(read)) == body.count(b"a_later_member")
        assert decode_event(again) == read


def test_unknown_members_are_stored_in_the_enclosing_extra():
    body = b'{"kind":"run_ended","status":"error","reason":"fault","fault":{"code":"internal","message":"x","more":1}}'
    event = decode_event(body)
    assert isinstance(event, RunEnded) and event.fault is not None
    assert event.extra == {UNKNOWN: {"fault": {"more": 1}}}


def test_a_folded_message_keeps_unknown_members():
    started = decode_event(b'{"kind":"message_started","message_id":"m","mood":"good","extra":{"acp":{"a":1}}}')
    assert isinstance(started, MessageStarted)
    ended = decode_event(b'{"kind":"message_ended","message_id":"m"}')
    fold = Fold("t", records=[Record(seq, seq, None, None, 0, event) for seq, event in enumerate((started, ended), 1)])
    (message,) = fold.messages()
    assert message.extra == {"acp": {"a": 1}, UNKNOWN: {"mood": "good"}}


def test_the_inputs_of_the_first_release_are_read():
    body = (
        b'{"extra":{},"kind":"run_created","run_id":"r","config":{},"webhook":null,"reserved":false,"start_after":null}'
    )
    assert decode_event(body) == RunCreated(run_id="r")


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"of_tomorrow"}',
        b'{"kind":[]}',
        b"{}",
        b'{"kind":"run_created","more":1}',
        b'{"kind":"run_created","run_id":"r","messages":["a"]}',
        b'{"kind":"part_added","part":[["a"]]}',
        b"{",
    ],
)
def test_an_invalid_event_is_refused(body: bytes):
    with pytest.raises(ValueError):
        decode_event(body)


def test_an_agent_cannot_use_unknown_members():
    with pytest.raises(TypeError):
        LossNoted(feature="a", how="b", more=1)  # type: ignore[call-arg]
    event: Event = LossNoted(feature="a", how="b")
    assert decode_event(encode_event(event)) == event


def test_a_later_rows_unknown_members_are_ignored():
    task = Task(
        task_id="k",
        thread_id="t",
        agent="a",
        state=TaskState.FAILED,
        created_at=1,
        changed_at=2,
        first_seq=1,
        last_seq=3,
        fault=Fault(code=FaultCode.AGENT_FAILED, message="no"),
    )
    members = to_json(task)
    later = {**members, **LATER, "fault": {**members["fault"], **LATER}}
    assert decode_snapshot(Task, json.dumps(later).encode()) == task
    assert decode_snapshot(Task, encode_snapshot(task)) == task
