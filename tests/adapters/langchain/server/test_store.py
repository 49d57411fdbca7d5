"""Items of the store over HTTP, in both dialects."""

import asyncio
import time
from collections.abc import AsyncGenerator
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.running import running

AP = "/agent-protocol"
PLACE = {"namespace": ["users", "jane"], "key": "profile"}
PROFILE = {"displayName": "Jane Doe", "role": "customer"}


@pytest.fixture
async def http(tmp_path: Path) -> AsyncGenerator[httpx.AsyncClient]:
    async with running(tmp_path) as gateway:
        yield gateway.http


async def put(http: httpx.AsyncClient, namespace: str, key: str, value: Any = None, **more: Any) -> None:
    body = {"namespace": namespace.split("."), "key": key, "value": value or {"n": 1}, **more}
    assert (await http.put("/store/items", json=body)).status_code == 204


async def remove(http: httpx.AsyncClient, path: str, body: Any) -> httpx.Response:
    return await http.request("DELETE", path, json=body)


async def search(http: httpx.AsyncClient, **query: Any) -> list[str]:
    answer = await http.post("/store/items/search", json=query)
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"items"}
    return [item["key"] for item in answer.json()["items"]]


def detail(answer: httpx.Response, status: int = 422) -> str:
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"detail"}
    return answer.json()["detail"]


async def test_an_item_has_exactly_the_members_of_the_specification(http: httpx.AsyncClient) -> None:
    await http.put("/store/items", json={**PLACE, "value": PROFILE})
    item = (await http.get("/store/items?key=profile&namespace=users.jane")).json()
    assert set(item) == {"namespace", "key", "value", "created_at", "updated_at"}
    assert (item["namespace"], item["key"], item["value"]) == (["users", "jane"], "profile", PROFILE)
    assert datetime.fromisoformat(item["created_at"]).utcoffset() is not None
    assert item["created_at"] == item["updated_at"]
    await http.put("/store/items", json={**PLACE, "value": {}})
    changed = (await http.get("/store/items?key=profile&namespace=users.jane")).json()
    assert changed["created_at"] == item["created_at"] < changed["updated_at"]


async def test_both_forms_of_a_namespace_find_the_item(http: httpx.AsyncClient) -> None:
    await http.put("/store/items", json={**PLACE, "value": PROFILE})
    for base, query in product(("", AP), ("namespace=users.jane", "namespace=users&namespace=jane")):
        answer = await http.get(f"{base}/store/items?key=profile&{query}")
        assert (answer.status_code, answer.json()["value"]) == (200, PROFILE)


async def test_a_missing_item_is_null_for_langgraph_or_404(http: httpx.AsyncClient) -> None:
    for query in ("key=x&namespace=a.b", "key=x", "key=x&namespace="):
        answer = await http.get(f"/store/items?{query}")
        assert (answer.status_code, answer.content) == (200, b"null")
        answer = await http.get(f"{AP}/store/items?{query}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_deleting_a_missing_item_is_404_in_the_agent_protocol(
    http: httpx.AsyncClient,
) -> None:
    for place in (PLACE, {"key": "profile"}):
        assert (await remove(http, "/store/items", place)).status_code == 204
        assert (await remove(http, f"{AP}/store/items", place)).status_code == 404


INVALID_ITEMS: list[tuple[str, Any]] = [
    *(("namespace", wrong) for wrong in ([], [""], ["a", ""], ["a.b"], ["\0"], [1], "a", None)),
    *(("key", wrong) for wrong in ("", 1, "\0")),
    *(("value", []), ("value", "text"), ("value", None)),
    *(("ttl", wrong) for wrong in (0, -1, 10**12, "soon")),
]


async def test_an_invalid_item_is_rejected_with_the_member(http: httpx.AsyncClient) -> None:
    for member, value in INVALID_ITEMS:
        answer = await http.put("/store/items", json={**PLACE, "value": PROFILE, member: value})
        assert member in detail(answer), value
    assert await search(http) == []


async def test_an_invalid_read_is_rejected(http: httpx.AsyncClient) -> None:
    for query in ("", "namespace=a", "key=", "key=x&namespace=a..b", "key=x&namespace=.", "key=%00"):
        detail(await http.get(f"/store/items?{query}"))
    detail(await http.get("/store/items?key=x&namespace=a&refresh_ttl=maybe"))


INVALID_SEARCHES: list[Any] = [
    *({"limit": 0}, {"limit": 1001}, {"limit": "1"}, {"offset": -1}, {"offset": 10**30}, []),
    *({"filter": []}, {"filter": {"n": {"$in": [1]}}}, {"query": 1}),
    *({"namespace_prefix": "a"}, {"namespace_prefix": ["a.b"]}, {"namespace_prefix": [""]}),
]
INVALID_NAMESPACES: list[Any] = [{"max_depth": 0}, {"limit": 0}, {"offset": -1}, {"prefix": ["a.b"]}, {"suffix": ""}]


@pytest.mark.parametrize(("below", "bodies"), [("items/search", INVALID_SEARCHES), ("namespaces", INVALID_NAMESPACES)])
async def test_an_invalid_search_is_rejected(http: httpx.AsyncClient, below: str, bodies: list[Any]) -> None:
    for body in bodies:
        detail(await http.post(f"/store/{below}", json=body))


async def test_an_invalid_item_or_path_is_rejected(http: httpx.AsyncClient) -> None:
    for content in ("[]", "1", "null", "", "{"):
        detail(await http.post("/store/users/profile", content=content))
    for path in ("/store/a..b/k", "/store/.a/k", "/store/a/%00"):
        detail(await http.post(path, json=PROFILE))
    assert (await http.get("/store/users/profile")).status_code == 404


async def test_any_json_is_stored_unchanged(http: httpx.AsyncClient) -> None:
    value = {"\0": "\0é\u202e💡", "big": 10**25, "deep": [[[{"x": None}]]]}
    await put(http, "ключ.%_*", "k/../é&=", value)
    query = f"key={quote('k/../é&=', safe='')}&namespace={quote('ключ.%_*', safe='')}"
    assert (await http.get(f"/store/items?{query}")).json()["value"] == value
    listed = (await http.post("/store/items/search", json={})).json()["items"]
    assert [item["value"] for item in listed] == [value]


# Search


async def test_a_search_without_conditions_finds_everything(http: httpx.AsyncClient) -> None:
    await put(http, "a", "1")
    await put(http, "b.c", "2")
    bodies = (b"", b"{}", b'{"namespace_prefix": null, "filter": null, "query": null}')
    for base, body in product(("", AP), bodies):
        answer = await http.post(f"{base}/store/items/search", content=body)
        assert [item["key"] for item in answer.json()["items"]] == ["2", "1"]


async def test_a_search_has_prefix_filter_query_and_pages(http: httpx.AsyncClient) -> None:
    for n in range(12):
        await put(http, f"a.{n % 2}", str(n), {"n": n, "text": "even" if n % 2 == 0 else "Odd"})
    await put(http, "ab", "other")
    assert await search(http, namespace_prefix=["a"]) == [str(n) for n in range(11, 1, -1)]
    assert await search(http, namespace_prefix=["a"], offset=10) == ["1", "0"]
    assert await search(http, namespace_prefix=["a", "1"], limit=2) == ["11", "9"]
    assert await search(http, filter={"n": {"$gte": 3, "$lt": 5}}) == ["4", "3"]
    assert await search(http, filter={"n": {"$gt": "3"}}) == []
    assert await search(http, query="ODD", filter={"n": {"$ne": 11}}, limit=2) == ["9", "7"]


# Time to live, with a clock that the test advances


@pytest.fixture
async def minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[tuple[httpx.AsyncClient, Any]]:
    real, offset = time.monotonic_ns, [0]
    monkeypatch.setattr("babelgate.gateway.clock.time.monotonic_ns", lambda: real() + offset[0])

    def advance(amount: float) -> None:
        offset[0] += int(amount * 60 * 10**9)

    async with running(tmp_path) as gateway:
        yield gateway.http, advance


async def test_reading_an_item_restarts_its_time_to_live(minutes: Any) -> None:
    http, advance = minutes
    await put(http, "a", "short", ttl=0.5)
    await put(http, "a", "read", ttl=2)
    await put(http, "a", "looked at", ttl=2)
    advance(0.6)
    assert await search(http) == ["looked at", "read"]
    advance(1.2)
    assert (await http.get("/store/items?key=read&namespace=a")).json()["key"] == "read"
    assert (await http.get("/store/items?key=looked at&namespace=a&refresh_ttl=false")).json()["key"] == "looked at"
    advance(1.2)
    assert await search(http) == ["read"]


async def test_a_search_restarts_the_time_to_live_if_requested(minutes: Any) -> None:
    http, advance = minutes
    await put(http, "a", "found", ttl=2)
    await put(http, "b", "not found", ttl=2)
    advance(1.5)
    assert await search(http, namespace_prefix=["a"], refresh_ttl=True) == ["found"]
    advance(1)
    assert await search(http) == ["found"]


# Namespaces


async def test_namespaces_are_an_object_or_a_list_by_dialect(http: httpx.AsyncClient) -> None:
    await put(http, "users.jane.notes", "1")
    await put(http, "users.joe", "1")
    listed = [["users", "jane", "notes"], ["users", "joe"]]
    for body in (b"", b"{}", b'{"prefix": null, "suffix": null, "max_depth": null}'):
        assert (await http.post("/store/namespaces", content=body)).json() == {"namespaces": listed}
        assert (await http.post(f"{AP}/store/namespaces", content=body)).json() == listed
    query = {"prefix": ["users", "*"], "max_depth": 1}
    assert (await http.post("/store/namespaces", json=query)).json() == {"namespaces": [["users"]]}
    query = {"suffix": ["notes"], "limit": 1, "offset": 0}
    assert (await http.post("/store/namespaces", json=query)).json() == {"namespaces": listed[:1]}


# Concurrency


async def test_concurrent_writes_are_all_stored(http: httpx.AsyncClient) -> None:
    await asyncio.gather(*(put(http, "a", str(n), {"n": n}) for n in range(100)))
    assert sorted(map(int, await search(http, limit=1000))) == list(range(100))


# Items by path


async def test_an_item_is_stored_read_and_deleted_by_path(http: httpx.AsyncClient) -> None:
    at = "/store/users.jane/profile"
    detail(await http.get(at), 404)
    stored = await http.post(at, json=PROFILE)
    assert (stored.status_code, stored.json()["namespace"], stored.json()["value"]) == (200, ["users", "jane"], PROFILE)
    assert (await http.get(at)).json() == stored.json()
    item = (await http.get("/store/items?key=profile&namespace=users.jane")).json()
    assert item == stored.json()
    assert (await http.delete(at)).status_code == 204
    detail(await http.delete(at), 404)
