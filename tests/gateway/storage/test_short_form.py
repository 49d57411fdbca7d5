"""Tests of the compact encoding: decoding restores every record and row exactly."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.canonical import Message, RunStatus, TaskState
from babelgate.canonical.event import Event, Record, encode_event
from babelgate.canonical.stored import encode_snapshot
from babelgate.canonical.thread import Interrupt, Run, Task, Thread
from babelgate.canonical.value import JsonObject
from babelgate.gateway.storage.short_form import (
    KINDS,
    created_id,
    decode_row,
    encode_row,
    find_reference,
    lengthen,
    plain_id,
    refer,
    shorten,
    shorten_all,
)
from tests.strategies import json_objects, records

UUID = "01a207bf-d823-7484-bb7b-7dc2c7272ac4"


@given(records())
def test_every_event_is_read_back_unchanged(log: list[Record]) -> None:
    for record in log:
        body = encode_event(record.event)
        assert lengthen(shorten(body)) == body
        assert len(shorten(body)) < len(body)


@given(st.lists(records(), min_size=1, max_size=3), st.lists(st.binary(min_size=1), max_size=3))
def test_consecutive_events_are_encoded_like_single_ones(logs: list[list[Record]], odd: list[bytes]) -> None:
    bodies = [encode_event(record.event) for log in logs for record in log]
    mixed = [body for each in bodies for body in (each, each, *odd)]
    for some in (bodies, mixed):
        assert shorten_all(some) == [shorten(body) for body in some]


def test_every_kind_has_a_permanent_byte() -> None:
    assert sorted(KINDS) == sorted(each.kind for each in get_args(Event))
    stored = [shorten(b'{"kind":"%s"}' % kind.encode()) for kind in KINDS]
    assert stored == [bytes((0x80 + number,)) + b"}" for number in range(26)]
    assert KINDS[:4] == ("thread_changed", "task_created", "run_created", "run_started")
    assert KINDS[-3:] == ("upstream_bound", "states_pruned", "run_changed")


@pytest.mark.parametrize(
    "written",
    [
        UUID,
        UUID.upper(),
        UUID[:-1],
        UUID + "0",
        UUID.replace("-", ""),
        UUID[1:9] + UUID[0] + UUID[9:],
        "x" * 36,
        " " * 36,
        "-" * 36,
        "ü" * 18,
        "",
    ],
)
@pytest.mark.parametrize("head", ['{"kind":"message_ended","message_id":"', '{"kind":"task_created","task_id":"'])
def test_ids_of_any_form_are_read_back(written: str, head: str) -> None:
    body = f'{head}{written}"}}'.encode()
    assert lengthen(shorten(body)) == body
    assert (len(shorten(body)) == 19) == (written == UUID)


@pytest.mark.parametrize("body", [b"{}", b'{"kind":"new_kind","a":1}', b'{"a":1}', b'{"kind":"', b"[]", b'{"kind":1}'])
def test_unknown_fields_are_read_back(body: bytes) -> None:
    assert shorten(body) == body == lengthen(body)


@given(st.text())
def test_no_id_is_mistaken_for_a_reference(name: str) -> None:
    reference = refer(name, None)
    assert find_reference(reference) is None and plain_id(reference) == name
    assert find_reference(refer(name, 12)) == 12
    assert refer(None, 12) is None


@given(records())
def test_only_tasks_and_runs_are_created(log: list[Record]) -> None:
    for record in log:
        names = {"task_created": record.task_id, "run_created": record.run_id}
        assert created_id(record.event) == names.get(record.event.kind)


ROWS = [
    Thread(thread_id=UUID, owner="o", created_at=1, changed_at=2),
    Thread(thread_id="t", owner='o"', created_at=1, changed_at=2, metadata={"a": ',"reason":"done"', "\x01": "\x02ü"}),
    Task(
        task_id=UUID,
        thread_id=UUID,
        agent="echo",
        state=TaskState.COMPLETED,
        created_at=1,
        changed_at=2,
        first_seq=3,
        last_seq=4,
    ),
    Task(
        task_id=UUID,
        thread_id="t",
        agent="a",
        state=TaskState.WORKING,
        created_at=1,
        changed_at=2,
        first_seq=3,
        last_seq=4,
    ),
    Run(
        run_id=UUID,
        task_id=UUID,
        thread_id=UUID,
        agent="echo",
        status=RunStatus.SUCCESS,
        cause="input",
        created_at=1,
        first_seq=2,
        last_seq=3,
        attempt=1,
        started_at=5,
        ended_at=6,
        metadata={"\x03": ["\x1f", "\ud7ff", "", "\u0000"]},
    ),
    Interrupt(task_id=UUID, interrupt_id="q", run_id=UUID, ask="input", message=Message.of("q"), raised_at=1),
]


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_read_back_unchanged(row: Thread | Task | Run | Interrupt) -> None:
    assert lengthen(encode_row(row)) == encode_snapshot(row)
    assert decode_row(type(row), encode_row(row)) == row
    assert decode_row(type(row), encode_snapshot(row)) == row


def test_a_row_takes_less_than_half_of_its_json() -> None:
    for row in (ROWS[0], ROWS[2], ROWS[4]):
        assert len(encode_row(row)) < len(encode_snapshot(row)) / 2


@given(json_objects())
def test_any_metadata_of_a_thread_are_read_back(metadata: JsonObject) -> None:
    thread = Thread(thread_id=UUID, owner="o", created_at=1, changed_at=2, metadata=metadata)
    assert lengthen(encode_row(thread)) == encode_snapshot(thread)


def test_the_dictionary_of_rows_is_permanent() -> None:
    stored = encode_row(ROWS[2])
    assert stored == b"\xe1" + bytes.fromhex(UUID.replace("-", "")) * 2 + b"\x02echo\x011\x042\x053\x064}"
