"""A server of OpenAI's API behind a gateway that sends answers which the test wrote down, frame by frame. Tests compare
what the server receives and what callers receive with that."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal, cast

import httpx

from babelgate.adapters.kit.server.sse import frame
from babelgate.adapters.openai.client import Client
from babelgate.canonical import AgentInfo
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.bridge import client as bridge
from tests.bridge import read_body
from tests.opened import opened

Said = dict[str, Any]


def unknown(level: str) -> Said:
    """Return a member that the API does not define, for an object of the kind `level`."""
    return {f"x_{level}": {"k": [1, "ü", None]}}


class Scripted:
    """Server of written answers. `says`: a whole answer, or the values of a stream. `status` and `headers`: those of a
    refusal."""

    def __init__(self, says: Said | Sequence[Said]) -> None:
        self.says = says
        self.status = 200
        self.headers: Mapping[str, str] = {}
        self.requests: list[Said] = []

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        raw = await read_body(receive)
        if scope["method"] == "GET":
            await _send(send, 404, "application/json", b"{}", {})
            return
        self.requests.append(json.loads(raw))
        if isinstance(self.says, dict):
            await _send(send, self.status, "application/json", json.dumps(self.says).encode(), self.headers)
            return
        frames = [frame(json.dumps(each).encode(), event=each.get("type")) for each in self.says]
        await _send(send, 200, "text/event-stream", b"".join([*frames, frame(b"[DONE]")]), {})


async def _send(send: Callable[[Any], Any], status: int, kind: str, body: bytes, more: Mapping[str, str]) -> None:
    headers = [(name.encode(), value.encode()) for name, value in {"content-type": kind, **more}.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


@asynccontextmanager
async def through(folder: Path, far: Scripted, api: Literal["chat", "responses"]) -> AsyncGenerator[httpx.AsyncClient]:
    """Serve a gateway in front of the server, and yield a client of the gateway."""
    async with bridge(cast("Any", far)) as http:
        agent = Client("http://far", "far", api=api, http=http)
        info = AgentInfo(name="far", metadata={"openai": {"model": "far"}})
        async with (
            opened(folder, registered={"far": RegisteredAgent(info, agent)}) as gateway,
            bridge(gateway.app, "http://127.0.0.1:8000") as caller,
        ):
            yield caller


def frames_of(answer: httpx.Response) -> list[Said]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]


HELLO: Final[Said] = {"role": "user", "content": "Hi"}
