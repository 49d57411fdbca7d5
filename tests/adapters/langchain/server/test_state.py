"""The state of a thread and its revisions over HTTP."""

from typing import Any

import pytest

from babelgate.canonical.event import StateSaved
from tests.adapters.langchain.site import NOBODY, SHARED, Site, said

pytestmark = SHARED


def contents(state: Any) -> list[str]:
    return [message["content"] for message in state["values"]["messages"]]


async def test_a_revision_is_found_by_its_id_in_both_ways(site: Site, thread_id: str) -> None:
    await site.wait(thread_id, input=said("hi"))
    oldest = (await site.look(f"/threads/{thread_id}/history"))[1]
    checkpoint = oldest["checkpoint"]
    assert await site.look(f"/threads/{thread_id}/state/{checkpoint['checkpoint_id']}") == oldest
    body = {"checkpoint": checkpoint, "subgraphs": False}
    assert await site.ok(f"/threads/{thread_id}/state/checkpoint", body) == oldest
    newest = await site.ok(f"/threads/{thread_id}/state/checkpoint", {"checkpoint": {"checkpoint_ns": ""}})
    assert newest["checkpoint_id"] != oldest["checkpoint_id"]
    assert (await site.get(f"/threads/{thread_id}/state?select=secret")).status_code == 422
    for path in (NOBODY, "nothing"):
        assert (await site.get(f"/threads/{thread_id}/state/{path}")).status_code == 404


async def test_an_update_makes_a_revision_and_says_which(site: Site, thread_id: str) -> None:
    body = {"values": {"a": 1, **said("hi")}, "as_node": "me"}
    made = await site.ok(f"/threads/{thread_id}/state", body)
    assert made["checkpoint"] == made["configurable"]
    named = {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": made["checkpoint_id"]}
    assert made["checkpoint"] == named
    state = await site.look(f"/threads/{thread_id}/state")
    assert (state["checkpoint_id"], state["values"]["a"], contents(state)) == (made["checkpoint_id"], 1, ["hi"])
    assert state["metadata"]["source"] == "update"


async def test_updates_replace_messages_by_id_and_remove_them(site: Site, thread_id: str) -> None:
    state = f"/threads/{thread_id}/state"
    three = [{"role": "user", "content": f"{n}", "id": f"m{n}"} for n in range(3)]
    for messages, left in (
        (three, ["0", "1", "2"]),
        ([{"role": "user", "content": "new", "id": "m1"}], ["0", "new", "2"]),
        ([{"type": "remove", "id": "m0"}], ["new", "2"]),
    ):
        await site.ok(state, {"values": {"messages": messages}})
        assert contents(await site.look(state)) == left
    await site.ok(state, {"values": {"messages": [{"type": "remove", "id": "__remove_all__"}]}})
    assert (await site.look(state))["values"].get("messages", []) == []


async def test_an_update_from_an_older_revision_is_a_fork(site: Site, thread_id: str) -> None:
    state = f"/threads/{thread_id}/state"
    first = await site.ok(state, {"values": {"a": 1}})
    await site.ok(state, {"values": {"a": 2, "b": 2}})
    for way in ({"checkpoint": first["checkpoint"]}, {"checkpoint_id": first["checkpoint_id"]}):
        made = await site.ok(state, {"values": {"c": 3}, **way})
        found = await site.look(state)
        assert (found["values"], found["checkpoint_id"]) == ({"a": 1, "c": 3}, made["checkpoint_id"])
        assert found["parent_checkpoint"]["checkpoint_id"] == first["checkpoint_id"]
    assert (await site.post(state, {"values": {}, "checkpoint_id": NOBODY})).status_code == 404


async def test_a_state_is_not_updated_while_a_run_is_in_flight(site: Site, thread_id: str) -> None:
    await site.run(thread_id)
    going = await site.agent.called()
    assert (await site.post(f"/threads/{thread_id}/state", {"values": {"a": 1}})).status_code == 409
    going.end()


async def test_each_entry_of_a_history_is_the_state_at_its_checkpoint(site: Site, thread_id: str) -> None:
    state = f"/threads/{thread_id}/state"
    held = [{"type": "human", "content": f"{n}", "id": f"h{n}"} for n in range(3)]
    await site.ok(state, {"values": {"a": 1}})
    for values in (held[:1], held[:2], [{**held[0], "content": "new"}, held[2]]):
        run_id = await site.run(thread_id, input=None)
        (await site.agent.called()).say(StateSaved(values={"messages": values, "b": [2]})).end()
        await site.ends(thread_id, run_id)
    await site.wait(thread_id, input={**said("hi"), "n": 1})  # what was said, beside what a state holds

    fresh = await site.thread()
    state = f"/threads/{fresh}/state"
    for words in ("one", "two"):
        await site.wait(fresh, input=said(words))
    await site.wait(fresh, agent="fail")
    second = (await site.look(f"/threads/{fresh}/history"))[1]["checkpoint_id"]
    await site.ok(state, {"values": said("a branch"), "checkpoint_id": second})
    await site.ok(state, {"values": {"messages": [{"type": "remove", "id": "__remove_all__"}]}})
    await site.wait(fresh, input=said("three"))
    for thread in (thread_id, fresh):
        ids = [each["checkpoint_id"] for each in await site.look(f"/threads/{thread}/history?limit=100")]
        assert len(ids) > 5
        for select in ((), ("values",), ("next", "metadata")):
            shown = (await site.post(f"/threads/{thread}/history", {"limit": 100, "select": select})).content
            query = "&".join(f"select={name}" for name in select)
            states = [(await site.get(f"/threads/{thread}/state/{each}?{query}")).content for each in ids]
            assert shown == b"[" + b",".join(states) + b"]"


async def test_a_history_is_paged_and_filtered(site: Site, thread_id: str) -> None:
    for n in range(12):
        await site.ok(f"/threads/{thread_id}/state", {"values": {"n": n}})
    path = f"/threads/{thread_id}/history"
    assert [state["values"]["n"] for state in await site.look(path)] == list(range(11, 1, -1))
    assert [state["values"]["n"] for state in await site.look(f"{path}?limit=2")] == [11, 10]
    third = (await site.look(f"{path}?limit=3"))[2]
    for before in (third["checkpoint_id"], third["checkpoint"], {"configurable": third["checkpoint"]}):
        found = await site.ok(path, {"limit": 2, "before": before})
        assert [state["values"]["n"] for state in found] == [8, 7]
    assert (await site.look(f"{path}?before={third['checkpoint_id']}"))[0]["values"]["n"] == 8
    one = await site.ok(path, {"checkpoint": third["checkpoint"]})
    assert [state["values"]["n"] for state in one] == [9]
    assert len(await site.ok(path, {"limit": 100, "metadata": {"source": "update"}})) == 12
    assert await site.ok(path, {"metadata": {"source": "loop"}}) == []
    for bad in ("limit=0", "limit=1001", "limit=x"):
        assert (await site.get(f"{path}?{bad}")).status_code == 422
    assert (await site.get(f"{path}?before={NOBODY}")).status_code == 404


async def test_a_run_from_an_older_revision_sees_what_was_there_then(site: Site, thread_id: str) -> None:
    await site.wait(thread_id, input=said("one"))
    after_one = (await site.look(f"/threads/{thread_id}/state"))["checkpoint_id"]
    await site.wait(thread_id, input=said("two"))
    one = {"checkpoint_id": after_one}
    ways: list[dict[str, Any]] = [one, {"checkpoint": one}, {"config": {"configurable": one}}]
    for way in ways:
        result = await site.wait(thread_id, input=said("three"), **way)
        assert [message["content"] for message in result["messages"]] == ["one", "one", "three", "three"]
    unknown = await site.create(thread_id, "echo", checkpoint_id=NOBODY)
    assert unknown.status_code == 404
    two = await site.create(thread_id, "echo", checkpoint_id=NOBODY, checkpoint={"checkpoint_id": after_one})
    assert two.status_code == 422


@pytest.mark.parametrize(
    "body", [{"values": 7}, {"values": "x"}, {"values": {}, "checkpoint": 7}, {"values": {"messages": 7}}, []]
)
async def test_a_malformed_update_is_unprocessable(site: Site, body: Any) -> None:
    thread_id = await site.thread()
    assert (await site.post(f"/threads/{thread_id}/state", body)).status_code == 422
