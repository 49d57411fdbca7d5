"""Thoughts, tools, citations and usage that are written for A2A are read unchanged."""

from typing import Any

import pytest

from babelgate.adapters.a2a.codec.marks import decode_marks
from babelgate.adapters.a2a.frameworks.framework import DecodedContent, ToolUse
from babelgate.adapters.a2a.read.usage import usage_of_task
from babelgate.adapters.a2a.write import activity
from babelgate.canonical import AnnotationPart, Fault, FaultCode, Part, ReasoningPart, ToolCallPart, ToolResultPart
from babelgate.canonical.event import ToolEnded, ToolStarted
from babelgate.canonical.value import JsonObject


def read(encoded: tuple[Part, JsonObject]) -> DecodedContent:
    part, metadata = encoded
    return decode_marks([part], "m", metadata)


def test_thought_survives_a_round_trip() -> None:
    part = ReasoningPart(text="Hm", metadata={"k": 1})
    assert read(activity.encode_thought(part)).parts == [part]


@pytest.mark.parametrize("value", [{"q": 1}, {}, {"result": 1}, [1], "words", 0, None])
def test_tool_values_survive_a_round_trip(value: Any) -> None:
    started, ended = ToolStarted(call_id="c", name="f", input=value), ToolEnded(call_id="c", name="f", output=value)
    assert read(activity.encode_call(started)).tools == [ToolUse("c", "f", value=value)]
    assert read(activity.encode_result(ended)).tools == [ToolUse("c", "f", ended=True, value=value)]
    for part, _ in (activity.encode_call(started), activity.encode_result(ended)):
        assert isinstance(part.data, dict)
        assert all(isinstance(part.data[name], dict) for name in part.data if name not in ("id", "name"))


@pytest.mark.parametrize("output", [None, {"half": 1}])
def test_failed_tool_has_its_error_and_output(output: Any) -> None:
    fault = Fault(code=FaultCode.AGENT_FAILED, message="It broke.")
    encoded = activity.encode_result(ToolEnded(call_id="c", name="f", output=output, fault=fault))
    assert read(encoded).tools == [ToolUse("c", "f", ended=True, value=output, error="It broke.")]


def test_calls_and_results_of_messages_become_events() -> None:
    assert activity.as_call(ToolCallPart(call_id="c", name="f", arguments='{"q": 1}')).input == {"q": 1}
    assert activity.as_call(ToolCallPart(call_id="c", name="f", arguments='{"q"')).input == '{"q"'
    assert activity.as_result(ToolResultPart(call_id="c", output=[1]), "f").output == [1]
    failed = activity.as_result(ToolResultPart(call_id="c", output="no", error=True), "f")
    assert (failed.output, failed.fault and failed.fault.message) == (None, "no")


def test_citations_survive_a_round_trip() -> None:
    cited = [AnnotationPart(start=0, end=2, url="u", title="T", description="D"), AnnotationPart(title="T")]
    assert decode_marks([], "m", activity.encode_citations(cited)).citations == cited


def test_usage_has_the_names_of_each_framework() -> None:
    usage: JsonObject = {
        "input_tokens": 3,
        "output_tokens": 2,
        "total_tokens": 5,
        "input_tokens_details": {"cached_tokens": 1},
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    written = activity.encode_usage(usage)
    assert written["adk_usage_metadata"]["thoughtsTokenCount"] == 1
    assert usage_of_task(written) == usage
    assert activity.encode_usage({"cost": 0.1}) == {}
