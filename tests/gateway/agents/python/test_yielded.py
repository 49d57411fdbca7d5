"""Tests of the events that the yielded and returned values of an agent become."""

from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from babelgate.canonical import (
    Artifact,
    Ask,
    DataPart,
    Event,
    FaultCode,
    FilePart,
    Message,
    ReasoningPart,
    Step,
    TextPart,
    ToolCall,
    ToolCallPart,
    UseTool,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    RunStarted,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.json import to_json
from babelgate.gateway.agents.python.yielded import YieldEncoder
from tests import strategies
from tests.examples import examples
from tests.gateway.talk import run_agent
from tests.nested import nested


class Model(BaseModel):
    words: int


@dataclass
class Data:
    words: int


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


async def answering(text: str) -> str:
    return text


async def test_the_answer_of_a_function_is_one_message():
    reply = await run_agent(answering)
    assert kinds(reply.events) == ["message_started", "part_added", "message_ended"]


async def test_an_empty_answer_stays_an_empty_answer():
    def empty(text: str) -> str:
        return ""

    async def empty_too(text: str) -> str:
        return ""

    for target in (empty, empty_too):
        assert [message.parts for message in (await run_agent(target)).messages] == [(TextPart(text=""),)]


async def test_each_token_is_one_delta_of_the_message():
    def talk(text: str) -> Iterator[str]:
        yield from ("a", "b", "", "c")

    assert (await run_agent(talk)).words == [
        {name: each for name, each in to_json(event).items() if name not in ("message_id", "extra")}
        for event in (
            MessageStarted(),
            PartAdded(index=0, part=TextPart(text="a"), open=True),
            PartDelta(index=0, text="b"),
            PartDelta(index=0, text="c"),
            PartEnded(index=0),
            MessageEnded(),
        )
    ]


async def test_an_agent_without_output_sends_no_message():
    def nothing(text: str) -> None: ...

    def nothing_either(text: str) -> Iterator[str]:
        yield from ()

    def none(text: str) -> Iterator[None]:
        yield None

    for target in (nothing, nothing_either, none):
        reply = await run_agent(target)
        assert (reply.events, reply.fault) == ([], None)


async def test_parts_join_the_open_message_and_messages_are_separate():
    def talk(text: str) -> Iterator[object]:
        yield "a"
        yield DataPart(data={"n": 1})
        yield "b"
        yield Message.of("so far", phase="progress")
        yield "c"

    reply = await run_agent(talk)
    assert [message.parts for message in reply.messages] == [
        (TextPart(text="a"), DataPart(data={"n": 1}), TextPart(text="b")),
        (TextPart(text="so far"),),
        (TextPart(text="c"),),
    ]
    assert [message.phase for message in reply.messages] == ["answer", "progress", "answer"]
    assert reply.text == "abc"


@pytest.mark.parametrize("named", [None, "", "mine"])
async def test_a_message_is_sent_whole_with_or_without_an_id(named: str | None):
    def talk(text: str) -> Iterator[Message]:
        yield Message(message_id=named, parts=(TextPart(text="a"), TextPart(text="b")))

    [message] = (await run_agent(talk)).messages
    assert message.parts == (TextPart(text="a"), TextPart(text="b"))
    assert message.message_id == named if named else message.message_id


async def test_a_step_ends_with_the_next_step_or_the_run():
    def work(text: str) -> Iterator[object]:
        yield Step("plan", input={"for": text})
        yield "p"
        yield Step("do")

    reply = await run_agent(work)
    steps = [event for event in reply.events if isinstance(event, StepStarted | StepEnded)]
    assert [(event.kind, event.name) for event in steps] == [
        ("step_started", "plan"),
        ("step_ended", "plan"),
        ("step_started", "do"),
        ("step_ended", "do"),
    ]
    assert steps[0].step_id == steps[1].step_id != steps[2].step_id
    assert isinstance(steps[0], StepStarted) and steps[0].input == {"for": "hi"}


async def test_a_tool_call_and_its_result_are_sent():
    def work(text: str) -> Iterator[object]:
        yield ToolCall("count", {"text": text}, output=2)

    started, ended = (await run_agent(work)).events
    assert isinstance(started, ToolStarted) and isinstance(ended, ToolEnded)
    assert (started.name, started.input, ended.output, started.call_id) == ("count", {"text": "hi"}, 2, ended.call_id)


async def test_the_parts_of_an_artifact_have_one_id():
    def work(text: str) -> Iterator[object]:
        yield Artifact.of("a.txt", "text")
        yield Artifact(name="b", parts=(TextPart(text="1"), TextPart(text="2"), TextPart(text="3")), description="d")

    whole, *pieces = cast("list[ArtifactAdded]", (await run_agent(work)).events)
    assert isinstance(whole.part, FilePart)
    assert (whole.name, whole.append, whole.last, whole.part.media_type) == ("a.txt", False, True, "text/plain")
    assert [(piece.append, piece.last) for piece in pieces] == [(False, False), (True, False), (True, True)]
    assert len({piece.artifact_id for piece in pieces}) == 1
    assert {piece.description for piece in pieces} == {"d"}


@pytest.mark.parametrize("value", [{"a": [1, None]}, [1, 2], 5, 2.5, True, Model(words=1), Data(words=1), (1, 2)])
async def test_json_from_a_function_is_output_and_data(value: Any):
    def structured(text: str) -> Any:
        return value

    reply = await run_agent(structured)
    expected: Any = {"words": 1} if isinstance(value, Model | Data) else [1, 2] if value == (1, 2) else value
    assert reply.ended is not None and reply.ended.output == expected
    assert [message.parts for message in reply.messages] == [(DataPart(data=expected),)]


async def test_json_from_a_generator_is_data():
    def talk(text: str) -> Iterator[object]:
        yield {"a": 1}
        yield [1, 2]

    reply = await run_agent(talk)
    assert [message.parts for message in reply.messages] == [(DataPart(data={"a": 1}), DataPart(data=[1, 2]))]
    assert reply.ended is None


async def test_data_is_copied_when_the_agent_yields_it():
    data = {"n": [1]}

    def talk(text: str) -> Iterator[object]:
        yield data
        data["n"].append(2)

    (message,) = (await run_agent(talk)).messages
    assert message.parts == (DataPart(data={"n": [1]}),)


async def test_a_function_may_return_several_outputs():
    async def work(text: str) -> list[object]:
        return [Message.of("a"), Artifact.of("f", b"1"), Step("s")]

    assert kinds((await run_agent(work)).events) == [
        "message_started",
        "part_added",
        "message_ended",
        "artifact_added",
        "step_started",
        "step_ended",
    ]


async def test_what_a_generator_returns_ends_its_answer():
    def work(text: str) -> Generator[str, None, dict[str, int]]:
        yield "a"
        return {"n": 1}

    reply = await run_agent(work)
    assert reply.ended is not None and reply.ended.output == {"n": 1}
    assert [message.parts for message in reply.messages] == [(TextPart(text="a"),), (DataPart(data={"n": 1}),)]


async def test_canonical_events_are_sent_unchanged_among_tokens():
    def talk(text: str) -> Iterator[object]:
        yield MessageStarted(message_id="m", name="planner")
        yield "a"
        yield PartAdded(part=ReasoningPart(text="hm"), open=True)
        yield PartDelta(text="!")
        yield "?"
        yield Custom(name="c", value=1)
        yield RunEnded(output={"done": True})
        raise AssertionError("not reached")

    reply = await run_agent(talk)
    assert [message.parts for message in reply.messages] == [(TextPart(text="a"), ReasoningPart(text="hm!?"))]
    assert reply.ended is not None and reply.ended.output == {"done": True}
    assert reply.fault is None


async def test_numbered_parts_may_be_open_at_the_same_time():
    def talk(text: str) -> Iterator[object]:
        yield MessageStarted(message_id="m")
        yield PartAdded(message_id="m", index=0, part=TextPart(text="a"), open=True)
        yield PartAdded(message_id="m", index=1, part=ReasoningPart(text="x"), open=True)
        yield PartDelta(message_id="m", index=0, text="b")
        yield PartDelta(message_id="m", index=1, text="y")
        yield PartEnded(message_id="m", index=0)
        yield PartEnded(message_id="m", index=1)
        yield MessageEnded(message_id="m")

    (message,) = (await run_agent(talk)).messages
    assert message.parts == (TextPart(text="ab"), ReasoningPart(text="xy"))


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (object(), "type object, which is not JSON"),
        ({"a": {1, 2}}, "type set, which is not JSON"),
        (b"bytes", "type bytes, which is not JSON"),
        ({1: 2}, "a key of type int"),
        ([float("nan")], "the float nan"),
        (float("inf"), "the float inf"),
        pytest.param(10**5000, "an integer of more than 4096 bits", id="big"),
        ({"n": -(10**5000)}, "an integer of more than 4096 bits"),
        ("\ud800", "lone surrogate"),
        ({"\udfff": 1}, "lone surrogate"),
        (nested(65), "deeper than 64 levels"),
        (nested(1000), "deeper than 64 levels"),
        (TextPart(text="\ud800"), "lone surrogate"),
        (DataPart(data={"a": float("nan")}), "the float nan"),
        (Message(parts=(TextPart(text="\ud800"),)), "lone surrogate"),
        (Ask("\ud800"), "lone surrogate"),
        (Ask("?", value=float("nan")), "the float nan"),
        (Ask(cast("Any", 5)), "a malformed InterruptRaised: Expected `str`"),
        (UseTool("t", {"a": object()}), "type object, which is not JSON"),
        (UseTool(cast("Any", 5)), "a malformed InterruptRaised: Expected `str`"),
        (Step(cast("Any", 5)), "a malformed StepStarted: Expected `str`"),
        (Step("s", input=cast("Any", object())), "type object, which is not JSON"),
        (ToolCall("t", output=cast("Any", {1, 2})), "type set, which is not JSON"),
        (Artifact(name="empty"), "an Artifact without parts"),
        (Custom(value={"a": float("inf")}), "the float inf"),
        (RunStarted(), "the event RunStarted, which only the gateway may append"),
        (Ask, "type type, which is not JSON"),
    ],
)
async def test_an_invalid_output_fails_only_its_run(value: object, complaint: str):
    def returns(text: str) -> object:
        return value

    async def yields(text: str) -> AsyncIterator[object]:
        yield value
        raise AssertionError("not reached")

    for target in (returns, yields):
        reply = await run_agent(target)
        assert reply.fault is not None
        assert reply.fault.code is FaultCode.AGENT_INVALID
        assert complaint in reply.fault.message


@given(strategies.json_values(max_leaves=8))
@examples(50)
async def test_all_json_that_a_function_returns_is_its_output(value: Any):
    async def structured(text: str) -> Any:
        return value

    reply = await run_agent(structured)
    if isinstance(value, str):
        assert reply.text == value
    elif value is not None:
        assert reply.ended is not None and reply.ended.output == value
    assert reply.fault is None


@given(st.lists(strategies.texts(), max_size=6))
@examples(50)
async def test_all_tokens_of_a_generator_are_its_answer(tokens: list[str]):
    async def talk(text: str) -> AsyncIterator[str]:
        for token in tokens:
            yield token

    assert (await run_agent(talk)).text == "".join(tokens)


def test_a_repeated_caller_tool_call_keeps_its_question():
    uses = [UseTool("weather", {"city": "Paris"}), UseTool("weather", {"city": "Rome"})]
    first, again = (YieldEncoder("run").encode(uses) for _ in range(2))
    assert first == again
    calls = [part for event in first if isinstance(event, InterruptRaised) for part in event.message.parts[1:]]
    assert [(part.name, part.arguments, part.side) for part in calls if isinstance(part, ToolCallPart)] == [
        ("weather", '{"city": "Paris"}', "caller"),
        ("weather", '{"city": "Rome"}', "caller"),
    ]
    assert len({part.call_id for part in calls if isinstance(part, ToolCallPart)}) == 2
