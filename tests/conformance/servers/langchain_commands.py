"""Thread commands and events of the scripted servers of the Agent Protocol and LangGraph Platform."""

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

    def member(self, name: str) -> str:
        """Return the spelling of a member of commands and events."""
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
                run = self._start_run(thread, params, messages_of(params["input"]["messages"]), [])
            case "input.respond":
                answers = [] if self.does("responses are ignored") else [str(params["response"])]
                run = self._start_run(thread, params, [], answers)
            case _ if self.does("unknown commands are carried out"):
                return {"type": "success", "id": id, "result": {}}
            case _:
                return {"type": "error", "id": id, "error": "unknown_command", "message": "There is none."}
        if self.does("commands are answered with the run"):
            return {"run": run.id, "id": id}
        result = {} if self.does("the result of a command names no run") else {self.member("run_id"): run.id}
        return {"type": "success", "id": id, "result": result, "meta": {self.member("applied_through_seq"): 0}}

    def _start_run(self, thread: Thread, params: dict[str, Any], messages: list[Message], answers: list[str]) -> Run:
        agent = params.get(self.member("assistant_id"), "")
        text = " ".join(each["text"] for each in messages) or "ask again"
        run = Run(str(uuid4()), thread, agent, {}, text, messages, answers)
        before = len(thread.messages)
        self.add_run(run, "reject")
        self._publish(run, [each for each in thread.messages[before:] if each["role"] == "ai"])
        return run

    def _publish(self, run: Run, new: Sequence[Message]) -> None:
        """Publish the events of a finished run."""
        published: list[tuple[str, Any]] = [("lifecycle", {"event": "running"}), ("values", {})]
        for message in new:
            published.append(("messages", {"event": "message-start", "id": message["id"]}))
            if not self.does("messages are not finished"):
                published.append(("messages", {"event": "message-finish", "id": message["id"]}))
        if run.status == "asking" and not self.does("questions are no events"):
            published.append(
                ("input.requested", {self.member("interrupt_id"): f"{run.id}-0", "payload": "Who are you?"})
            )
        published.append(("lifecycle", {"event": "interrupted" if run.status == "asking" else "completed"}))
        events = self.events.setdefault(run.thread.id, [])
        events += [self._event(number, *each) for number, each in enumerate(published, start=len(events) + 1)]

    def _event(self, number: int, method: str, data: Any) -> dict[str, Any]:
        namespace: Any = ["root"] if self.does("the root has a name") else []
        return {
            "type": "run" if self.does("events have unknown types") else "event",
            self.member("event_id"): "event" if self.does("events have one id") else f"event-{number}",
            "seq": 1 if self.does("events are not counted") else number,
            "method": method,
            "params": {"namespace": namespace, "timestamp": 1, "data": data},
        }

    def event_stream(self, request: Request, thread_id: str) -> Answer:
        """Answer with the events of a thread."""
        self.thread(request, thread_id)
        body = self.body(request)
        self.refuse_unless("no channels are all", 422, "channels", when=not body.get("channels"))
        since = 0 if self.does("since is ignored") else body.get("since", 0)
        events = [each for each in self.events.get(thread_id, ()) if each["seq"] > since]
        if not self.does("channels are ignored"):
            events = [each for each in events if each["method"].partition(".")[0] in body.get("channels", ())]
        return Answer(stream=endless(*(sse(each, event=each["method"], id=str(each["seq"])) for each in events)))


def messages_of(messages: Sequence[Any]) -> list[Message]:
    """Convert the messages of a request."""
    return [{"role": "human", "text": each["content"], "id": each.get("id") or str(uuid4())} for each in messages]


async def endless(*frames: bytes) -> AsyncGenerator[bytes]:
    """Yield the frames, then keep the stream open."""
    for frame in frames:
        yield frame
    await asyncio.Event().wait()
