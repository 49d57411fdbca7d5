"""Requests of callers with which a stored database is created. They cause every kind of event."""

from base64 import b64encode
from typing import Any
from uuid import UUID

import httpx

_VERSION_HEADER = {"A2A-Version": "1.0"}
_FILE = b64encode(b"a caller's file").decode()
_HOOK = "http://127.0.0.1:9/hook"
_RICH_AGENTS = ("everything", "remembers")
"""Agents that also accept files and data."""
Wire = dict[str, Any]


def thread_id(number: int) -> str:
    """Return the id of a thread.

    1 is the ACP session, 2 to 5 are LangGraph threads, of which 5 is deleted, and 6 is the thread of the graph.
    """
    return str(UUID(int=number, version=4))


class _Caller:
    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30)

    def ask(self, method: str, path: str, body: Any = None, *, status: int = 200, **more: Any) -> Any:
        answer = self._http.request(method, path, json=body, **more)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text)
        is_json = answer.headers.get("content-type", "").startswith("application/json") and answer.content
        return answer.json() if is_json else answer.text

    def rpc(self, agent: str, method: str, params: Wire, *, version: str = "1.0") -> Wire:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = self.ask("POST", f"/a2a/{agent}", body, headers=_VERSION_HEADER if version == "1.0" else {})
        assert "result" in answer, answer
        return answer["result"]


def drive(url: str, *, graphs: bool, langgraph: bool, aief: bool) -> None:
    """Call the gateway in all protocols. `graphs`, `langgraph` and `aief` = the release supports them."""
    caller = _Caller(url)
    _acp(caller)
    _a2a(caller)
    if aief:
        _aief(caller)
    if langgraph:
        _langgraph(caller)
        _store(caller)
    if graphs:
        _graph(caller)


# ACP


def _run(agent: str, text: str, **more: Any) -> Wire:
    parts: list[Wire] = [
        {"content_type": "text/plain", "content": text},
        {"content_type": "text/x-note", "content": _FILE, "content_encoding": "base64", "name": "note.txt"},
    ]
    parts = parts if agent in _RICH_AGENTS else parts[:1]
    return {"agent_name": agent, "input": [{"role": "user", "parts": parts}], **more}


def _acp(caller: _Caller) -> None:
    session = thread_id(1)
    for agent in ("everything", "remembers", "fails"):
        caller.ask("POST", "/acp/runs", _run(agent, "Hello", mode="sync", session_id=session))
    run = caller.ask("POST", "/acp/runs", _run("asks", "Who", mode="sync"))
    for answer in ("Ada", "yes"):  # the second time there are two questions, and one stays open
        message = {"role": "user", "parts": [{"content_type": "text/plain", "content": answer}]}
        resume = {"type": "message", "message": message}
        body = {"run_id": run["run_id"], "await_resume": resume, "mode": "sync"}
        run = caller.ask("POST", f"/acp/runs/{run['run_id']}", body)
    waiting = caller.ask("POST", "/acp/runs", _run("waits", "Wait", mode="async"), status=202)
    caller.ask("POST", f"/acp/runs/{waiting['run_id']}/cancel", status=202)
    while caller.ask("GET", f"/acp/runs/{waiting['run_id']}")["status"] != "cancelled":
        pass


# A2A


def _message(number: int, agent: str, text: str, **more: Any) -> Wire:
    parts: list[Wire] = [
        {"text": text, "metadata": {"mine": True}},
        {"data": {"key": ["value", None, 1.5]}},
        {"raw": _FILE, "filename": "note.txt", "mediaType": "text/x-note"},
        {"url": "https://example.com/far.pdf", "mediaType": "application/pdf"},
    ]
    parts = parts if agent in _RICH_AGENTS else parts[:1]
    return {"messageId": f"new-{number}", "role": "ROLE_USER", "parts": parts, "metadata": {"n": number}, **more}


def _old_message(number: int, agent: str, text: str, **more: Any) -> Wire:
    parts: list[Wire] = [
        {"kind": "text", "text": text},
        {"kind": "data", "data": {"key": "value"}},
        {"kind": "file", "file": {"bytes": _FILE, "name": "note.txt", "mimeType": "text/x-note"}},
    ]
    parts = parts if agent in _RICH_AGENTS else parts[:1]
    return {"kind": "message", "messageId": f"old-{number}", "role": "user", "parts": parts, **more}


def _a2a(caller: _Caller) -> None:
    for number, agent in enumerate(("everything", "remembers", "fails", "refuses")):
        new = _message(number, agent, "Hello", contextId="my own context", extensions=["https://example.com/ext"])
        caller.rpc(agent, "SendMessage", {"message": new, "metadata": {"asked": "by me"}})
    old = _old_message(1, "remembers", "Hello", contextId="my old context")
    params = {"message": old, "metadata": {"asked": "by me"}, "configuration": {"blocking": True}}
    caller.rpc("remembers", "message/send", params, version="0.3")
    task = caller.rpc("asks", "SendMessage", {"message": _message(9, "asks", "Who")})["task"]
    hook = {"taskId": task["id"], "id": "hook", "url": _HOOK, "token": "t"}
    caller.rpc("asks", "CreateTaskPushNotificationConfig", hook)
    caller.rpc("asks", "SendMessage", {"message": _message(10, "asks", "Ada", taskId=task["id"])})
    params = {"message": _message(11, "waits", "Wait"), "configuration": {"returnImmediately": True}}
    waiting = caller.rpc("waits", "SendMessage", params)["task"]
    caller.rpc("waits", "CancelTask", {"id": waiting["id"]})
    again = _message(12, "remembers", "Again", referenceTaskIds=[waiting["id"]])
    caller.rpc("remembers", "SendMessage", {"message": again})


# AIEF


def _aief(caller: _Caller) -> None:
    for agent in ("everything", "asks", "fails"):
        tasks = f"/agent/{agent}/ap/v1/agent/tasks"
        task = caller.ask("POST", tasks, {"input": "Hello", "additional_input": {"key": "value"}})["task_id"]
        files = {"file": ("note.txt", b"an upload", "text/x-note")}
        caller.ask("POST", f"{tasks}/{task}/artifacts", files=files, data={"relative_path": "a/b"})
        for body in ({}, {"input": "More", "additional_input": {"n": 2}}):
            caller.ask("POST", f"{tasks}/{task}/steps", body)
    caller.ask("POST", "/agent/waits/ap/v1/agent/tasks", {"input": "Nobody takes a step of it."})


# LangGraph


def _run_body(agent: str, text: str, **more: Any) -> Wire:
    return {"assistant_id": agent, "input": {"messages": [{"role": "user", "content": text}], "topic": "it"}, **more}


def _langgraph(caller: _Caller) -> None:
    mine = f"/threads/{thread_id(2)}"
    caller.ask("POST", "/threads", {"thread_id": thread_id(2), "metadata": {"owner": "me", "n": 1}})
    caller.ask("PATCH", mine, {"metadata": {"n": 2}})
    config = {"configurable": {"mode": "fast"}, "tags": ["a"]}
    for agent in ("everything", "remembers", "fails"):
        caller.ask("POST", f"{mine}/runs/wait", _run_body(agent, "Hello", config=config, metadata={"m": agent}))
    caller.ask("POST", f"{mine}/state", {"values": {"topic": "changed"}, "as_node": "me"})
    old = caller.ask("POST", f"{mine}/history", {"limit": 10})[-2]["checkpoint"]
    caller.ask("POST", f"{mine}/runs/wait", _run_body("remembers", "From before", checkpoint_id=old["checkpoint_id"]))
    caller.ask("POST", f"{mine}/copy")
    asking = f"/threads/{thread_id(3)}"
    body = _run_body("asks", "Who", if_not_exists="create")
    caller.ask("POST", f"{asking}/runs/wait", body)
    caller.ask("POST", f"{asking}/runs/wait", {"assistant_id": "asks", "command": {"resume": "Ada"}})
    queued = f"/threads/{thread_id(4)}"
    caller.ask("POST", "/threads", {"thread_id": thread_id(4)})
    for strategy in ("enqueue", "interrupt", "rollback"):
        caller.ask("POST", f"{queued}/runs", _run_body("waits", strategy, multitask_strategy=strategy))
    caller.ask("POST", f"{queued}/runs/wait", _run_body("remembers", "Last", multitask_strategy="interrupt"))
    caller.ask("POST", "/threads", {"thread_id": thread_id(5)})
    caller.ask("POST", f"/threads/{thread_id(5)}/runs/wait", _run_body("remembers", "Deleted"))
    caller.ask("DELETE", f"/threads/{thread_id(5)}", status=204)


def _store(caller: _Caller) -> None:
    for number in range(3):
        item = {"namespace": ["users", f"u{number}"], "key": "profile", "value": {"number": number, "deep": {"a": [1]}}}
        caller.ask("PUT", "/store/items", item, status=204)
    caller.ask("DELETE", "/store/items", {"namespace": ["users", "u2"], "key": "profile"}, status=204)


def _graph(caller: _Caller) -> None:
    mine = f"/threads/{thread_id(6)}"
    caller.ask("POST", f"{mine}/runs/wait", _run_body("graph", "Hello", if_not_exists="create"))
    caller.ask("POST", f"{mine}/runs/wait", {"assistant_id": "graph", "command": {"resume": "yes"}})
    caller.ask("POST", f"{mine}/state", {"values": {"count": 10}, "as_node": "think"})
    caller.ask("POST", f"{mine}/runs/wait", _run_body("graph", "Asked again"))
    caller.rpc("graph", "SendMessage", {"message": _message(20, "graph", "Hello")})
