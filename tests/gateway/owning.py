"""Gateway with two owners, and resources that belong to one of them."""

from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx

from babelgate.adapters.mcp.codec.run_id import encode_run_id, encode_state
from babelgate.adapters.openai.codec.call_id import encode_call_id
from babelgate.canonical.value import JsonObject
from tests import loopback
from tests.gateway.hubs import check_invariants
from tests.gateway.knowledge import knowledge
from tests.gateway.log_capture import LogCapture, capture_log
from tests.gateway.route import AGENT_SLOT, PAGE, PAGE_SLOT, ROUTES, Protocol
from tests.gateway.shape import is_endless
from tests.gateway.valid import PUSH, V1
from tests.running import Running, running

ALICE, BOB = "alice-0123456789-key", "bob-0123456789-key"
TOKEN, CREDENTIALS = "push-token-of-alice", "push-credentials-of-alice"
STEPS: Final = "/ap/v1/agent/tasks"
SECRETS: Final = (ALICE, BOB, TOKEN, CREDENTIALS)


@dataclass
class Place:
    """Gateway with two owners, and all responses and log records of it."""

    gateway: Running
    alice: httpx.AsyncClient
    bob: httpx.AsyncClient
    nobody: httpx.AsyncClient
    log: LogCapture
    responses: list[str] = field(default_factory=list[str])
    _shared: "tuple[OwnerIds, str] | None" = None

    async def make(self) -> "OwnerIds":
        """Create resources of Alice that the test may change."""
        return await make(self.alice)

    async def shared_ids(self) -> "tuple[OwnerIds, str]":
        """Return the ids of Alice's resources that all tests share, and what the protocols show of them (`look`). Tests
        must not change these resources."""
        if self._shared is None:
            ids = await self.make()
            self._shared = ids, await look(self.alice, ids)
        return self._shared


@asynccontextmanager
async def two_owners(folder: Path) -> AsyncGenerator[Place]:
    responses: list[str] = []

    async def keep(response: httpx.Response) -> None:
        text = "" if is_endless(response) else (await response.aread()).decode("utf-8", "replace")
        responses.append(f"{response.request.method} {response.request.url} → {response.headers} {text}")

    def client(url: str, key: str | None) -> httpx.AsyncClient:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return loopback.client(base_url=url, headers=headers, event_hooks={"response": [keep]}, timeout=30)

    settings: dict[str, Any] = {"keys": {"alice": ALICE, "bob": BOB}, "limits": {"inline": 16}}
    with capture_log() as log:
        async with running(folder, **settings) as gateway:
            url = gateway.url
            async with client(url, ALICE) as alice, client(url, BOB) as bob, client(url, None) as nobody:
                yield Place(gateway, alice, bob, nobody, log, responses)
            await check_invariants(gateway.hub)
    assert log.errors == []


@dataclass(frozen=True)
class OwnerIds:
    """Ids of an owner's resources, or unknown ids."""

    task_id: str
    """Id of a task that waits for an answer."""
    session_id: str
    ended: str
    """Id of a task that has ended."""
    run_id: str
    """Id of the run of the ended task in the gateway."""
    resource_id: str
    blob: str
    context_id: str
    steps: str
    """Id of an AIEF task."""
    step_id: str
    artifact_id: str
    thread_id: str
    """Id of an interrupted LangGraph thread."""
    asking_run: str
    """Id of the thread's run that has asked the question."""
    question: str
    checkpoint_id: str
    cron_id: str
    assistant_id: str
    """Id of an assistant of the agent `ask`."""
    label: str
    """First label of a namespace of the store."""
    later_thread: str
    later: str
    """Id of a run on `later_thread` that has not begun yet."""
    completion_id: str
    """Id of a stored OpenAI completion that asks a question."""
    call_id: str
    """Id of the tool call that asks the completion's question."""
    response_id: str
    """Id of an OpenAI response that asks a question."""
    output_id: str
    """Id of the tool call that asks the response's question."""
    conversation_id: str
    item_id: str
    mcp_run: str
    """Id of the run in MCP, as a tool returns it with its question."""
    mcp_state: str
    """Request state of that run in MCP's revision of 2026-07-28."""
    config_id: str = "p1"
    offered: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """Values of the parameters of the routes of each protocol of another package, by protocol."""

    def slots(self, protocol: Protocol) -> dict[str, str]:
        if protocol == "aief":
            return {"task_id": self.steps, "step_id": self.step_id, "artifact_id": self.artifact_id}
        if protocol == "langchain":
            return {
                "thread_id": self.thread_id,
                "run_id": self.asking_run,
                "checkpoint_id": self.checkpoint_id,
                "agent_id": "ask",
                "assistant_id": self.assistant_id,
                "cron_id": self.cron_id,
                "namespace": "a",
                "labels": f"{self.label}.notes",
                "key": "k",
                "blob": self.blob,
            }
        if protocol == "runtime":
            return {"thread_id": self.thread_id, "run_id": self.asking_run}
        if protocol == "openai":
            return {"model": "ask", "completion_id": self.completion_id, "response_id": self.response_id} | {
                "conversation_id": self.conversation_id,
                "item_id": self.item_id,
                "blob": self.blob,
            }
        if protocol == "mcp":
            return {}
        if protocol in self.offered:
            return dict(self.offered[protocol])
        if protocol == "own":
            constants = {"name": "ask", "number": "1", "key_id": "k1", "job_id": "k1", PAGE_SLOT: PAGE}
            return {**constants, "run_id": self.asking_run, "thread_id": self.thread_id}
        return {
            "agent": "ask",
            "name": "ask",
            "run_id": self.task_id,
            "task_id": self.task_id,
            "session_id": self.session_id,
            "resource_id": self.resource_id,
            "config_id": self.config_id,
            "blob": self.blob,
            "key_id": "k1",
            PAGE_SLOT: PAGE,
        }

    def hidden(self, text: str) -> str:
        """Return the text with each id replaced by its name."""
        for each in sorted(_ids(), key=lambda name: name != "resource_id"):  # it contains another id
            text = text.replace(getattr(self, each), f"<{each}>")
        for protocol, slots in self.offered.items():
            for name in slots.keys() - AGENT_SLOT:
                text = text.replace(slots[name], f"<{protocol}: {name}>")
        return text


def _ids() -> Sequence[str]:
    return [each.name for each in fields(OwnerIds) if each.name not in ("config_id", "offered")]


def unknown() -> OwnerIds:
    ids = {name: str(uuid4()) for name in _ids()}
    offered = {name: _unknown_slots(name) for name in knowledge()}
    changed = {"resource_id": f"{uuid4()}.0", "blob": sha256(uuid4().bytes).hexdigest()}
    named = {"context_id": f"context-{uuid4()}", "label": f"label-{uuid4()}"}
    call_id = encode_call_id(str(uuid4()), str(uuid4()))
    named |= {"completion_id": f"chatcmpl-{uuid4()}", "call_id": call_id, "output_id": call_id}
    named |= {"response_id": f"resp_{uuid4().hex}", "conversation_id": f"conv_{uuid4().hex}"}
    named |= {"mcp_run": encode_run_id(str(uuid4())), "mcp_state": encode_state(str(uuid4()), "ask", ())}
    return OwnerIds(**{**ids, **changed, **named}, offered=offered)


def _unknown_slots(protocol: str) -> Mapping[str, str]:
    slots = {slot for route in ROUTES if route.protocol == protocol for slot in route.slots}
    return {slot: "echo" if slot in AGENT_SLOT else str(uuid4()) for slot in slots}


def message(**fields: Any) -> JsonObject:
    """Return a message of A2A 1.0."""
    return {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "Bob"}], **fields}


def acp_run(agent: str, text: str, **fields: Any) -> JsonObject:
    return {"agent_name": agent, "input": [{"role": "user", "parts": [{"content": text}]}], **fields}


async def make(client: httpx.AsyncClient) -> OwnerIds:
    """Create one resource of every kind."""
    asking_task = (await client.post("/acp/runs", json=acp_run("ask", "a question of alice"))).json()
    answer = await client.post("/acp/runs", json=acp_run("echo", "a secret of alice"))
    ended_run = answer.json()
    history = (await client.get(f"/acp/sessions/{ended_run['session_id']}")).json()["history"]
    config = {**PUSH, "token": TOKEN, "authentication": {"scheme": "Bearer", "credentials": CREDENTIALS}}
    push = await client.post(f"/a2a/ask/tasks/{asking_task['run_id']}/pushNotificationConfigs", json=config, headers=V1)
    assert push.status_code == 200, push.text
    context_id = f"context-{uuid4()}"
    content = b"a file of alice " + uuid4().bytes
    part = {"raw": b64encode(content).decode(), "filename": "a.bin", "mediaType": "application/octet-stream"}
    sent = await client.post(
        "/a2a/files/message:send",
        json={"message": {"messageId": "1", "role": "ROLE_USER", "parts": [part], "contextId": context_id}},
        headers=V1,
    )
    assert sent.status_code == 200, sent.text
    assert sha256(content).hexdigest() in sent.text, "the response must contain the URL of the file"
    return OwnerIds(
        task_id=asking_task["run_id"],
        session_id=asking_task["session_id"],
        ended=ended_run["run_id"],
        run_id=answer.headers["babelgate-run"],
        resource_id=history[0].rpartition("/")[2],
        blob=sha256(content).hexdigest(),
        context_id=context_id,
        **await make_steps(client),
        **await make_thread(client),
        **await make_completion(client),
        **await make_response(client),
        mcp_run=encode_run_id(asking_task["run_id"]),
        mcp_state=encode_state(asking_task["run_id"], "ask", ()),
        offered={name: await each.make(client) for name, each in knowledge().items()},
    )


async def make_steps(client: httpx.AsyncClient) -> dict[str, str]:
    task_id = (await client.post(STEPS, json={"input": "a task of alice"})).json()["task_id"]
    step = (await client.post(f"{STEPS}/{task_id}/steps")).json()
    assert step["output"] == "a task of alice"
    upload = {"file": ("alice.txt", b"an upload of alice")}
    artifact = (await client.post(f"{STEPS}/{task_id}/artifacts", files=upload)).json()
    return {"steps": task_id, "step_id": step["step_id"], "artifact_id": artifact["artifact_id"]}


async def make_thread(client: httpx.AsyncClient) -> dict[str, str]:
    thread_id = (await client.post("/threads", json={"metadata": {"of": "alice"}})).json()["thread_id"]
    body = {"assistant_id": "ask", "input": "a thread of alice", "metadata": {"of": "alice"}}
    response = await client.post(f"/threads/{thread_id}/runs/wait", json=body)
    later = (await client.post("/runs", json={**body, "after_seconds": 100_000, "on_completion": "keep"})).json()
    assert later["status"] == "pending"
    label = f"label-{uuid4()}"
    item = {"namespace": [label, "notes"], "key": "k", "value": {"of": "alice"}}
    assert (await client.put("/store/items", json=item)).status_code == 204
    named = {"graph_id": "ask", "name": "an assistant of alice", "metadata": {"of": "alice"}}
    assistant = (await client.post("/assistants", json=named)).json()
    yearly = {"assistant_id": "ask", "schedule": "0 0 1 1 *", "input": "a cron of alice"}
    cron = (await client.post("/runs/crons", json=yearly)).json()
    return {
        "thread_id": thread_id,
        "assistant_id": assistant["assistant_id"],
        "cron_id": cron["cron_id"],
        "asking_run": response.headers["content-location"].rpartition("/")[2],
        "question": response.json()["__interrupt__"][0]["id"],
        "checkpoint_id": (await client.get(f"/threads/{thread_id}/state")).json()["checkpoint_id"],
        "label": label,
        "later_thread": later["thread_id"],
        "later": later["run_id"],
    }


ASK: JsonObject = {"type": "function", "name": "ask_caller"}


def chat(agent: str, *messages: JsonObject, **fields: Any) -> JsonObject:
    tools = [{"type": "function", "function": ASK}]
    return {"model": agent, "messages": list(messages), "tools": tools, **fields}


async def make_completion(client: httpx.AsyncClient) -> dict[str, str]:
    body = chat("ask", {"role": "user", "content": "a completion of alice"}, store=True, metadata={"of": "alice"})
    completion = (await client.post("/v1/chat/completions", json=body)).json()
    return {"completion_id": completion["id"], "call_id": completion["choices"][0]["message"]["tool_calls"][0]["id"]}


async def make_response(client: httpx.AsyncClient) -> dict[str, str]:
    body = {"model": "ask", "input": "a response of alice", "metadata": {"of": "alice"}, "tools": [ASK]}
    response = (await client.post("/v1/responses", json=body)).json()
    body = {"items": [{"role": "user", "content": "an item of alice"}], "metadata": {"of": "alice"}}
    conversation = (await client.post("/v1/conversations", json=body)).json()["id"]
    items = (await client.get(f"/v1/conversations/{conversation}/items")).json()["data"]
    ids = {"conversation_id": conversation, "item_id": items[0]["id"]}
    return {"response_id": response["id"], "output_id": response["output"][0]["call_id"], **ids}


async def look(client: httpx.AsyncClient, ids: OwnerIds) -> str:
    """Return everything that the protocols show of these resources."""
    looks = [
        f"/acp/runs/{ids.task_id}",
        f"/acp/runs/{ids.task_id}/events",
        f"/acp/runs/{ids.ended}",
        f"/acp/sessions/{ids.session_id}",
        f"/acp/resources/{ids.resource_id}",
        f"/a2a/ask/tasks/{ids.task_id}",
        f"/a2a/ask/tasks/{ids.task_id}/pushNotificationConfigs",
        f"/a2a/files/tasks?contextId={ids.context_id}&includeArtifacts=true",
        f"/a2a/files/files/{ids.blob}",
        f"{STEPS}/{ids.steps}",
        f"{STEPS}/{ids.steps}/artifacts/{ids.artifact_id}",
        f"/threads/{ids.thread_id}",
        f"/threads/{ids.thread_id}/history",
        f"/threads/{ids.thread_id}/runs",
        f"/threads/{ids.thread_id}/runs/{ids.asking_run}/join",
        f"/threads/{ids.later_thread}/runs/{ids.later}",
        f"/assistants/{ids.assistant_id}",
        f"/runs/crons/{ids.cron_id}",
        f"/store/items?key=k&namespace={ids.label}.notes&refresh_ttl=false",
        f"/v1/threads/{ids.thread_id}",
        f"/v1/runs/{ids.asking_run}",
        f"/v1/runs/{ids.asking_run}/stream",
        f"/v1/chat/completions/{ids.completion_id}",
        f"/v1/responses/{ids.response_id}",
        f"/v1/responses/{ids.response_id}/input_items",
        f"/v1/conversations/{ids.conversation_id}",
        f"/v1/conversations/{ids.conversation_id}/items",
    ]
    for name, each in knowledge().items():
        looks += each.look(ids.offered[name])
    answers = [await client.get(path, headers=V1) for path in looks]
    assert [answer.status_code for answer in answers] == [200] * len(looks), [answer.text for answer in answers]
    return "\n".join(answer.text for answer in answers)
