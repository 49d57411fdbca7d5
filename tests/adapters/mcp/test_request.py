"""Input of a run as the arguments of a tool, and tools as agents."""

from dataclasses import replace
from typing import Final

import pytest

from babelgate.adapters.mcp.agents import decode_tool
from babelgate.adapters.mcp.request import encode_arguments
from babelgate.canonical import DataPart, FaultCode, FaultError, FilePart, Invocation, Message, RunInput, TextPart
from babelgate.canonical.event import LossNoted
from babelgate.canonical.value import JsonObject

CALL: Final = Invocation(
    agent="tool", thread_id="t", task_id="k", run_id="r", input=RunInput(messages=(Message.of("x", "user"),))
)


def schema_of(*required: str, **properties: JsonObject) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(required)}


TEXT: Final[JsonObject] = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "run_input", "arguments"),
    [
        (schema_of("query", query=TEXT), RunInput(messages=(Message.of("x", "user"),)), {"query": "x"}),
        (schema_of("query", query=TEXT, limit={"type": "integer"}), RunInput(data={"query": "x"}), {"query": "x"}),
        (schema_of(a=TEXT, b=TEXT), RunInput(messages=(Message.of('{"a": "x"}', "user"),)), {"a": "x"}),
        (
            schema_of("a", "b", a=TEXT, b=TEXT),
            RunInput(messages=(Message(role="user", parts=(DataPart(data={"a": "x", "b": "y"}),)),)),
            {"a": "x", "b": "y"},
        ),
        (schema_of(), RunInput(messages=(Message.of("x", "user"),)), {}),
        (schema_of("message", message=TEXT), RunInput(messages=(Message.of("x", "user"),)), {"message": "x"}),
    ],
)
def test_input_becomes_the_arguments_of_a_tool(schema: JsonObject, run_input: RunInput, arguments: JsonObject) -> None:
    assert encode_arguments(replace(CALL, input=run_input), schema).arguments == arguments


def test_a_text_for_several_arguments_is_refused() -> None:
    with pytest.raises(FaultError) as raised:
        encode_arguments(CALL, schema_of("a", "b", a=TEXT, b=TEXT))
    assert raised.value.fault.code is FaultCode.INVALID


def test_a_file_without_an_argument_is_a_loss() -> None:
    file = FilePart(name="a.txt", inline=b"hi")
    message = Message(role="user", parts=(TextPart(text="x"), file))
    encoded = encode_arguments(replace(CALL, input=RunInput(messages=(message,))), schema_of("q", q=TEXT))
    assert [event.feature for event in encoded.losses if isinstance(event, LossNoted)] == ["file-bytes"]


def test_a_tool_without_a_name_is_no_agent() -> None:
    assert decode_tool({"inputSchema": {}}) is None
