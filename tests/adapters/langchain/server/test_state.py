"""States of a thread over HTTP."""

from typing import Any

import pytest

from babelgate.canonical.event import StateSaved
from tests.adapters.langchain.site import NOBODY, SHARED, Site, user_input

pytestmark = SHARED


def contents(state: Any) -> list[str]:
    return [message["content"] for message in state["values"]["messages"]]


async def test_a_checkpoint_is_found_by_path_and_by_body(site: Site, thread_id: str) -> None:
    await site.wait(thread_id, input=user_input("hi"))
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


async def test_an_update_returns_its_new_checkpoint(site: Site, thread_id: str) -> None:
    body = {"values": {"a": 1, **user_input("hi")}, "as_node": "me"}
    update = await site.ok(f"/threads/{thread_id}/state", body)
    assert update["checkpoint"] == update["configurable"]
    expected = {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": update["checkpoint_id"]}
    assert update["checkpoint"] == expected
    state = await site.look(f"/threads/{thread_id}/state")
    assert (state["checkpoint_id"], state["values"]["a"], contents(state)) == (update["checkpoint_id"], 1, ["hi"])
    assert state["metadata"]["source"] == "update"


async def test_updates_replace_messages_by_id_and_remove_them(site: Site, thread_id: str) -> None:
    state = f"/threads/{thread_id}/state"
    three = [{"role": "user", "content": f"{n}", "id": f"m{n}"} for n in range(3)]
    for messages, expected in (
        (three, ["0", "1", "2"]),
        ([{"role": "user", "content": "new", "id": "m1"}], ["0", "new", "2"]),
        ([{"type": "remove", "id": "m0"}], ["new", "2"]),
    ):
        await site.ok(state, {"values": {"messages": messages}})
        assert contents(await site.look(state)) == expected
    await site.ok(state, {"values": {"messages": [{"type": "remove", "id": "__remove_all__"}]}})
    assert (await site.look(state))["values"].get("messages", []) == []


async def test_an_update_of_an_older_checkpoint_is_a_fork(site: Site, thread_id: str) -> None:
    state = f"/threads/{thread_id}/state"
    first = await site.ok(state, {"values": {"a": 1}})
    await site.ok(state, {"values": {"a": 2, "b": 2}})
    for start in ({"checkpoint": first["checkpoint"]}, {"checkpoint_id": first["checkpoint_id"]}):
        update = await site.ok(state, {"values": {"c": 3}, **start})
        current = await site.look(state)
        assert (current["values"], current["checkpoint_id"]) == ({"a": 1, "c": 3}, update["checkpoint_id"])
        assert current["parent_checkpoint"]["checkpoint_id"] == first["checkpoint_id"]
    assert (await site.post(state, {"values": {}, "checkpoint_id": NOBODY})).status_code == 404


async def test_a_state_cannot_be_updated_during_a_run(site: Site, thread_id: str) -> None:
    await site.run(thread_id)
    activation = await site.agent.called()
    assert (await site.post(f"/threads/{thread_id}/state", {"values": {"a": 1}})).status_code == 409
    activation.end()


async def test_a_history_has_the_state_at_each_checkpoint(site: Site, thread_id: str) -> None:
    state = f"/threads/{thread_id}/state"
    messages = [{"type": "human", "content": f"{n}", "id": f"h{n}"} for n in range(3)]
    await site.ok(state, {"values": {"a": 1}})
    for values in (messages[:1], messages[:2], [{**messages[0], "content": "new"}, messages[2]]):
        run_id = await site.run(thread_id, input=None)
        (await site.agent.called()).say(StateSaved(values={"messages": values, "b": [2]})).end()
        await site.ends(thread_id, run_id)
    await site.wait(
        thread_id, input={**user_input("hi"), "n": 1}
    )  # messages of the log, in addition to those of the state

    fresh = await site.thread()
    state = f"/threads/{fresh}/state"
    for words in ("one", "two"):
        await site.wait(fresh, input=user_input(words))
    await site.wait(fresh, agent="fail")
    second = (await site.look(f"/threads/{fresh}/history"))[1]["checkpoint_id"]
    await site.ok(state, {"values": user_input("a branch"), "checkpoint_id": second})
    await site.ok(state, {"values": {"messages": [{"type": "remove", "id": "__remove_all__"}]}})
    await site.wait(fresh, input=user_input("three"))
    for thread in (thread_id, fresh):
        ids = [each["checkpoint_id"] for each in await site.look(f"/threads/{thread}/history?limit=100")]
        assert len(ids) > 5
        for select in ((), ("values",), ("next", "metadata")):
            history = (await site.post(f"/threads/{thread}/history", {"limit": 100, "select": select})).content
            query = "&".join(f"select={name}" for name in select)
            states = [(await site.get(f"/threads/{thread}/state/{each}?{query}")).content for each in ids]
            assert history == b"[" + b",".join(states) + b"]"


async def test_a_history_is_paged_and_filtered(site: Site, thread_id: str) -> None:
    for n in range(12):
        await site.ok(f"/threads/{thread_id}/state", {"values": {"n": n}})
    path = f"/threads/{thread_id}/history"
    assert [state["values"]["n"] for state in await site.look(path)] == list(range(11, 1, -1))
    assert [state["values"]["n"] for state in await site.look(f"{path}?limit=2")] == [11, 10]
    third = (await site.look(f"{path}?limit=3"))[2]
    for before in (third["checkpoint_id"], third["checkpoint"], {"configurable": third["checkpoint"]}):
        states = await site.ok(path, {"limit": 2, "before": before})
        assert [state["values"]["n"] for state in states] == [8, 7]
    assert (await site.look(f"{path}?before={third['checkpoint_id']}"))[0]["values"]["n"] == 8
    one = await site.ok(path, {"checkpoint": third["checkpoint"]})
    assert [state["values"]["n"] for state in one] == [9]
    assert len(await site.ok(path, {"limit": 100, "metadata": {"source": "update"}})) == 12
    assert await site.ok(path, {"metadata": {"source": "loop"}}) == []
    for bad in ("limit=0", "limit=1001", "limit=x"):
        assert (await site.get(f"{path}?{bad}")).status_code == 422
    assert (await site.get(f"{path}?before={NOBODY}")).status_code == 404


async def test_a_run_from_an_older_checkpoint_sees_its_state(site: Site, thread_id: str) -> None:
    await site.wait(thread_id, input=user_input("one"))
    after_one = (await site.look(f"/threads/{thread_id}/state"))["checkpoint_id"]
    await site.wait(thread_id, input=user_input("two"))
    one = {"checkpoint_id": after_one}
    selections: list[dict[str, Any]] = [one, {"checkpoint": one}, {"config": {"configurable": one}}]
    for selection in selections:
        result = await site.wait(thread_id, input=user_input("three"), **selection)
        assert [message["content"] for message in result["messages"]] == ["one", "one", "three", "three"]
    unknown = await site.create(thread_id, "echo", checkpoint_id=NOBODY)
    assert unknown.status_code == 404
    contradiction = await site.create(thread_id, "echo", checkpoint_id=NOBODY, checkpoint={"checkpoint_id": after_one})
    assert contradiction.status_code == 422


@pytest.mark.parametrize(
    "body", [{"values": 7}, {"values": "x"}, {"values": {}, "checkpoint": 7}, {"values": {"messages": 7}}, []]
)
async def test_a_malformed_update_is_rejected(site: Site, body: Any) -> None:
    thread_id = await site.thread()
    assert (await site.post(f"/threads/{thread_id}/state", body)).status_code == 422
