"""Pass-through from ACP to ACP: callers see what the upstream sends, except for the listed differences."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from babelgate.adapters.acp.agents import decode_agents
from babelgate.adapters.acp.client import Client
from babelgate.adapters.kit.extension import URI
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.adapters.acp.site import Site, message, opened
from tests.adapters.acp.test_client import RUN, SESSION, Far
from tests.bridge import client as bridge
from tests.difference import differences

AT = "2026-01-02T03:04:05.000006Z"


def unknown(level: str) -> dict[str, Any]:
    """Return a member that the protocol does not define, for an object of the kind `level`."""
    return {f"x-{level}": {"k": [1, "ü", None]}}


def part(**members: Any) -> dict[str, Any]:
    plain: dict[str, Any] = dict.fromkeys(("name", "content", "content_url", "metadata"))
    return {**plain, "content_type": "text/plain", "content_encoding": "plain", **members, **unknown("part")}


def citation(**members: Any) -> dict[str, Any]:
    return {"kind": "citation", **dict.fromkeys(("start_index", "end_index", "url", "title", "description")), **members}


def trajectory(**members: Any) -> dict[str, Any]:
    return {"kind": "trajectory", **dict.fromkeys(("message", "tool_name", "tool_input", "tool_output")), **members}


PARTS = [
    part(content="Hello"),
    part(content=", you", content_type="text/markdown"),
    part(content='{"n": 1}', content_type="application/json"),
    part(metadata=citation(start_index=0, end_index=2, url="http://a.b", title="T", **unknown("citation"))),
    part(metadata=trajectory(message="m", tool_name="f", tool_input={"q": 1}, tool_output={"r": [1]}, **unknown("t"))),
    part(metadata=trajectory(message="only words")),
    part(content="words", metadata={"kind": "another", "k": 1}),
    part(content="words", metadata={"no": "kind"}),
    part(name="a.txt", content="file", metadata=citation(url="u")),
    part(name="b.bin", content="AAE=", content_encoding="base64", content_type="application/x-b"),
    part(name="c", content_url="http://x.y/z", content_type="text/html"),
]
MESSAGE = {"role": "agent/far", "parts": PARTS, "created_at": AT, "completed_at": AT, **unknown("message")}


def run(status: str, **members: Any) -> dict[str, Any]:
    ids = {"run_id": RUN, "agent_name": "far", "session_id": SESSION}
    rest: dict[str, Any] = {"await_request": None, "output": [], "error": None, "created_at": AT, "finished_at": None}
    return {**ids, "status": status, **rest, **members, **unknown("run")}


def event(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": kind, **members, **unknown("event")}


AWAIT_REQUEST = {"type": "message", "message": MESSAGE, **unknown("request")}
OPENED = [event("run.created", run=run("created")), event("run.in-progress", run=run("in-progress"))]
OUTPUT = [
    event("generic", generic={"progress": 1, "deep": {"a": [1]}}),
    event("generic", generic={"name": "n", "value": {"a": [1]}, "more": 2}),
    event("generic", generic={"thought": "I sh"}),
    event("generic", generic={"thought": "ould.", "tool_name": "f"}),
    event("generic", generic={"tool_output": "x", "agent_idx": 0}),
    event("message.created", message={**MESSAGE, "parts": [], "completed_at": None}),
    event("generic", generic={"thought": "Within."}),
    *(event("message.part", part=each) for each in PARTS),
    event("message.completed", message=MESSAGE),
    {"type": "another", "k": 1},
]
DONE = run("completed", output=[MESSAGE], finished_at=AT)
STREAM = [*OPENED, *OUTPUT, event("run.completed", run=DONE)]

DIFFERENCES = {
    "run_id": "the gateway's: the same in all protocols",
    "session_id": "the caller's, or the gateway's",
    "created_at": "the gateway's clock, but for messages",
    "finished_at": "the gateway's clock",
}
"""Reasons of the expected differences, by the name of the member."""


def unexplained(upstream: Any, gateway: Any) -> list[str]:
    """Return the paths of the differences that have no reason."""
    return [
        path
        for path in differences(upstream, gateway)
        # The gateway does not store further members of an event, except in generic events.
        if not path.endswith(".x-event")
        # Times of messages are not replaced.
        and (path.rpartition(".")[2].lstrip("!") not in DIFFERENCES or "message" in path)
    ]


@asynccontextmanager
async def through(folder: Path, stream: list[dict[str, Any]]) -> AsyncGenerator[tuple[Far, Site]]:
    far = Far()
    far.set("POST /runs", stream)
    [info] = decode_agents({"agents": [MANIFEST]})
    async with bridge(cast("Any", far)) as http:
        client = Client("http://far", "far", http=http)
        async with opened(folder, registered=[RegisteredAgent(info, client)]) as site:
            yield far, site


async def test_a_stream_equals_that_of_the_upstream(tmp_path: Path) -> None:
    async with through(tmp_path, STREAM) as (_, site):
        body = {"agent_name": "far", "input": [message("Hi")], "mode": "stream"}
        answer = await site.post("/runs", body)
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        for received in (events, await site.events(events[0]["run"]["run_id"])):
            # The first two events come from the gateway, before the server has the run.
            assert [each for each in unexplained(STREAM[:2], received[:2]) if not each.endswith("run.x-run")] == []
            assert unexplained(STREAM[2:], received[2:]) == []
            assert received[2]["x-event"] == STREAM[2]["x-event"]


async def test_a_run_equals_that_of_the_upstream(tmp_path: Path) -> None:
    async with through(tmp_path, STREAM) as (_, site):
        ended = await site.run("far", mode="sync")
        assert unexplained(DONE, ended) == []
        assert unexplained(DONE, (await site.get(f"/runs/{ended['run_id']}")).json()) == []


async def test_a_question_equals_that_of_the_upstream(tmp_path: Path) -> None:
    asks = run("awaiting", await_request=AWAIT_REQUEST)
    async with through(tmp_path, [*OPENED, event("run.awaiting", run=asks)]) as (_, site):
        assert unexplained(asks, await site.run("far", mode="sync")) == []


async def test_too_large_members_of_a_run_are_a_loss(tmp_path: Path) -> None:
    large = {**DONE, "x-run": "x" * 70_000}
    async with through(tmp_path, [*OPENED, *OUTPUT, event("run.completed", run=large)]) as (_, site):
        answer = await site.create("far", mode="sync")
        assert len(answer.json()["x-run"]) == 1
        assert "too large" in answer.headers["Babelgate-Loss"]


# Manifests

MANIFEST: dict[str, Any] = {
    "name": "far",
    "description": "D",
    "input_content_types": ["text/plain"],
    "output_content_types": ["text/plain", "image/png"],
    "metadata": {
        "annotations": {"beeai_ui": {"ui_type": "chat"}},
        "documentation": "doc",
        "license": "MIT",
        "programming_language": "Python",
        "natural_languages": ["en"],
        "framework": "F",
        "capabilities": [{"name": "c", "description": "d", **unknown("capability")}],
        "domains": ["x"],
        "tags": ["t"],
        "created_at": AT,
        "updated_at": AT,
        "author": {"name": "A", "email": "a@b.c", "url": None, **unknown("author")},
        "contributors": [{"name": "B", "email": None, "url": None}],
        "links": [{"type": "homepage", "url": "http://x", **unknown("link")}],
        "dependencies": [{"type": "tool", "name": "z"}],
        "recommended_models": ["m"],
        **unknown("metadata"),
    },
    "status": {"avg_run_tokens": 1.5, "avg_run_time_seconds": 2.0, "success_rate": 99.0},
    **unknown("manifest"),
}


async def test_a_manifest_equals_that_of_the_upstream(tmp_path: Path) -> None:
    async with through(tmp_path, STREAM) as (_, site):
        manifest = (await site.get("/agents/far")).json()
        assert manifest in (await site.get("/agents")).json()["agents"]
        del manifest["metadata"]["annotations"][URI]  # the gateway adds it
        assert list(differences(MANIFEST, manifest)) == []
