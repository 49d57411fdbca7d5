"""Tests of the end of streams when the caller's credential expires."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from babelgate.gateway.http.expiry import CredentialTimer
from tests.gateway.conversing import PATHS, connected
from tests.gateway.http.issuing import Issuing
from tests.running import Running, running

ISSUER = Issuing()
ISSUERS: Any = {"corp": ISSUER.inline(leeway=0)}


def expiring() -> dict[str, str]:
    """Return the headers of a caller whose token expires in one to two seconds."""
    return {"Authorization": f"Bearer {ISSUER.token(exp=int(time.time()) + 2)}"}


def lasting() -> dict[str, str]:
    """Return the headers of the same caller with a new token."""
    return {"Authorization": f"Bearer {ISSUER.token()}"}


async def test_a_timer_uses_the_wall_clock() -> None:
    ended, now = asyncio.Event(), [1000.0]
    CredentialTimer(1000.01, ended.set, clock=lambda: now[0])
    CredentialTimer(999.0, ended.set, clock=lambda: now[0])
    await asyncio.wait_for(ended.wait(), 30)


async def test_a_stopped_timer_ends_nothing() -> None:
    ended: list[bool] = []
    expiry = CredentialTimer(0.0, lambda: ended.append(True))
    expiry.stop()
    expiry.stop()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ended == []


async def test_a_credential_that_lasts_for_centuries_has_a_timer() -> None:
    CredentialTimer(1e11, lambda: None).stop()


async def _stream(gateway: Running, headers: dict[str, str], run: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
    """Yield the events of a new ACP run until the connection is lost."""
    async with gateway.http.stream("POST", "/acp/runs", json=run, headers=headers) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])


async def test_a_stream_ends_with_its_token(tmp_path: Path) -> None:
    released = asyncio.Event()

    async def patient(text: str) -> AsyncGenerator[str]:
        yield "first "
        await released.wait()
        yield "last"

    run = {"agent_name": "patient", "input": [{"parts": [{"content": "Hi"}]}], "mode": "stream"}
    async with running(tmp_path, {"patient": patient}, issuers=ISSUERS) as gateway:
        events: list[dict[str, Any]] = []
        with pytest.raises(httpx.RemoteProtocolError):
            async for event in _stream(gateway, expiring(), run):
                events.append(event)
        assert "first " in json.dumps(events)
        run_id = next(event["run"]["run_id"] for event in events if "run" in event)
        assert (await gateway.http.get(f"/acp/runs/{run_id}", headers=lasting())).json()["status"] == "in-progress"
        released.set()
        headers = {**lasting(), "Accept": "text/event-stream"}
        rest = await gateway.http.get(f"/acp/runs/{run_id}/events", headers=headers)
        assert "last" in rest.text


MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
OLD_MESSAGE = {"messageId": "m", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "Hi"}]}
REST_0_3 = {**MESSAGE, "content": MESSAGE["parts"]}
MESSAGES = {"messages": [{"role": "user", "content": "Hi"}]}
STREAMS: dict[str, tuple[str, Any]] = {
    "A2A 1.0 JSON-RPC": ("/a2a/patient", {"method": "SendStreamingMessage", "params": {"message": MESSAGE}}),
    "A2A 1.0 REST": ("/a2a/patient/message:stream", {"message": MESSAGE}),
    "A2A 0.3 JSON-RPC": ("/a2a/patient", {"method": "message/stream", "params": {"message": OLD_MESSAGE}}),
    "A2A 0.3 REST": ("/a2a/patient/v1/message:stream", {"message": REST_0_3}),
    "ACP": ("/acp/runs", {"agent_name": "patient", "input": [{"parts": [{"content": "Hi"}]}], "mode": "stream"}),
    "LangGraph": ("/runs/stream", {"assistant_id": "patient", "input": MESSAGES}),
    "Agent Protocol": ("/agent-protocol/runs/stream", {"agent_id": "patient", "input": MESSAGES}),
    "minimal runtime": ("/v1/runs/stream", {"assistant_id": "patient", "input": {"message": "Hi"}}),
    "Chat Completions": ("/v1/chat/completions", {"model": "patient", **MESSAGES, "stream": True}),
    "Responses": ("/v1/responses", {"model": "patient", "input": "Hi", "stream": True}),
    "MCP": ("/mcp", {"method": "tools/call", "params": {"name": "patient", "arguments": {"message": "Hi"}}}),
}
"""Calls that open a stream, as path and body."""


async def test_streams_of_every_protocol_end_with_their_token(tmp_path: Path) -> None:
    async def patient(text: str) -> AsyncGenerator[str]:
        yield "first "
        await asyncio.Event().wait()

    async with running(tmp_path, {"patient": patient}, issuers=ISSUERS) as gateway:
        headers = {**expiring(), "Accept": "application/json, text/event-stream"}

        async def follow(name: str) -> None:
            path, body = STREAMS[name]
            if "method" in body:
                body = {"jsonrpc": "2.0", "id": 1, **body}
            version = {"A2A-Version": "1.0"} if name.startswith("A2A 1.0") else {}
            async with gateway.http.stream("POST", path, json=body, headers={**headers, **version}) as response:
                assert response.status_code == 200, (name, await response.aread())
                assert response.headers["content-type"].startswith("text/event-stream"), name
                with pytest.raises(httpx.RemoteProtocolError):
                    await response.aread()

        await asyncio.wait_for(asyncio.gather(*map(follow, STREAMS)), 30)
        assert (await gateway.http.get("/acp/agents", headers=headers)).status_code == 401


async def test_a_response_that_is_no_stream_outlives_its_token(tmp_path: Path) -> None:
    headers = expiring()

    async def slow(text: str) -> str:
        await asyncio.sleep(2.1)
        return "done"

    async with running(tmp_path, {"slow": slow}, issuers=ISSUERS) as gateway:
        run = {"agent_name": "slow", "input": [{"parts": [{"content": "Hi"}]}], "mode": "sync"}
        response = await gateway.http.post("/acp/runs", json=run, headers=headers)
        assert response.json()["status"] == "completed"
        assert (await gateway.http.get("/acp/agents", headers=headers)).status_code == 401


@pytest.mark.parametrize("path", [PATHS[0], "/v1/responses"])
async def test_a_websocket_is_closed_when_its_token_expires(tmp_path: Path, path: str) -> None:
    async with running(tmp_path, issuers=ISSUERS) as gateway:
        path = path.format(thread_id=uuid4())
        async with connected(gateway.url, path, additional_headers=expiring()) as connection:
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(connection.recv(), 30)
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1001, "The credential has expired.")
