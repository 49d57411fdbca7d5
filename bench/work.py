"""What is asked of a server: one job is what a user would call one piece of work, however many requests it takes."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from bench.client import Connection

Job = Callable[[Connection, int], Awaitable[None]]
"""(connection, its number among the jobs)"""

TOKENS: Final = " ".join(f"token{number:03}" for number in range(200))
A2A: Final = "A2A-Version: 1.0\r\n"


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _expect(answer: bytes, wanted: bytes, name: str) -> None:
    if wanted not in answer:
        raise SystemExit(f"{name}: {answer[:2000].decode()}")


def posted(path: str, body: Callable[[int], Any], wanted: bytes, headers: str = "") -> Job:
    """One POST, whose answer holds `wanted`; a stream is read to its end."""

    async def job(connection: Connection, number: int) -> None:
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
    """An agent that says what it is told, word by word."""
    headers = A2A if method[0].isupper() else ""
    return posted(path, a2a_message(method, TOKENS), b"token199", headers)


def acp(path: str = "/acp/runs", agent: str = "echo") -> Job:
    said = acp_run(agent)
    return posted(path, lambda _: said, b'"completed"')


def acp_run(agent: str, text: str = "Hello") -> Mapping[str, Any]:
    return {"agent_name": agent, "input": [{"role": "user", "parts": [{"content": text}]}]}


def acp_stream(path: str = "/acp/runs", agent: str = "stream") -> Job:
    said = {**acp_run(agent, TOKENS), "mode": "stream"}
    return posted(path, lambda _: said, b"run.completed")


def aief(tasks: str = "/agent/echo/ap/v1/agent/tasks") -> Job:
    """A task and its step."""

    async def job(connection: Connection, number: int) -> None:
        task = json.loads(await connection.post(tasks, b'{"input":"Hello"}'))
        _expect(await connection.post(f"{tasks}/{task['task_id']}/steps", b"{}"), b"Hello", tasks)

    return job


def langgraph_wait(assistant: str = "echo") -> Job:
    return posted("/runs/wait", lambda _: langgraph_run(assistant, "Hello"), b"Hello")


def langgraph_thread(assistant: str = "echo") -> Job:
    """A thread, and a run on it that is waited for."""

    async def job(connection: Connection, number: int) -> None:
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
    """A completion, of which the gateway keeps nothing, as OpenAI's default is."""
    said = {"model": model, "messages": [{"role": "user", "content": text}], **more}
    return posted("/v1/chat/completions", lambda _: said, b"token199" if text == TOKENS else b"Hello")


def openai_response(model: str = "echo") -> Job:
    """A response, which is kept, as OpenAI's default is."""
    return posted("/v1/responses", lambda _: {"model": model, "input": "Hello"}, b"Hello")


def runtime(assistant: str = "echo") -> Job:
    return posted("/v1/runs", lambda _: {"assistant_id": assistant, "input": "Hello"}, b'"success"')


def raw_stream() -> Job:
    said = acp_run("echo")
    return posted("/", lambda _: said, b"token199")


def bare() -> Job:
    said = acp_run("echo")
    return posted("/", lambda _: said, b"input")


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
    "Minimal runtime": runtime(),
    "A2A stream": a2a_stream(),
    "ACP stream": acp_stream(),
    "LangGraph stream": langgraph_stream(),
    "OpenAI chat stream": openai_chat("stream", TOKENS, stream=True),
}
"""By name: each front of the gateway, in front of its demo agents. Streams are of 200 tokens."""
