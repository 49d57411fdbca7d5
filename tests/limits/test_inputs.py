"""What callers say at once, and what they keep: bounded in every protocol, and what is within the bounds holds nobody
up."""

from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical.value import JsonObject
from tests.limits.strain import MB, Strained, strained

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

V1: Final = {"A2A-Version": "1.0"}
MOST: Final = 8 * MB
LARGE: Final = 60 * MB
REFUSAL: Final = "The input is larger than"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Strained]:
    async with strained(tmp_path_factory.mktemp("gateway")) as running:
        yield running


def run(text: str, **more: Any) -> JsonObject:
    return {"assistant_id": "echo", "input": {"messages": [{"role": "user", "content": text}]}, **more}


def a2a(text: str) -> JsonObject:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}}


def asked(path: str, text: str) -> JsonObject:
    bodies: dict[str, JsonObject] = {
        "/runs/wait": run(text),
        "/runs/stream": run(text),
        "/threads/{thread}/runs/wait": run(text),
        "/threads/{thread}/runs/stream": run(text),
        "/threads/{thread}/state": {"values": {"text": text}},
        "/agent-protocol/runs/wait": {"agent_id": "echo", "input": {"text": text}},
        "/a2a/echo/message:send": a2a(text),
        "/a2a/echo/message:stream": a2a(text),
        "/acp/runs": {"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": text}]}]},
        "/ap/v1/agent/tasks": {"input": text},
        "/store/items": {"namespace": ["a"], "key": "k", "value": {"text": text}},
        "/threads": {"metadata": {"text": text}},
    }
    return bodies[path]


PATHS: Final = (
    "/runs/wait",
    "/runs/stream",
    "/threads/{thread}/runs/wait",
    "/threads/{thread}/runs/stream",
    "/threads/{thread}/state",
    "/agent-protocol/runs/wait",
    "/a2a/echo/message:send",
    "/a2a/echo/message:stream",
    "/acp/runs",
    "/ap/v1/agent/tasks",
)


async def send(gateway: Strained, path: str, body: JsonObject) -> tuple[int, str]:
    if "{thread}" in path:
        path = path.format(thread=(await gateway.http.post("/threads", json={})).json()["thread_id"])
    method = "PUT" if path == "/store/items" else "POST"
    answer = await gateway.http.request(method, path, json=body, headers=V1)
    return answer.status_code, answer.text


@pytest.mark.parametrize("path", [*PATHS, "/store/items", "/threads"])
async def test_a_text_that_is_too_large_is_refused_and_holds_nobody_up(gateway: Strained, path: str) -> None:
    async with gateway.watched() as strain:
        status, told = await send(gateway, path, asked(path, "x" * LARGE))
    assert (status, REFUSAL in told) == (413, True), told[:500]
    strain.check(LARGE)


@pytest.mark.parametrize("path", PATHS)
async def test_a_text_as_large_as_may_be_is_taken_and_holds_nobody_up(gateway: Strained, path: str) -> None:
    async with gateway.watched() as strain:
        status, told = await send(gateway, path, asked(path, "x" * (MOST - 10_000)))
    assert status == 200, told[:500]
    strain.check(MOST)


async def test_characters_are_counted_as_the_bytes_they_are(gateway: Strained) -> None:
    status, told = await send(gateway, "/runs/wait", run("é" * (MOST // 2 + 1)))
    assert (status, REFUSAL in told) == (413, True), told[:500]


async def test_a_file_may_be_larger_than_a_text(gateway: Strained) -> None:
    file = {"type": "file", "base64": "QUFB" * (3 * MB), "mime_type": "text/plain"}
    body = {"assistant_id": "echo", "input": {"messages": [{"role": "user", "content": [file]}]}}
    status, told = await send(gateway, "/runs/wait", body)
    assert status == 200, told[:500]


async def test_metadata_that_grows_change_by_change_is_refused_in_the_end(gateway: Strained) -> None:
    thread = (await gateway.http.post("/threads", json={})).json()["thread_id"]
    for number in range(3):
        body = {"metadata": {f"text {number}": "x" * 400_000}}
        answer = await gateway.http.patch(f"/threads/{thread}", json=body)
        assert answer.status_code == (200 if number < 2 else 413), answer.text[:500]
    answer = await gateway.http.patch(f"/threads/{thread}", json={"metadata": {"text 0": ""}})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/runs/wait", "/threads/{thread}/runs/wait"])
async def test_metadata_of_a_run_is_smaller_than_its_input(gateway: Strained, path: str) -> None:
    status, told = await send(gateway, path, run("hi", metadata={"text": "x" * (2 * MB)}))
    assert (status, REFUSAL in told) == (413, True), told[:500]
