"""Size limits of inputs and of stored values in every protocol. Values within the limits do not block other callers."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from babelgate.canonical.value import JsonObject
from tests.limits.strain import MB, SLOW, Strained

pytestmark = SLOW

V1: Final = {"A2A-Version": "1.0"}
MOST: Final = 8 * MB
LARGE: Final = 60 * MB
REFUSAL: Final = "The input is larger than"


def run(text: str, **more: Any) -> JsonObject:
    return {"assistant_id": "echo", "input": {"messages": [{"role": "user", "content": text}]}, **more}


def a2a(text: str) -> JsonObject:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}}


INPUTS: Final[dict[str, Callable[[str], JsonObject]]] = {
    "/runs/wait": run,
    "/runs/stream": run,
    "/threads/{thread}/runs/wait": run,
    "/threads/{thread}/runs/stream": run,
    "/threads/{thread}/state": lambda text: {"values": {"text": text}},
    "/agent-protocol/runs/wait": lambda text: {"agent_id": "echo", "input": {"text": text}},
    "/a2a/echo/message:send": a2a,
    "/a2a/echo/message:stream": a2a,
    "/acp/runs": lambda text: {"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": text}]}]},
    "/ap/v1/agent/tasks": lambda text: {"input": text},
}
STORED: Final[dict[str, Callable[[str], JsonObject]]] = {
    "/store/items": lambda text: {"namespace": ["a"], "key": "k", "value": {"text": text}},
    "/threads": lambda text: {"metadata": {"text": text}},
}


async def send(gateway: Strained, path: str, body: JsonObject) -> tuple[int, str]:
    if "{thread}" in path:
        path = path.format(thread=(await gateway.http.post("/threads", json={})).json()["thread_id"])
    method = "PUT" if path == "/store/items" else "POST"
    answer = await gateway.http.request(method, path, json=body, headers=V1)
    return answer.status_code, answer.text


@pytest.mark.parametrize("path", [*INPUTS, *STORED])
async def test_too_large_a_text_is_refused_without_blocking_others(gateway: Strained, path: str) -> None:
    async with gateway.watched() as strain:
        status, text = await send(gateway, path, {**INPUTS, **STORED}[path]("x" * LARGE))
    assert (status, REFUSAL in text) == (413, True), text[:500]
    strain.check(LARGE)


@pytest.mark.parametrize("path", INPUTS)
async def test_the_largest_text_is_accepted_without_blocking_others(gateway: Strained, path: str) -> None:
    async with gateway.watched() as strain:
        status, text = await send(gateway, path, INPUTS[path]("x" * (MOST - 10_000)))
    assert status == 200, text[:500]
    strain.check(MOST)


async def test_characters_count_as_bytes(gateway: Strained) -> None:
    status, text = await send(gateway, "/runs/wait", run("é" * (MOST // 2 + 1)))
    assert (status, REFUSAL in text) == (413, True), text[:500]


async def test_a_file_may_be_larger_than_a_text(gateway: Strained) -> None:
    file = {"type": "file", "base64": "QUFB" * (3 * MB), "mime_type": "text/plain"}
    body = {"assistant_id": "echo", "input": {"messages": [{"role": "user", "content": [file]}]}}
    status, text = await send(gateway, "/runs/wait", body)
    assert status == 200, text[:500]


async def test_metadata_that_grows_over_the_limit_is_refused(gateway: Strained) -> None:
    thread = (await gateway.http.post("/threads", json={})).json()["thread_id"]
    for number in range(3):
        body = {"metadata": {f"text {number}": "x" * 400_000}}
        answer = await gateway.http.patch(f"/threads/{thread}", json=body)
        assert answer.status_code == (200 if number < 2 else 413), answer.text[:500]
    answer = await gateway.http.patch(f"/threads/{thread}", json={"metadata": {"text 0": ""}})
    assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/runs/wait", "/threads/{thread}/runs/wait"])
async def test_metadata_of_a_run_has_a_smaller_limit(gateway: Strained, path: str) -> None:
    status, text = await send(gateway, path, run("hi", metadata={"text": "x" * (2 * MB)}))
    assert (status, REFUSAL in text) == (413, True), text[:500]
