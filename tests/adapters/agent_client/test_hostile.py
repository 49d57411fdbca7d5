"""Malformed messages over the WebSocket of the Agent Client Protocol: each one is answered."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final, cast

import pytest
import pytest_asyncio

from tests.adapters.agent_client.editor import Editor, Wire, editing
from tests.gateway.hostile import BODIES, mutations
from tests.gateway.siege import besieged
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

CODES: Final = (-32700, -32600, -32601, -32602, -32603, -32002)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("hostile")) as found:
        yield found


@pytest.mark.parametrize("kind", ["text", "bytes"])
async def test_malformed_message_is_answered_and_the_connection_continues(gateway: Running, kind: str) -> None:
    async with editing(gateway.url, "echo") as editor:
        for name, body in BODIES.items():
            if kind == "bytes" or name not in ("invalid UTF-8", "UTF-16"):
                await editor.connection.send(body if kind == "bytes" else body.decode())
                await editor.start("session/list")
                while (message := await editor.receive()).get("id") is None:
                    assert message["error"]["code"] in CODES, name
                assert "sessions" in message["result"], name


async def _ends(editor: Editor, request_id: Any) -> Wire:
    """Return the answer to a request, or the error without an id that replaces it."""
    while True:
        message = await editor.receive()
        if "method" not in message and message.get("id") in (request_id, None):
            return message


@pytest.mark.slow
async def test_wrong_types_in_every_member_are_answered(tmp_path: Path) -> None:
    async with besieged(tmp_path) as gateway, editing(gateway.url, "echo") as editor:
        session_id = await editor.new_session()
        resource = {"uri": "file:///a.txt", "text": "hi", "mimeType": "text/plain"}
        blocks: list[Wire] = [
            {
                "type": "text",
                "text": "hi",
                "annotations": {"audience": ["user"]},
                "_meta": {"babelgate": {"kind": "data"}},
            },
            {"type": "resource", "resource": resource},
            {"type": "image", "data": "AAEC", "mimeType": "image/png", "uri": "file:///a.png"},
            {"type": "resource_link", "uri": "file:///b", "name": "b", "size": 1},
        ]
        capabilities: Wire = {"fs": {"readTextFile": True}, "elicitation": {"form": {}, "url": {}}}
        calls: dict[str, Wire] = {
            "initialize": {"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": {"name": "x"}},
            "session/new": {"cwd": "/", "mcpServers": [{"name": "x"}], "additionalDirectories": ["/a"]},
            "session/prompt": {"sessionId": session_id, "prompt": blocks, "_meta": {"babelgate": {"prompt": "p"}}},
            "session/load": {"sessionId": session_id, "cwd": "/", "mcpServers": []},
            "session/list": {"cwd": "/", "cursor": "0"},
            "_babelgate/attach": {"sessionId": session_id, "prompt": "p", "skip": 1},
            "$/cancel_request": {"requestId": 1},
            "session/cancel": {"sessionId": session_id},
        }
        for number, (method, params) in enumerate(calls.items()):
            for name, message in mutations({"jsonrpc": "2.0", "method": method, "params": params}):
                call: Wire = {**cast("Any", message), "id": f"{number}"}
                await editor.connection.send(json.dumps(call))
                if call.get("method") is None:
                    continue  # a response to a request that the gateway has not sent
                answer = await _ends(editor, f"{number}")
                assert "result" in answer or answer["error"]["code"] in CODES, (method, name, answer)
        assert "sessions" in await editor.call("session/list")
