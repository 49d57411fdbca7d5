"""Agents whose server was unavailable when the gateway started: they become available with their server, without a
restart.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from litestar import Litestar, Response, get

from babelgate.canonical import Answers, Ask, Message, RunInput, Scope, Submission
from babelgate.gateway.agents import registry as registries
from babelgate.gateway.agents.registry import Registry, agent_uuid, connect
from babelgate.gateway.settings.model import Settings
from tests.faults.proxy import Proxy, proxied
from tests.gateway.log_capture import capture_log
from tests.running import Running, running
from tests.serving import listen, serving

OWNER = "default"
BOUND = 30.0
INSTANCE = "5f0c1d0e-0000-4000-8000-000000000001"


async def shout(text: str) -> str:
    """Convert the text to capitals."""
    return text.upper()


async def ask(text: str) -> AsyncGenerator[Ask | str, Any]:
    """Ask for a name."""
    yield f"Hello, {(yield Ask('Who?'))}."


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between attempts to reach a server."""
    monkeypatch.setattr(registries, "_MIN_INTERVAL", 0.0)


@asynccontextmanager
async def upstream(folder: Path) -> AsyncGenerator[Proxy]:
    """Start another gateway behind a proxy that refuses connections until it is opened."""
    home = folder / "upstream"
    home.mkdir()
    async with running(home, {"shout": shout, "ask": ask}) as gateway, proxied(gateway.url) as proxy:
        proxy.shut()
        yield proxy


async def connected(proxy: Proxy, **agent: Any) -> Registry:
    far = {"url": f"{proxy.url}/acp", "agent": "shout", "concurrency": 3, **agent}
    return await connect(
        Settings.model_validate({"agents": {"near": {"python": "babelgate.gateway.demo:echo"}, "far": far}})
    )


@asynccontextmanager
async def fronting(folder: Path, proxy: Proxy, **agent: Any) -> AsyncGenerator[Running]:
    registry = await connected(proxy, **agent)
    async with running(folder, registered={each.info.name: each for each in registry.all()}) as gateway:
        yield gateway


async def call(gateway: Running) -> httpx.Response:
    messages = [{"role": "user", "parts": [{"content": "hello"}]}]
    return await gateway.http.post("/acp/runs", json={"agent_name": "far", "input": messages})


async def test_a_call_finds_the_server_and_its_description(tmp_path: Path) -> None:
    async with upstream(tmp_path) as proxy, fronting(tmp_path, proxy) as gateway:
        for _ in range(2):
            with capture_log() as log:
                refused = await call(gateway)
            assert refused.status_code == 502
            assert "Agent far is not available: its server cannot be used at the moment" in refused.json()["message"]
            (line,) = (each for each in log.of("babelgate.registry") if each.startswith("broken agent called"))
            for tried in (f"agent=far run=- reason={proxy.url}/acp: ", "A2A: ", "ACP: ", "(ConnectError)"):
                assert tried in line
        await proxy.open()
        answer = await call(gateway)
        assert answer.status_code == 200
        assert answer.json()["output"][0]["parts"][0]["content"] == "HELLO"
        manifests = (await gateway.http.get("/acp/agents")).json()["agents"]
        assert [(each["name"], each["description"]) for each in manifests][1] == (
            "far",
            "Convert the text to capitals.",
        )
        card = await gateway.http.get("/a2a/far/.well-known/agent-card.json")
        assert card.json()["description"] == "Convert the text to capitals."
        found = (await gateway.http.get(f"/assistants/{agent_uuid('far')}")).json()
        assert found["description"] == "Convert the text to capitals."
        assert (await gateway.http.get("/readyz")).json()["agents"]["far"] == "ok"
        assert gateway.hub.registry.get("far").concurrency == 3


_MESSAGE: Final = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
_RUN: Final = {"assistant_id": "far", "input": {"messages": [{"role": "user", "content": "Hi"}]}}
_TOOL: Final = {"name": "far", "arguments": {"message": "Hi"}}
CALLS: Final[dict[str, Any]] = {
    "/a2a/far/message:send": {"message": _MESSAGE},
    "/acp/runs": {"agent_name": "far", "input": [{"role": "user", "parts": [{"content": "Hi"}]}]},
    "/agent/far/ap/v1/agent/tasks": {"input": "Hi"},
    "/runs/wait": _RUN,
    "/runs/stream": _RUN,
    "/agent-protocol/runs/wait": {"agent_id": "far", "input": {}},
    "/v1/runs": {"assistant_id": "far", "input": {"message": "Hi"}},
    "/v1/chat/completions": {"model": "far", "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/responses": {"model": "far", "input": "Hi"},
    "/mcp": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": _TOOL},
}


@pytest.mark.parametrize("path", CALLS)
async def test_the_url_of_an_unavailable_server_is_hidden(tmp_path: Path, path: str) -> None:
    accepted = {"A2A-Version": "1.0", "Accept": "application/json, text/event-stream"}
    async with upstream(tmp_path) as proxy, fronting(tmp_path, proxy) as gateway:
        response = await gateway.http.post(path, json=CALLS[path], headers=accepted)
        if path.endswith("/tasks"):  # an AIEF task does nothing before its first step
            response = await gateway.http.post(f"{path}/{response.json()['task_id']}/steps", json={})
        assert "Agent far is not available" in response.text
        assert proxy.url.partition("//")[2] not in response.text + repr(response.headers)


async def test_a_readiness_check_finds_the_server(tmp_path: Path) -> None:
    async with upstream(tmp_path) as proxy, fronting(tmp_path, proxy) as gateway:
        ready = await gateway.http.get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["agents"]["far"].startswith("broken: ")
        await proxy.open()
        async with asyncio.timeout(BOUND):
            while (await gateway.http.get("/readyz")).json()["agents"]["far"] != "ok":
                pass


async def test_an_answer_after_a_restart_finds_the_server(tmp_path: Path) -> None:
    async with upstream(tmp_path) as proxy:
        await proxy.open()
        async with fronting(tmp_path, proxy, agent="ask") as gateway:
            ask_ = Submission(agent="far", input=RunInput(messages=(Message.of("Hi", "user"),)))
            paused = await gateway.hub.submit(OWNER, ask_)
            await ended(gateway, paused.thread_id, paused.run_id)
        proxy.shut()
        async with fronting(tmp_path, proxy, agent="ask") as gateway:
            assert gateway.hub.registry.get("far").broken is not None
            await proxy.open()
            answered = await gateway.hub.answer(OWNER, Answers(task_id=paused.task_id, bare="Ada"))
            await ended(gateway, answered.thread_id, answered.run_id)
            run = await gateway.hub.reads.run(OWNER, answered.run_id)
            assert run.status == "success", run.fault


async def ended(gateway: Running, thread_id: str, run_id: str) -> None:
    async with asyncio.timeout(BOUND):
        async for _ in gateway.hub.reads.follow(OWNER, Scope(thread_id, "run", run_id)):
            pass


async def test_a_server_without_a_name_adds_all_its_agents(tmp_path: Path) -> None:
    async with upstream(tmp_path) as proxy:
        agents = {"shout": {"python": "babelgate.gateway.demo:echo"}}
        registry = await connect(Settings.model_validate({"agents": agents}), [proxy.url, f"{proxy.url}/a2a/ask"])
        address = proxy.url.removeprefix("http://").replace(":", "-")
        assert [each.info.name for each in registry.all()] == ["shout", address, f"{address}-2"]
        await proxy.open()
        found = await registry.get_reachable(address)
        assert (found.broken, found.info.name, found.info.description) == (
            None,
            "shout-2",
            "Convert the text to capitals.",
        )
        assert [each.info.name for each in registry.all()] == ["shout", "shout-2", "ask", f"{address}-2"]
        assert registry.get(address) is registry.get(agent_uuid("shout-2")) is found
        assert (await registry.get_reachable(f"{address}-2")).info.name == "ask-2"
        assert [registry.has_agent(name) for name in ("ask-2", address)] == [True, False]
        await registry.aclose()


class Counted:
    """An ACP server that counts requests for its agents, and has none until `works` is set."""

    def __init__(self) -> None:
        self.requests = 0
        self.came = asyncio.Event()
        self.go = asyncio.Event()
        self.works = False
        self.headers: dict[str, str] = {}

    def app(self) -> Litestar:
        @get("/agents")
        async def agents() -> Response[Any]:
            self.requests += 1
            self.came.set()
            await self.go.wait()
            if not self.works:
                return Response({"code": "server_error", "message": "not yet"}, status_code=503)
            return Response({"agents": [{"name": "far", "description": ""}]}, headers=self.headers)

        return Litestar([agents], openapi_config=None, logging_config=None)


async def test_concurrent_calls_share_one_lookup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Counted()
    server.go.set()
    async with serving(server.app()) as url:
        registry = await connect(Settings.model_validate({"agents": {"far": {"url": url, "protocol": "acp"}}}))
        server.go.clear()
        server.came.clear()
        calls = [asyncio.ensure_future(registry.get_reachable("far")) for _ in range(3)]
        async with asyncio.timeout(BOUND):
            await server.came.wait()
            cancelled_call = calls.pop()
            cancelled_call.cancel()
            await asyncio.wait((cancelled_call,))
            registry.detect_broken()
            server.go.set()
            found = await asyncio.gather(*calls)
        assert server.requests == 2, "once at the start, and once for all three calls"
        for each in found:
            assert each.broken == f"{url}: The agent's server answered 503: not yet"
        server.works = True
        monkeypatch.setattr(registries, "_MIN_INTERVAL", 60.0)
        registry.detect_broken()
        assert server.requests == 2, "the last attempt was a moment ago"
        assert (await registry.get_reachable("far")).broken is None
        assert (await registry.get_reachable("far")).broken is None
        assert server.requests == 3, "an available server must not be requested"
        await registry.aclose()


async def test_a_server_that_is_the_gateway_itself_stays_broken() -> None:
    server, listener = Counted(), listen()
    server.works, server.headers = True, {"Babelgate": f"1.0; instance={INSTANCE}"}
    server.go.set()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    registry = await connect(Settings.model_validate({"agents": {"far": {"url": url, "protocol": "acp"}}}))
    registry.disown(INSTANCE)
    async with serving(server.app(), listener):
        for _ in range(2):
            found = await registry.get_reachable("far")
            assert (found.agent, found.broken) == (None, "its URL leads back to this gateway")
    assert server.requests == 1
    await registry.aclose()


async def test_a_stopping_gateway_does_not_wait_for_a_lookup() -> None:
    server = Counted()
    server.go.set()
    with capture_log() as log:
        async with serving(server.app()) as url:
            registry = await connect(Settings.model_validate({"agents": {"far": {"url": url, "protocol": "acp"}}}))
            server.go.clear()
            server.came.clear()
            registry.detect_broken()
            async with asyncio.timeout(BOUND):
                await server.came.wait()
                await registry.aclose()
            server.go.set()
    assert log.errors == []


async def test_a_module_is_not_imported_again() -> None:
    registry = await connect(Settings.model_validate({"agents": {"bad": {"python": "no.such.module:agent"}}}))
    assert await registry.get_reachable("bad") is registry.get("bad")
