"""MCP server over stdin and stdout whose tools behave well or badly, in one era of the protocol.

Usage: scripted_server.py 2025-11-25|2026-07-28 [IGNORED]. It ignores so many requests at first. It imports only the
standard library, so that it starts quickly. What tools note is in files of the working directory.
"""

import json
import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

ERA = sys.argv[1]
IGNORED = int(sys.argv[2]) if len(sys.argv) > 2 else 0
IS_MODERN = ERA == "2026-07-28"
META = "io.modelcontextprotocol/"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = ("echo", "ask", "hang", "deaf", "leave", "chatter", "garbage", "flood", "together", "job", "betray", "long")
calls: dict[Any, dict[str, Any]] = {}
"""Params of the calls without a response, by id."""
questions: dict[str, Any] = {}
"""Ids of the calls that asked, by the id of their question."""
tasks: dict[str, int] = {}
"""Number of polls of each task."""


def write(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request_id: Any, **result: Any) -> None:
    calls.pop(request_id, None)
    write(id=request_id, result={**({"resultType": "complete"} if IS_MODERN else {}), **result})


def say(request_id: Any, text: str, **result: Any) -> None:
    answer(request_id, content=[{"type": "text", "text": text}], **result)


def refuse(request_id: Any, code: int, message: str) -> None:
    write(id=request_id, error={"code": code, "message": message})


def call(request_id: Any, params: dict[str, Any]) -> None:
    if IS_MODERN:
        Path("capabilities").write_text(json.dumps(params["_meta"][f"{META}clientCapabilities"]))
    calls[request_id] = params
    if params["name"] not in TOOLS:
        refuse(request_id, -32602, f"Unknown tool: {params['name']}")
        return
    arguments: dict[str, Any] = params.get("arguments") or {}
    tool = globals()[f"call_{params['name']}"]
    tool(request_id, params, str(arguments.get("text", "")))


def call_echo(request_id: Any, params: dict[str, Any], text: str) -> None:
    say(request_id, text)


def call_ask(request_id: Any, params: dict[str, Any], text: str) -> None:
    if "inputResponses" in params:
        say(request_id, f"Hello, {params['inputResponses']['name']['content']['name']}.")
        return
    form = {"mode": "form", "message": "What is your name?", "requestedSchema": FORM}
    if IS_MODERN:
        question = {"name": {"method": "elicitation/create", "params": form}}
        answer(request_id, resultType="input_required", inputRequests=question, requestState="state")
    else:
        questions[f"q{request_id}"] = request_id
        write(id=f"q{request_id}", method="elicitation/create", params=form)


def call_hang(request_id: Any, params: dict[str, Any], text: str) -> None:
    progress(params, 1, "hanging")


def call_deaf(request_id: Any, params: dict[str, Any], text: str) -> None:
    progress(params, 1, "deaf")
    signal.pause()


def call_leave(request_id: Any, params: dict[str, Any], text: str) -> None:
    os._exit(7)


def call_chatter(request_id: Any, params: dict[str, Any], text: str) -> None:
    print("Loading the model …")
    print('{"jsonrpc": "1.0"}')
    say(request_id, "done")


def call_garbage(request_id: Any, params: dict[str, Any], text: str) -> None:
    while True:
        sys.stdout.write("no message\n" * 1000)


def call_long(request_id: Any, params: dict[str, Any], text: str) -> None:
    sys.stdout.write("x" * (3 * 2**20) + "\n")
    sys.stdout.flush()


def call_flood(request_id: Any, params: dict[str, Any], text: str) -> None:
    for step in count(1):
        progress(params, step, "more " * 100)


def call_together(request_id: Any, params: dict[str, Any], text: str) -> None:
    others = [each for each, one in calls.items() if one["name"] == "together" and each != request_id]
    for each in others:  # the newer call is answered first
        say(request_id, text)
        say(each, calls[each]["arguments"]["text"])


def call_job(request_id: Any, params: dict[str, Any], text: str) -> None:
    tasks[f"task-{request_id}"] = 0
    answer(request_id, resultType="task", **task(f"task-{request_id}", "working"))


def call_betray(request_id: Any, params: dict[str, Any], text: str) -> None:
    say(request_id, f"The key is {os.environ['SERVICE_KEY']}", isError=True)


def progress(params: dict[str, Any], step: int, message: str) -> None:
    token = params["_meta"]["progressToken"]
    write(method="notifications/progress", params={"progressToken": token, "progress": step, "message": message})


def task(task_id: str, status: str, **more: Any) -> dict[str, Any]:
    times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": 60000}
    return {"taskId": task_id, "status": status, "pollIntervalMs": 10, **times, **more}


def poll(request_id: Any, task_id: str) -> None:
    if task_id not in tasks:
        refuse(request_id, -32602, f"Unknown task: {task_id}")
        return
    tasks[task_id] += 1
    if tasks[task_id] < 3:
        answer(request_id, **task(task_id, "working"))
    else:
        result = {"content": [{"type": "text", "text": "done"}], "resultType": "complete"}
        answer(request_id, **task(task_id, "completed", result=result))


def request(request_id: Any, method: str, params: dict[str, Any]) -> None:
    match method:
        case "server/discover" if IS_MODERN:
            answer(request_id, supportedVersions=[ERA], capabilities={"tools": {}, "extensions": {f"{META}tasks": {}}})
        case "initialize" if not IS_MODERN:
            Path("capabilities").write_text(json.dumps(params["capabilities"]))
            info = {"name": "scripted", "version": "1"}
            answer(request_id, protocolVersion=ERA, capabilities={"tools": {}}, serverInfo=info)
        case "ping" if not IS_MODERN:
            answer(request_id)
        case "tools/list":
            listed = [{"name": name, "description": f"Tool {name}.", "inputSchema": TEXT} for name in TOOLS]
            answer(request_id, tools=listed)
        case "tools/call":
            call(request_id, params)
        case "tasks/get" if IS_MODERN:
            poll(request_id, params["taskId"])
        case _:
            refuse(request_id, -32601, f"Method not found: {method}")


def main() -> None:
    Path("pid").write_text(str(os.getpid()))
    for number, line in enumerate(sys.stdin):
        if number < IGNORED:
            continue
        message: dict[str, Any] = json.loads(line)
        method: Any = message.get("method")
        params: dict[str, Any] = message.get("params") or {}
        if method is None:
            call_id = questions.pop(message["id"])
            say(call_id, f"Hello, {message['result']['content']['name']}.")
        elif "id" in message:
            if IS_MODERN and params.get("_meta", {}).get(f"{META}protocolVersion") != ERA:
                refuse(message["id"], -32022, "Unsupported version")
            else:
                request(message["id"], method, params)
        elif method == "notifications/cancelled" and calls.pop(params["requestId"], None) is not None:
            Path("cancelled").touch()


if __name__ == "__main__":
    main()
