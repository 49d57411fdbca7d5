"""Parts of a server's replies that are mirrored for callers of A2A, unless other events already carry them."""

from typing import Any

from babelgate.adapters.a2a.read.task_events import EventReader
from babelgate.canonical import Event, Record
from babelgate.canonical.event import LossNoted, Native


def mirrored(events: list[Event]) -> list[tuple[str, Any]]:
    return [(event.event, event.extra["a2a"]) for event in events if isinstance(event, Native)]


def update(state: str, message: Any = None, **more: Any) -> Any:
    status = {"state": state} if message is None else {"state": state, "message": message}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": status, **more}}


def agent_message(text: str, message_id: str = "m") -> Any:
    return {"messageId": message_id, "role": "ROLE_AGENT", "parts": [{"text": text}]}


def test_plain_progress_is_not_mirrored() -> None:
    assert mirrored(EventReader("r").read(update("working", agent_message("On it")))) == []


def test_progress_with_metadata_is_mirrored() -> None:
    [(name, data)] = mirrored(EventReader("r").read(update("working", agent_message("On it"), metadata={"k": 1})))
    assert (name, data["state"], data["metadata"]) == ("status", "working", {"k": 1})
    assert data["message"]["parts"] == [{"kind": "text", "text": "On it"}]


def test_metadata_of_a_gateway_are_not_mirrored() -> None:
    about = {"babelgate": {"taskId": "x", "usage": {"inputTokens": 1}}}
    assert mirrored(EventReader("r").read(update("completed", metadata=about))) == []


def test_repeated_metadata_are_mirrored_once() -> None:
    reader = EventReader("r")
    task: Any = {"task": {"id": "t", "contextId": "c", "status": {"state": "working"}, "metadata": {"k": 1}}}
    assert mirrored(reader.read(task)) == [("task", {"metadata": {"k": 1}})]
    assert mirrored(reader.read(task)) == []
    task["task"]["metadata"] = {"k": 2}
    assert mirrored(reader.read(task)) == [("task", {"metadata": {"k": 2}})]


def test_resumed_reader_mirrors_nothing_again() -> None:
    task: Any = {"task": {"id": "t", "contextId": "c", "status": {"state": "working"}, "metadata": {"k": 1}}}
    events = EventReader("r").read(task)
    later = EventReader("r")
    later.recall(Record(seq, 0, "t", "r", 1, event) for seq, event in enumerate(events, start=1))
    assert mirrored(later.read(task)) == []


def test_message_with_files_or_without_id_is_not_mirrored() -> None:
    file = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"raw": "AAE=", "filename": "x"}]}
    assert mirrored(EventReader("r").read(update("completed", file))) == []
    assert mirrored(EventReader("r").read(update("completed", agent_message("Done", "")))) == []


def test_too_large_metadata_are_one_loss() -> None:
    reader = EventReader("r")
    losses = [
        event
        for n in range(2)
        for event in reader.read(update("working", metadata={str(n): "x" * 300_000}))
        if isinstance(event, LossNoted)
    ]
    assert [loss.feature for loss in losses] == ["custom"]
