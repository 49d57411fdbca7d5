"""A receiver of push notifications on loopback."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.serving import serving

BOUND = 30


@dataclass(frozen=True, slots=True)
class Received:
    headers: Mapping[str, str]
    body: Any


class Receiver:
    """An ASGI app that accepts every post."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[Received] = asyncio.Queue()
        self.url = ""
        self.status = 200

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        await self.received.put(Received(headers, json.loads(body)))
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def until(self, state: str) -> list[Received]:
        """Return the posts up to the first whose body contains `state`."""
        posts: list[Received] = []
        async with asyncio.timeout(BOUND):
            while not posts or state not in json.dumps(posts[-1].body):
                posts.append(await self.received.get())
        return posts


@asynccontextmanager
async def receiving() -> AsyncGenerator[Receiver]:
    receiver = Receiver()
    async with serving(receiver) as url:
        receiver.url = f"{url}/hook"
        yield receiver
