"""Scripted server of AG-UI 1.0: the last text of the user selects what the agent does."""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from itertools import count
from typing import Any, Final

from tests.conformance.servers.kit import TRACE, Answer, Request, ScriptedServer, Server, Violation, options, sse

_LONG: Final = 10.0
"""Duration of long work in seconds. A client disconnects before the end of the work."""
_ROLES: Final = frozenset({"developer", "system", "user", "assistant", "tool", "reasoning", "activity"})

VIOLATIONS: Final = (
    Violation("answers are JSON", "run.stream", ("*",)),
    Violation("text before the start", "run.started-first"),
    Violation("a thread of its own", "run.started-ids"),
    Violation("no version", "run.version"),
    Violation("streams just end", "run.ended", ("run.*", "question.*", "calls.*", "fail.*", "cancel.*", "safe.owner")),
    Violation("events after the end", "run.one-end"),
    Violation("another run finishes", "run.finished-ids", ("question.answer",)),
    Violation(
        "the last event is cut", "run.closed", ("run.*", "cancel.*", "question.*", "calls.*", "fail.*", "safe.owner")
    ),
    Violation("own messages are refused", "run.continues", ("calls.result",)),
    Violation("unknown members are refused", "run.unknown-members"),
    Violation("one version only", "run.newer-minor"),
    Violation("new members for old clients", "run.old-client"),
    Violation("an end mark", "frame.json", ("run.one-end", "form.event")),
    Violation("null for nothing", "frame.no-null"),
    Violation("times have fractions", "frame.timestamp"),
    Violation("answers are empty", "text.answer", ("text.pieces",)),
    Violation("content without a start", "text.order", ("text.closed",)),
    Violation("messages stay open", "text.closed"),
    Violation("the user's id is used", "text.own-ids"),
    Violation("answers are whole", "text.pieces"),
    Violation("arguments before the start", "tool.call"),
    Violation("arguments are cut", "tool.arguments"),
    Violation("results before the end", "tool.result"),
    Violation("a result with the message's id", "tool.result-id"),
    Violation("steps stay open", "step.pairs"),
    Violation("questions are errors", "question.outcome", ("question.*", "safe.owner", "form.*")),
    Violation("one id for all questions", "question.own-ids"),
    Violation("answers fail", "question.answer"),
    Violation("any answer will do", "question.uncovered"),
    Violation("repetitions crash", "question.repeated"),
    Violation("calls are answered", "calls.pending"),
    Violation("results are refused", "calls.result"),
    Violation("failures succeed", "fail.error", ("fail.message",), is_hidden=True),
    Violation("failures just end", "fail.error", ("fail.message",)),
    Violation("errors have no message", "fail.message"),
    Violation("a disconnect is fatal", "cancel.survives"),
    Violation("broken JSON is a server error", "error.json"),
    Violation("no thread is needed", "error.thread"),
    Violation("messages may be text", "error.messages"),
    Violation("any role", "error.role"),
    Violation("errors show a stack trace", "safe.errors"),
    Violation("everybody answers", "safe.owner"),
    Violation("an unknown event", "form.event"),
    Violation("a finished run without ids", "form.lifecycle", ("run.finished-ids", "question.answer")),
    Violation("an outcome of its own", "form.outcome", ("calls.pending",)),
    Violation("interrupts without a reason", "form.interrupt"),
    Violation("negative tokens", "form.usage"),
    Violation("text without a delta", "form.text", ("text.answer",)),
    Violation("results are objects", "form.tool"),
    Violation("states without a snapshot", "form.state"),
    Violation("custom events without a value", "form.special"),
)


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(status)
        self.status = status
        self.text = text


Event = dict[str, Any]
Acting = Generator[Event, None, Event]
"""Generator of an agent's events. It returns the members of the last event."""


class Agent(ScriptedServer):
    """Server with one agent."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.questions: dict[tuple[str, str], list[str]] = {}
        """Open questions by owner and thread."""
        self.answered: set[tuple[str, str, str]] = set()
        """Owner, thread and question of each answer."""
        self.is_dead = False
        self._numbers = count(1)

    async def handle(self, request: Request) -> Answer:
        if self.is_dead:
            return Answer(500, "dead")
        try:
            body = self._read(request)
            events = list(self._run(request, body))
        except _Refused as error:
            return Answer(error.status, {"error": error.text})
        if self.does("answers are JSON"):
            return Answer(body=events)
        return Answer(stream=self._send(events))

    async def _send(self, events: list[Event]) -> AsyncIterator[bytes]:
        is_whole = False
        try:
            for number, event in enumerate(events):
                if "wait" in event:
                    await asyncio.sleep(_LONG)
                    continue
                frame = sse(event)
                if number == len(events) - 1 and self.does("the last event is cut"):
                    frame = frame[:-10]
                yield frame
            if self.does("an end mark"):
                yield b"data: [DONE]\n\n"
            is_whole = True
        finally:
            if not is_whole and self.does("a disconnect is fatal"):
                self.is_dead = True

    # Requests

    def _read(self, request: Request) -> Mapping[str, Any]:
        try:
            body = request.json
        except ValueError:
            status = 500 if self.does("broken JSON is a server error") else 400
            raise _Refused(status, "no JSON") from None
        if "threadId" not in body and not self.does("no thread is needed"):
            raise _Refused(422, "threadId is missing")
        if not isinstance(body.get("messages"), list) and not self.does("messages may be text"):
            raise _Refused(422, TRACE if self.does("errors show a stack trace") else "messages is no list")
        messages: list[Any] = body["messages"] if isinstance(body["messages"], list) else []
        for message in messages:
            if message["role"] not in _ROLES and not self.does("any role"):
                raise _Refused(422, "unknown role")
            if message["role"] == "assistant" and self.does("own messages are refused"):
                raise _Refused(422, "the history is here already")
            if message["role"] == "tool" and self.does("results are refused"):
                raise _Refused(422, "no results")
        if "unheardOf" in body and self.does("unknown members are refused"):
            raise _Refused(422, "unknown member")
        if body.get("protocolVersion", "1.0") != "1.0" and self.does("one version only"):
            raise _Refused(422, "unknown version")
        return {"threadId": "none", **body, "messages": messages}

    # Runs

    def _run(self, request: Request, body: Mapping[str, Any]) -> Iterator[Event]:
        ids = {"threadId": body["threadId"], "runId": body["runId"]}
        thread = "another" if self.does("a thread of its own") else ids["threadId"]
        if self.does("text before the start"):
            yield {"type": "CUSTOM", "name": "early", "value": 1}
        started: Event = {"type": "RUN_STARTED", **ids, "threadId": thread, "timestamp": 1}
        if self.does("times have fractions"):
            started["timestamp"] = 1.5
        if not self.does("no version"):
            started["protocolVersion"] = "1.0"
        if self.does("null for nothing"):
            started["parentRunId"] = None
        yield started
        if self.does("an unknown event"):
            yield {"type": "THOUGHT"}
        value: Event = {} if self.does("custom events without a value") else {"value": 1}
        yield {"type": "CUSTOM", "name": "mood", **value}
        snapshot: Event = {} if self.does("states without a snapshot") else {"snapshot": {}}
        yield {"type": "STATE_SNAPSHOT", **snapshot}
        end: Event = yield from self._act(request, body)
        if "nothing" in end or self.does("streams just end"):
            return
        yield self._end(ids, end)
        if self.does("events after the end"):
            yield {"type": "CUSTOM", "name": "late", "value": 1}

    def _end(self, ids: Event, end: Event) -> Event:
        if "message" in end:
            return {"type": "RUN_ERROR", **end}
        if self.does("another run finishes"):
            ids = {**ids, "runId": "another"}
        if self.does("a finished run without ids"):
            ids = {}
        tokens = -1 if self.does("negative tokens") else 1
        return {"type": "RUN_FINISHED", **ids, "usage": [{"inputTokens": tokens}], **end}

    def _success(self, body: Mapping[str, Any]) -> Event:
        if "protocolVersion" not in body:
            extra: Event = {"pendingToolCallIds": []} if self.does("new members for old clients") else {}
            return {"outcome": {"type": "success", **extra}}
        return {"outcome": {"type": "done" if self.does("an outcome of its own") else "success"}}

    def _act(self, request: Request, body: Mapping[str, Any]) -> Acting:
        """Yield the events of the agent, and return the members of the last one."""
        last: Mapping[str, Any] = body["messages"][-1] if body["messages"] else {}
        if body.get("resume"):
            return (yield from self._answer(request, body))
        match last.get("role"), last.get("content"):
            case "tool", _:
                yield from self._say("It rains.", body)
            case "user", "fail":
                if self.does("failures succeed"):
                    return self._success(body)
                if self.does("failures just end"):
                    return {"nothing": True}
                return {"message": "" if self.does("errors have no message") else "It went wrong."}
            case "user", "ask" | "ask twice" as text:
                return (yield from self._ask(request, body, 2 if text == "ask twice" else 1))
            case "user", "work long":
                yield {"wait": True}
                yield from self._say("Done.", body)
            case "user", "use a tool":
                yield from self._use_tool()
                yield from self._say("Done.", body)
            case "user", "work in steps":
                yield from self._step()
                yield from self._say("Done.", body)
            case "user", "call my tool":
                return (yield from self._call(body))
            case _:
                yield from self._say("Hello", body)
        return self._success(body)

    def _say(self, text: str, body: Mapping[str, Any]) -> Iterator[Event]:
        name = f"m{next(self._numbers)}"
        if self.does("the user's id is used") and body["messages"]:
            name = body["messages"][-1]["id"]
        if not self.does("content without a start"):
            yield {"type": "TEXT_MESSAGE_START", "messageId": name, "role": "assistant"}
        pieces = [text] if self.does("answers are whole") else [text[:2], text[2:]]
        for piece in pieces:
            delta: Event = {} if self.does("text without a delta") else {"delta": piece}
            if not self.does("answers are empty"):
                yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": name, **delta}
        if not self.does("messages stay open"):
            yield {"type": "TEXT_MESSAGE_END", "messageId": name}

    def _use_tool(self) -> Iterator[Event]:
        call = f"c{next(self._numbers)}"
        start = {"type": "TOOL_CALL_START", "toolCallId": call, "toolCallName": "count", "parentMessageId": f"p{call}"}
        arguments = {"type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": '{"a": 1}'}
        if self.does("arguments are cut"):
            arguments["delta"] = '{"a": '
        end = {"type": "TOOL_CALL_END", "toolCallId": call}
        content: Any = {"a": 1} if self.does("results are objects") else "1"
        name = f"p{call}" if self.does("a result with the message's id") else f"r{call}"
        result: Event = {"type": "TOOL_CALL_RESULT", "messageId": name, "toolCallId": call, "content": content}
        events: list[Event] = [start, arguments, end, result]
        if self.does("arguments before the start"):
            events = [arguments, start, end, result]
        if self.does("results before the end"):
            events = [start, arguments, result, end]
        yield from events

    def _step(self) -> Iterator[Event]:
        yield {"type": "STEP_STARTED", "stepName": "plan"}
        if not self.does("steps stay open"):
            yield {"type": "STEP_FINISHED", "stepName": "plan"}

    def _call(self, body: Mapping[str, Any]) -> Acting:
        call = f"c{next(self._numbers)}"
        name = body["tools"][0]["name"]
        yield {"type": "TOOL_CALL_START", "toolCallId": call, "toolCallName": name, "parentMessageId": f"p{call}"}
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": "{}"}
        yield {"type": "TOOL_CALL_END", "toolCallId": call}
        if self.does("calls are answered"):
            yield {"type": "TOOL_CALL_RESULT", "messageId": f"r{call}", "toolCallId": call, "content": "sun"}
        end = self._success(body)
        return {"outcome": {**end["outcome"], "pendingToolCallIds": [call]}}

    # Questions

    def _ask(self, request: Request, body: Mapping[str, Any], number: int) -> Acting:
        if self.does("questions are errors"):
            return {"message": "I have a question."}
        yield {"type": "CUSTOM", "name": "asking", "value": number}
        ids = [f"q{next(self._numbers)}" for _ in range(number)]
        if self.does("one id for all questions"):
            ids = [ids[0]] * number
        self.questions[self._owner(request), body["threadId"]] = ids
        reason: Event = {} if self.does("interrupts without a reason") else {"reason": "input_required"}
        interrupts = [{"id": each, "message": "Well?", **reason} for each in ids]
        return {"outcome": {"type": "interrupt", "interrupts": interrupts}}

    def _owner(self, request: Request) -> str:
        return "" if self.does("everybody answers") else request.caller

    def _answer(self, request: Request, body: Mapping[str, Any]) -> Acting:
        place = self._owner(request), body["threadId"]
        ids = [each["interruptId"] for each in body["resume"]]
        if any((*place, each) in self.answered for each in ids):
            if self.does("repetitions crash"):
                raise _Refused(500, "twice")
            return self._success(body)
        left = self.questions.get(place, [])
        if not left or (not set(ids) & set(left) and not self.does("any answer will do")):
            raise _Refused(422, "no such question")
        self.answered |= {(*place, each) for each in ids}
        if self.does("answers fail"):
            return {"message": "I forgot."}
        yield from self._say("Thanks.", body)
        return self._success(body)


SERVER: Final = Server(
    set="ag-ui-1.0",
    make=Agent,
    violations=VIOLATIONS,
    path="/agent",
    options=options(
        plain="Hello",
        stream="Hello",
        question="ask",
        questions="ask twice",
        fail="fail",
        tools="use a tool",
        steps="work in steps",
        calls="call my tool",
        long="work long",
    ),
)
