"""Decoding of messages and message chunks, as LangChain's own classes write them, into events of the log."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, RemoveMessage, ToolMessage

from babelgate.adapters.langchain.codec.message import encode_message
from babelgate.adapters.langchain.read.messages import MessageDecoder, add_usage
from babelgate.canonical import AnnotationPart, Event, Message, ReasoningPart, RefusalPart, TextPart, ToolCallPart
from babelgate.canonical.event import LossNoted, MessageEnded, MessageStarted, PartAdded, PartDelta, PartEnded, Record
from babelgate.canonical.fold import Fold
from babelgate.canonical.message import ToolResultPart
from babelgate.gateway.agents.langgraph.jsonable import plain_object
from babelgate.gateway.runs.event_check import EventValidator

METADATA = {"langgraph_node": "talk", "langgraph_step": 1, "langgraph_checkpoint_ns": "talk:t1", "secret": "s"}
LAST: Any = {"chunk_position": "last"}


def decode(*messages: BaseMessage, decoder: MessageDecoder | None = None) -> list[Event]:
    """Return the events of the messages, which must form a valid log."""
    decoder = decoder or MessageDecoder()
    events = [event for message in messages for event in decode_one(decoder, message)]
    events += decoder.close()
    recorder = EventValidator("node", 2**20)
    for event in events:
        assert recorder.record(event) is not None
    assert recorder.close() == []
    return events


def decode_one(decoder: MessageDecoder, message: BaseMessage) -> list[Event]:
    return decoder.decode(plain_object(message), METADATA, (), chunked=False)


def messages_of(events: list[Event]) -> list[Message]:
    fold = Fold("t")
    for seq, event in enumerate(events, 1):
        fold.apply(Record(seq, seq, "k", "r", 1, event))
    return fold.messages()


def piece(content: Any = "", **fields: Any) -> AIMessageChunk:
    return AIMessageChunk(content=content, id="m", **fields)


def call(name: str | None, args: str, call_id: str | None, index: int | None) -> AIMessageChunk:
    call_chunk: Any = {"name": name, "args": args, "id": call_id, "index": index, "type": "tool_call_chunk"}
    return piece(tool_call_chunks=[call_chunk])


def test_text_chunks_become_one_part() -> None:
    events = decode(piece("a"), piece("b"), piece(""), piece("c", **LAST))
    assert [type(event) for event in events] == [
        MessageStarted,
        PartAdded,
        PartDelta,
        PartDelta,
        PartEnded,
        MessageEnded,
    ]
    (message,) = messages_of(events)
    assert (message.role, message.text, message.phase) == ("agent", "abc", "answer")
    started = events[0]
    assert isinstance(started, MessageStarted)
    assert (started.node, started.extra["langgraph"]["langgraph_step"]) == ("talk", 1)
    assert "secret" not in started.extra["langgraph"]


def test_reasoning_outside_the_content_is_decoded_streamed_or_whole() -> None:
    events = decode(
        piece("", additional_kwargs={"reasoning_content": "It "}),
        piece("", additional_kwargs={"reasoning_content": "rains."}),
        piece("Take an umbrella.", **LAST),
    )
    (message,) = messages_of(events)
    assert message.parts == (ReasoningPart(text="It rains."), TextPart(text="Take an umbrella."))
    whole = AIMessage("Take it.", id="w", additional_kwargs={"reasoning_content": "It rains."})
    (message,) = messages_of(decode(whole))
    assert [(part.kind, getattr(part, "text", "")) for part in message.parts] == [
        ("reasoning", "It rains."),
        ("text", "Take it."),
    ]
    # Callers of LangGraph get the reasoning in the same member.
    encoded = encode_message(message)
    assert (encoded["content"], encoded["additional_kwargs"]) == ("Take it.", {"reasoning_content": "It rains."})


def test_a_message_without_last_chunk_ends_with_its_node() -> None:
    decoder = MessageDecoder()
    decode_one(decoder, piece("a"))
    assert decoder.node_ended("other") == []
    assert [type(event) for event in decoder.node_ended("t1")] == [PartEnded, MessageEnded]
    assert decoder.close() == []


def test_reasoning_text_and_calls_are_separate_parts() -> None:
    events = decode(
        piece([{"type": "reasoning", "reasoning": "Hm", "index": 0}]),
        piece([{"type": "thinking", "thinking": "m", "index": 0}]),
        piece([{"type": "text", "text": "See", "index": 1}]),
        piece(["!"]),
        call("f", "", "c1", 0),
        call(None, '{"a"', None, 0),
        call("g", "{}", "c2", 1),
        call(None, ": 1}", None, 0),
        piece([{"type": "tool_use", "id": "c1"}, {"type": "input_json_delta"}], **LAST),
    )
    (message,) = messages_of(events)
    assert message.parts == (
        ReasoningPart(text="Hmm"),
        TextPart(text="See!"),
        ToolCallPart(call_id="c1", name="f", arguments='{"a": 1}'),
        ToolCallPart(call_id="c2", name="g", arguments="{}"),
    )
    ended = events[-1]
    assert isinstance(ended, MessageEnded) and ended.finish == "tool_calls"


def test_calls_without_index_are_separated_by_their_ids() -> None:
    (message,) = messages_of(
        decode(call("f", "{", "c1", None), call(None, "}", None, None), call("g", "{}", "c2", None))
    )
    assert [(part.call_id, part.arguments) for part in message.parts if isinstance(part, ToolCallPart)] == [
        ("c1", "{}"),
        ("c2", "{}"),
    ]


def test_a_streamed_server_tool_call_does_not_end_the_message() -> None:
    def grow(index: int, args: str, **fields: Any) -> Any:
        return piece([{"type": "server_tool_call_chunk", "args": args, "index": index, **fields}])

    result = {"type": "server_tool_result", "tool_call_id": "s1", "status": "success", "output": {"n": 1}, "index": 1}
    events = decode(
        grow(0, "", id="s1", name="web_search"),
        grow(0, '{"q": '),
        grow(0, '"rome"}'),
        piece([result]),
        piece([{"type": "text", "text": "Sunny.", "index": 2}], **LAST),
    )
    (message,) = messages_of(events)
    assert message.parts == (
        ToolCallPart(call_id="s1", name="web_search", arguments='{"q": "rome"}'),
        ToolResultPart(call_id="s1", output={"n": 1}),
        TextPart(text="Sunny."),
    )
    ended = events[-1]
    assert isinstance(ended, MessageEnded) and ended.finish == "stop"


def test_a_block_of_another_kind_is_one_part() -> None:
    (message,) = messages_of(
        decode(piece([{"type": "image", "base64": "eA==", "mime_type": "image/png"}]), piece(["x"]))
    )
    assert [part.kind for part in message.parts] == ["file", "text"]
    (message,) = messages_of(decode(piece([{"type": "their_own", "n": 1}])))
    assert message.parts[0].kind == "data"


def test_usage_is_summed_over_chunks_and_messages() -> None:
    usage: Any = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4, "output_token_details": {"reasoning": 2}}
    decoder = MessageDecoder()
    events = decode(piece("a", usage_metadata=usage), piece("b", usage_metadata=usage, **LAST), decoder=decoder)
    ended = events[-1]
    assert isinstance(ended, MessageEnded)
    assert ended.usage["total_tokens"] == 8
    decode(AIMessage("c", id="n", usage_metadata=usage), decoder=decoder)
    assert decoder.usage == {
        "input_tokens": 9,
        "output_tokens": 3,
        "total_tokens": 12,
        "output_token_details": {"reasoning": 6},
    }
    assert add_usage({"a": 1}, None) == {"a": 1}


@pytest.mark.parametrize("reason", ["length", "max_tokens"])
def test_a_truncated_message_has_finish_length(reason: str) -> None:
    for message in (
        piece("a", response_metadata={"finish_reason": reason}, **LAST),
        AIMessage("a", id="m", response_metadata={"stop_reason": reason}),
    ):
        ended = decode(message)[-1]
        assert isinstance(ended, MessageEnded) and ended.finish == "length"


def test_messages_of_models_are_answers_and_others_progress() -> None:
    decoder = MessageDecoder()
    result = ToolMessage("sunny", tool_call_id="c", id="t")
    messages = messages_of(decode(result, HumanMessage("Hi", id="h"), decoder=decoder))
    assert [(message.role, message.phase) for message in messages] == [("tool", "progress"), ("user", "progress")]
    assert messages[0].parts == (ToolResultPart(call_id="c", output="sunny"),)
    assert not decoder.has_answer
    (message,) = messages_of(decode(AIMessage("Yes", id="a"), decoder=decoder))
    assert (message.phase, decoder.has_answer) == ("answer", True)


def test_a_removal_is_ignored() -> None:
    assert decode(RemoveMessage(id="m")) == []


def test_chunks_after_the_end_of_a_message_are_ignored() -> None:
    events = decode(piece("a", **LAST), piece("", **LAST))
    assert sum(isinstance(event, MessageStarted) for event in events) == 1


@pytest.mark.parametrize("other", [{"type": "non_standard_annotation", "value": {"a": 1}}, {"no": "type"}, 1, None])
def test_streamed_citations_are_decoded_and_other_annotations_lost(other: Any) -> None:
    cited = {"type": "citation", "url": "https://example.com"}
    notes = [[cited, other], [other, cited], [other]]
    events = decode(piece("So"), *(piece([{"type": "text", "text": "", "annotations": each}]) for each in notes))
    (message,) = messages_of(events)
    assert message.parts == (TextPart(text="So"), *[AnnotationPart(url="https://example.com")] * 2)
    assert {event.feature for event in events if isinstance(event, LossNoted)} == {"citation"}


def test_a_streamed_refusal_and_a_citation_are_one_part_each() -> None:
    cited = {"type": "citation", "url": "https://example.com", "start_index": 0, "end_index": 2}
    pieces = [piece([{"type": "refusal", "refusal": each}]) for each in ("No", " more", ".")]
    (message,) = messages_of(
        decode(piece("So"), piece([{"type": "text", "text": "", "annotations": [cited]}]), *pieces)
    )
    assert message.parts == (
        TextPart(text="So"),
        AnnotationPart(url="https://example.com", start=0, end=2),
        RefusalPart(text="No more."),
    )
