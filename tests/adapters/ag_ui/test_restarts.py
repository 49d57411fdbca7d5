"""Runs whose streams take something back: messages that a restart makes void, and calls that stay without a result."""

from typing import Any, Final

from babelgate.adapters.ag_ui.read.run_events import EventReader
from babelgate.adapters.ag_ui.write.run_events import RunEventWriter
from babelgate.adapters.ag_ui.write.transcript import ConversationReducer
from babelgate.canonical import Message, Record
from babelgate.canonical.event import Event, InterruptRaised, PartAdded, RunStarted, ToolEnded, ToolStarted
from tests.adapters.log import RUN, Log, streamed

HELLO: Final = Message.of("Hello", "user").replace(message_id="u")


def log_of(*events: Event) -> list[Record]:
    return Log(HELLO).start().add(*events).done().records


def transcript_of(records: list[Record]) -> list[Any]:
    transcript = ConversationReducer("thread")
    for record in records:
        transcript.apply(record)
    return [(message["role"], message.get("content")) for message in transcript.messages()]


def test_a_restart_closes_what_is_open_and_is_reported() -> None:
    begun = [event for event in streamed("m", "Half") if not type(event).__name__.endswith("Ended")]
    assert any(isinstance(event, PartAdded) for event in begun)
    records = log_of(*begun, RunStarted(attempt=2), *streamed("n", "Whole"))
    writer, kinds, restarts = RunEventWriter(RUN, "thread"), list[str](), list[int]()
    for record in records:
        kinds += [event["type"] for event in writer.write(record)]
        restarts += [len(kinds)] if writer.is_restarted else []
    assert kinds[1:4] == ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
    assert (restarts, kinds[-1]) == ([4], "RUN_FINISHED")


def test_the_messages_of_a_thread_have_no_void_ones() -> None:
    tool = [ToolStarted(call_id="c", name="count"), ToolEnded(call_id="c", name="count", output=2)]
    void = [*streamed("m", "Half"), *tool]
    assert transcript_of(log_of(*void, RunStarted(attempt=2), *streamed("n", "Whole"))) == [
        ("user", "Hello"),
        ("assistant", "Whole"),
    ]
    rest = RunStarted(attempt=2, void=("n",))
    assert transcript_of(log_of(*streamed("m", "One"), *streamed("n", "Two"), rest, *streamed("o", "Three"))) == [
        ("user", "Hello"),
        ("assistant", "One"),
        ("assistant", "Three"),
    ]


def test_a_call_without_a_result_is_not_pending() -> None:
    writer, reader = RunEventWriter(RUN, "thread"), EventReader("run")
    records = log_of(ToolStarted(call_id="c", name="count"))
    events = [event for record in records for event in writer.write(record)]
    assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": []}
    found = [each for event in events for each in reader.read(event)]
    assert not any(isinstance(each, InterruptRaised) for each in found)
