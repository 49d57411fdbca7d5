"""Pieces of thoughts and calls in generic events."""

from typing import Any

import pytest

from babelgate.adapters.acp.codec.generic import decode_generic, join_pieces


@pytest.mark.parametrize(
    ("generic", "pieces"),
    [
        ({"thought": "Hm."}, [("thought", "Hm.")]),
        ({"tool_output": {"a": 1}, "tool_name": "f", "thought": None}, [("tool_name", "f"), ("tool_output", {"a": 1})]),
        ({"tool_input": "", "agent_idx": 0, "message": None}, [("tool_input", "")]),
        ({"thought": "Hm.", "more": 1}, []),
        ({"thought": 7}, []),
        ({"message": "x", "thought": "Hm."}, []),
        ({}, []),
    ],
)
def test_only_events_without_other_members_have_pieces(generic: Any, pieces: Any) -> None:
    assert list(decode_generic(generic)) == pieces


@pytest.mark.parametrize(
    ("pieces", "value"),
    [
        ([], None),
        (["su", "nny"], "sunny"),
        (['{"a":', " [1]}"], {"a": [1]}),
        (["{no"], "{no"),
        (["7"], "7"),
        (["x", {"a": 1}], {"a": 1}),
        ([""], ""),
    ],
)
def test_joined_pieces_are_json_or_text(pieces: Any, value: Any) -> None:
    assert join_pieces(pieces) == value
