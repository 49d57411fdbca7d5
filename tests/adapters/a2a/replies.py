"""Replies of an A2A 1.0 server about its one task, and transcripts of the events that are read from them."""

from collections.abc import Sequence
from typing import Any

from babelgate.adapters.a2a.read.task_events import EventReader
from babelgate.canonical import Event, Record
from babelgate.conformance.contract import Transcript
from babelgate.conformance.contract.referee import Referee

RUN = "22222222-2222-4222-8222-222222222222"


def text(words: str) -> dict[str, Any]:
    return {"text": words}


def task(state: str = "TASK_STATE_WORKING", **more: Any) -> dict[str, Any]:
    status = {"state": state, **more.pop("status", {})}
    return {"task": {"id": "t", "contextId": "c", "status": status, **more}}


def status(state: str, text: str | None = None, message_id: str = "m", **more: Any) -> dict[str, Any]:
    content: dict[str, Any] = {"state": state}
    if text is not None:
        content["message"] = {"messageId": message_id, "role": "ROLE_AGENT", "parts": [{"text": text}]}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {**content, **more.pop("status", {})}, **more}}


def artifact(*parts: dict[str, Any], artifact_id: str = "a", **more: Any) -> dict[str, Any]:
    members = {name: more.pop(name) for name in ("name", "description", "metadata", "extensions") if name in more}
    return {
        "artifactUpdate": {
            "taskId": "t",
            "contextId": "c",
            "artifact": {"artifactId": artifact_id, "parts": list(parts), **members},
            **more,
        }
    }


DONE = status("TASK_STATE_COMPLETED")


def transcript_of(events: Sequence[Event]) -> Transcript:
    """Return the transcript of the events. Fails if they break the contract of agents."""
    referee = Referee()
    for event in events:
        referee.see(event)
    referee.close()
    return referee.transcript


def resumed(events: Sequence[Event], reader: EventReader | None = None) -> EventReader:
    """Return a reader that resumes a run with these recorded events."""
    reader = reader or EventReader(RUN)
    reader.recall([Record(seq, seq, "k", RUN, 1, event) for seq, event in enumerate(events, start=1)])
    return reader
