"""Assistants, threads, their state, and the store, with the official LangGraph client."""

from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest

from tests.interop.driver import ClientError, OfficialClient
from tests.interop.langgraph.talk import UNKNOWN_ID, assistant_of, new_thread, refused, texts, user

pytestmark = pytest.mark.asyncio(loop_scope="module")


# Assistants


async def test_every_agent_is_an_assistant(either: OfficialClient) -> None:
    found = await either.call("assistants.search", limit=100)
    by_name = {each["graph_id"]: each for each in found}
    assert {"echo", "ask", "gated"} <= set(by_name)
    echo = by_name["echo"]
    assert (echo["assistant_id"], echo["name"], echo["version"]) == (assistant_of("echo"), "echo", 1)
    assert echo["metadata"]["created_by"] == "system"
    assert await either.call("assistants.get", assistant_id=echo["assistant_id"]) == echo
    assert await either.call("assistants.count") == len(found)
    assert await either.call("assistants.count", graph_id="echo") == 1
    assert await either.call("assistants.search", graph_id="echo") == [echo]
    assert [one["version"] for one in await either.call("assistants.get_versions", assistant_id=assistant_of("echo"))]


async def test_pages_of_assistants_have_the_offset_of_the_next(either: OfficialClient) -> None:
    everything = await either.call("assistants.search", limit=100, sort_by="name", sort_order="asc")
    found: list[Any] = []
    offset: str | None = "0"
    while offset is not None:
        page = await either.call(
            "assistants.search",
            limit=4,
            offset=int(offset),
            sort_by="name",
            sort_order="asc",
            response_format="object",
        )
        found += page["assistants"]
        offset = page["next"]
        assert len(found) <= len(everything)
    assert found == everything


async def test_an_assistant_shows_its_graph_and_its_schemas(either: OfficialClient) -> None:
    for wanted in (assistant_of("json"), "json"):
        graph = await either.call("assistants.get_graph", assistant_id=wanted)
        nodes = {node["id"] for node in graph["nodes"]}
        assert {"__start__", "__end__"} <= nodes
        assert all({edge["source"], edge["target"]} <= nodes for edge in graph["edges"])
    schemas = await either.call("assistants.get_schemas", assistant_id=assistant_of("json"))
    assert schemas["graph_id"] == "json"
    assert {"input_schema", "output_schema", "state_schema", "config_schema"} <= set(schemas)
    assert await either.call("assistants.get_subgraphs", assistant_id=assistant_of("json")) == {}


async def test_an_assistant_is_found_only_by_its_id(either: OfficialClient) -> None:
    assert (await refused(either, "assistants.get", assistant_id=UNKNOWN_ID)).type == "NotFoundError"
    assert (await refused(either, "assistants.get", assistant_id="echo")).type == "UnprocessableEntityError"


async def test_an_assistant_has_versions_and_owns_its_runs(either: OfficialClient) -> None:
    first = await either.call(
        "assistants.create", graph_id="echo", name="mine", config={"tags": ["t"]}, metadata={"a": 1}, description="one"
    )
    assert (first["graph_id"], first["name"], first["version"], first["metadata"]) == (
        "echo",
        "mine",
        1,
        {"a": 1},
    )
    assistant_id = first["assistant_id"]
    again = await either.call(
        "assistants.create", graph_id="echo", assistant_id=assistant_id, if_exists="do_nothing", name="other"
    )
    assert again == first
    conflict = await refused(either, "assistants.create", graph_id="echo", assistant_id=assistant_id)
    assert conflict.type == "ConflictError"
    changed = await either.call("assistants.update", assistant_id=assistant_id, context={"c": 1}, metadata={"b": 2})
    assert (changed["version"], changed["context"], changed["metadata"]) == (2, {"c": 1}, {"a": 1, "b": 2})
    versions = await either.call("assistants.get_versions", assistant_id=assistant_id)
    assert [version["version"] for version in versions] == [2, 1]
    back = await either.call("assistants.set_latest", assistant_id=assistant_id, version=1)
    assert (back["version"], back["context"]) == (1, {})
    assert await either.call("assistants.search", metadata={"a": 1}, name="MIN") == [back]
    assert await either.call("assistants.count", metadata={"a": 1}) == 1
    assert await either.call("assistants.get_graph", assistant_id=assistant_id)
    assert (await either.call("assistants.get_schemas", assistant_id=assistant_id))["graph_id"] == "echo"
    thread_id = await new_thread(either)
    values = await either.call("runs.wait", thread_id=thread_id, assistant_id=assistant_id, input=user("Hello"))
    assert texts(values) == [("human", "Hello"), ("ai", "Hello")]
    (run,) = await either.call("runs.list", thread_id=thread_id)
    assert run["assistant_id"] == assistant_id
    await either.call("assistants.delete", assistant_id=assistant_id, delete_threads=True)
    assert (await refused(either, "assistants.get", assistant_id=assistant_id)).type == "NotFoundError"
    assert (await refused(either, "threads.get", thread_id=thread_id)).type == "NotFoundError"


# Crons


async def test_a_cron_is_created_changed_and_deleted(either: OfficialClient) -> None:
    thread_id = await new_thread(either)
    yearly = {"assistant_id": "echo", "schedule": "0 0 1 1 *", "input": user("Hello")}
    alone = await either.call("crons.create", **yearly, timezone="Europe/Berlin", metadata={"of": thread_id})
    there = await either.call("crons.create_for_thread", thread_id=thread_id, **yearly, enabled=False)
    assert (alone["thread_id"], alone["on_run_completed"], alone["enabled"]) == (None, "delete", True)
    assert (there["thread_id"], there["on_run_completed"], there["next_run_date"]) == (thread_id, None, None)
    assert datetime.fromisoformat(alone["next_run_date"]).hour == 23
    assert await either.call("crons.search", thread_id=thread_id) == [there]
    assert await either.call("crons.search", metadata={"of": thread_id}, select=["cron_id"]) == [
        {"cron_id": alone["cron_id"]}
    ]
    assert await either.call("crons.count", thread_id=thread_id) == 1
    changed = await either.call("crons.update", cron_id=there["cron_id"], schedule="0 12 * * *", enabled=True)
    assert (changed["schedule"], changed["enabled"]) == ("0 12 * * *", True)
    assert datetime.fromisoformat(changed["next_run_date"]).hour == 12
    for each in (alone, there):
        await either.call("crons.delete", cron_id=each["cron_id"])
    assert await either.call("crons.count", thread_id=thread_id) == 0
    wrong = await refused(either, "crons.create", assistant_id="echo", schedule="nope")
    assert wrong.type == "UnprocessableEntityError"


# Threads


async def test_a_thread_is_created_read_changed_and_deleted(either: OfficialClient) -> None:
    thread_id = str(uuid4())
    created = await either.call("threads.create", thread_id=thread_id, metadata={"a": 1, "b": [1]})
    assert (created["thread_id"], created["metadata"], created["status"]) == (thread_id, {"a": 1, "b": [1]}, "idle")
    assert datetime.fromisoformat(created["created_at"]).tzinfo is not None
    assert await either.call("threads.get", thread_id=thread_id) == created
    changed = await either.call("threads.update", thread_id=thread_id, metadata={"b": 2})
    assert changed["metadata"] == {"a": 1, "b": 2}
    quiet = await either.call("threads.update", thread_id=thread_id, metadata={"c": 3}, return_minimal=True)
    assert quiet is None
    assert (await either.call("threads.get", thread_id=thread_id))["metadata"] == {"a": 1, "b": 2, "c": 3}
    assert await either.call("threads.delete", thread_id=thread_id) is None
    assert (await refused(either, "threads.get", thread_id=thread_id)).type == "NotFoundError"
    assert (await refused(either, "threads.delete", thread_id=thread_id)).type == "NotFoundError"


async def test_ids_of_threads_are_unique_uuids(either: OfficialClient) -> None:
    thread_id = await new_thread(either, metadata={"a": 1})
    assert (await refused(either, "threads.create", thread_id=thread_id)).type == "ConflictError"
    again = await either.call("threads.create", thread_id=thread_id, metadata={"a": 2}, if_exists="do_nothing")
    assert again["metadata"] == {"a": 1}
    for name in ("threads.create", "threads.get", "threads.get_state", "threads.delete"):
        assert (await refused(either, name, thread_id="mine")).type == "UnprocessableEntityError"


async def test_threads_are_searched_and_counted(either: OfficialClient) -> None:
    mark = str(uuid4())
    thread_ids = [await new_thread(either, metadata={"mark": mark, "n": number}) for number in range(3)]
    await either.call("runs.wait", thread_id=thread_ids[1], assistant_id="ask", input=user("x"))

    async def search(**where: Any) -> list[str]:
        found = await either.call("threads.search", metadata={"mark": mark}, **where)
        return [thread["thread_id"] for thread in found]

    assert sorted(await search()) == sorted(thread_ids)
    assert await search(status="interrupted") == [thread_ids[1]]
    assert sorted(await search(status="idle")) == sorted([thread_ids[0], thread_ids[2]])
    assert await search(sort_by="created_at", sort_order="asc") == thread_ids
    assert await search(sort_by="created_at", sort_order="asc", limit=1, offset=1) == [thread_ids[1]]
    assert sorted(await search(ids=thread_ids[:2])) == sorted(thread_ids[:2])
    assert await either.call("threads.count", metadata={"mark": mark}) == 3
    assert await either.call("threads.count", metadata={"mark": mark}, status="interrupted") == 1


async def test_a_copied_thread_has_the_messages_and_is_independent(either: OfficialClient) -> None:
    thread_id = await new_thread(either, metadata={"a": 1})
    await either.call("runs.wait", thread_id=thread_id, assistant_id="echo", input=user("One"))
    copied = await either.call("threads.copy", thread_id=thread_id)
    assert (copied["thread_id"] != thread_id, copied["status"], copied["metadata"]["a"]) == (True, "idle", 1)
    both = await either.call("runs.wait", thread_id=copied["thread_id"], assistant_id="echo", input=user("Two"))
    assert [text for _, text in texts(both)] == ["One", "One", "Two", "Two"]
    state = await either.call("threads.get_state", thread_id=thread_id)
    assert [text for _, text in texts(state["values"])] == ["One", "One"]


# State


async def test_the_state_of_a_new_thread_is_empty(either: OfficialClient) -> None:
    state = await either.call("threads.get_state", thread_id=await new_thread(either))
    unset = ("metadata", "created_at", "checkpoint", "parent_checkpoint", "checkpoint_id", "parent_checkpoint_id")
    assert state == {"values": {}, "next": [], "tasks": [], "interrupts": [], **dict.fromkeys(unset)}
    assert (await refused(either, "threads.get_state", thread_id=UNKNOWN_ID)).type == "NotFoundError"


async def test_checkpoints_of_a_finished_run_can_be_read(either: OfficialClient) -> None:
    thread_id = await new_thread(either)
    await either.call("runs.wait", thread_id=thread_id, assistant_id="echo", input=user("Hello"))
    state = await either.call("threads.get_state", thread_id=thread_id)
    assert (texts(state["values"]), state["next"]) == ([("human", "Hello"), ("ai", "Hello")], [])
    history = await either.call("threads.get_history", thread_id=thread_id)
    assert history[0] == state
    assert len(history) == 2
    for newer, older in pairwise(history):
        assert newer["parent_checkpoint"]["checkpoint_id"] == older["checkpoint"]["checkpoint_id"]
    first = history[-1]
    assert (texts(first["values"]), first["metadata"]["source"]) == ([("human", "Hello")], "input")
    at = first["checkpoint"]
    assert await either.call("threads.get_state", thread_id=thread_id, checkpoint_id=at["checkpoint_id"]) == first
    assert await either.call("threads.get_state", thread_id=thread_id, checkpoint=at) == first
    before = state["checkpoint"]["checkpoint_id"]
    assert await either.call("threads.get_history", thread_id=thread_id, limit=1, before=before) == [first]
    assert await either.call("threads.get_history", thread_id=thread_id, limit=1) == [state]


async def test_the_next_run_starts_from_a_state_update(either: OfficialClient) -> None:
    thread_id = await new_thread(either)
    await either.call("runs.wait", thread_id=thread_id, assistant_id="echo", input=user("One"))
    values = {"mood": "good", **user("Note")}
    updated = await either.call("threads.update_state", thread_id=thread_id, values=values)
    state = await either.call("threads.get_state", thread_id=thread_id)
    assert updated["checkpoint"]["checkpoint_id"] == state["checkpoint"]["checkpoint_id"]
    assert (state["values"]["mood"], state["metadata"]["source"]) == ("good", "update")
    done = await either.call("runs.wait", thread_id=thread_id, assistant_id="echo", input=user("Two"))
    assert [text for _, text in texts(done)] == ["One", "One", "Note", "Two", "Two"]
    assert done["mood"] == "good"


async def test_a_run_from_an_older_checkpoint_starts_a_branch(either: OfficialClient) -> None:
    thread_id = await new_thread(either)
    for text in ("One", "Two"):
        await either.call("runs.wait", thread_id=thread_id, assistant_id="echo", input=user(text))
    history = await either.call("threads.get_history", thread_id=thread_id)
    [after_one] = [
        state["checkpoint"] for state in history if [text for _, text in texts(state["values"])] == ["One", "One"]
    ]
    forked = await either.call(
        "runs.wait", thread_id=thread_id, assistant_id="echo", input=user("Else"), checkpoint=after_one
    )
    assert [text for _, text in texts(forked)] == ["One", "One", "Else", "Else"]


# Store


async def test_items_are_stored_found_and_deleted(either: OfficialClient) -> None:
    top = f"t{uuid4().hex}"
    value = {"name": "Ada", "age": 36, "tags": ["a"]}
    assert await either.call("store.put_item", namespace=[top, "users"], key="ada", value=value) is None
    await either.call("store.put_item", namespace=[top, "users"], key="bob", value={"name": "Bob", "age": 7})
    await either.call("store.put_item", namespace=[top, "notes", "old"], key="ada", value={"text": "x"})
    item = await either.call("store.get_item", namespace=[top, "users"], key="ada")
    assert (item["namespace"], item["key"], item["value"]) == ([top, "users"], "ada", value)
    assert datetime.fromisoformat(item["created_at"]) <= datetime.fromisoformat(item["updated_at"])

    async def search(prefix: list[str], **where: Any) -> list[str]:
        found = await either.call("store.search_items", namespace_prefix=prefix, **where)
        return sorted(each["key"] for each in found["items"])

    assert await search([top]) == ["ada", "ada", "bob"]
    assert await search([top, "users"]) == ["ada", "bob"]
    assert await search([top, "user"]) == []
    assert await search([top, "users"], filter={"name": "Bob"}) == ["bob"]
    assert await search([top, "users"], filter={"age": {"$gt": 10}}) == ["ada"]
    assert len(await search([top], limit=2)) == 2
    assert len(await search([top], limit=2, offset=2)) == 1
    listed = await either.call("store.list_namespaces", prefix=[top])
    assert sorted(listed["namespaces"]) == [[top, "notes", "old"], [top, "users"]]
    cut = await either.call("store.list_namespaces", prefix=[top], max_depth=2)
    assert sorted(cut["namespaces"]) == [[top, "notes"], [top, "users"]]
    suffix = await either.call("store.list_namespaces", prefix=[top], suffix=["old"])
    assert suffix["namespaces"] == [[top, "notes", "old"]]
    await either.call("store.put_item", namespace=[top, "users"], key="ada", value={"name": "Ada L."})
    again = await either.call("store.get_item", namespace=[top, "users"], key="ada")
    assert (again["value"], again["created_at"]) == ({"name": "Ada L."}, item["created_at"])
    assert await either.call("store.delete_item", namespace=[top, "users"], key="ada") is None
    assert await search([top, "users"]) == ["bob"]


async def test_missing_items_and_empty_namespaces_are_refused(either: OfficialClient) -> None:
    try:
        assert await either.call("store.get_item", namespace=["none"], key="x") is None
    except ClientError as error:
        assert error.type == "NotFoundError"
    for namespace in ([], [""]):
        found = await refused(either, "store.put_item", namespace=namespace, key="x", value={})
        assert found.type == "UnprocessableEntityError"
