"""Cancels with the extension: a caller receives the request for a cancel before the end."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.adapters.kit.extension import HEADER, URI
from babelgate.canonical import AgentInfo, Event, Invocation, TextPart
from babelgate.canonical.event import MessageStarted, PartAdded
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.running import running

SECONDS: Final = 30
CANCELLING: Final = b'"kind":"task_changed","state":"cancelling"'


class Waiting:
    """An agent that emits one text, and then waits forever."""

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        yield MessageStarted(message_id="m")
        yield PartAdded(message_id="m", part=TextPart(text="first"))
        await asyncio.Event().wait()


@dataclass(frozen=True)
class Call:
    path: str
    body: Mapping[str, Any]
    header: str = HEADER


def _a2a(method: str, role: str, part: Mapping[str, str], header: str) -> Call:
    message = {"kind": "message", "messageId": "1", "role": role, "parts": [part]}
    if header == "A2A-Extensions":
        del message["kind"]
    return Call("/a2a/wait", {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}, header)


def _graph(path: str, named: str) -> Call:
    input_ = {"messages": [{"role": "user", "content": "go"}]}
    return Call(f"{path}/runs/stream", {named: "wait", "input": input_, "stream_mode": ["messages"]})


CALLS: Final = {
    "a2a-0.3": _a2a("message/stream", "user", {"kind": "text", "text": "go"}, "X-A2A-Extensions"),
    "a2a-1.0": _a2a("SendStreamingMessage", "ROLE_USER", {"text": "go"}, "A2A-Extensions"),
    "acp": Call(
        "/acp/runs",
        {"agent_name": "wait", "input": [{"role": "user", "parts": [{"content": "go"}]}], "mode": "stream"},
    ),
    "langgraph": _graph("", "assistant_id"),
    "agent-protocol": _graph("/agent-protocol", "agent_id"),
}


@pytest.mark.parametrize("protocol", CALLS)
async def test_a_cancel_request_is_reported_before_the_end(protocol: str, tmp_path: Path) -> None:
    call = CALLS[protocol]
    headers = {call.header: URI, "A2A-Version": "1.0" if protocol == "a2a-1.0" else "0.3"}
    registered = {"wait": RegisteredAgent(AgentInfo(name="wait", input_types=("*/*",)), Waiting())}
    body = bytearray()
    async with (
        asyncio.timeout(SECONDS),
        running(tmp_path, registered=registered) as front,
        front.http.stream("POST", call.path, json=call.body, headers=headers) as response,
    ):
        assert response.headers[call.header] == URI
        async for piece in response.aiter_bytes():
            had, body = b"first" in body, body + piece
            if b"first" in body and not had:
                await front.hub.cancel("default", response.headers["Babelgate-Task"])
    after = bytes(body).partition(b"first")[2]
    assert after.count(CANCELLING) == 1
    assert after.index(CANCELLING) < after.index(b'"kind":"run_ended"')
