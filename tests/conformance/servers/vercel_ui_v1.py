"""Scripted server of UI message streams of the Vercel AI SDK."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from itertools import count
from typing import Any, Final, cast

from babelgate.conformance.wire.exchange import as_list
from tests.conformance.servers.kit import TRACE, Answer, Request, ScriptedServer, Server, Violation, options, sse

Wire = dict[str, Any]

VIOLATIONS: Final = (
    # Streams
    Violation("answers are JSON", "stream.answer", ("*",)),
    Violation("no [DONE]", "stream.done"),
    Violation("streams are cut in an event", "stream.closed"),
    Violation("streams have no version", "stream.header"),
    Violation("text comes before start", "stream.start", ("~text.step",)),
    Violation("start has no id", "stream.message-id", ("~call.same-id",)),
    Violation("all messages have one id", "stream.own-id", ("stream.concurrent",)),
    Violation("streams just end", "stream.finish", ("stream.reason", "chat.*", "~call.reason")),
    Violation("answers end for their length", "stream.reason"),
    Violation("deltas are numbered", "stream.members"),
    Violation("concurrent messages share an id", "stream.concurrent", ("~stream.own-id",)),
    # Text
    Violation("answers have no text", "text.answer", ("chat.regenerate",)),
    Violation("texts have no start", "text.order", ("text.end",)),
    Violation("texts have no end", "text.end"),
    Violation("steps have no end", "text.step"),
    # Requests
    Violation("only one turn is accepted", "chat.history", ("chat.data", "call.*", "approval.*")),
    Violation("data parts are refused", "chat.data"),
    Violation("a message has one part", "chat.parts"),
    Violation("metadata are refused", "chat.metadata"),
    Violation("unknown members are refused", "chat.members", ("~call.*",)),
    Violation("answers cannot be regenerated", "chat.regenerate"),
    Violation("ASCII only", "chat.unicode"),
    Violation("bodies must be JSON by their type", "chat.type"),
    # Tools
    Violation("tools have no output", "tool.output"),
    Violation("outputs come first", "tool.order"),
    Violation("the page executes all tools", "tool.provider"),
    Violation("tools of the page are refused", "call.made", ("call.*",)),
    Violation("tools of the page are ignored", "call.made", ("call.*",), is_hidden=True),
    Violation("calls end with stop", "call.reason"),
    Violation("results are refused", "call.result", ("call.*",)),
    Violation("results begin no step", "call.step"),
    Violation("results are another message", "call.same-id"),
    Violation("approvals come first", "approval.request"),
    Violation("approvals begin no step", "approval.continue"),
    Violation("approved calls have no output", "approval.output"),
    Violation("refused calls have an output", "approval.denied"),
    # Errors
    Violation("failures are empty answers", "error.failure"),
    Violation("broken JSON is a 500", "error.json", ("safe.errors",)),
    Violation("there are default messages", "error.messages"),
    Violation("unknown roles are accepted", "error.role"),
    Violation("unknown results are answered with nothing", "error.loop"),
    Violation("errors show a stack trace", "safe.errors"),
    Violation("deep JSON is a server error", "safe.deep"),
    # Resume
    Violation("idle chats have an empty stream", "resume.idle"),
    Violation("streams are resumed in the middle", "resume.start"),
    # The form of chunks
    Violation("chunks have a new type", "form.chunk"),
    Violation("ids are numbers", "form.text"),
    Violation("ids of messages are null", "form.start", ("stream.message-id", "~call.same-id")),
    Violation("answers are done", "form.finish", ("stream.reason",)),
    Violation("inputs are left out", "form.tool"),
    Violation("data are left out", "form.data"),
    Violation("files have no type", "form.file"),
    Violation("sources have no id", "form.source"),
    Violation("errors have no text", "form.error"),
)
_ROLES: Final = ("system", "user", "assistant")
_OPTIONS: Final = frozenset({"id", "messages", "trigger", "messageId", "tools"})


class Refused(Exception):
    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


class Chats(ScriptedServer):
    """Server whose agent does what the last message of the user says."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self._numbers = count(1)
        self._busy = 0
        self._shared = ""
        self._calls: set[str] = set()
        """Calls that the server has made."""
        self._active: dict[str, str] = {}
        """Id of the message of each chat in which something runs."""
        self._known: set[str] = set()
        """Ids of all chats."""

    async def handle(self, request: Request) -> Answer:
        try:
            if request.method == "GET":
                return self._resume(request.path.split("/")[-2])
            return await self._post(request)
        except Refused as error:
            words = TRACE if self.does("errors show a stack trace") else error.words
            return Answer(error.status, words)

    def _resume(self, chat_id: str) -> Answer:
        message_id = self._active.get(chat_id)
        if message_id is None:
            # The judge asks for the stream of an unknown chat first, to see whether streams can be resumed.
            is_wrong = chat_id in self._known and self.does("idle chats have an empty stream")
            return self._stream(iter(())) if is_wrong else Answer(204)
        chunks: list[Wire] = [{"type": "start", "messageId": message_id}, {"type": "start-step"}]
        return self._stream(iter(chunks[1:] if self.does("streams are resumed in the middle") else chunks))

    async def _post(self, request: Request) -> Answer:
        if b"[" * 1000 in request.body:
            return Answer(500 if self.does("deep JSON is a server error") else 400, "too deep")
        is_json = request.headers.get("content-type", "").startswith("application/json")
        self.raise_if("bodies must be JSON by their type", Refused(415, "send JSON"), when=not is_json)
        try:
            body: Any = request.json
        except ValueError:
            if self.does("broken JSON is a 500"):
                return Answer(500, TRACE)
            raise Refused(400, "not JSON") from None
        self._check(body)
        if self.does("answers are JSON"):
            return Answer(200, {"text": "Hello"})
        self._known.add(str(body.get("id")))
        return await self._answer(body)

    # Requests

    def _check(self, body: Any) -> None:
        if not isinstance(body, dict):
            raise Refused(400, "an object is needed")
        members = cast("Wire", body)
        if "messages" not in members and self.does("there are default messages"):
            members["messages"] = [{"id": "u", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}]
        self._check_members(members, as_list(members.get("messages")))

    def _check_members(self, body: Wire, messages: list[Wire]) -> None:
        if not messages:
            raise Refused(400, "messages are needed")
        more = body.keys() - _OPTIONS
        self.raise_if("unknown members are refused", Refused(400, "unknown member"), when=more)
        self.raise_if("tools of the page are refused", Refused(400, "unknown tools"), when=body.get("tools"))
        is_again = body.get("trigger") == "regenerate-message"
        self.raise_if("answers cannot be regenerated", Refused(400, "unknown trigger"), when=is_again)
        for message in messages:
            self._check_message(message)
        assistants = [each for each in messages if each["role"] == "assistant"]
        self.raise_if("only one turn is accepted", Refused(400, "one turn"), when=assistants)

    def _check_message(self, message: Wire) -> None:
        if message["role"] not in _ROLES and not self.does("unknown roles are accepted"):
            raise Refused(400, "unknown role")
        self.raise_if("metadata are refused", Refused(400, "metadata"), when="metadata" in message)
        kinds = [part["type"] for part in message["parts"]]
        has_data = any(kind.startswith("data-") for kind in kinds)
        self.raise_if("data parts are refused", Refused(400, "unknown part"), when=has_data)
        is_long = message["role"] == "user" and len(kinds) > 1
        self.raise_if("a message has one part", Refused(400, "one part"), when=is_long)
        text = "".join(part.get("text", "") for part in message["parts"])
        self.raise_if("ASCII only", Refused(400, "ASCII only"), when=not text.isascii())

    # Answers

    async def _answer(self, body: Mapping[str, Any]) -> Answer:
        last = body["messages"][-1]
        if last["role"] == "assistant":
            return self._stream(self._continue(last))
        text = "".join(part.get("text", "") for part in last["parts"])
        message_id = await self._new_id()
        if text.startswith("fail"):
            return self._stream(self._fail(message_id))
        if text.startswith("long"):
            return Answer(stream=self._work(str(body["id"]), message_id))
        if text.startswith("tool"):
            return self._stream(self._message(message_id, self._use_tool()))
        if text.startswith("call") and body.get("tools") and not self.does("tools of the page are ignored"):
            reason = "stop" if self.does("calls end with stop") else "tool-calls"
            return self._stream(self._message(message_id, self._call(next(iter(body["tools"]))), reason))
        if text.startswith("approve"):
            return self._stream(self._message(message_id, self._ask(), "tool-calls"))
        return self._stream(self._message(message_id, self._say(text), self._reason()))

    async def _new_id(self) -> str:
        message_id = "m0" if self.does("all messages have one id") else f"m{next(self._numbers)}"
        self._busy += 1
        if self._busy > 1 and self.does("concurrent messages share an id"):
            message_id = self._shared
        self._shared = message_id
        await asyncio.sleep(0.005)
        self._busy -= 1
        return message_id

    def _reason(self) -> str:
        if self.does("answers are done"):
            return "done"
        return "length" if self.does("answers end for their length") else "stop"

    def _message(self, message_id: str, content: Iterator[Wire], reason: str = "stop") -> Iterator[Wire]:
        start: Wire = {"type": "start", "messageId": message_id}
        self.drop_if("start has no id", start, "messageId")
        self.set_if("ids of messages are null", start, messageId=None)
        chunks: list[Wire] = [start, {"type": "start-step"}, *content]
        if self.does("text comes before start"):
            chunks = [*chunks[1:3], start, *chunks[3:]]
        yield from chunks
        if not self.does("steps have no end"):
            yield {"type": "finish-step"}
        if not self.does("streams just end"):
            yield {"type": "finish", "finishReason": reason}

    def _say(self, text: str) -> Iterator[Wire]:
        part_id: Any = 1 if self.does("ids are numbers") else "t"
        if not self.does("texts have no start"):
            yield {"type": "text-start", "id": part_id}
        for number, word in enumerate(["You said: ", text]):
            delta: Wire = {"type": "text-delta", "id": part_id, "delta": word}
            self.set_if("deltas are numbered", delta, number=number)
            if not self.does("answers have no text"):
                yield delta
        if not self.does("texts have no end"):
            yield {"type": "text-end", "id": part_id}
        if self.does("chunks have a new type"):
            yield {"type": "joke"}
        data: Wire = {"type": "data-note", "data": None}
        self.drop_if("data are left out", data, "data")
        file: Wire = {"type": "file", "url": "https://example.com/a.txt", "mediaType": "text/plain"}
        self.drop_if("files have no type", file, "mediaType")
        source: Wire = {"type": "source-url", "sourceId": "s", "url": "https://example.com"}
        self.drop_if("sources have no id", source, "sourceId")
        yield from (data, file, source)

    def _use_tool(self) -> Iterator[Wire]:
        call_id = self._call_id()
        call: Wire = {"type": "tool-input-available", "toolCallId": call_id, "toolName": "count", "input": {}}
        call |= {"dynamic": True, "providerExecuted": True}
        self.drop_if("the page executes all tools", call, "providerExecuted")
        self.drop_if("inputs are left out", call, "input")
        output: Wire = {"type": "tool-output-available", "toolCallId": call_id, "output": 2}
        if self.does("tools have no output"):
            yield call
        elif self.does("outputs come first"):
            yield from (output, call)
        else:
            yield from (call, output)

    def _call(self, name: str) -> Iterator[Wire]:
        arguments = {"city": "Rome"}
        yield {
            "type": "tool-input-available",
            "toolCallId": self._call_id(),
            "toolName": name,
            "input": arguments,
        }

    def _ask(self) -> Iterator[Wire]:
        call_id = self._call_id()
        call: Wire = {"type": "tool-input-available", "toolCallId": call_id, "toolName": "send", "input": {}}
        request: Wire = {"type": "tool-approval-request", "toolCallId": call_id, "approvalId": f"a-{call_id}"}
        yield from (request, call) if self.does("approvals come first") else (call, request)

    def _call_id(self) -> str:
        call_id = f"c{next(self._numbers)}"
        self._calls.add(call_id)
        return call_id

    def _continue(self, message: Wire) -> Iterator[Wire]:
        """Continue a message whose calls the page has completed."""
        calls = [part for part in message["parts"] if "toolCallId" in part]
        message_id, begins_step = message["id"], True
        outputs: list[Wire] = []
        if any(each["toolCallId"] not in self._calls for each in calls):
            if not self.does("unknown results are answered with nothing"):
                raise Refused(409, "no such call")
            return iter([{"type": "start", "messageId": message_id}, {"type": "finish"}])
        for call in calls:
            if call["state"] == "approval-responded":
                begins_step = not self.does("approvals begin no step")
                outputs += self._end_approval(call)
            else:
                self.raise_if("results are refused", Refused(400, "no results"))
                begins_step = not self.does("results begin no step")
                if self.does("results are another message"):
                    message_id = f"m{next(self._numbers)}"
        chunks = list(self._message(message_id, self._say("Thanks.")))
        if not begins_step:
            chunks = [each for each in chunks if each["type"] not in ("start-step", "finish-step")]
        return iter([chunks[0], *outputs, *chunks[1:]])

    def _end_approval(self, call: Wire) -> list[Wire]:
        output: Wire = {"type": "tool-output-available", "toolCallId": call["toolCallId"], "output": "sent"}
        if call["approval"]["approved"]:
            return [] if self.does("approved calls have no output") else [output]
        denied: Wire = {"type": "tool-output-denied", "toolCallId": call["toolCallId"]}
        return [output] if self.does("refused calls have an output") else [denied]

    def _fail(self, message_id: str) -> Iterator[Wire]:
        yield {"type": "start", "messageId": message_id}
        if not self.does("failures are empty answers"):
            error: Wire = {"type": "error", "errorText": "It failed."}
            self.drop_if("errors have no text", error, "errorText")
            yield error

    # Streams

    def _headers(self) -> dict[str, str]:
        return {} if self.does("streams have no version") else {"x-vercel-ai-ui-message-stream": "v1"}

    def _stream(self, chunks: Iterator[Wire]) -> Answer:
        ready = list(chunks)

        async def frames() -> AsyncGenerator[bytes]:
            for chunk in ready:
                yield sse(chunk)
            if self.does("streams are cut in an event"):
                yield b"data: [DONE]\n\ndata: {"
            elif not self.does("no [DONE]"):
                yield b"data: [DONE]\n\n"

        return Answer(headers=self._headers(), stream=frames())

    async def _work(self, chat_id: str, message_id: str) -> AsyncGenerator[bytes]:
        self._active[chat_id] = message_id
        try:
            yield sse({"type": "start", "messageId": message_id})
            await asyncio.Event().wait()
        finally:
            del self._active[chat_id]


SERVER: Final = Server(
    set="vercel-ui-v1",
    make=Chats,
    violations=VIOLATIONS,
    path="/api/chat",
    options=options(
        plain="Hello",
        tools="tool",
        calls="call",
        approval="approve",
        fail="fail",
        long="long",
    ),
)
