"""What the gateway is measured against: Litestar answering a POST with the body it got (`app`), and ASGI without any
framework answering one with a stream of server-sent events that were made beforehand (`raw`), and nothing else."""

import json
from typing import Any, Final

from litestar import Litestar, Request, Response, post
from litestar.types import Receive, Scope, Send

TOKENS: Final = 200


@post("/", status_code=200)
async def echo(request: Request[Any, Any, Any]) -> Response[bytes]:
    return Response(await request.body(), media_type="application/json")


app = Litestar([echo], openapi_config=None, logging_config=None)


def _event(text: str) -> bytes:
    """As large as one of A2A 1.0."""
    artifact = {"artifactId": "0198f5c2-0000-7000-8000-000000000000", "parts": [{"text": text}]}
    ids = {"taskId": "0198f5c2-0000-7000-8000-000000000001", "contextId": "0198f5c2-0000-7000-8000-000000000002"}
    told = {"jsonrpc": "2.0", "id": 1, "result": {"artifactUpdate": {**ids, "artifact": artifact, "append": True}}}
    return b"data: " + json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


_EVENTS: Final = [_event(f" token{number:03}") for number in range(TOKENS)]
_HEADERS: Final = [(b"content-type", b"text/event-stream")]


async def raw(scope: Scope, receive: Receive, send: Send) -> None:
    """POST /: a stream of 200 tokens, each an event and a call of `send`. POST /think: one event, and no end."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    thinks = scope["path"] == "/think"
    for event in (_event("Well…"),) if thinks else _EVENTS:
        await send({"type": "http.response.body", "body": event, "more_body": True})
    if thinks:
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    await send({"type": "http.response.body", "body": b"", "more_body": False})
