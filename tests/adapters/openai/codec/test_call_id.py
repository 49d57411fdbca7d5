"""Ids of tool calls: each names one question, and an id that was changed names none."""

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.openai.codec.call_id import decode_task_id, encode_call_id, find_interrupt
from babelgate.canonical import FaultCode, FaultError

TASK = "0b5b3b0a-3a55-4a5e-9a4e-1f0e0a5ad001"


@given(st.uuids(), st.text())
def test_call_id_names_its_question_within_64_characters(task: object, interrupt_id: str) -> None:
    call_id = encode_call_id(str(task), interrupt_id)
    assert len(call_id) <= 64
    assert decode_task_id(call_id) == str(task)
    assert find_interrupt(call_id, str(task), ["another", interrupt_id]) == interrupt_id


@given(
    st.integers(min_value=len("call_bgt_"), max_value=len(encode_call_id(TASK, "q")) - 1), st.characters(codec="ascii")
)
def test_changed_call_id_is_rejected_or_names_another_question(at: int, character: str) -> None:
    call_id = encode_call_id(TASK, "q")
    changed = call_id[:at] + character + call_id[at + 1 :]
    if changed == call_id:
        return
    try:
        task_id = decode_task_id(changed)
    except FaultError as error:
        assert error.fault.code is FaultCode.INVALID
        return
    assert task_id is not None
    assert task_id != TASK or find_interrupt(changed, TASK, ["q"]) is None


def test_same_question_of_another_task_has_another_call_id() -> None:
    assert find_interrupt(encode_call_id(str(uuid4()), "q"), TASK, ["q"]) is None


@pytest.mark.parametrize("call_id", ["call_1", "", "toolu_01", "CALL_BGT_x"])
def test_call_ids_of_other_issuers_are_ignored(call_id: str) -> None:
    assert decode_task_id(call_id) is None
