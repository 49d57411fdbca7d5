"""Threads over HTTP, in both dialects."""

from typing import Any
from uuid import uuid4

import pytest

from tests.adapters.langchain.site import ALONE, NOBODY, SHARED, Site, user_input

pytestmark = SHARED

PROTOCOL = "/agent-protocol"


async def test_a_thread_is_created(site: Site) -> None:
    thread = await site.ok("/threads", {"metadata": {"a": 1}})
    assert (thread["metadata"], thread["status"], thread["values"]) == ({"a": 1}, "idle", {})
    assert await site.look(f"/threads/{thread['thread_id']}") == thread


async def test_a_caller_may_choose_a_thread_id_that_is_free(site: Site) -> None:
    thread_id = str(uuid4())
    assert (await site.ok("/threads", {"thread_id": thread_id}))["thread_id"] == thread_id
    again = await site.post("/threads", {"thread_id": thread_id})
    assert again.status_code == 409
    assert set(again.json()) == {"detail"}


async def test_with_do_nothing_the_existing_thread_is_returned(site: Site) -> None:
    thread_id = await site.thread(metadata={"a": 1})
    same = await site.ok("/threads", {"thread_id": thread_id, "metadata": {"a": 2}, "if_exists": "do_nothing"})
    assert (same["thread_id"], same["metadata"]) == (thread_id, {"a": 1})


@pytest.mark.parametrize("path", ["", "/history", "/state", "/runs", "/stream"])
async def test_an_invalid_id_is_422_and_an_unknown_one_404(site: Site, path: str) -> None:
    bad = await site.get(f"/threads/nothing{path}")
    assert (bad.status_code, bad.json()) == (422, {"detail": "Invalid thread ID: must be a UUID"})
    unknown = await site.get(f"/threads/{NOBODY}{path}")
    assert (unknown.status_code, unknown.json()) == (404, {"detail": f"Thread with ID {NOBODY} not found"})


MALFORMED: list[Any] = [
    *({"thread_id": "x"}, {"thread_id": 7}, {"metadata": []}, {"if_exists": "perhaps"}, [], "x"),
    *({"ttl": -1}, {"ttl": {"ttl": 1, "strategy": "perhaps"}}),
    {"supersteps": [{"updates": [{"values": {}, "command": {"goto": "x"}}]}]},
]


@pytest.mark.parametrize("body", MALFORMED)
async def test_a_malformed_thread_is_rejected(site: Site, body: Any) -> None:
    before = await site.ok("/threads/count", {})
    answer = await site.post("/threads", body)
    assert answer.status_code == 422
    assert isinstance(answer.json()["detail"], str)
    assert await site.ok("/threads/count", {}) == before


async def test_supersteps_are_the_first_states_of_a_thread(site: Site) -> None:
    steps = [{"updates": [{"values": {"a": 1}, "as_node": "one"}]}, {"updates": [{"values": {"b": 2}}]}]
    thread = await site.ok("/threads", {"supersteps": steps})
    assert thread["values"] == {"a": 1, "b": 2}
    assert len(await site.look(f"/threads/{thread['thread_id']}/history")) == 2


async def test_a_patch_merges_metadata(site: Site) -> None:
    thread_id = await site.thread(metadata={"a": 1, "b": 1})
    answer = await site.http.patch(f"/threads/{thread_id}", json={"metadata": {"b": 2}})
    assert (answer.status_code, answer.json()["metadata"]) == (200, {"a": 1, "b": 2})
    assert await site.look(f"/threads/{thread_id}/history") == []


async def test_a_patch_with_return_minimal_has_no_body(site: Site, thread_id: str) -> None:
    minimal = {"Prefer": "return=minimal"}
    answer = await site.http.patch(f"/threads/{thread_id}", json={"metadata": {"a": 1}}, headers=minimal)
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await site.look(f"/threads/{thread_id}"))["metadata"] == {"a": 1}


async def test_a_patch_with_values_or_messages_saves_a_state(site: Site, thread_id: str) -> None:
    body = {"values": {"a": 1}, "messages": [{"role": "user", "content": "hi", "id": "m1"}], "metadata": {"m": 1}}
    answer = await site.http.patch(f"{PROTOCOL}/threads/{thread_id}", json=body)
    thread = answer.json()
    assert (answer.status_code, thread["values"], thread["metadata"]) == (200, {"a": 1}, {"m": 1})
    [message] = thread["messages"]
    assert (message["role"], message["content"], message["id"]) == ("user", "hi", "m1")
    first = (await site.look(f"{PROTOCOL}/threads/{thread_id}/history"))[0]["checkpoint"]["checkpoint_id"]
    await site.http.patch(f"/threads/{thread_id}", json={"values": {"a": 2}})
    fork = {"values": {"b": 3}, "checkpoint": {"checkpoint_id": first}}
    forked = await site.http.patch(f"/threads/{thread_id}", json=fork)
    assert {name: forked.json()["values"][name] for name in ("a", "b")} == {"a": 1, "b": 3}


async def test_a_patch_of_metadata_ignores_the_checkpoint(site: Site, thread_id: str) -> None:
    await site.http.patch(f"/threads/{thread_id}", json={"values": {"a": 1}})
    patch = {"metadata": {"m": 1}, "checkpoint": {"checkpoint_id": NOBODY}}
    assert (await site.http.patch(f"/threads/{thread_id}", json=patch)).status_code == 200
    assert len(await site.look(f"/threads/{thread_id}/history")) == 1
    unknown = await site.http.patch(f"/threads/{thread_id}", json={"checkpoint": {"checkpoint_id": NOBODY}})
    assert unknown.status_code == 404


async def test_the_state_of_a_busy_thread_cannot_be_patched(site: Site, thread_id: str) -> None:
    await site.run(thread_id)
    activation = await site.agent.called()
    answer = await site.http.patch(f"/threads/{thread_id}", json={"values": {"a": 1}})
    assert answer.status_code == 409
    assert (await site.http.patch(f"/threads/{thread_id}", json={"metadata": {"a": 1}})).status_code == 200
    activation.end()


async def test_deleting_a_thread_deletes_its_runs(site: Site, thread_id: str) -> None:
    run_id = await site.run(thread_id, "echo")
    await site.ends(thread_id, run_id)
    answer = await site.http.delete(f"/threads/{thread_id}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await site.get(f"/threads/{thread_id}")).status_code == 404
    assert (await site.get(f"/runs/{run_id}")).status_code == 404
    assert (await site.http.delete(f"/threads/{thread_id}")).status_code == 404


async def test_a_copy_has_the_state_and_is_independent(site: Site) -> None:
    thread_id = await site.thread(metadata={"a": 1})
    await site.wait(thread_id, input={**user_input("hi"), "n": 1})
    copied = await site.ok(f"/threads/{thread_id}/copy")
    original = await site.look(f"/threads/{thread_id}")
    assert copied["thread_id"] != thread_id
    assert (copied["status"], copied["metadata"]) == ("idle", original["metadata"])
    assert copied["values"] == original["values"]
    await site.wait(copied["thread_id"], input=user_input("more"))
    assert await site.look(f"/threads/{thread_id}") == original
    assert (await site.post(f"/threads/{NOBODY}/copy")).status_code == 404


# Lists


@ALONE
async def test_threads_are_found_by_metadata_status_values_and_id(site: Site) -> None:
    first = await site.thread(metadata={"kind": "a", "deep": {"x": 1}})
    second = await site.thread(metadata={"kind": "b"})
    await site.ok(f"/threads/{second}/state", {"values": {"color": {"name": "red"}, "n": 1}})

    async def search(**body: Any) -> list[str]:
        return [thread["thread_id"] for thread in await site.ok("/threads/search", body)]

    assert await search() == [second, first]
    assert await search(metadata={"kind": "a"}) == [first]
    assert await search(status="idle") == [second, first]
    assert await search(status="busy") == []
    assert await search(values={"color": {"name": "red"}}) == [second]
    assert await search(values={"n": True}) == []
    assert await search(ids=[first]) == [first]
    assert await search(ids=[]) == []
    assert await search(sort_by="created_at", sort_order="asc") == [first, second]
    assert await search(sort_by="updated_at") == [second, first]
    assert await site.ok("/threads/count", {}) == 2
    assert await site.ok("/threads/count", {"metadata": {"kind": "b"}}) == 1
    assert await site.ok("/threads/count", {"values": {"n": 1}}) == 1


@ALONE
async def test_pages_of_threads_have_the_next_offset(site: Site) -> None:
    ids = [await site.thread(metadata={"n": n}) for n in range(5)]
    answer = await site.post("/threads/search", {"limit": 2, "offset": 1})
    assert [thread["thread_id"] for thread in answer.json()] == [ids[3], ids[2]]
    assert (answer.headers["x-pagination-next"], answer.headers["x-pagination-total"]) == ("3", "4")
    last = await site.post("/threads/search", {"limit": 2, "offset": 4})
    assert "x-pagination-next" not in last.headers
    assert last.headers["x-pagination-total"] == "5"


@ALONE
async def test_threads_filtered_by_values_are_paged(site: Site) -> None:
    ids: list[str] = []
    for n in range(4):
        ids.append(await site.thread())
        await site.ok(f"/threads/{ids[-1]}/state", {"values": {"even": n % 2 == 0, "all": True}})
    answer = await site.post("/threads/search", {"values": {"all": True}, "limit": 2, "offset": 1})
    assert [thread["thread_id"] for thread in answer.json()] == [ids[2], ids[1]]
    assert answer.headers["x-pagination-next"] == "3"
    matches = await site.ok("/threads/search", {"values": {"even": True}})
    assert [thread["thread_id"] for thread in matches] == [ids[2], ids[0]]


OUT_OF_RANGE: list[Any] = [
    *({"limit": 0}, {"limit": 1001}, {"limit": "10"}, {"limit": True}, {"offset": -1}, {"status": "dead"}),
    *({"sort_by": "size"}, {"ids": ["x"]}, {"select": ["secret"]}, {"extract": {"a": "values..x"}}),
]


@pytest.mark.parametrize("body", OUT_OF_RANGE)
async def test_a_search_out_of_range_is_rejected(site: Site, body: Any) -> None:
    assert (await site.post("/threads/search", body)).status_code == 422


@ALONE
async def test_a_search_has_selected_and_extracted_members(site: Site, thread_id: str) -> None:
    await site.wait(thread_id, input=user_input("hi"))
    paths = {"last": "values.messages[-1].content", "none": "values.nothing[3]", "status": "status"}
    threads = await site.ok("/threads/search", {"select": ["thread_id", "status"], "extract": paths})
    extracted = {"last": "hi", "none": None, "status": "idle"}
    assert threads == [{"thread_id": thread_id, "status": "idle", "extracted": extracted}]
    assert await site.ok("/threads/search", {"select": ["status"]}) == [{"status": "idle"}]


@ALONE
async def test_ephemeral_threads_are_not_listed(site: Site) -> None:
    assert (await site.post("/runs/wait", {"assistant_id": "echo", "input": "x"})).status_code == 200
    assert await site.ok("/threads/search", {}) == []
    body = {"assistant_id": "echo", "input": "x", "on_completion": "keep"}
    assert (await site.post("/runs/wait", body)).status_code == 200
    assert len(await site.ok("/threads/search", {})) == 1


async def test_pruning_deletes_threads_and_returns_their_number(site: Site, thread_id: str) -> None:
    assert await site.ok("/threads/prune", {"thread_ids": [thread_id, NOBODY, thread_id]}) == {"pruned_count": 1}
    assert (await site.get(f"/threads/{thread_id}")).status_code == 404
    assert (await site.post("/threads/prune", {"thread_ids": [], "strategy": "none"})).status_code == 422


@ALONE
async def test_threads_are_found_by_graph_id_and_assistant_id(site: Site) -> None:
    thread_id = await site.thread()
    await site.wait(thread_id)
    assistant_id = (await site.ok("/assistants/search", {"graph_id": "echo"}))[0]["assistant_id"]
    for metadata in ({"graph_id": "echo"}, {"assistant_id": assistant_id}):
        threads = await site.ok("/threads/search", {"metadata": metadata})
        assert [thread["thread_id"] for thread in threads] == [thread_id]


async def test_a_thread_includes_its_ttl_only_if_requested(site: Site) -> None:
    thread_id = await site.thread(ttl=5)
    assert "ttl" not in await site.look(f"/threads/{thread_id}")
    ttl = (await site.look(f"/threads/{thread_id}?include=ttl"))["ttl"]
    assert (ttl["strategy"], ttl["ttl_minutes"]) == ("delete", 5)
    await site.http.patch(f"/threads/{thread_id}", json={"ttl": {"ttl": 2, "strategy": "delete"}})
    assert (await site.look(f"/threads/{thread_id}?include=ttl"))["ttl"]["ttl_minutes"] == 2
    for ttl, strategy in (({"ttl": 3, "strategy": "keep_latest"}, "keep_latest"), (3, "delete")):
        await site.http.patch(f"/threads/{thread_id}", json={"ttl": ttl})
        changed = (await site.look(f"/threads/{thread_id}?include=ttl"))["ttl"]
        assert (changed["strategy"], changed["ttl_minutes"]) == (strategy, 3)
