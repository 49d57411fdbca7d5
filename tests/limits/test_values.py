"""The limit `limits.values` in every protocol."""

import json
from pathlib import Path

from websockets.asyncio.client import connect

from babelgate.canonical.value import JsonObject
from tests.running import running


async def test_every_protocol_refuses_too_many_values(tmp_path: Path) -> None:
    most = 50
    many = {"a": [0] * most}
    async with running(tmp_path, limits={"values": most}) as gateway:
        task_id = (await gateway.http.post("/ap/v1/agent/tasks", json={})).json()["task_id"]
        parts = [{"data": many}]
        bodies: dict[str, JsonObject] = {
            "/acp/runs": {"agent_name": "echo", "input": [{"role": "user", "parts": []}], "x": many},
            "/a2a/echo": {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": many},
            "/a2a/echo/message:send": {"message": {"messageId": "1", "role": "ROLE_USER", "parts": parts}},
            f"/ap/v1/agent/tasks/{task_id}/steps": {"additional_input": many},
            "/runs/wait": {"assistant_id": "echo", "input": many},
            "/agent-protocol/runs/wait": {"agent_id": "echo", "input": many},
            "/store/items/search": {"filter": many},
        }
        for path, body in bodies.items():
            answer = await gateway.http.post(path, json=body, headers={"A2A-Version": "1.0"})
            assert answer.status_code == 413, (path, answer.text)
            assert "The body holds more than 50 JSON values." in answer.text, path


async def test_a_websocket_stays_open_after_too_many_values(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, limits={"values": 50}) as gateway:
        thread_id = (await gateway.http.post("/threads", json={})).json()["thread_id"]
        address = gateway.url.replace("http", "ws", 1)
        async with connect(f"{address}/threads/{thread_id}/stream", proxy=None) as socket:
            await socket.send(json.dumps({"id": 1, "method": "subscription.subscribe", "params": {"a": [0] * 50}}))
            assert json.loads(await socket.recv())["type"] == "error"
            await socket.send(json.dumps({"id": 2, "method": "subscription.subscribe", "params": {"channels": []}}))
            assert json.loads(await socket.recv())["id"] == 2
