"""Jobs for a server. One job is one piece of work for a user, even if it takes several requests."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from uuid import uuid4
from weakref import WeakKeyDictionary

from bench.client import KeepAliveConnection

Job = Callable[[KeepAliveConnection, int], Awaitable[None]]
"""Function that does one job on a connection. Its second argument is the number of the job, counted from 0, for ids
that must differ."""

TOKENS: Final = " ".join(f"token{number:03}" for number in range(200))
A2A: Final = "A2A-Version: 1.0\r\n"


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _expect(answer: bytes, wanted: bytes, name: str) -> None:
    if wanted not in answer:
        raise SystemExit(f"{name}: {answer[:2000].decode()}")


def posted(path: str, body: Callable[[int], Any], wanted: bytes, headers: str = "") -> Job:
    """Return a job of one POST whose response must contain `wanted`. A stream is read to its end."""

    async def job(connection: KeepAliveConnection, number: int) -> None:
        _expect(await connection.post(path, encode(body(number)), headers), wanted, path)

    return job


def a2a_message(method: str, text: str = "Hello") -> Callable[[int], Any]:
    first = method[0].isupper()  # 1.0
    role, part = ("ROLE_USER", {"text": text}) if first else ("user", {"kind": "text", "text": text})

    def body(number: int) -> Any:
        message = {"messageId": f"{number}", "role": role, "parts": [part]} | ({} if first else {"kind": "message"})
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": {"message": message}}

    return body


def a2a_1_0(path: str = "/a2a/echo") -> Job:
    return posted(path, a2a_message("SendMessage"), b"TASK_STATE_COMPLETED", A2A)


def a2a_0_3(path: str = "/a2a/echo") -> Job:
    return posted(path, a2a_message("message/send"), b'"completed"')


def a2a_stream(path: str = "/a2a/stream", method: str = "SendStreamingMessage") -> Job:
    """Return a job of a stream: the agent repeats its input word by word."""
    headers = A2A if method[0].isupper() else ""
    return posted(path, a2a_message(method, TOKENS), b"token199", headers)


def a2a_grpc(agent: str = "echo", text: str = "Hello") -> Job:
    """Return a job of a call over gRPC, which needs a connection to the gRPC server: a stream if `text` is TOKENS."""
    method = "SendStreamingMessage" if text == TOKENS else "SendMessage"
    body = a2a_message(method, text)

    async def job(connection: KeepAliveConnection, number: int) -> None:
        from babelgate.adapters.a2a.codec.protobuf import to_bytes
        from babelgate.adapters.a2a.wire.protobuf import REQUESTS, SERVICE

        message = to_bytes({"tenant": agent, **body(number)["params"]}, REQUESTS[method]())
        _expect(await connection.call(f"/{SERVICE}/{method}", message), text[-8:].encode(), method)

    return job


def acp(path: str = "/acp/runs", agent: str = "echo") -> Job:
    body = acp_run(agent)
    return posted(path, lambda _: body, b'"completed"')


def acp_run(agent: str, text: str = "Hello") -> Mapping[str, Any]:
    return {"agent_name": agent, "input": [{"role": "user", "parts": [{"content": text}]}]}


def acp_stream(path: str = "/acp/runs", agent: str = "stream") -> Job:
    body = {**acp_run(agent, TOKENS), "mode": "stream"}
    return posted(path, lambda _: body, b"run.completed")


def aief(tasks: str = "/agent/echo/ap/v1/agent/tasks") -> Job:
    """Return a job that creates a task and its step."""

    async def job(connection: KeepAliveConnection, number: int) -> None:
        task = json.loads(await connection.post(tasks, b'{"input":"Hello"}'))
        _expect(await connection.post(f"{tasks}/{task['task_id']}/steps", b"{}"), b"Hello", tasks)

    return job


def langgraph_wait(assistant: str = "echo") -> Job:
    return posted("/runs/wait", lambda _: langgraph_run(assistant, "Hello"), b"Hello")


def langgraph_thread(assistant: str = "echo") -> Job:
    """Return a job that creates a thread, and waits for a run on it."""

    async def job(connection: KeepAliveConnection, number: int) -> None:
        thread = json.loads(await connection.post("/threads", b"{}"))["thread_id"]
        path = f"/threads/{thread}/runs/wait"
        _expect(await connection.post(path, encode(langgraph_run(assistant, "Hello"))), b"Hello", path)

    return job


def langgraph_stream(assistant: str = "stream") -> Job:
    run = {**langgraph_run(assistant, TOKENS), "stream_mode": ["messages-tuple"]}
    return posted("/runs/stream", lambda _: run, b"token199")


def langgraph_run(assistant: str, text: str = "Hello") -> Mapping[str, Any]:
    return {"assistant_id": assistant, "input": {"messages": [{"role": "user", "content": text}]}}


def openai_chat(model: str = "echo", text: str = "Hello", **more: Any) -> Job:
    """Return a job of a completion. By default the gateway does not store it, like OpenAI."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
    return posted("/v1/chat/completions", lambda _: body, b"token199" if text == TOKENS else b"Hello")


def openai_response(model: str = "echo") -> Job:
    """Return a job of a response. By default the gateway stores it, like OpenAI."""
    return posted("/v1/responses", lambda _: {"model": model, "input": "Hello"}, b"Hello")


def vercel_ui(agent: str = "echo", text: str = "Hello") -> Job:
    """Return a job of a message in a new chat."""

    def body(number: int) -> Any:
        message = {"id": f"{number}", "role": "user", "parts": [{"type": "text", "text": text}]}
        return {"messages": [message], "trigger": "submit-message"}

    return posted(f"/vercel-ui/{agent}", body, b"token199" if text == TOKENS else b"Hello")


def runtime(assistant: str = "echo") -> Job:
    return posted("/v1/runs", lambda _: {"assistant_id": assistant, "input": "Hello"}, b'"success"')


def ag_ui(agent: str = "echo", text: str = "Hello") -> Job:
    """Return a job of a run on a new thread. AG-UI always streams."""

    def body(number: int) -> Any:
        message = {"id": f"message-{number}", "role": "user", "content": text}
        ids = {"threadId": str(uuid4()), "runId": f"run-{number}", "protocolVersion": "1.0"}
        return {**ids, "state": {}, "messages": [message], "tools": [], "context": [], "forwardedProps": {}}

    return posted(f"/ag-ui/{agent}", body, b"RUN_FINISHED")


def agent_client(agent: str = "echo", text: str = "Hello", prompts: int = 1) -> Job:
    """Return a job of a prompt over a WebSocket that stays open. A session has `prompts` prompts before the next one is
    opened, so that its thread stays short."""
    path, wanted = f"/agent-client/{agent}", b"token199" if text == TOKENS else b"Hello"
    sessions: WeakKeyDictionary[KeepAliveConnection, tuple[str, int]] = WeakKeyDictionary()

    async def job(connection: KeepAliveConnection, number: int) -> None:
        if await connection.upgrade(path):
            await call(connection, "initialize", {"protocolVersion": 1})
        session_id, left = sessions.get(connection, ("", 0))
        if not left:
            created = await call(connection, "session/new", {"cwd": "/", "mcpServers": []})
            session_id, left = json.loads(created[-1])["result"]["sessionId"], prompts
        sessions[connection] = session_id, left - 1
        prompt = [{"type": "text", "text": text}]
        messages = await call(connection, "session/prompt", {"sessionId": session_id, "prompt": prompt})
        _expect(b"".join(messages), wanted, path)
        _expect(messages[-1], b"end_turn", path)

    async def call(connection: KeepAliveConnection, method: str, params: Any) -> list[bytes]:
        """Return the messages up to the answer of a request."""
        connection.send_text(encode({"jsonrpc": "2.0", "id": 0, "method": method, "params": params}))
        messages = [await connection.receive_text()]
        while b'"method"' in messages[-1]:
            messages.append(await connection.receive_text())
        return messages

    return job


def anthropic(model: str = "echo", text: str = "Hello", **more: Any) -> Job:
    """Return a job of a message. By default the gateway does not store it, like Anthropic."""
    body = {"model": model, "max_tokens": 1024, "messages": [{"role": "user", "content": text}], **more}
    return posted("/v1/messages", lambda _: body, b"message_stop" if more else b"Hello")


def mcp(agent: str = "echo", text: str = "Hello", *, is_stored: bool = False) -> Job:
    """Return a job of a tool call in version 2026-07-28, which has no session. With `TOKENS` as text, the call asks for
    progress, so the response is a stream. By default the gateway erases the thread of the call; `is_stored` names a new
    thread, which remains as that of an A2A message does."""
    prefix, is_stream = "io.modelcontextprotocol/", text == TOKENS
    types = "text/event-stream, application/json" if is_stream else "application/json"
    headers = f"Accept: {types}\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {agent}\r\n"

    def body(number: int) -> Any:
        meta: dict[str, Any] = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": {}}
        meta |= {"progressToken": number} if is_stream else {}
        arguments = {"message": text, **({"thread_id": str(uuid4())} if is_stored else {})}
        params = {"name": agent, "arguments": arguments, "_meta": meta}
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}

    return posted("/mcp", body, b"token199" if is_stream else b"Hello", headers)


def raw_stream() -> Job:
    body = acp_run("echo")
    return posted("/", lambda _: body, b"token199")


def bare() -> Job:
    body = acp_run("echo")
    return posted("/", lambda _: body, b"input")


GATEWAY: Final[Mapping[str, Job]] = {
    "A2A 1.0": a2a_1_0(),
    "A2A 0.3": a2a_0_3(),
    "ACP": acp(),
    "AIEF task + step": aief(),
    "LangGraph wait": langgraph_wait(),
    "LangGraph thread + wait": langgraph_thread(),
    "OpenAI chat": openai_chat(),
    "OpenAI chat, stored": openai_chat(store=True),
    "OpenAI response": openai_response(),
    "Vercel AI SDK": vercel_ui(),
    "Minimal runtime": runtime(),
    "AG-UI": ag_ui(),
    "A2A short stream": posted("/a2a/echo", a2a_message("SendStreamingMessage"), b"TASK_STATE_COMPLETED", A2A),
    "Agent Client Protocol": agent_client(),
    "Agent Client prompt": agent_client(prompts=20),
    "Anthropic": anthropic(),
    "MCP": mcp(),
    "MCP, stored": mcp(is_stored=True),
    "A2A stream": a2a_stream(),
    "ACP stream": acp_stream(),
    "LangGraph stream": langgraph_stream(),
    "Vercel AI SDK stream": vercel_ui("stream", TOKENS),
    "OpenAI chat stream": openai_chat("stream", TOKENS, stream=True),
    "AG-UI stream": ag_ui("stream", TOKENS),
    "Agent Client Prot. stream": agent_client("stream", TOKENS),
    "Anthropic stream": anthropic("stream", TOKENS, stream=True),
    "MCP stream": mcp("stream", TOKENS),
    "MCP stream, stored": mcp("stream", TOKENS, is_stored=True),
}
"""Jobs for the gateway's demo agents, by name: one for each kind of request. Streams have 200 tokens."""

GRPC: Final[Mapping[str, Job]] = {"A2A gRPC": a2a_grpc(), "A2A gRPC stream": a2a_grpc("stream", TOKENS)}
"""Jobs for the gateway's gRPC server, which need the extra `babelgate[grpc]`."""
