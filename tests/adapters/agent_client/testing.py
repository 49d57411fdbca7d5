"""Test data of this protocol for the tests of all routes."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final
from uuid import uuid4

import httpx

from tests.adapters.agent_client.editor import Editor, editing
from tests.gateway.knowledge import Knowledge
from tests.pairs.agent_client import SENT, AgentClient

_STATUSES: Final = {400, 401, 403, 404, 405, 409, 413, 422, 429, 501, 503}


def _check_error(response: httpx.Response) -> None:
    assert response.status_code in _STATUSES, response.status_code
    body: Any = response.json()
    assert set(body) == {"jsonrpc", "id", "error"} and body["id"] is None
    assert isinstance(body["error"]["code"], int) and body["error"]["message"] and body["error"]["data"]["code"]


async def _prompt(http: httpx.AsyncClient, *content: Any) -> tuple[Editor, str]:
    headers = {name: value for name, value in http.headers.items() if name.lower() in SENT}
    async with editing(str(http.base_url).rstrip("/"), "echo", additional_headers=headers) as editor:
        await editor.initialize()
        session_id = await editor.new_session()
        await editor.prompt(session_id, *content)
        return editor, session_id


async def _make(http: httpx.AsyncClient) -> Mapping[str, str]:
    content = f"a file of alice {uuid4()}"
    _, session_id = await _prompt(http, {"type": "resource", "resource": {"uri": "file:///a.txt", "text": content}})
    return {"agent": "echo", "session_id": session_id, "blob": sha256(content.encode()).hexdigest()}


def _look(slots: Mapping[str, str]) -> Sequence[str]:
    path = f"/agent-client/{slots['agent']}"
    return [f"{path}/sessions/{slots['session_id']}", f"{path}/files/{slots['blob']}"]


async def _echo(http: httpx.AsyncClient, words: str) -> str:
    editor, _ = await _prompt(http, words)
    return editor.text


KNOWLEDGE: Final = Knowledge(
    check_error=_check_error,
    valid={},
    make=_make,
    look=_look,
    echo=_echo,
    callers=(AgentClient,),
    path="/agent-client/{agent}",
)
