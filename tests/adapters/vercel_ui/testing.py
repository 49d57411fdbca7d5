"""Test data of this protocol for the tests of all routes."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final
from uuid import uuid4

import httpx

from babelgate.canonical.value import JsonObject
from tests.gateway.knowledge import Knowledge
from tests.pairs.vercel_ui import VercelUi

_STATUSES: Final = {400, 401, 403, 404, 405, 409, 413, 422, 429, 501, 503}


def user(text: str, message_id: str = "u1", **more: Any) -> JsonObject:
    """Return a message of the user."""
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}], **more}


def chunks_of(body: str) -> list[JsonObject]:
    """Return the chunks of a stream."""
    lines = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def text_of(chunks: Sequence[JsonObject]) -> str:
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")


def _check_error(response: httpx.Response) -> None:
    assert response.status_code in _STATUSES, response.status_code
    assert response.headers["content-type"].startswith("text/plain")
    assert response.text.strip()


async def _make(http: httpx.AsyncClient) -> Mapping[str, str]:
    chat_id, content = str(uuid4()), f"a file of alice {uuid4()}"
    file = {"type": "file", "mediaType": "text/plain", "filename": "a.txt", "url": f"data:text/plain,{content}"}
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "a chat of alice"}, file]}
    response = await http.post("/vercel-ui/echo", json={"id": chat_id, "messages": [message]})
    assert text_of(chunks_of(response.text)) == "a chat of alice"
    return {
        "agent": "echo",
        "chat_id": chat_id,
        "any_chat": response.headers["babelgate-run"],
        "blob": sha256(content.encode()).hexdigest(),
    }


def _look(slots: Mapping[str, str]) -> Sequence[str]:
    chat = f"/vercel-ui/{slots['agent']}/{slots['chat_id']}"
    return [chat, f"{chat}/files/{slots['blob']}"]


async def _echo(http: httpx.AsyncClient, words: str) -> str:
    response = await http.post("/vercel-ui/echo", json={"messages": [user(words)]})
    return text_of(chunks_of(response.text))


_BODY: Final[JsonObject] = {
    "id": "routes",
    "messages": [user("hello", metadata={"a": 1})],
    "trigger": "submit-message",
    "metadata": {"a": 1},
    "tools": {"weather": {"description": "Of a city.", "parameters": {"type": "object"}}},
}

KNOWLEDGE: Final = Knowledge(
    check_error=_check_error,
    valid={f"POST {path}": _BODY for path in ("/vercel-ui", "/vercel-ui/{agent}")},
    make=_make,
    look=_look,
    echo=_echo,
    callers=(VercelUi,),
    path="/vercel-ui/{agent}",
)
