"""Fork extension in every protocol: a request starts from an older state of the caller's own threads, and from no
other.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters.kit.extension import URI
from babelgate.adapters.mcp.wire import RECORDS
from babelgate.canonical import AgentInfo, Event, Invocation, TextPart
from babelgate.canonical.event import InterruptRaised, MessageEnded, MessageStarted, PartAdded, RunEnded
from babelgate.canonical.message import Message
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.adapters.a2a.site import message, message_0_3
from tests.adapters.mcp.site import Modern
from tests.running import running

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALICE, BOB = ({"Authorization": f"Bearer {key}"} for key in ("wonderland", "builder"))
Start = Mapping[str, Any]


@dataclass
class Branching:
    history: list[str] = field(default_factory=list[str])
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        self.history = [message.text for message in call.history]
        states = await call.states()
        start = states.of_run(call.run_id)
        self.state = {} if start is None else start.values
        if call.text == "ask" and not call.answers:
            yield InterruptRaised(interrupt_id="q", message=Message.of("?"))
            return
        yield MessageStarted()
        yield PartAdded(part=TextPart(text=f"re {call.text}"))
        yield MessageEnded()
        yield RunEnded(output={"last": call.text})


@dataclass(frozen=True)
class Site:
    http: httpx.AsyncClient
    agent: Branching


@dataclass(frozen=True)
class Outcome:
    refusal: str
    """Status or code of the error; empty if the request succeeded."""
    thread: str = ""
    task: str = ""
    run: str = ""

    @classmethod
    def of(cls, response: httpx.Response) -> "Outcome":
        if response.is_error:
            return cls(str(response.status_code), response.text)
        body = response.json()
        if isinstance(body, dict) and "jsonrpc" in body and "error" in body:
            return cls(str(response.json()["error"]["code"]))
        ids = (response.headers.get(f"babelgate-{name}", "") for name in ("thread", "task", "run"))
        return cls("", *ids)


Send = Callable[[httpx.AsyncClient, Mapping[str, str], str, Start | None, str | None], Awaitable[Outcome]]


async def _a2a(
    method: str,
    make: Any,
    http: httpx.AsyncClient,
    key: Mapping[str, str],
    words: str,
    start: Start | None,
    at: str | None,
) -> Outcome:
    params = make(words, **({} if at is None else {"contextId": at}))
    if start is not None:
        params["metadata"] = {URI: start}
    version = "1.0" if make is message else "0.3"
    if make is message_0_3:
        params["configuration"] = {"blocking": True}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return Outcome.of(await http.post("/a2a/b", json=body, headers={**key, "A2A-Version": version}))


async def _a2a_1_0(http: httpx.AsyncClient, key: Any, words: str, start: Start | None, at: str | None) -> Outcome:
    return await _a2a("SendMessage", message, http, key, words, start, at)


async def _a2a_0_3(http: httpx.AsyncClient, key: Any, words: str, start: Start | None, at: str | None) -> Outcome:
    return await _a2a("message/send", message_0_3, http, key, words, start, at)


async def _acp(http: httpx.AsyncClient, key: Any, words: str, start: Start | None, at: str | None) -> Outcome:
    message = {"role": "user", "parts": [{"content_type": "text/plain", "content": words}]}
    body: dict[str, Any] = {"agent_name": "b", "input": [message], "mode": "sync"}
    body |= {} if start is None else {"babelgate": start}
    body |= {} if at is None else {"session_id": at}
    return Outcome.of(await http.post("/acp/runs", json=body, headers=key))


async def _aief(http: httpx.AsyncClient, key: Any, words: str, start: Start | None, at: str | None) -> Outcome:
    tasks = "/agent/b/ap/v1/agent/tasks"
    if at is None:
        at = (await http.post(tasks, json={"input": words}, headers=key)).json()["task_id"]
    body: dict[str, Any] = {"input": words, **({} if start is None else {"additional_input": {URI: start}})}
    return Outcome.of(await http.post(f"{tasks}/{at}/steps", json=body, headers=key))


async def _langgraph(
    http: httpx.AsyncClient, key: Any, words: str, start: Start | None, at: str | None, *, below: str = ""
) -> Outcome:
    if at is None:
        at = str((await http.post(f"{below}/threads", json={}, headers=key)).json()["thread_id"])
    messages = [{"role": "user", "content": words}]
    body: dict[str, Any] = (
        {"agent_id": "b", "messages": messages} if below else {"assistant_id": "b", "input": {"messages": messages}}
    )
    body |= {} if start is None else {"metadata": {URI: start}}
    return Outcome.of(await http.post(f"{below}/threads/{at}/runs/wait", json=body, headers=key))


async def _agent_protocol(
    http: httpx.AsyncClient, key: Any, words: str, start: Start | None, at: str | None
) -> Outcome:
    return await _langgraph(http, key, words, start, at, below="/agent-protocol")


async def _responses(http: httpx.AsyncClient, key: Any, words: str, start: Start | None, at: str | None) -> Outcome:
    if at is None and start is None:
        at = (await http.post("/v1/conversations", json={}, headers=key)).json()["id"]
    body: dict[str, Any] = {"model": "b", "input": words, **({} if start is None else {"babelgate": start})}
    body |= {} if at is None else {"conversation": at if at.startswith("conv_") else f"conv_{at.replace('-', '')}"}
    return Outcome.of(await http.post("/v1/responses", json=body, headers=key))


async def _chat(http: httpx.AsyncClient, key: Any, words: str, start: Start | None, at: str | None) -> Outcome:
    body: dict[str, Any] = {"model": "b", "messages": [{"role": "user", "content": words}], "store": True}
    body |= {} if start is None else {"babelgate": start}
    body["metadata"] = {} if at is None else {"thread_id": at}
    return Outcome.of(await http.post("/v1/chat/completions", json=body, headers=key))


async def _mcp(http: httpx.AsyncClient, key: Any, words: str, start: Start | None, at: str | None) -> Outcome:
    client = Modern(http)
    meta: dict[str, Any] = {RECORDS: {} if start is None else start}
    request = client.request(
        "tools/call", {"name": "b", "arguments": {"message": words, "thread_id": at or str(uuid4())}, "_meta": meta}
    )
    request["headers"] = {**request["headers"], **key}
    response = await http.request(**request)
    result = response.json()["result"]
    if result.get("isError"):
        return Outcome("isError")
    records = result["_meta"][RECORDS]["events"]
    ids = {name: next(each[name] for each in records if each.get(name)) for name in ("task_id", "run_id")}
    return Outcome("", result["_meta"]["babelgate"]["thread_id"], ids["task_id"], ids["run_id"])


PROTOCOLS: Final[Mapping[str, tuple[Send, str, str]]] = {
    "a2a-1.0": (_a2a_1_0, "-32602", "-32001"),
    "a2a-0.3": (_a2a_0_3, "-32602", "-32001"),
    "acp": (_acp, "422", "404"),
    "aief": (_aief, "422", "404"),
    "langgraph": (_langgraph, "422", "404"),
    "agent-protocol": (_agent_protocol, "422", "404"),
    "openai-responses": (_responses, "400", "404"),
    "openai-chat-completions": (_chat, "400", "404"),
    "mcp": (_mcp, "isError", "isError"),
}
"""Sender of each protocol, with the protocol's codes for bad input and for what is not found."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    agent = Branching()
    keys = {"alice": "wonderland", "bob": "builder"}
    registered = {"b": RegisteredAgent(AgentInfo(name="b"), agent)}
    async with running(tmp_path_factory.mktemp("forks"), registered=registered, keys=keys) as gateway:
        yield Site(gateway.http, agent)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_request_starts_from_a_run_task_or_revision(site: Site, protocol: str) -> None:
    send, _, _ = PROTOCOLS[protocol]
    first = await send(site.http, ALICE, "one", None, None)
    assert first.refusal == ""
    again = await _acp(site.http, ALICE, "two", None, first.thread)
    assert (again.refusal, site.agent.history) == ("", ["one", "re one"])
    history = (await site.http.get(f"/threads/{first.thread}/history", headers=ALICE)).json()
    checkpoint = next(
        each["checkpoint"]["checkpoint_id"] for each in history[::-1] if each["values"].get("last") == "one"
    )
    for fork in (
        {"run_id": first.run},
        {"task_id": first.task},
        {"checkpoint_id": checkpoint, "thread_id": first.thread},
    ):
        outcome = await send(site.http, ALICE, "three", {"fork": fork, "state": {"values": {"note": 1}}}, None)
        assert (outcome.refusal, site.agent.history) == ("", ["one", "re one"])
        assert outcome.thread not in ("", first.thread)
        assert site.agent.state == {"last": "one", "note": 1}
    branch = await send(site.http, ALICE, "four", {"fork": {"checkpoint_id": checkpoint}}, first.thread)
    assert (branch.refusal, branch.thread, site.agent.history) == ("", first.thread, ["one", "re one"])


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_malformed_fork_and_another_owners_are_refused(site: Site, protocol: str) -> None:
    send, invalid, not_found = PROTOCOLS[protocol]
    foreign = await send(site.http, BOB, "one", None, None)
    wrong: list[dict[str, Any]] = [
        {"fork": {}},
        {"fork": "x"},
        {"fork": {"run_id": 1}},
        {"fork": {"run_id": "x" * 201}},
        {"fork": {"run_id": "\0"}},
        {"fork": {"run_id": foreign.run, "task_id": foreign.task}},
        {"state": {}},
        {"state": {"values": []}},
        {"state": {"values": {}, "as_node": 1}},
    ]
    for malformed in wrong:
        assert (await send(site.http, ALICE, "two", malformed, None)).refusal == invalid, malformed
    for fork in (
        {"run_id": foreign.run},
        {"task_id": foreign.task},
        {"checkpoint_id": str(uuid4()), "thread_id": foreign.thread},
        {"run_id": str(uuid4())},
        {"run_id": "no id of any"},
    ):
        assert (await send(site.http, ALICE, "two", {"fork": fork}, None)).refusal == not_found, fork
    assert (await send(site.http, BOB, "two", {"fork": {"run_id": foreign.run}}, None)).refusal == ""


ANSWERS: Final[Mapping[str, Callable[[Outcome], tuple[str, Any]]]] = {
    "a2a": lambda paused: (
        "/a2a/b",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendMessage",
            "params": {**message("yes", taskId=paused.task), "metadata": {URI: _ELSEWHERE}},
        },
    ),
    "acp": lambda paused: (
        f"/acp/runs/{paused.task}",
        {
            "await_resume": {"message": {"role": "user", "parts": [{"content": "yes"}]}},
            "mode": "sync",
            "babelgate": _ELSEWHERE,
        },
    ),
    "aief": lambda paused: (
        f"/agent/b/ap/v1/agent/tasks/{paused.thread}/steps",
        {"input": "yes", "additional_input": {URI: _ELSEWHERE}},
    ),
    "langgraph": lambda paused: (
        f"/threads/{paused.thread}/runs/wait",
        {"assistant_id": "b", "command": {"resume": "yes"}, "metadata": {URI: _ELSEWHERE}},
    ),
}
_ELSEWHERE: Final = {"fork": {"run_id": str(uuid4())}}


@pytest.mark.parametrize("protocol", ANSWERS)
async def test_an_answer_cannot_start_from_a_fork(site: Site, protocol: str) -> None:
    opens = {"aief": _aief, "langgraph": _langgraph}.get(protocol, _acp)
    paused = await opens(site.http, ALICE, "ask", None, None)
    assert paused.refusal == ""
    path, body = ANSWERS[protocol](paused)
    headers = {**ALICE, **({"A2A-Version": "1.0"} if protocol == "a2a" else {})}
    refused = Outcome.of(await site.http.post(path, json=body, headers=headers))
    assert refused.refusal in ("-32602", "422"), refused
    assert (await site.http.get(f"/threads/{paused.thread}", headers=ALICE)).json()["status"] == "interrupted"
