"""Runs, with and without a thread: created, waited for, cancelled, and several on one thread."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.interop.driver import OfficialClient, start_client
from tests.interop.langgraph.talk import NOBODY, assistant_of, is_running, new_thread, refused, said, texts
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


# Runs


async def test_a_run_is_created_joined_listed_and_deleted(either: OfficialClient) -> None:
    thread_id = await new_thread(either)
    made = await either.call(
        "runs.create",
        thread_id=thread_id,
        assistant_id="echo",
        input=said("Hello"),
        metadata={"a": 1},
        config={"tags": ["t"], "configurable": {"k": "v"}},
    )
    assert (made["thread_id"], made["assistant_id"]) == (thread_id, assistant_of("echo"))
    assert (made["status"], made["metadata"]["a"], made["multitask_strategy"]) == ("pending", 1, "enqueue")
    ids = {"thread_id": thread_id, "run_id": made["run_id"]}
    assert texts(await either.call("runs.join", **ids)) == [("human", "Hello"), ("ai", "Hello")]
    done = await either.call("runs.get", **ids)
    assert (done["status"], done["kwargs"]["input"]) == ("success", said("Hello"))
    other = await either.call("runs.create", thread_id=thread_id, assistant_id=assistant_of("echo"), input=said("x"))
    await either.call("runs.join", thread_id=thread_id, run_id=other["run_id"])
    listed = await either.call("runs.list", thread_id=thread_id)
    assert [run["run_id"] for run in listed] == [other["run_id"], made["run_id"]]
    assert [run["run_id"] for run in await either.call("runs.list", thread_id=thread_id, limit=1, offset=1)] == [
        made["run_id"]
    ]
    assert len(await either.call("runs.list", thread_id=thread_id, status="success")) == 2
    assert await either.call("runs.list", thread_id=thread_id, status="error") == []
    assert await either.call("runs.delete", **ids) is None
    assert (await refused(either, "runs.get", **ids)).type == "NotFoundError"
    assert [run["run_id"] for run in await either.call("runs.list", thread_id=thread_id)] == [other["run_id"]]


async def test_a_thread_goes_on_when_one_of_its_runs_was_deleted(either: OfficialClient) -> None:
    given = {"thread_id": await new_thread(either), "assistant_id": "echo"}
    await either.call("runs.wait", **given, input=said("One"))
    [run] = await either.call("runs.list", thread_id=given["thread_id"])
    await either.call("runs.delete", thread_id=given["thread_id"], run_id=run["run_id"])
    done = await either.call("runs.wait", **given, input=said("Two"))
    assert [text for _, text in texts(done)] == ["Two", "Two"]
    events = await either.call("runs.stream", **given, input=said("Three"))
    assert texts(events[-1]["data"])[-1] == ("ai", "Three")


async def test_an_assistant_is_addressed_by_name_or_id_and_an_unknown_one_is_refused(either: OfficialClient) -> None:
    for wanted in ("echo", assistant_of("echo")):
        done = await either.call("runs.wait", thread_id=None, assistant_id=wanted, input=said("Hello"))
        assert texts(done)[-1] == ("ai", "Hello")
    thread_id = await new_thread(either)
    for wanted, expected in (("nope", "UnprocessableEntityError"), (NOBODY, "NotFoundError")):
        found = await refused(either, "runs.create", thread_id=thread_id, assistant_id=wanted, input=said("x"))
        assert found.type == expected


async def test_structured_output_is_in_the_values(either: OfficialClient) -> None:
    done = await either.call("runs.wait", thread_id=None, assistant_id="json", input=said("a b"))
    assert (done["text"], done["words"], done["length"]) == ("a b", 2, 3)


async def test_a_failure_is_raised_by_wait_and_an_event_of_a_stream(either: OfficialClient) -> None:
    thread_id = await new_thread(either)
    error = await refused(either, "runs.wait", thread_id=thread_id, assistant_id="fail", input=said("Boom"))
    assert (error.type, "Boom" in error.message) == ("Exception", True)
    quiet = await either.call(
        "runs.wait", thread_id=thread_id, assistant_id="fail", input=said("Boom"), raise_error=False
    )
    assert "Boom" in quiet["__error__"]["message"]
    assert (await either.call("runs.list", thread_id=thread_id))[0]["status"] == "error"
    assert (await either.call("threads.get", thread_id=thread_id))["status"] == "error"
    events = await either.call("runs.stream", thread_id=thread_id, assistant_id="fail", input=said("Boom"))
    assert (events[-1]["event"], "Boom" in events[-1]["data"]["message"]) == ("error", True)


async def test_a_thread_that_is_not_there_is_refused_unless_it_may_be_made(either: OfficialClient) -> None:
    given = {"assistant_id": "echo", "input": said("Hello")}
    for name in ("runs.create", "runs.wait"):
        assert (await refused(either, name, thread_id=str(uuid4()), **given)).data["status"] == 404
    thread_id = str(uuid4())
    done = await either.call("runs.wait", thread_id=thread_id, if_not_exists="create", **given)
    assert texts(done)[-1] == ("ai", "Hello")
    assert (await either.call("threads.get", thread_id=thread_id))["status"] == "idle"


async def test_unknown_runs_are_not_found(either: OfficialClient) -> None:
    ids = {"thread_id": await new_thread(either), "run_id": NOBODY}
    for name in ("runs.get", "runs.cancel", "runs.delete"):
        assert (await refused(either, name, **ids)).type == "NotFoundError"
    assert "__error__" in await either.call("runs.join", **ids)
    [event] = await either.call("runs.join_stream", **ids)
    assert event["event"] == "error"


# Stateless runs


async def test_runs_without_a_thread_leave_none(either: OfficialClient) -> None:
    mark = str(uuid4())
    given = {"thread_id": None, "assistant_id": "echo", "input": said(mark)}
    assert texts(await either.call("runs.wait", **given))[-1] == ("ai", mark)
    events = await either.call("runs.stream", **given)
    assert texts(events[-1]["data"])[-1] == ("ai", mark)
    run = await either.call("runs.create", **given)
    assert texts(await either.call("runs.join", thread_id=run["thread_id"], run_id=run["run_id"]))[-1] == ("ai", mark)
    hidden = await either.call("threads.search", ids=[run["thread_id"]])
    assert hidden == []


async def test_a_kept_run_leaves_an_ordinary_thread(either: OfficialClient) -> None:
    run = await either.call("runs.create", thread_id=None, assistant_id="echo", input=said("x"), on_completion="keep")
    await either.call("runs.join", thread_id=run["thread_id"], run_id=run["run_id"])
    found = await either.call("threads.search", ids=[run["thread_id"]])
    assert [thread["thread_id"] for thread in found] == [run["thread_id"]]


async def test_a_batch_makes_a_run_of_each_or_none(either: OfficialClient) -> None:
    payloads: list[Any] = [{"assistant_id": name, "input": said(name)} for name in ("echo", "stream")]
    runs = await either.call("runs.create_batch", payloads=payloads)
    done = [await either.call("runs.join", thread_id=run["thread_id"], run_id=run["run_id"]) for run in runs]
    assert [texts(values)[-1] for values in done] == [("ai", "echo"), ("ai", "stream")]
    payloads.append({"assistant_id": "nope"})
    assert (await refused(either, "runs.create_batch", payloads=payloads)).type == "UnprocessableEntityError"
    assert (await refused(either, "runs.create_batch", payloads=[])).type == "UnprocessableEntityError"


# Cancel


async def begun(client: OfficialClient, thread_id: str | None = None) -> dict[str, str]:
    """The ids of a run whose agent waits for the gate."""
    thread_id = thread_id or await new_thread(client)
    run = await client.call("runs.create", thread_id=thread_id, assistant_id="gated", input=said("x"))
    await is_running(client, run)
    return {"thread_id": thread_id, "run_id": run["run_id"]}


@pytest.mark.parametrize("wait", [False, True])
async def test_a_run_is_cancelled_at_once_or_waited_for(
    client: OfficialClient, gate: asyncio.Event, wait: bool
) -> None:
    ids = await begun(client)
    answer = await client.call("runs.cancel", **ids, wait=wait)
    assert answer is None or isinstance(answer, dict)
    await client.call("runs.join", **ids)
    assert (await client.call("runs.get", **ids))["status"] == "interrupted"
    assert (await client.call("threads.get", thread_id=ids["thread_id"]))["status"] in ("idle", "interrupted")
    assert (await refused(client, "runs.cancel", **ids)).type == "NotFoundError"


async def test_a_run_is_cancelled_and_rolled_back(client: OfficialClient, gate: asyncio.Event) -> None:
    thread_id = await new_thread(client)
    await client.call("runs.wait", thread_id=thread_id, assistant_id="echo", input=said("One"))
    before = await client.call("threads.get_state", thread_id=thread_id)
    ids = await begun(client, thread_id)
    await client.call("runs.cancel", **ids, wait=True, action="rollback")
    assert (await refused(client, "runs.get", **ids)).type == "NotFoundError"
    assert await client.call("threads.get_state", thread_id=thread_id) == before
    assert (await client.call("threads.get", thread_id=thread_id))["status"] == "idle"


async def test_many_runs_are_cancelled_at_once(client: OfficialClient, gate: asyncio.Event) -> None:
    first = await begun(client)
    thread_id = first["thread_id"]
    given = {"thread_id": thread_id, "assistant_id": "gated", "input": said("x")}
    run_ids = [first["run_id"], *[(await client.call("runs.create", **given))["run_id"] for _ in range(2)]]
    await client.call("runs.cancel_many", thread_id=thread_id, run_ids=run_ids)
    for run_id in run_ids:
        await client.call("runs.join", thread_id=thread_id, run_id=run_id)
    listed = await client.call("runs.list", thread_id=thread_id)
    assert [run["status"] for run in listed] == ["interrupted"] * 3
    nothing = await refused(client, "runs.cancel_many", thread_id=thread_id, run_ids=run_ids)
    assert nothing.type == "NotFoundError"


# Several runs on one thread


async def test_a_second_run_is_rejected(client: OfficialClient, gate: asyncio.Event) -> None:
    first = await begun(client)
    second = {"thread_id": first["thread_id"], "assistant_id": "echo", "input": said("y")}
    rejected = await refused(client, "runs.create", **second, multitask_strategy="reject")
    assert rejected.type == "ConflictError"
    gate.set()
    await client.call("runs.join", **first)
    assert texts(await client.call("runs.wait", **second, multitask_strategy="reject"))[-1] == ("ai", "y")


@pytest.mark.parametrize(("strategy", "status"), [("interrupt", "interrupted"), ("rollback", None)])
async def test_a_second_run_takes_the_place_of_the_first(
    client: OfficialClient, gate: asyncio.Event, strategy: str, status: str | None
) -> None:
    first = await begun(client)
    second = {"thread_id": first["thread_id"], "assistant_id": "echo", "input": said("y")}
    done = await client.call("runs.wait", **second, multitask_strategy=strategy)
    assert texts(done)[-1] == ("ai", "y")
    if status is None:
        assert [text for _, text in texts(done)] == ["y", "y"]
        assert (await refused(client, "runs.get", **first)).type == "NotFoundError"
    else:
        assert (await client.call("runs.get", **first))["status"] == status


async def test_a_second_run_is_enqueued(client: OfficialClient, gate: asyncio.Event) -> None:
    thread_id = await new_thread(client)
    first = await client.call("runs.create", thread_id=thread_id, assistant_id="gated", input=said("x"))
    second = await client.call("runs.create", thread_id=thread_id, assistant_id="echo", input=said("y"))
    assert (await client.call("runs.get", thread_id=thread_id, run_id=second["run_id"]))["status"] == "pending"
    assert (await client.call("threads.get", thread_id=thread_id))["status"] == "busy"
    gate.set()
    done = await client.call("runs.join", thread_id=thread_id, run_id=second["run_id"])
    assert [text for _, text in texts(done)] == ["x", "first second", "y", "y"]
    assert (await client.call("runs.get", thread_id=thread_id, run_id=first["run_id"]))["status"] == "success"


# Leaving, and waiting


@pytest.mark.parametrize(
    ("given", "is_cancelled"),
    [({}, False), ({"on_disconnect": "continue"}, False), ({"on_disconnect": "cancel"}, True)],
    ids=str,
)
async def test_a_run_is_cancelled_when_its_caller_leaves_if_told_so(
    client: OfficialClient, gate: asyncio.Event, given: dict[str, str], is_cancelled: bool
) -> None:
    asked = {"thread_id": await new_thread(client), "assistant_id": "gated", "input": said("x")}
    async with client.stream("runs.stream", **asked, stream_mode="messages-tuple", **given) as events:
        metadata = await anext(events)
        await anext(events)
    ids = {"thread_id": asked["thread_id"], "run_id": metadata["data"]["run_id"]}
    if not is_cancelled:
        assert (await client.call("runs.get", **ids))["status"] == "running"
        gate.set()
    last = texts(await client.call("runs.join", **ids))[-1]
    assert (await client.call("runs.get", **ids))["status"] == ("interrupted" if is_cancelled else "success")
    assert is_cancelled or last == ("ai", "first second")


async def test_a_run_is_cancelled_when_who_joined_it_leaves_if_told_so(
    client: OfficialClient, gate: asyncio.Event
) -> None:
    ids = await begun(client)
    joined = {**ids, "cancel_on_disconnect": True, "last_event_id": "-1"}
    async with client.stream("runs.join_stream", **joined, stream_mode="values") as events:
        await anext(events)
    await client.call("runs.join", **ids)
    assert (await client.call("runs.get", **ids))["status"] == "interrupted"


async def test_a_run_is_put_off(client: OfficialClient) -> None:
    thread_id = await new_thread(client)
    given = {"thread_id": thread_id, "assistant_id": "echo", "input": said("x")}
    late = await client.call("runs.create", **given, after_seconds=3600)
    assert late["status"] == "pending"
    assert (datetime.fromisoformat(late["created_at"]) - datetime.now(UTC)).total_seconds() > 3000
    await client.call("runs.cancel", thread_id=thread_id, run_id=late["run_id"])
    cancelled = await client.call("runs.get", thread_id=thread_id, run_id=late["run_id"])
    assert cancelled["status"] == "interrupted"
    assert texts(await client.call("runs.wait", **given, after_seconds=1))[-1] == ("ai", "x")


async def test_one_agent_alone_is_an_origin_of_its_own(gateway: Running) -> None:
    async with start_client("langgraph-sdk", base_url=f"{gateway.url}/agent/echo") as alone:
        assert [each["graph_id"] for each in await alone.call("assistants.search")] == ["echo"]
        thread_id = await new_thread(alone)
        events = await alone.call("runs.stream", thread_id=thread_id, assistant_id="echo", input=said("Hello"))
        assert texts(events[-1]["data"])[-1] == ("ai", "Hello")
        done = await alone.call("runs.wait", thread_id=thread_id, assistant_id="echo", input=said("Again"))
        assert len(done["messages"]) == 4


async def test_a_key_names_the_owner(tmp_path: Path) -> None:
    async with (
        running(tmp_path, keys={"alice": "a" * 32, "bob": "b" * 32}) as gateway,
        start_client("langgraph-sdk", base_url=gateway.url, api_key="a" * 32) as alice,
        start_client("langgraph-sdk", base_url=gateway.url, api_key="b" * 32) as bob,
        start_client("langgraph-sdk", base_url=gateway.url) as nobody,
    ):
        thread_id = await new_thread(alice)
        assert (await refused(bob, "threads.get", thread_id=thread_id)).type == "NotFoundError"
        assert (await refused(nobody, "threads.get", thread_id=thread_id)).type == "AuthenticationError"
