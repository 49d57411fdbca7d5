"""Messages and chunks of messages, as LangChain's own classes write them, become events that a log can hold."""

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

ABOUT = {"langgraph_node": "talk", "langgraph_step": 1, "langgraph_checkpoint_ns": "talk:t1", "secret": "s"}
LAST: Any = {"chunk_position": "last"}


def heard(*messages: BaseMessage, decoder: MessageDecoder | None = None) -> list[Event]:
    """The events, of which the recorder takes each."""
    decoder = decoder or MessageDecoder()
    events = [event for message in messages for event in hear(decoder, message)]
    events += decoder.close()
    recorder = EventValidator("node", 2**20)
    for event in events:
        assert recorder.record(event) is not None
    assert recorder.close() == []
    return events


def hear(decoder: MessageDecoder, message: BaseMessage) -> list[Event]:
    return decoder.decode(plain_object(message), ABOUT, (), chunked=False)


def told(events: list[Event]) -> list[Message]:
    fold = Fold("t")
    for seq, event in enumerate(events, 1):
        fold.apply(Record(seq, seq, "k", "r", 1, event))
    return fold.messages()


def piece(content: Any = "", **fields: Any) -> AIMessageChunk:
    return AIMessageChunk(content=content, id="m", **fields)


def call(name: str | None, args: str, call_id: str | None, index: int | None) -> AIMessageChunk:
    made: Any = {"name": name, "args": args, "id": call_id, "index": index, "type": "tool_call_chunk"}
    return piece(tool_call_chunks=[made])


def test_text_in_pieces_is_one_part_that_grows() -> None:
    events = heard(piece("a"), piece("b"), piece(""), piece("c", **LAST))
    assert [type(event) for event in events] == [
        MessageStarted,
        PartAdded,
        PartDelta,
        PartDelta,
        PartEnded,
        MessageEnded,
    ]
    (message,) = told(events)
    assert (message.role, message.text, message.phase) == ("agent", "abc", "answer")
    started = events[0]
    assert isinstance(started, MessageStarted)
    assert (started.node, started.extra["langgraph"]["langgraph_step"]) == ("talk", 1)
    assert "secret" not in started.extra["langgraph"]


def test_thoughts_beside_the_content_are_reasoning_in_pieces_and_in_one() -> None:
    events = heard(
        piece("", additional_kwargs={"reasoning_content": "It "}),
        piece("", additional_kwargs={"reasoning_content": "rains."}),
        piece("Take an umbrella.", **LAST),
    )
    (message,) = told(events)
    assert message.parts == (ReasoningPart(text="It rains."), TextPart(text="Take an umbrella."))
    whole = AIMessage("Take it.", id="w", additional_kwargs={"reasoning_content": "It rains."})
    (message,) = told(heard(whole))
    assert [(part.kind, getattr(part, "text", "")) for part in message.parts] == [
        ("reasoning", "It rains."),
        ("text", "Take it."),
    ]
    # Callers of LangGraph find them where they were.
    shown = encode_message(message)
    assert (shown["content"], shown["additional_kwargs"]) == ("Take it.", {"reasoning_content": "It rains."})


def test_a_message_whose_last_piece_does_not_say_so_ends_with_its_node() -> None:
    decoder = MessageDecoder()
    hear(decoder, piece("a"))
    assert decoder.node_ended("other") == []
    assert [type(event) for event in decoder.node_ended("t1")] == [PartEnded, MessageEnded]
    assert decoder.close() == []


def test_thoughts_text_and_calls_are_parts_of_their_own() -> None:
    events = heard(
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
    (message,) = told(events)
    assert message.parts == (
        ReasoningPart(text="Hmm"),
        TextPart(text="See!"),
        ToolCallPart(call_id="c1", name="f", arguments='{"a": 1}'),
        ToolCallPart(call_id="c2", name="g", arguments="{}"),
    )
    ended = events[-1]
    assert isinstance(ended, MessageEnded) and ended.finish == "tool_calls"


def test_a_model_that_does_not_number_its_calls_begins_a_new_one_with_each_id() -> None:
    (message,) = told(heard(call("f", "{", "c1", None), call(None, "}", None, None), call("g", "{}", "c2", None)))
    assert [(part.call_id, part.arguments) for part in message.parts if isinstance(part, ToolCallPart)] == [
        ("c1", "{}"),
        ("c2", "{}"),
    ]


def test_a_call_that_the_models_provider_makes_itself_comes_in_pieces_and_is_no_reason_to_stop() -> None:
    def grow(index: int, args: str, **begun: Any) -> Any:
        return piece([{"type": "server_tool_call_chunk", "args": args, "index": index, **begun}])

    result = {"type": "server_tool_result", "tool_call_id": "s1", "status": "success", "output": {"n": 1}, "index": 1}
    events = heard(
        grow(0, "", id="s1", name="web_search"),
        grow(0, '{"q": '),
        grow(0, '"rome"}'),
        piece([result]),
        piece([{"type": "text", "text": "Sunny.", "index": 2}], **LAST),
    )
    (message,) = told(events)
    assert message.parts == (
        ToolCallPart(call_id="s1", name="web_search", arguments='{"q": "rome"}'),
        ToolResultPart(call_id="s1", output={"n": 1}),
        TextPart(text="Sunny."),
    )
    ended = events[-1]
    assert isinstance(ended, MessageEnded) and ended.finish == "stop"


def test_a_block_of_another_kind_comes_whole() -> None:
    (message,) = told(heard(piece([{"type": "image", "base64": "eA==", "mime_type": "image/png"}]), piece(["x"])))
    assert [part.kind for part in message.parts] == ["file", "text"]
    (message,) = told(heard(piece([{"type": "their_own", "n": 1}])))
    assert message.parts[0].kind == "data"


def test_the_usage_of_all_pieces_and_of_all_messages_adds_up() -> None:
    used: Any = {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4, "output_token_details": {"reasoning": 2}}
    decoder = MessageDecoder()
    events = heard(piece("a", usage_metadata=used), piece("b", usage_metadata=used, **LAST), decoder=decoder)
    ended = events[-1]
    assert isinstance(ended, MessageEnded)
    assert ended.usage["total_tokens"] == 8
    heard(AIMessage("c", id="n", usage_metadata=used), decoder=decoder)
    assert decoder.usage == {
        "input_tokens": 9,
        "output_tokens": 3,
        "total_tokens": 12,
        "output_token_details": {"reasoning": 6},
    }
    assert add_usage({"a": 1}, None) == {"a": 1}


@pytest.mark.parametrize("reason", ["length", "max_tokens"])
def test_a_message_that_was_cut_short_says_so(reason: str) -> None:
    for message in (
        piece("a", response_metadata={"finish_reason": reason}, **LAST),
        AIMessage("a", id="m", response_metadata={"stop_reason": reason}),
    ):
        ended = heard(message)[-1]
        assert isinstance(ended, MessageEnded) and ended.finish == "length"


def test_what_a_model_says_is_an_answer_and_what_nodes_put_beside_it_is_not() -> None:
    decoder = MessageDecoder()
    result = ToolMessage("sunny", tool_call_id="c", id="t")
    messages = told(heard(result, HumanMessage("Hi", id="h"), decoder=decoder))
    assert [(message.role, message.phase) for message in messages] == [("tool", "progress"), ("user", "progress")]
    assert messages[0].parts == (ToolResultPart(call_id="c", output="sunny"),)
    assert not decoder.has_answer
    (message,) = told(heard(AIMessage("Yes", id="a"), decoder=decoder))
    assert (message.phase, decoder.has_answer) == ("answer", True)


def test_a_removal_is_no_message() -> None:
    assert heard(RemoveMessage(id="m")) == []


def test_more_pieces_of_a_message_that_has_ended_are_nothing() -> None:
    events = heard(piece("a", **LAST), piece("", **LAST))
    assert sum(isinstance(event, MessageStarted) for event in events) == 1


@pytest.mark.parametrize("other", [{"type": "non_standard_annotation", "value": {"a": 1}}, {"no": "type"}, 1, None])
def test_of_annotations_in_pieces_the_citations_are_kept_and_the_loss_of_others_is_noted(other: Any) -> None:
    cited = {"type": "citation", "url": "https://example.com"}
    notes = [[cited, other], [other, cited], [other]]
    events = heard(piece("So"), *(piece([{"type": "text", "text": "", "annotations": each}]) for each in notes))
    (message,) = told(events)
    assert message.parts == (TextPart(text="So"), *[AnnotationPart(url="https://example.com")] * 2)
    assert {event.feature for event in events if isinstance(event, LossNoted)} == {"citation"}


def test_a_refusal_in_pieces_is_one_part_and_a_citation_is_a_part_of_its_own() -> None:
    cited = {"type": "citation", "url": "https://example.com", "start_index": 0, "end_index": 2}
    pieces = [piece([{"type": "refusal", "refusal": each}]) for each in ("No", " more", ".")]
    (message,) = told(heard(piece("So"), piece([{"type": "text", "text": "", "annotations": [cited]}]), *pieces))
    assert message.parts == (
        TextPart(text="So"),
        AnnotationPart(url="https://example.com", start=0, end=2),
        RefusalPart(text="No more."),
    )
