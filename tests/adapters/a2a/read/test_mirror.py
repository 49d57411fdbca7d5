"""What is kept of a server's words for callers of A2A, and what is not because it is told anyway."""

from typing import Any

from babelgate.adapters.a2a.read.task_events import EventReader
from babelgate.canonical import Event, Record
from babelgate.canonical.event import LossNoted, Native


def kept(events: list[Event]) -> list[tuple[str, Any]]:
    return [(event.event, event.extra["a2a"]) for event in events if isinstance(event, Native)]


def update(state: str, message: Any = None, **more: Any) -> Any:
    status = {"state": state} if message is None else {"state": state, "message": message}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": status, **more}}


def said(text: str, message_id: str = "m") -> Any:
    return {"messageId": message_id, "role": "ROLE_AGENT", "parts": [{"text": text}]}


def test_progress_is_kept_once() -> None:
    assert kept(EventReader("r").read(update("working", said("On it")))) == []


def test_progress_with_something_beside_it_is_kept_as_it_came() -> None:
    [(name, data)] = kept(EventReader("r").read(update("working", said("On it"), metadata={"k": 1})))
    assert (name, data["state"], data["metadata"]) == ("status", "working", {"k": 1})
    assert data["message"]["parts"] == [{"kind": "text", "text": "On it"}]


def test_what_a_gateway_says_of_itself_is_read_and_not_kept() -> None:
    about = {"babelgate": {"taskId": "x", "usage": {"inputTokens": 1}}}
    assert kept(EventReader("r").read(update("completed", metadata=about))) == []


def test_what_a_task_says_again_is_not_told_again() -> None:
    reader = EventReader("r")
    task: Any = {"task": {"id": "t", "contextId": "c", "status": {"state": "working"}, "metadata": {"k": 1}}}
    assert kept(reader.read(task)) == [("task", {"metadata": {"k": 1}})]
    assert kept(reader.read(task)) == []
    task["task"]["metadata"] = {"k": 2}
    assert kept(reader.read(task)) == [("task", {"metadata": {"k": 2}})]


def test_a_reader_that_goes_on_knows_what_was_told() -> None:
    task: Any = {"task": {"id": "t", "contextId": "c", "status": {"state": "working"}, "metadata": {"k": 1}}}
    events = EventReader("r").read(task)
    later = EventReader("r")
    later.recall(Record(seq, 0, "t", "r", 1, event) for seq, event in enumerate(events, start=1))
    assert kept(later.read(task)) == []


def test_a_message_with_files_or_without_an_id_is_told_as_it_was_read() -> None:
    file = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"raw": "AAE=", "filename": "x"}]}
    assert kept(EventReader("r").read(update("completed", file))) == []
    assert kept(EventReader("r").read(update("completed", said("Done", "")))) == []


def test_what_is_too_large_is_noted_once() -> None:
    reader = EventReader("r")
    losses = [
        event
        for n in range(2)
        for event in reader.read(update("working", metadata={str(n): "x" * 300_000}))
        if isinstance(event, LossNoted)
    ]
    assert [loss.feature for loss in losses] == ["custom"]
