"""Servers that the gateway is compared with.

`app` is Litestar answering a POST with the body of the request. `raw` is ASGI without a framework answering a POST with
a stream of server-sent events that were prepared beforehand.
"""

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
    """Return a server-sent event with the text, as large as an event of an A2A 1.0 stream."""
    artifact = {"artifactId": "0198f5c2-0000-7000-8000-000000000000", "parts": [{"text": text}]}
    ids = {"taskId": "0198f5c2-0000-7000-8000-000000000001", "contextId": "0198f5c2-0000-7000-8000-000000000002"}
    response = {"jsonrpc": "2.0", "id": 1, "result": {"artifactUpdate": {**ids, "artifact": artifact, "append": True}}}
    return b"data: " + json.dumps(response, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


_EVENTS: Final = [_event(f" token{number:03}") for number in range(TOKENS)]
_HEADERS: Final = [(b"content-type", b"text/event-stream")]


async def raw(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer POST / with a stream of 200 tokens, each an event and a call of `send`. Answer POST /think with one event,
    and leave the stream open."""
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
