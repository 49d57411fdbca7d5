"""Tests of the registry: it imports agents or detects them on their servers, and lists broken ones with a reason."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar, Request, Response, get, post

from babelgate.adapters.langchain.client import discovery
from babelgate.adapters.langchain.client import server as servers
from babelgate.canonical import FaultCode, FaultError, Invocation, RunInput, TextPart
from babelgate.canonical.event import PartAdded
from babelgate.gateway.agents.failover import ServerPool
from babelgate.gateway.agents.python.agent import InProcess
from babelgate.gateway.agents.registry import Registry, agent_uuid, connect
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Settings, Timeout
from tests.gateway.hubs import eventually
from tests.gateway.hubs import text as texts
from tests.gateway.log_capture import capture_log
from tests.running import running
from tests.serving import listen, serving

INSTANCE = "5f0c1d0e-0000-4000-8000-000000000001"


def settings(**agents: Mapping[str, Any]) -> Settings:
    return Settings.model_validate({"agents": {name.replace("_", "-"): each for name, each in agents.items()}})


@asynccontextmanager
async def server(*names: str, key: str = "", banner: str = "") -> AsyncGenerator[str]:
    """Run an ACP server that only lists its agents."""

    @get("/agents")
    async def agents(request: Request[Any, Any, Any]) -> Response[bytes]:
        if request.headers.get("authorization", "") != key:
            return Response(b'{"code": "invalid_input", "message": "no key"}', status_code=401)
        listed = [{"name": name, "description": f"Does {name}."} for name in names]
        headers = {"Babelgate": banner} if banner else {}
        return Response(json.dumps({"agents": listed}).encode(), media_type="application/json", headers=headers)

    async with serving(Litestar([agents], openapi_config=None, logging_config=None)) as url:
        yield url


async def broken(found: RegisteredAgent) -> str:
    assert found.agent is None
    assert found.broken is not None
    assert "\n" not in found.broken
    return found.broken


# Names


def test_the_uuid_of_an_agent_is_langgraphs() -> None:
    assert agent_uuid("agent") == "fe096781-5601-53d2-b2f6-0d3403f7e9ca"


async def test_a_registry_finds_only_names_and_uuids() -> None:
    registry = await connect(Settings())
    assert registry.get(agent_uuid("ask")) is registry.get("ask")
    assert registry.get(agent_uuid("ask").upper()) is registry.get("ask")
    for name in ("nobody", "", "Ask", agent_uuid("nobody")):
        with pytest.raises(FaultError) as caught:
            registry.get(name)
        assert caught.value.fault.code is FaultCode.NOT_FOUND
    assert registry.default == "echo", "the first one"
    assert [each.info.name for each in registry.all()][:2] == ["echo", "stream"]


def test_the_default_agent_is_the_configured_one() -> None:
    assert Registry([], "planner").default == "planner"
    assert Registry([]).default is None


# In this process


async def test_the_demo_agents_all_work() -> None:
    registry = await connect(Settings())
    assert [each.broken for each in registry.all()] == [None] * 10
    assert all(isinstance(each.agent, InProcess) for each in registry.all())


@pytest.mark.parametrize(
    ("python", "reason"),
    [
        ("no.such.module:agent", "cannot import no.such.module: ModuleNotFoundError: No module named 'no'"),
        (
            "gateway.demo:echo",
            "cannot import gateway.demo: ModuleNotFoundError: No module named 'gateway'. The package ",
        ),
        ("babelgate.gateway.demo:nothing", "the module babelgate.gateway.demo has no nothing"),
        ("babelgate.gateway.demo:APPROVAL", "babelgate.gateway.demo:APPROVAL: "),
        ("raises_at_import:agent", "cannot import raises_at_import: ZeroDivisionError: division by zero"),
        ("exits_at_import:agent", "cannot import exits_at_import: SystemExit: 3"),
    ],
)
async def test_an_agent_that_cannot_be_imported_is_broken(
    python: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raises_at_import.py").write_text("1 / 0\n")
    (tmp_path / "exits_at_import.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    registry = await connect(settings(bad={"python": python}, good={"python": "babelgate.gateway.demo:echo"}))
    assert (await broken(registry.get("bad"))).startswith(reason)
    assert registry.get("good").broken is None


async def test_modules_of_the_working_directory_can_be_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_in_cwd.py").write_text(
        "class Made:\n    async def say(text):\n        'Says.'\n        return text\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        registry = await connect(settings(mine={"python": "mine_in_cwd:Made.say"}))
    finally:
        sys.modules.pop("mine_in_cwd", None)
    assert registry.get("mine").broken is None
    assert registry.get("mine").info.description == "Says."


async def test_the_settings_of_an_agent_are_applied() -> None:
    python = "babelgate.gateway.demo:echo"
    options = {"concurrency": 3, "timeout": 7, "idempotent": True, "replay": False, "continuable": True, "ai_sdk": 7}
    found = (await connect(settings(mine={"python": python, "description": "Mine.", **options}))).get("mine")
    assert (found.info.name, found.info.description, found.info.continuable) == ("mine", "Mine.", True)
    assert found.info.ai_sdk == 7
    assert (found.concurrency, found.idempotent, found.replay) == (3, True, False)
    assert found.timeout == Timeout(total=7)


def test_langgraph_is_imported_only_for_graphs() -> None:
    program = (
        "import sys, babelgate.gateway.http.app, babelgate.gateway.agents.registry; "
        "sys.exit('langgraph' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode == 0


# Behind a URL


async def test_the_only_agent_of_a_server_may_have_any_name() -> None:
    async with server("forecast") as url:
        found = (await connect(settings(weather={"url": url}))).get("weather")
    assert isinstance(found.agent, ServerPool)
    assert found.detection == f"ACP at {url}: forecast"
    assert (found.info.name, found.info.description) == ("weather", "Does forecast.")


async def test_one_of_several_agents_is_chosen_by_name() -> None:
    async with server("weather", "planner") as url:
        registry = await connect(
            settings(
                weather={"url": url},
                mine={"url": url, "agent": "planner"},
                lost={"url": url},
                wrong={"url": url, "agent": "nobody"},
            )
        )
    assert registry.get("weather").info.description == "Does weather."
    assert registry.get("mine").info.description == "Does planner."
    assert await broken(registry.get("lost")) == (
        f"{url} has several agents, and none is called lost: pick one with {url}#agent; it has weather, planner"
    )
    assert await broken(registry.get("wrong")) == f"{url} has no agent nobody; it has weather, planner"


async def test_a_server_without_a_name_adds_all_agents() -> None:
    async with server("Weather_Man", "echo") as one, server("echo") as two:
        registry = await connect(settings(echo={"python": "babelgate.gateway.demo:echo"}), [one, two])
    assert [each.info.name for each in registry.all()] == ["echo", "weather_man", "echo-2", "echo-3"]
    assert isinstance(registry.get("echo").agent, InProcess), "a configured name must not change"


async def test_a_server_that_refuses_the_headers_is_broken() -> None:
    async with server("a", key="Bearer t") as url:
        registry = await connect(
            settings(known={"url": url, "headers": {"Authorization": "Bearer t"}}, stranger={"url": url})
        )
    assert registry.get("known").broken is None
    assert (await broken(registry.get("stranger"))).startswith(f"{url}: ")


async def test_a_server_of_another_kind_is_broken() -> None:
    @get("/agents")
    async def page() -> str:
        return "<html>hello</html>"

    async with serving(Litestar([page], openapi_config=None, logging_config=None)) as url:
        registry = await connect(settings(web={"url": url}), [url])
    assert (await broken(registry.get("web"))).startswith(f"{url}: ")
    assert len(registry.all()) == 2


async def test_a_server_without_agents_is_broken() -> None:
    async with server() as url:
        reason = await broken((await connect(settings(a={"url": url}))).get("a"))
    assert reason.startswith(f"{url}: found no supported agent protocol. Tried ")
    assert "ACP: it has no agents" in reason


async def test_an_unreachable_server_is_broken_under_its_address() -> None:
    with listen() as unused:
        port = unused.getsockname()[1]
    registry = await connect(settings(echo={"python": "babelgate.gateway.demo:echo"}), [f"http://127.0.0.1:{port}"])
    assert registry.get("echo").broken is None
    assert "cannot be reached" in await broken(registry.get(f"127.0.0.1-{port}"))


async def test_servers_are_discovered_concurrently() -> None:
    waiting: list[asyncio.Event] = []

    def slow() -> Litestar:
        @get("/agents")
        async def agents() -> Mapping[str, Sequence[Mapping[str, str]]]:
            met = asyncio.Event()
            waiting.append(met)
            if len(waiting) == 2:
                for each in waiting:
                    each.set()
            await met.wait()
            return {"agents": [{"name": "a", "description": ""}]}

        return Litestar([agents], openapi_config=None, logging_config=None)

    async with serving(slow()) as one, serving(slow()) as two, asyncio.timeout(30):
        registry = await connect(settings(one={"url": one}, two={"url": two}))
    assert [each.broken for each in registry.all()] == [None, None]


async def test_the_gateway_does_not_front_itself() -> None:
    async with server("echo", banner=f"0.1.0; instance={INSTANCE}") as url, server("other", banner="1.0") as other:
        registry = await connect(settings(mirror={"url": url}, other={"url": other}))
    assert registry.get("mirror").broken is None
    registry.disown("5f0c1d0e-0000-4000-8000-000000000002")
    assert registry.get("mirror").broken is None, "another gateway may be registered"
    registry.disown(INSTANCE)
    assert await broken(registry.get("mirror")) == "its URL leads back to this gateway"
    assert registry.get("other").broken is None


@pytest.mark.parametrize(
    "url", ["http://xn--:80", "http://a..b", f"http://{'a' * 70}.example", "http://256.256.256.256"]
)
async def test_an_invalid_host_is_broken(url: str) -> None:
    registry = await connect(settings(echo={"python": "babelgate.gateway.demo:echo"}, a={"url": url}))
    assert (await broken(registry.get("a"))).startswith(f"{url}: ")
    assert registry.get("echo").broken is None


async def test_a_server_with_an_undecodable_answer_is_broken() -> None:
    @get("/agents")
    async def garbled() -> Response[bytes]:
        return Response(b"no gzip", headers={"Content-Encoding": "gzip"})

    async with serving(Litestar([garbled], openapi_config=None, logging_config=None)) as url:
        registry = await connect(settings(a={"url": url}))
    assert "cannot be decompressed" in await broken(registry.get("a"))


# Secrets

SECRET = "s3cret-of-the-upstream"


@asynccontextmanager
async def guarded(keys: list[str], status: int) -> AsyncGenerator[str]:
    """Run an ACP server that stores the keys of requests, and whose runs fail."""

    @get("/agents")
    async def agents(request: Request[Any, Any, Any]) -> Response[bytes]:
        keys.append(request.headers["authorization"])
        return Response(b'{"agents": [{"name": "a"}]}', status_code=status, media_type="application/json")

    @post("/runs")
    async def run(request: Request[Any, Any, Any]) -> Response[bytes]:
        keys.append(request.headers["authorization"])
        body = b'{"code": "server_error", "message": "no"}'
        return Response(body, status_code=500, media_type="application/json")

    async with serving(Litestar([agents, run], openapi_config=None, logging_config=None)) as url:
        yield url


@pytest.mark.parametrize("status", [200, 401])
async def test_the_headers_of_an_upstream_stay_hidden(tmp_path: Path, status: int) -> None:
    keys: list[str] = []
    texts_to_check: list[str] = []
    with capture_log(logging.DEBUG) as logs:
        async with guarded(keys, status) as url:
            configured = settings(a={"url": url, "headers": {"Authorization": f"Bearer {SECRET}"}})
            registry = await connect(configured)
            texts_to_check += [
                repr(configured),
                str(configured),
                configured.model_dump_json(),
                repr(registry.all()),
                repr(registry.get("a").agent),
            ]
            async with running(tmp_path, registered={"a": registry.get("a")}) as gateway:
                run = {"agent_name": "a", "input": [{"role": "user", "parts": [{"content": "hi"}]}]}
                answers = [await gateway.http.post("/acp/runs", json=run)]
                paths = ("/", "/readyz", "/acp/agents", "/a2a/a/.well-known/agent-card.json", "/a2a/a/tasks")
                answers += [await gateway.http.get(path, headers={"A2A-Version": "1.0"}) for path in paths]
                texts_to_check += [f"{answer.headers} {answer.text}" for answer in answers]
            await registry.aclose()
    assert set(keys) == {f"Bearer {SECRET}"}
    assert len(keys) == 2, "once at the start, and once for the call"
    for text in (*texts_to_check, logs.text):
        assert SECRET not in text


# Servers that are slow, or fail to describe their agents


@dataclass
class Slow:
    """LangGraph server with one graph.

    It lists the graph when `lists` is set, describes it when `describes` is set, and runs it at once.
    """

    lists: asyncio.Event = field(default_factory=asyncio.Event)
    describes: asyncio.Event = field(default_factory=asyncio.Event)
    status: int = 200
    """Status of its responses to requests for lists and descriptions."""

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        graph = {"assistant_id": agent_uuid("agent"), "graph_id": "agent", "metadata": {"created_by": "system"}}

        @post("/assistants/search", status_code=200)
        async def search() -> Response[Any]:
            await self.lists.wait()
            return Response([graph], status_code=self.status)

        @get("/assistants/{assistant:str}/schemas")
        async def schemas() -> Response[Any]:
            await self.describes.wait()
            body: Any = {"graph_id": "agent", "input_schema": {"properties": {"messages": {}}}}
            return Response(body, status_code=self.status)

        @post("/threads/{thread:str}/runs/stream", status_code=200)
        async def run() -> Response[bytes]:
            run_id = "22222222-2222-4222-8222-222222222222"
            values = {"messages": [{"type": "ai", "id": "a", "content": "Done."}]}
            frames = [("metadata", {"run_id": run_id}), ("values", values), ("end", None)]
            body = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in frames)
            return Response(body.encode(), media_type="text/event-stream")

        async with serving(Litestar([search, schemas, run], openapi_config=None, logging_config=None)) as url:
            try:
                yield url
            finally:
                self.lists.set()
                self.describes.set()


NAMED = {"protocol": "langgraph", "agent": "agent"}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time limits of requests that never end in these tests."""
    monkeypatch.setattr(discovery, "SCHEMAS_TIMEOUT", 0.1)
    monkeypatch.setattr(servers, "SCHEMAS_TIMEOUT", 0.1)


async def answer_of(found: RegisteredAgent) -> str:
    assert found.agent is not None
    call = Invocation(agent="a", thread_id="t", task_id="k", run_id="r", input=RunInput(messages=texts("Hi")))
    parts = [event.part async for event in found.agent.run(call) if isinstance(event, PartAdded)]
    return "".join(part.text for part in parts if isinstance(part, TextPart))


@pytest.mark.usefixtures("quick")
async def test_a_silent_server_is_added_when_it_answers() -> None:
    slow = Slow()
    async with slow.serving() as url, asyncio.timeout(30):
        configured = settings(echo={"python": "babelgate.gateway.demo:echo"}, a={"url": url})
        registry = await connect(configured, [url], patience=0.1)
        assert [each.broken for each in registry.all()] == [None, *["its server has not answered yet"] * 2]
        slow.lists.set()
        slow.describes.set()
        await registry.settle()
        assert [each.info.name for each in registry.all()] == ["echo", "a", "agent"]
        assert (await answer_of(registry.get("a")), registry.get("a").broken) == ("Done.", None)
        await registry.aclose()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("status", [200, 500, 503])
async def test_a_configured_agent_is_called_without_a_description(status: int) -> None:
    slow = Slow(status=status)
    if status != 200:
        slow.lists.set()
        slow.describes.set()
    async with slow.serving() as url, asyncio.timeout(30):
        registry = await connect(settings(a={"url": url, **NAMED}), patience=0.1)
        found = await registry.get_reachable("a")
        assert found.broken is not None and found.info.stateful
        assert await answer_of(found) == "Done."
        await registry.aclose()


@pytest.mark.usefixtures("quick")
async def test_a_late_description_of_an_agent_is_used() -> None:
    slow = Slow()
    slow.lists.set()
    async with slow.serving() as url, asyncio.timeout(30):
        registry = await connect(settings(a={"url": url}))
        assert (registry.get("a").broken, registry.get("a").info.schemas) == (None, {})
        assert await answer_of(registry.get("a")) == "Done."
        slow.describes.set()
        await eventually(lambda: "input" in registry.get("a").info.schemas)
        await registry.aclose()


@pytest.mark.usefixtures("quick")
async def test_a_call_retries_a_broken_agent_at_once() -> None:
    slow = Slow(status=500)
    slow.lists.set()
    slow.describes.set()
    async with slow.serving() as url, asyncio.timeout(30):
        registry = await connect(settings(a={"url": url}))
        for _ in range(2):
            assert (await registry.get_reachable("a")).agent is None
        slow.status = 200
        assert await answer_of(await registry.get_reachable("a")) == "Done."
        await registry.aclose()


@pytest.mark.usefixtures("quick")
async def test_a_call_of_a_broken_agent_waits_until_its_timeout() -> None:
    slow = Slow()
    async with slow.serving() as url, asyncio.timeout(8):  # the detection itself may take ten seconds
        registry = await connect(settings(a={"url": url, "timeout": 0.2}), patience=0.1)
        assert (await registry.get_reachable("a")).agent is None
        assert not slow.lists.is_set()
        await registry.aclose()
