"""Chains of calls: the depth in headers and bodies, and circles of gateways that a limit cuts."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.adapters.kit.tracing import CHAIN, HOPS, add_trace, hops_of, note_hops
from babelgate.canonical import FaultError
from babelgate.gateway.exchange import enter_exchange
from babelgate.gateway.runs.chains import Chains
from babelgate.gateway.settings.limits import ChainLimit
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.storage.spend import list_spend
from tests.behaviour.test_forbidden import message, rpc, tool
from tests.gateway.valid import MCP, V1
from tests.running import Running, running

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = f"00-{TRACE}-b7ad6b7169203331-01"


def enter(limit: ChainLimit | None, headers: dict[str, str] | None = None, **trace: str) -> dict[str, str]:
    """Return the headers that a run sends with its calls, if it was started by a request with these `headers`. `trace`
    has the headers of the current span."""
    scope = {"headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()]}
    chains = Chains(lambda: limit)
    chains.instance = "0123456789"

    def enter_in_request() -> dict[str, str]:
        enter_exchange(scope, headers={})
        return dict(chains.enter(trace))

    return copy_context().run(enter_in_request)


@pytest.mark.parametrize(
    ("state", "changed"),
    [
        ("", "babelgate=h:1"),
        ("babelgate=h:3", "babelgate=h:4"),
        ("vendor=1 , babelgate=h:3,other=2", "babelgate=h:4,vendor=1,other=2"),
        ("babelgate=h:x", "babelgate=h:1"),
        (",".join(f"a{number}=1" for number in range(40)), None),
        ("a=" + "x" * 600, "babelgate=h:1"),
    ],
)
def test_the_depth_is_a_member_of_tracestate(state: str, changed: str | None) -> None:
    sent = enter(ChainLimit(), {"traceparent": PARENT, "tracestate": state})
    if changed is None:
        assert sent["tracestate"].count("=") == 32
    else:
        assert sent["tracestate"] == changed
    assert (sent["traceparent"], sent["via"]) == (PARENT, "1.1 babelgate-01234567")


def test_without_the_setting_nothing_is_sent() -> None:
    assert enter(None, {"traceparent": PARENT, "tracestate": "babelgate=h:90"}) == {}


@pytest.mark.parametrize("parent", ["", "junk", f"00-{'0' * 32}-b7ad6b7169203331-01"])
def test_a_caller_without_a_trace_begins_a_chain(parent: str) -> None:
    sent = enter(ChainLimit(), {"traceparent": parent})
    assert len(sent["traceparent"]) == 55 and sent["traceparent"] != parent


def test_a_call_beyond_the_depth_is_refused() -> None:
    with pytest.raises(FaultError) as raised:
        enter(ChainLimit(), {"tracestate": "babelgate=h:8"})
    assert raised.value.fault.message == (
        "This call is 9 deep, limits.chain.depth allows 8: do agents call each other in a circle?"
    )
    assert raised.value.fault.details == {"limit": "chain", "used": 9, "allowed": 8}


def test_the_depth_is_in_the_metadata_of_messages() -> None:
    copy_context().run(check_metadata)


def check_metadata() -> None:
    CHAIN.set({"tracestate": "babelgate=h:3"})
    message: dict[str, Any] = {"metadata": {"a": 1}}
    add_trace(message)
    assert message == {"metadata": {"a": 1, HOPS: 3}}
    note_hops(message["metadata"])
    assert hops_of(enter(ChainLimit())["tracestate"]) == 4
    note_hops({HOPS: -1})
    assert hops_of(enter(ChainLimit())["tracestate"]) == 1


# Circles

AGENTS: Final = {
    "a2a": {"url": "{url}/a2a/ping", "protocol": "a2a"},
    "acp": {"url": "{url}/acp", "protocol": "acp", "agent": "ping"},
    "aief": {"url": "{url}/agent/ping/ap/v1", "protocol": "aief"},
    "langgraph": {"url": "{url}", "protocol": "langgraph", "agent": "ping"},
    "openai": {"url": "{url}/v1", "protocol": "openai", "agent": "ping"},
}
"""The agent `ping` of another gateway, by protocol."""
BODY: Final = {"model": "ping", "messages": [{"role": "user", "content": "hi"}]}


def configured(protocol: str, url: str) -> dict[str, Any]:
    agent = AGENTS[protocol]
    return {"ping": {**agent, "url": agent["url"].replace("{url}", url)}}


async def count_runs(gateway: Running) -> int:
    """Return the number of runs of all chains."""
    return sum([row.used.runs for row in await gateway.hub.journal.query(list_spend, [("chain ", "default")], 100)])


def ping(text: str) -> str:
    """Answer with the text, until another gateway takes the place of this agent."""
    return text


@asynccontextmanager
async def circle(folder: Path, protocol: str, **chain: int) -> AsyncGenerator[tuple[Running, Running]]:
    """Serve two gateways, each of whose agents `ping` is the one of the other gateway."""
    for name in ("first", "second"):
        (folder / name).mkdir()
    limits: dict[str, Any] = {"chain": chain}
    async with running(folder / "second", {"ping": ping}, limits=limits) as second:
        agents = configured(protocol, second.url)
        async with running(folder / "first", configured=agents, limits=limits) as first:
            agents = Settings.model_validate({"agents": configured(protocol, first.url)}).agents
            report = await second.generations.apply(second.settings.model_copy(update={"agents": agents}))
            assert report.is_ok and not report.broken, report
            yield first, second


@pytest.mark.parametrize("protocol", AGENTS)
async def test_a_circle_of_agents_is_cut(tmp_path: Path, protocol: str) -> None:
    async with circle(tmp_path, protocol, depth=4) as gateways:
        response = await gateways[0].http.post("/v1/chat/completions", json=BODY)
        assert response.status_code >= 400
        assert response.headers["via"].startswith("1.1 babelgate-")
        counts = [await count_runs(gateway) for gateway in gateways]
        if protocol == "acp":  # the session returns to the first gateway, which executes a run in it
            assert "This call would wait for the run that has caused it" in response.text and counts == [2, 1]
        else:
            assert "This call is 5 deep, limits.chain.depth allows 4" in response.text and counts == [2, 2]


async def test_a_chain_is_cut_at_its_number_of_runs(tmp_path: Path) -> None:
    async with circle(tmp_path, "a2a", depth=100, runs=3) as gateways:
        response = await gateways[0].http.post("/v1/chat/completions", json=BODY)
        assert "This chain of calls has started 3 runs, limits.chain.runs allows 3" in response.text
        assert [await count_runs(gateway) for gateway in gateways] == [3, 3]
        assert (await gateways[0].http.post("/v1/chat/completions", json=BODY)).status_code >= 400  # a new chain
        assert [await count_runs(gateway) for gateway in gateways] == [6, 6]


@pytest.mark.parametrize("path", ["/a2a/echo", "/mcp"])
async def test_the_depth_in_a_body_counts(tmp_path: Path, path: str) -> None:
    metadata = {HOPS: 8}
    body: Any = tool("echo", message="hi") if path == "/mcp" else rpc("SendMessage", {"message": message()})
    if path == "/mcp":
        body["params"]["_meta"] = metadata
    else:
        body["params"]["message"]["metadata"] = metadata
    async with running(tmp_path, limits={"chain": {}}) as gateway:
        response = await gateway.http.post(path, json=body, headers={**V1, **MCP})
        assert "This call is 9 deep" in response.text
