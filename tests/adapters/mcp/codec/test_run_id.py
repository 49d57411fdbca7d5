"""Ids and states of runs that wait for an answer."""

from uuid import UUID

import pytest

from babelgate.adapters.mcp.codec.run_id import decode_run_id, decode_state, encode_run_id, encode_state
from babelgate.canonical import FaultCode, FaultError

TASK = "5f0c1d0e-8a4b-4c2f-9d3e-7b6a1c2d3e4f"


def test_a_run_id_decodes_to_its_task() -> None:
    assert decode_run_id(encode_run_id(TASK)) == TASK
    assert decode_run_id(encode_run_id(TASK, "state echo"), "state echo") == TASK


@pytest.mark.parametrize("at", range(4, 47))
def test_an_id_with_one_changed_character_is_rejected(at: int) -> None:
    run_id = encode_run_id(TASK)
    changed = run_id[:at] + ("A" if run_id[at] != "A" else "B") + run_id[at + 1 :]
    with pytest.raises(FaultError) as raised:
        decode_run_id(changed)
    assert raised.value.fault.code is FaultCode.INVALID


@pytest.mark.parametrize("text", ["", "run_", TASK, "run_é", "run_" + "A" * 42, "run_" + "A" * 43, "run_" + "A" * 5000])
def test_an_invalid_id_is_rejected(text: str) -> None:
    with pytest.raises(FaultError):
        decode_run_id(text)


def test_an_id_is_valid_only_for_its_purpose() -> None:
    for written_for, read_for in (("", "state echo"), ("state echo", ""), ("state echo", "state ask")):
        with pytest.raises(FaultError):
            decode_run_id(encode_run_id(TASK, written_for), read_for)


def test_a_state_depends_on_its_task_and_questions() -> None:
    first, second = (encode_state(TASK, "echo", [name]) for name in "ab")
    assert first != second
    assert decode_state(first, "echo") == decode_state(second, "echo") == TASK


def test_a_changed_state_or_one_of_another_tool_is_rejected() -> None:
    state = encode_state(TASK, "echo", ["a"])
    run_id, _, turn = state.rpartition(".")
    for invalid, tool in ((state, "ask"), (f"{state}x", "echo"), (f"{run_id}.{turn[::-1]}x", "echo"), (run_id, "echo")):
        with pytest.raises(FaultError):
            decode_state(invalid, tool)


def test_an_uppercase_uuid_decodes_to_the_same_uuid() -> None:
    assert UUID(decode_run_id(encode_run_id(TASK.upper()))) == UUID(TASK)
