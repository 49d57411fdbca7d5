"""Commands to a thread, and its events, of the scripted servers of the Agent Protocol and of LangGraph Platform."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from uuid import uuid4

from tests.conformance.servers.kit import Answer, Request, sse
from tests.conformance.servers.langchain_store import Store
from tests.conformance.servers.langchain_work import Message, Run, Thread


class Commands(Store):
    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.events: dict[str, list[dict[str, Any]]] = {}

    def spelled(self, name: str) -> str:
        """A member of commands and events."""
        return name

    def command(self, request: Request, thread_id: str) -> Any:
        thread = self.threads.get(thread_id)
        if thread is None:
            raise self.error(404, "Thread not found")
        body = self.body(request)
        id = 1 if self.does("answers to commands are numbered") else body.get("id")
        params: dict[str, Any] = body.get("params") or {}
        match body.get("method"):
            case "run.start":
                run = self._started(thread, params, said(params["input"]["messages"]), [])
            case "input.respond":
                answers = [] if self.does("responses are not heard") else [str(params["response"])]
                run = self._started(thread, params, [], answers)
            case _ if self.does("unknown commands are carried out"):
                return {"type": "success", "id": id, "result": {}}
            case _:
                return {"type": "error", "id": id, "error": "unknown_command", "message": "There is none."}
        if self.does("commands are answered with the run"):
            return {"run": run.id, "id": id}
        result = {} if self.does("a command tells no run") else {self.spelled("run_id"): run.id}
        return {"type": "success", "id": id, "result": result, "meta": {self.spelled("applied_through_seq"): 0}}

    def _started(self, thread: Thread, params: dict[str, Any], messages: list[Message], answers: list[str]) -> Run:
        agent = params.get(self.spelled("assistant_id"), "")
        text = " ".join(each["text"] for each in messages) or "ask again"
        run = Run(str(uuid4()), thread, agent, {}, text, messages, answers)
        before = len(thread.messages)
        self.enter(run, "reject")
        self._tell(run, [each for each in thread.messages[before:] if each["role"] == "ai"])
        return run

    def _tell(self, run: Run, new: Sequence[Message]) -> None:
        """The events of a run that has ended."""
        told: list[tuple[str, Any]] = [("lifecycle", {"event": "running"}), ("values", {})]
        for message in new:
            told.append(("messages", {"event": "message-start", "id": message["id"]}))
            if not self.does("messages are not finished"):
                told.append(("messages", {"event": "message-finish", "id": message["id"]}))
        if run.status == "asking" and not self.does("questions are no events"):
            told.append(("input.requested", {self.spelled("interrupt_id"): f"{run.id}-0", "payload": "Who are you?"}))
        told.append(("lifecycle", {"event": "interrupted" if run.status == "asking" else "completed"}))
        events = self.events.setdefault(run.thread.id, [])
        events += [self._event(number, *each) for number, each in enumerate(told, start=len(events) + 1)]

    def _event(self, number: int, method: str, data: Any) -> dict[str, Any]:
        place: Any = ["root"] if self.does("the root has a name") else []
        return {
            "type": "run" if self.does("events have types of their own") else "event",
            self.spelled("event_id"): "event" if self.does("events have one id") else f"event-{number}",
            "seq": 1 if self.does("events are not counted") else number,
            "method": method,
            "params": {"namespace": place, "timestamp": 1, "data": data},
        }

    def told(self, request: Request, thread_id: str) -> Answer:
        """The events of a thread."""
        self.thread(request, thread_id)
        body = self.body(request)
        self.refuse_unless("no channels are all", 422, "channels", when=not body.get("channels"))
        since = 0 if self.does("events are told from the start") else body.get("since", 0)
        events = [each for each in self.events.get(thread_id, ()) if each["seq"] > since]
        if not self.does("channels are not looked at"):
            events = [each for each in events if each["method"].partition(".")[0] in body.get("channels", ())]
        return Answer(stream=silent(*(sse(each, event=each["method"], id=str(each["seq"])) for each in events)))


def said(messages: Sequence[Any]) -> list[Message]:
    """Of a request."""
    return [{"role": "human", "text": each["content"], "id": each.get("id") or str(uuid4())} for each in messages]


async def silent(*frames: bytes) -> AsyncGenerator[bytes]:
    """A stream that tells no end."""
    for frame in frames:
        yield frame
    await asyncio.Event().wait()
