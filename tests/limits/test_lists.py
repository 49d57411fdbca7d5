"""Responses larger than the memory of many machines: they are created and sent piece by piece."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpx
import pytest

from babelgate.canonical.value import JsonObject
from tests.limits.strain import MB, SLOW, Strained

pytestmark = SLOW

SIZE: Final = 2 * MB
MANY: Final = 25
TEXT: Final = "x" * SIZE
MEMORY: Final = 100 * MB
"""Maximum memory for answers of 50 MB, in bytes. Formerly there were three or four copies at once.

Measured: up to 69 MB, and 84 MB on a machine that ran other tests.
"""
V1: Final = {"A2A-Version": "1.0"}


async def post(gateway: Strained, path: str, body: JsonObject, **headers: str) -> Any:
    answer = await gateway.http.post(path, json=body, headers=headers)
    assert answer.status_code < 300, answer.text[:500]
    return answer.json()


async def new_thread(gateway: Strained, **body: Any) -> str:
    return (await post(gateway, "/threads", body))["thread_id"]


# Requests of lists, each with the member of the response that holds the list

ListRequest = tuple[str, str, JsonObject | None, str | None]


async def revisions(gateway: Strained) -> ListRequest:
    """Create a thread with many revisions that all contain the same long text. Return the request that lists them."""
    thread_id = await new_thread(gateway, supersteps=[{"updates": [{"values": {"text": TEXT}}]}])
    for number in range(MANY):
        await post(gateway, f"/threads/{thread_id}/state", {"values": {"n": number}})
    return "GET", f"/threads/{thread_id}/history?limit=1000", None, None


async def threads_of_values(gateway: Strained) -> ListRequest:
    for _ in range(MANY):
        await new_thread(gateway, metadata={"kind": "v"}, supersteps=[{"updates": [{"values": {"text": TEXT}}]}])
    return "POST", "/threads/search", {"metadata": {"kind": "v"}, "limit": 1000}, None


async def threads_of_metadata(gateway: Strained) -> ListRequest:
    for _ in range(20 * MANY):
        await new_thread(gateway, metadata={"kind": "m", "text": TEXT[: SIZE // 20]})
    return "POST", "/threads/search", {"metadata": {"kind": "m"}, "limit": 1000, "select": ["metadata"]}, None


async def threads_by_values(gateway: Strained) -> ListRequest:
    for _ in range(MANY):
        await new_thread(gateway, supersteps=[{"updates": [{"values": {"text": TEXT, "found": True}}]}])
    return "POST", "/threads/search", {"values": {"found": True}, "limit": 1000}, None


async def runs(gateway: Strained) -> ListRequest:
    thread_id = await new_thread(gateway)
    body: JsonObject = {"assistant_id": "ask", "input": {"message": TEXT}}
    # Not awaited one by one: each answer would hold the output of all runs before it.
    created = [await post(gateway, f"/threads/{thread_id}/runs", body) for _ in range(MANY)]
    await read(gateway.http, "GET", f"/threads/{thread_id}/runs/{created[-1]['run_id']}/join", None)
    return "GET", f"/threads/{thread_id}/runs?limit=1000", None, None


async def items(gateway: Strained) -> ListRequest:
    for number in range(MANY):
        body = {"namespace": ["big"], "key": str(number), "value": {"text": TEXT}}
        assert (await gateway.http.put("/store/items", json=body)).status_code == 204
    return "POST", "/store/items/search", {"namespace_prefix": ["big"], "limit": 1000}, "items"


async def a2a_tasks(gateway: Strained) -> ListRequest:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": TEXT}]}
    for _ in range(MANY):
        await post(gateway, "/a2a/json/message:send", {"message": message}, **V1)
    return "GET", "/a2a/json/tasks?pageSize=100&includeArtifacts=true", None, "tasks"


async def aief_tasks(gateway: Strained) -> ListRequest:
    for _ in range(MANY):
        await post(gateway, "/ap/v1/agent/tasks", {"input": TEXT})
    return "GET", f"/ap/v1/agent/tasks?page_size={MANY}", None, "tasks"


async def aief_steps(gateway: Strained) -> ListRequest:
    task_id = (await post(gateway, "/ap/v1/agent/tasks", {}))["task_id"]
    for _ in range(5):
        await post(gateway, f"/ap/v1/agent/tasks/{task_id}/steps", {"input": TEXT})
    return "GET", f"/ap/v1/agent/tasks/{task_id}/steps?page_size=1000", None, "steps"


async def acp_events(gateway: Strained) -> ListRequest:
    parts = [{"content": "word " * 50_000}]
    run = await post(gateway, "/acp/runs", {"agent_name": "stream", "input": [{"role": "user", "parts": parts}]})
    return "GET", f"/acp/runs/{run['run_id']}/events", None, "events"


LISTS: Final[dict[str, tuple[int, int, Callable[[Strained], Awaitable[ListRequest]]]]] = {
    # Number of entries, size in bytes, and function that creates them
    "revisions": (MANY + 1, MANY * SIZE, revisions),
    "threads, with what is in them": (MANY, MANY * SIZE, threads_of_values),
    "threads, with their metadata": (20 * MANY, MANY * SIZE, threads_of_metadata),
    "threads that hold some values": (MANY, MANY * SIZE, threads_by_values),
    "runs": (MANY, MANY * SIZE, runs),
    "items of the store": (MANY, MANY * SIZE, items),
    "tasks of A2A": (MANY, 2 * MANY * SIZE, a2a_tasks),
    "tasks of AIEF": (MANY, MANY * SIZE, aief_tasks),
    "steps of AIEF": (5, 10 * SIZE, aief_steps),
    "events of ACP": (50_005, 5 * MB, acp_events),
}


async def read(http: httpx.AsyncClient, method: str, path: str, body: JsonObject | None) -> bytes:
    whole = bytearray()
    async with http.stream(method, path, json=body, headers=V1) as answer:
        assert answer.status_code == 200
        async for chunk in answer.aiter_raw():
            whole += chunk
    return bytes(whole)


@pytest.mark.parametrize("name", LISTS)
async def test_a_large_list_is_complete_without_blocking_others(gateway: Strained, name: str) -> None:
    count, size, prepare = LISTS[name]
    method, path, body, member = await prepare(gateway)
    async with gateway.watched() as strain:
        whole = await read(gateway.http, method, path, body)
    found = json.loads(whole)
    assert len(found if member is None else found[member]) == count
    assert len(whole) >= size
    strain.check(memory=MEMORY)
