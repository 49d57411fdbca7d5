"""Completions and responses of runs that were restarted: they hold the output that is not void."""

from typing import Any

import pytest

from babelgate.adapters.openai.write.completion import CompletionWriter
from babelgate.adapters.openai.write.response import ResponseWriter
from babelgate.canonical import AnnotationPart, DataPart, Message, Record, TextPart
from babelgate.canonical.event import Event, MessageEnded, MessageStarted, PartAdded, RunStarted
from tests.adapters.log import RUN, TASK, Log, streamed

HELLO = Message.of("Hello")


def completion_of(records: list[Record]) -> CompletionWriter:
    writer = CompletionWriter(TASK, RUN)
    for record in records:
        writer.write(record)
    return writer


def response_of(records: list[Record]) -> dict[str, Any]:
    writer = ResponseWriter(TASK, "echo", RUN)
    for record in records:
        writer.write(record)
    return writer.response()


def log_of(*events: Event) -> list[Record]:
    return Log(HELLO).start().add(*events).done().records


def cut(message_id: str, text: str) -> list[Event]:
    """Return a message that its model cut off."""
    return [*streamed(message_id, text)[:-1], MessageEnded(message_id=message_id, finish="length")]


def texts_of(response: dict[str, Any]) -> list[str]:
    return [part["text"] for item in response["output"] for part in item["content"]]


@pytest.mark.parametrize("void", [None, ("m",)])
def test_a_void_message_does_not_leave_the_answer_incomplete(void: tuple[str, ...] | None) -> None:
    records = log_of(*cut("m", "Half"), RunStarted(attempt=2, void=void), *streamed("n", "Whole"))
    response, completion = response_of(records), completion_of(records)
    assert (response["status"], response["incomplete_details"], texts_of(response)) == ("completed", None, ["Whole"])
    assert (completion.finish, completion.content) == ("stop", "Whole")


def test_a_partial_restart_keeps_the_other_messages() -> None:
    first, rest = cut("m", "One"), RunStarted(attempt=2, void=("n",))
    records = log_of(*first, *streamed("n", "Two"), rest, *streamed("o", "Three"))
    response, completion = response_of(records), completion_of(records)
    assert texts_of(response) == ["One", "Three"]
    assert (completion.content, completion.finish) == ("One\nThree", "length")
    assert response["status"] == "incomplete"


def test_citations_follow_their_text_when_earlier_text_is_void() -> None:
    cited: list[Event] = [
        MessageStarted(message_id="n"),
        PartAdded(message_id="n", index=0, part=TextPart(text="Berlin")),
        PartAdded(message_id="n", index=1, part=AnnotationPart(url="https://example.com", start=0, end=6)),
        MessageEnded(message_id="n"),
    ]
    records = log_of(*streamed("m", "Paris is large."), *cited, RunStarted(attempt=2, void=("m",)))
    completion = completion_of(records)
    (annotation,) = completion.annotations
    assert completion.content == "Berlin"
    assert (annotation["url_citation"]["start_index"], annotation["url_citation"]["end_index"]) == (0, 6)


def test_output_equal_to_void_data_is_written() -> None:
    data: list[Event] = [
        MessageStarted(message_id="m"),
        PartAdded(message_id="m", index=0, part=DataPart(data={"a": 1})),
        MessageEnded(message_id="m"),
    ]
    records = Log(HELLO).start().add(*data, RunStarted(attempt=2, void=("m",))).done(output={"a": 1}).records
    assert completion_of(records).content == '{"a":1}'
    assert texts_of(response_of(records)) == ['{"a":1}']
