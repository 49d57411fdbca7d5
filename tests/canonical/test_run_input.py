"""Inputs of runs: one value in the code, stored in the log in the form of earlier releases."""

import json
from typing import Any, cast

from babelgate.canonical import FilePart, Message, RunInput
from babelgate.canonical.event import RunCreated, encode_event
from babelgate.canonical.stored import decode_event

INPUT = RunInput(
    messages=(Message(message_id="m", role="user", parts=(FilePart(name="a", blob="b", size=2),)),),
    data={"n": [1, None]},
    checkpoint="c",
    config={"tags": ["t"]},
    metadata={"customer": 7},
    headers={"x-tenant": "t"},
    assistant="mine",
    extra={"acp": {"x": 1}},
)
STORED = (
    b'{"extra":{"acp":{"x":1}},"kind":"run_created","run_id":"r","assistant":"mine","cause":"follow_up","messages":['
    b'{"message_id":"m","role":"user","name":null,"phase":"answer","parts":[{"media_type":null,"metadata":{},'
    b'"extra":{},"kind":"file","name":"a","blob":"b","size":2,"url":null}],"metadata":{},"extra":{}}],'
    b'"data":{"n":[1,null]},"checkpoint":"c","config":{"tags":["t"]},"metadata":{"customer":7},'
    b'"headers":{"x-tenant":"t"},"strategy":"reject","start_after":5}'
)
"""Event as releases before `RunInput` wrote it, byte by byte."""


def test_an_event_returns_its_input():
    created = RunCreated.of(INPUT, run_id="r", cause="follow_up", strategy="reject", start_after=5)
    assert created.input == INPUT
    assert (created.run_id, created.cause, created.strategy, created.start_after) == ("r", "follow_up", "reject", 5)


def test_an_event_of_an_earlier_release_is_read():
    stored = decode_event(STORED)
    assert stored == RunCreated.of(INPUT, run_id="r", cause="follow_up", strategy="reject", start_after=5)
    assert isinstance(stored, RunCreated) and stored.input == INPUT


def is_within(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        members = cast("dict[str, Any]", part)
        return all(name in whole and is_within(member, whole[name]) for name, member in members.items())
    if isinstance(part, list):
        items = cast("list[Any]", part)
        return len(items) == len(whole) and all(map(is_within, items, whole))
    return part == whole


def test_a_written_event_is_readable_for_earlier_releases():
    """Check that an earlier release, which uses defaults for missing members, reads the same event."""
    stored, written = json.loads(STORED), encode_event(decode_event(STORED))
    assert is_within(json.loads(written), stored)
    assert decode_event(written) == decode_event(STORED)
