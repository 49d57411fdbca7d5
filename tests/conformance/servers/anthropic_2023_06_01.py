"""Scripted server of Anthropic's Messages API."""

from collections.abc import AsyncGenerator, Sequence
from itertools import count
from typing import Any, Final

from babelgate.conformance.wire.exchange import as_list
from tests.conformance.servers.kit import TRACE, Answer, Request, ScriptedServer, Server, Violation, options, sse

Wire = dict[str, Any]

VIOLATIONS: Final = (
    Violation("answers are text", "message.answer", ("*",)),
    Violation("answers have no text", "message.text", ("stream.text",)),
    Violation("answers end for their length", "message.stop", ("stream.reason",)),
    Violation("all messages have one id", "message.own-id"),
    Violation("a system prompt is one string", "message.system"),
    Violation("only one turn is accepted", "message.history", ("call.result",)),
    Violation("content is a string", "message.blocks", ("call.result",)),
    Violation("ASCII only", "message.unicode"),
    Violation("calls end the turn", "call.reason"),
    Violation("tools are ignored", "call.reason", ("call.result",), is_hidden=True),
    Violation("results are refused", "call.result"),
    Violation("streams are messages", "stream.answer", ("stream.*", "~form.event")),
    Violation("frames have no name", "stream.named"),
    Violation("streams just end", "stream.order"),
    Violation("streams have no reason", "stream.reason"),
    Violation("blocks begin at 1", "stream.blocks"),
    Violation("blocks have no end", "stream.blocks"),
    Violation("text is in the start", "stream.text"),
    Violation("there are default messages", "error.messages"),
    Violation("broken JSON is a 500", "error.json"),
    Violation("unknown models answer", "error.model"),
    Violation("failures are empty messages", "error.failure"),
    Violation("errors show a stack trace", "safe.errors"),
    Violation("messages have no usage", "form.message"),
    Violation("indices are texts", "form.event", ("stream.blocks",)),
    Violation("errors have no message", "form.error"),
)
_MODEL: Final = "claude-x"


class Refused(Exception):
    def __init__(self, status: int, kind: str, words: str) -> None:
        super().__init__(words)
        self.status, self.kind, self.words = status, kind, words


def refused(words: str) -> Refused:
    return Refused(400, "invalid_request_error", words)


class Messages(ScriptedServer):
    """Server whose model does what the last message says."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self._numbers = count(1)

    async def handle(self, request: Request) -> Answer:
        if request.method == "GET":
            return Answer(200, {"data": [{"type": "model", "id": _MODEL}], "has_more": False})
        try:
            return self._post(request)
        except Refused as error:
            members: Wire = {"type": error.kind, "message": error.words}
            self.drop_if("errors have no message", members, "message")
            return Answer(error.status, {"type": "error", "error": members})

    def _post(self, request: Request) -> Answer:
        try:
            body: Wire = request.json
        except ValueError:
            if self.does("broken JSON is a 500"):
                raise Refused(500, "api_error", "broken") from None
            raise refused(TRACE if self.does("errors show a stack trace") else "not JSON") from None
        if "messages" not in body and "model" in body and self.does("there are default messages"):
            body["messages"] = [{"role": "user", "content": "Hello"}]
        self._check(body)
        message = self._message(body)
        if self.does("answers are text"):
            return Answer(200, "Hello")
        if body.get("stream") and not self.does("streams are messages"):
            return self._stream(message)
        return Answer(200, message)

    def _check(self, body: Wire) -> None:
        if not as_list(body.get("messages")):
            raise refused("messages are needed")
        if body.get("model") != _MODEL and not self.does("unknown models answer"):
            raise Refused(404, "not_found_error", "no such model")
        is_list = isinstance(body.get("system"), list)
        self.raise_if("a system prompt is one string", refused("system"), when=is_list)
        self.raise_if("only one turn is accepted", refused("one turn"), when=len(body["messages"]) > 1)
        for message in body["messages"]:
            blocks = as_list(message["content"])
            has_results = any(block["type"] == "tool_result" for block in blocks)
            self.raise_if("content is a string", refused("content"), when=blocks)
            self.raise_if("results are refused", refused("results"), when=has_results)

    def _message(self, body: Wire) -> Wire:
        text = _text_in(body["messages"][-1]["content"])
        content: list[Wire] = [{"type": "text", "text": f"You said: {self.ascii_if('ASCII only', text)}"}]
        reason = "max_tokens" if self.does("answers end for their length") else "end_turn"
        if text.startswith("fail"):
            if not self.does("failures are empty messages"):
                raise Refused(500, "api_error", "it failed")
            content = []
        elif text.startswith("call") and body.get("tools") and not self.does("tools are ignored"):
            content = [
                {"type": "tool_use", "id": "toolu_1", "name": body["tools"][0]["name"], "input": {"city": "Rome"}}
            ]
            reason = "end_turn" if self.does("calls end the turn") else "tool_use"
        elif self.does("answers have no text"):
            content = []
        message: Wire = {
            "id": "msg_0" if self.does("all messages have one id") else f"msg_{next(self._numbers)}",
            "type": "message",
            "role": "assistant",
            "model": _MODEL,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 2},
        }
        self.drop_if("messages have no usage", message, "usage")
        return message

    def _stream(self, message: Wire) -> Answer:
        events = list(self._events(message))

        async def frames() -> AsyncGenerator[bytes]:
            for event in events:
                yield sse(event, event="" if self.does("frames have no name") else event["type"])

        return Answer(stream=frames())

    def _events(self, message: Wire) -> Sequence[Wire]:
        events: list[Wire] = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}]
        for number, block in enumerate(message["content"]):
            index: Any = number + 1 if self.does("blocks begin at 1") else number
            index = str(index) if self.does("indices are texts") else index
            delta = {"type": "text_delta", "text": block["text"]}
            is_whole = self.does("text is in the start")
            start = block if is_whole else {**block, "text": ""}
            events += [{"type": "content_block_start", "index": index, "content_block": start}, {"type": "ping"}]
            events += [] if is_whole else [{"type": "content_block_delta", "index": index, "delta": delta}]
            events += [] if self.does("blocks have no end") else [{"type": "content_block_stop", "index": index}]
        reason = None if self.does("streams have no reason") else message["stop_reason"]
        usage = {"output_tokens": 2}
        events.append(
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
        )
        return events if self.does("streams just end") else [*events, {"type": "message_stop"}]


def _text_in(content: str | list[Wire]) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


SERVER: Final = Server(
    set="anthropic-2023-06-01",
    make=Messages,
    violations=VIOLATIONS,
    path="/v1",
    options=options(plain="Hello", calls="call", fail="fail"),
)
