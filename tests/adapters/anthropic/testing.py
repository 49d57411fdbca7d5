"""Test data of this protocol for the tests of all routes."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final
from uuid import UUID, uuid4

import httpx

from babelgate.canonical.value import JsonObject
from tests.gateway.knowledge import Knowledge
from tests.pairs.anthropic import Anthropic

_TYPES: Final = {
    400: {"invalid_request_error"},
    401: {"authentication_error"},
    403: {"permission_error"},
    404: {"not_found_error"},
    405: {"invalid_request_error"},
    409: {"conflict_error"},
    410: {"not_found_error"},
    413: {"request_too_large"},
    429: {"rate_limit_error"},
    500: {"api_error"},
    502: {"api_error"},
    503: {"overloaded_error"},
    504: {"timeout_error"},
}
"""Types of errors by status (docs/en/api/errors)."""


def body_of(text: str, **more: object) -> JsonObject:
    """Return a request with one message of the user."""
    return {"model": "echo", "max_tokens": 1024, "messages": [{"role": "user", "content": text}], **more}


def text_in(message: JsonObject) -> str:
    """Return the text of a message."""
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def _check_error(response: httpx.Response) -> None:
    body = response.json()
    assert body["type"] == "error" and "request_id" in body
    assert body["error"]["type"] in _TYPES[response.status_code], body
    assert body["error"]["message"]


async def _make(http: httpx.AsyncClient) -> Mapping[str, str]:
    content = f"a file of alice {uuid4()}"
    source = {"type": "text", "media_type": "text/plain", "data": content}
    blocks = [{"type": "text", "text": "hello"}, {"type": "document", "source": source, "title": "a.txt"}]
    body = {**body_of(""), "messages": [{"role": "user", "content": blocks}]}
    response = await http.post("/v1/messages", json=body, headers={"Babelgate-Thread": str(uuid4())})
    assert text_in(response.json()) == "hello", response.text
    run_id = response.headers["babelgate-run"]
    return {
        "model": "echo",
        "message_id": f"msg_{UUID(run_id).hex}",
        "blob": sha256(content.encode()).hexdigest(),
    }


def _look(slots: Mapping[str, str]) -> Sequence[str]:
    return [f"/v1/messages/{slots['message_id']}", f"/v1/messages/files/{slots['blob']}"]


async def _echo(http: httpx.AsyncClient, words: str) -> str:
    return text_in((await http.post("/v1/messages", json=body_of(words))).json())


_CREATE: Final = body_of(
    "hello",
    system="Be brief.",
    stream=False,
    metadata={"user_id": "a"},
    tools=[{"name": "weather", "description": "Of a city.", "input_schema": {"type": "object"}}],
    tool_choice={"type": "auto"},
)

KNOWLEDGE: Final = Knowledge(
    check_error=_check_error,
    valid={f"POST {base}/v1/messages{path}": _CREATE for base in ("", "/anthropic") for path in ("", "/count_tokens")},
    make=_make,
    look=_look,
    echo=_echo,
    callers=(Anthropic,),
    path="/anthropic",
)
"""Test data of this protocol."""
