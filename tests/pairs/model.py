"""Models like the cast, on a server of OpenAI's Responses API: each gives the answers that a model can give."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from babelgate.adapters.kit.server.sse import frame
from tests.adapters.openai.model import Answer, Call, Response
from tests.pairs.cast import Cast
from tests.serving import serving

Wire = dict[str, Any]

CALL: Final[Wire] = {"name": "ask_user", "arguments": {"question": "What is your name?"}, "call_id": "call_name"}
"""Question of a model to its caller: a call of the caller's tool."""


def text_in(item: Wire) -> str:
    """Return the text of a message, or of an answer to a question."""
    content: str | list[Wire] = item["output"] if item.get("type") == "function_call_output" else item["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def answers(items: Sequence[Wire]) -> list[str]:
    """Return the answers to the last questions, if the request continues from there."""
    return [text_in(item) for item in items if item.get("type") == "function_call_output"]


def echo(items: Sequence[Wire]) -> Answer:
    return Answer(text=text_in(items[-1]))


def ask(items: Sequence[Wire]) -> Answer:
    if found := answers(items):
        return Answer(text=f"Hello, {found[0]}.")
    return Answer(calls=(Call(CALL["name"], json.dumps(CALL["arguments"]), CALL["call_id"]),))


def slow(items: Sequence[Wire]) -> Answer:
    return Answer(text="first last")


def fail(items: Sequence[Wire]) -> Answer:
    return Answer(text="Before the fault.")


def history(items: Sequence[Wire]) -> Answer:
    return Answer(text=f"{len(items) - 1} before: {text_in(items[-1])}")


def recall(items: Sequence[Wire]) -> Answer:
    return Answer(text=" ".join(map(text_in, items)))


def progress(items: Sequence[Wire]) -> Answer:
    text: Wire = {"type": "output_text", "text": "Half way.", "annotations": [], "logprobs": []}
    head = {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed", "phase": "commentary"}
    return Answer(text="Done.", items=({**head, "content": [text]},))


def metadata(items: Sequence[Wire]) -> Answer:
    arguments, result = json.dumps({"text": text_in(items[-1])}), json.dumps({"words": 2})
    used = {"type": "mcp_call", "id": "mcp_1", "server_label": "tools", "name": "word_count", "status": "completed"}
    tool = {**used, "arguments": arguments, "output": result, "error": None}
    cited = ((0, 8, "https://example.com/source"),)
    return Answer(thought="Thinking about it.", items=(tool,), text="As cited.", citations=cited)


MODELS: Final[Mapping[str, Callable[[Sequence[Wire]], Answer]]] = {
    "echo": echo,
    "stream": echo,
    "ask": ask,
    "slow": slow,
    "fail": fail,
    "history": history,
    "recall": recall,
    "progress": progress,
    "metadata": metadata,
}


def noted(body: Wire, items: Sequence[Wire]) -> Answer:
    labels: Wire = body.get("metadata") or {}
    return Answer(text=str(labels.get("ticket", "nothing")))


def outside(body: Wire, items: Sequence[Wire]) -> Answer:
    if found := answers(items):
        return Answer(text=f"{[tool['name'] for tool in body.get('tools', ())]}: {found[0]}")
    return Answer(calls=(Call("weather", json.dumps({"city": "Paris"}), "call_weather"),))


REQUEST_MODELS: Final[Mapping[str, Callable[[Wire, Sequence[Wire]], Answer]]] = {"noted": noted, "outside": outside}
"""Models whose answer depends on more of the request than its messages, by name."""
GATED: Final = frozenset({"stream", "slow"})


class _Server:
    def __init__(self, players: Cast) -> None:
        self._players = players
        self._conversations: dict[str, list[Wire]] = {}
        """Conversation up to the end of each response, by response id."""

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        raw, more = b"", True
        while more:
            message = await receive()
            raw += message.get("body", b"")
            more = message.get("more_body", False)
        match scope["method"], scope["path"]:
            case "GET", "/v1/models":
                listed = [
                    {"id": name, "object": "model", "created": 1, "owned_by": "us"}
                    for name in (*MODELS, *REQUEST_MODELS)
                ]
                await _whole(send, 200, {"object": "list", "data": listed})
            case "POST", "/v1/responses":
                await self._respond(json.loads(raw), receive, send)
            case _:
                await _whole(send, 404, {"error": {"message": "Not Found", "type": "invalid_request_error"}})

    async def _respond(self, body: Wire, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        name, previous = body["model"], body.get("previous_response_id")
        items = [*self._conversations.get(previous or "", ()), *body["input"]]
        answer = REQUEST_MODELS[name](body, items) if name in REQUEST_MODELS else MODELS[name](items)
        response = Response(f"resp_{len(self._conversations) + 1}", body, answer, previous)
        self._conversations[response.response_id] = [*items, *response.output()]
        await send(_start(200, "text/event-stream; charset=utf-8"))
        disconnect = asyncio.ensure_future(receive())
        try:
            async for event in self._events(name, response, text_in(items[-1]), disconnect):
                data = frame(json.dumps(event).encode(), event=event["type"])
                await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            disconnect.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(
        self, name: str, response: Response, last: str, disconnect: asyncio.Future[Any]
    ) -> AsyncIterator[Wire]:
        pieces = 0
        for number, event in enumerate(_by_words(response.events())):
            if event["type"] == "response.output_text.delta":
                if pieces and name in GATED and not await self._may_continue(disconnect):
                    return
                pieces += 1
            if name == "fail" and event["type"] == "response.completed":
                error = {"code": "invalid_prompt", "message": last}
                event = {"type": "response.failed", "response": {**response.snapshot("failed"), "error": error}}
            yield {**event, "sequence_number": number}

    async def _may_continue(self, disconnect: asyncio.Future[Any]) -> bool:
        """Wait until the test lets one agent continue. Return False if the client disconnects first."""
        turn = asyncio.ensure_future(self._players.gate.acquire())
        await asyncio.wait((turn, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if turn.done():
            return True
        turn.cancel()
        self._players.closed.set()
        return False


def _by_words(events: Sequence[Wire]) -> Iterator[Wire]:
    """Yield the same events, with one delta for each word and the blank before it."""
    finished: set[tuple[Any, int]] = set()
    for event in events:
        if event["type"] != "response.output_text.delta":
            yield event
            continue
        item = event["item_id"], event["content_index"]
        if item not in finished:
            finished.add(item)
            wholes = (one for one in events if one["type"] == "response.output_text.done")
            whole = next(one["text"] for one in wholes if one["item_id"] == event["item_id"])
            for word in re.findall(r"\s*\S+", whole):
                yield {**event, "delta": word}


def _start(status: int, kind: str) -> Wire:
    return {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind.encode())]}


async def _whole(send: Callable[[Any], Any], status: int, value: Wire) -> None:
    await send(_start(status, "application/json"))
    await send({"type": "http.response.body", "body": json.dumps(value).encode(), "more_body": False})


@asynccontextmanager
async def serve_models(players: Cast) -> AsyncGenerator[str]:
    async with serving(_Server(players)) as url:
        yield url
