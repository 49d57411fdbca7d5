"""Runs with and without a thread: create, wait, cancel, and several runs on one thread."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.interop.driver import OfficialClient, start_client
from tests.interop.langgraph.talk import UNKNOWN_ID, assistant_of, new_thread, refused, texts, user, wait_until_running
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


# Runs


async def test_a_run_is_created_joined_listed_and_deleted(either: OfficialClient) -> None:
    thread_id = await new_thread(either)
    run = await either.call(
        "runs.create",
        thread_id=thread_id,
        assistant_id="echo",
        input=user("Hello"),
        metadata={"a": 1},
        config={"tags": ["t"], "configurable": {"k": "v"}},
    )
    assert (run["thread_id"], run["assistant_id"]) == (thread_id, assistant_of("echo"))
    assert (run["status"], run["metadata"]["a"], run["multitask_strategy"]) == ("pending", 1, "enqueue")
    ids = {"thread_id": thread_id, "run_id": run["run_id"]}
    assert texts(await either.call("runs.join", **ids)) == [("human", "Hello"), ("ai", "Hello")]
    done = await either.call("runs.get", **ids)
    assert (done["status"], done["kwargs"]["input"]) == ("success", user("Hello"))
    other = await either.call("runs.create", thread_id=thread_id, assistant_id=assistant_of("echo"), input=user("x"))
    await either.call("runs.join", thread_id=thread_id, run_id=other["run_id"])
    listed = await either.call("runs.list", thread_id=thread_id)
    assert [each["run_id"] for each in listed] == [other["run_id"], run["run_id"]]
    assert [each["run_id"] for each in await either.call("runs.list", thread_id=thread_id, limit=1, offset=1)] == [
        run["run_id"]
    ]
    assert len(await either.call("runs.list", thread_id=thread_id, status="success")) == 2
    assert await either.call("runs.list", thread_id=thread_id, status="error") == []
    assert await either.call("runs.delete", **ids) is None
    assert (await refused(either, "runs.get", **ids)).type == "NotFoundError"
    assert [each["run_id"] for each in await either.call("runs.list", thread_id=thread_id)] == [other["run_id"]]


async def test_a_thread_continues_after_one_of_its_runs_is_deleted(either: OfficialClient) -> None:
    target = {"thread_id": await new_thread(either), "assistant_id": "echo"}
    await either.call("runs.wait", **target, input=user("One"))
    [run] = await either.call("runs.list", thread_id=target["thread_id"])
    await either.call("runs.delete", thread_id=target["thread_id"], run_id=run["run_id"])
    done = await either.call("runs.wait", **target, input=user("Two"))
    assert [text for _, text in texts(done)] == ["Two", "Two"]
    events = await either.call("runs.stream", **target, input=user("Three"))
    assert texts(events[-1]["data"])[-1] == ("ai", "Three")


async def test_assistants_are_addressed_by_name_or_id(either: OfficialClient) -> None:
    for wanted in ("echo", assistant_of("echo")):
        done = await either.call("runs.wait", thread_id=None, assistant_id=wanted, input=user("Hello"))
        assert texts(done)[-1] == ("ai", "Hello")
    thread_id = await new_thread(either)
    for wanted, expected in (("nope", "UnprocessableEntityError"), (UNKNOWN_ID, "NotFoundError")):
        fault = await refused(either, "runs.create", thread_id=thread_id, assistant_id=wanted, input=user("x"))
        assert fault.type == expected


async def test_structured_output_is_in_the_values(either: OfficialClient) -> None:
    done = await either.call("runs.wait", thread_id=None, assistant_id="json", input=user("a b"))
    assert (done["text"], done["words"], done["length"]) == ("a b", 2, 3)


async def test_a_failure_is_raised_by_wait_and_sent_in_streams(either: OfficialClient) -> None:
    thread_id = await new_thread(either)
    error = await refused(either, "runs.wait", thread_id=thread_id, assistant_id="fail", input=user("Boom"))
    assert (error.type, "Boom" in error.message) == ("Exception", True)
    quiet = await either.call(
        "runs.wait", thread_id=thread_id, assistant_id="fail", input=user("Boom"), raise_error=False
    )
    assert "Boom" in quiet["__error__"]["message"]
    assert (await either.call("runs.list", thread_id=thread_id))[0]["status"] == "error"
    assert (await either.call("threads.get", thread_id=thread_id))["status"] == "error"
    events = await either.call("runs.stream", thread_id=thread_id, assistant_id="fail", input=user("Boom"))
    assert (events[-1]["event"], "Boom" in events[-1]["data"]["message"]) == ("error", True)


async def test_an_unknown_thread_is_refused_unless_it_may_be_created(either: OfficialClient) -> None:
    request = {"assistant_id": "echo", "input": user("Hello")}
    for name in ("runs.create", "runs.wait"):
        assert (await refused(either, name, thread_id=str(uuid4()), **request)).data["status"] == 404
    thread_id = str(uuid4())
    done = await either.call("runs.wait", thread_id=thread_id, if_not_exists="create", **request)
    assert texts(done)[-1] == ("ai", "Hello")
    assert (await either.call("threads.get", thread_id=thread_id))["status"] == "idle"


async def test_unknown_runs_are_not_found(either: OfficialClient) -> None:
    ids = {"thread_id": await new_thread(either), "run_id": UNKNOWN_ID}
    for name in ("runs.get", "runs.cancel", "runs.delete"):
        assert (await refused(either, name, **ids)).type == "NotFoundError"
    assert "__error__" in await either.call("runs.join", **ids)
    [event] = await either.call("runs.join_stream", **ids)
    assert event["event"] == "error"


# Stateless runs


async def test_runs_without_a_thread_leave_no_thread(either: OfficialClient) -> None:
    mark = str(uuid4())
    request = {"thread_id": None, "assistant_id": "echo", "input": user(mark)}
    assert texts(await either.call("runs.wait", **request))[-1] == ("ai", mark)
    events = await either.call("runs.stream", **request)
    assert texts(events[-1]["data"])[-1] == ("ai", mark)
    run = await either.call("runs.create", **request)
    assert texts(await either.call("runs.join", thread_id=run["thread_id"], run_id=run["run_id"]))[-1] == ("ai", mark)
    hidden = await either.call("threads.search", ids=[run["thread_id"]])
    assert hidden == []


async def test_on_completion_keep_leaves_an_ordinary_thread(either: OfficialClient) -> None:
    run = await either.call("runs.create", thread_id=None, assistant_id="echo", input=user("x"), on_completion="keep")
    await either.call("runs.join", thread_id=run["thread_id"], run_id=run["run_id"])
    found = await either.call("threads.search", ids=[run["thread_id"]])
    assert [thread["thread_id"] for thread in found] == [run["thread_id"]]


async def test_a_batch_creates_all_its_runs_or_none(either: OfficialClient) -> None:
    payloads: list[Any] = [{"assistant_id": name, "input": user(name)} for name in ("echo", "stream")]
    runs = await either.call("runs.create_batch", payloads=payloads)
    done = [await either.call("runs.join", thread_id=run["thread_id"], run_id=run["run_id"]) for run in runs]
    assert [texts(values)[-1] for values in done] == [("ai", "echo"), ("ai", "stream")]
    payloads.append({"assistant_id": "nope"})
    assert (await refused(either, "runs.create_batch", payloads=payloads)).type == "UnprocessableEntityError"
    assert (await refused(either, "runs.create_batch", payloads=[])).type == "UnprocessableEntityError"


# Cancel


async def start_gated_run(client: OfficialClient, thread_id: str | None = None) -> dict[str, str]:
    """Start a run whose agent waits for the gate, and return its ids."""
    thread_id = thread_id or await new_thread(client)
    run = await client.call("runs.create", thread_id=thread_id, assistant_id="gated", input=user("x"))
    await wait_until_running(client, run)
    return {"thread_id": thread_id, "run_id": run["run_id"]}


@pytest.mark.parametrize("wait", [False, True])
async def test_a_run_is_cancelled_with_and_without_waiting(
    client: OfficialClient, gate: asyncio.Event, wait: bool
) -> None:
    ids = await start_gated_run(client)
    answer = await client.call("runs.cancel", **ids, wait=wait)
    assert answer is None or isinstance(answer, dict)
    await client.call("runs.join", **ids)
    assert (await client.call("runs.get", **ids))["status"] == "interrupted"
    assert (await client.call("threads.get", thread_id=ids["thread_id"]))["status"] in ("idle", "interrupted")
    assert (await refused(client, "runs.cancel", **ids)).type == "NotFoundError"


async def test_a_run_is_cancelled_and_rolled_back(client: OfficialClient, gate: asyncio.Event) -> None:
    thread_id = await new_thread(client)
    await client.call("runs.wait", thread_id=thread_id, assistant_id="echo", input=user("One"))
    before = await client.call("threads.get_state", thread_id=thread_id)
    ids = await start_gated_run(client, thread_id)
    await client.call("runs.cancel", **ids, wait=True, action="rollback")
    assert (await refused(client, "runs.get", **ids)).type == "NotFoundError"
    assert await client.call("threads.get_state", thread_id=thread_id) == before
    assert (await client.call("threads.get", thread_id=thread_id))["status"] == "idle"


async def test_many_runs_are_cancelled_at_once(client: OfficialClient, gate: asyncio.Event) -> None:
    first = await start_gated_run(client)
    thread_id = first["thread_id"]
    request = {"thread_id": thread_id, "assistant_id": "gated", "input": user("x")}
    run_ids = [first["run_id"], *[(await client.call("runs.create", **request))["run_id"] for _ in range(2)]]
    await client.call("runs.cancel_many", thread_id=thread_id, run_ids=run_ids)
    for run_id in run_ids:
        await client.call("runs.join", thread_id=thread_id, run_id=run_id)
    listed = await client.call("runs.list", thread_id=thread_id)
    assert [run["status"] for run in listed] == ["interrupted"] * 3
    nothing = await refused(client, "runs.cancel_many", thread_id=thread_id, run_ids=run_ids)
    assert nothing.type == "NotFoundError"


# Several runs on one thread


async def test_a_second_run_is_rejected(client: OfficialClient, gate: asyncio.Event) -> None:
    first = await start_gated_run(client)
    second = {"thread_id": first["thread_id"], "assistant_id": "echo", "input": user("y")}
    rejected = await refused(client, "runs.create", **second, multitask_strategy="reject")
    assert rejected.type == "ConflictError"
    gate.set()
    await client.call("runs.join", **first)
    assert texts(await client.call("runs.wait", **second, multitask_strategy="reject"))[-1] == ("ai", "y")


@pytest.mark.parametrize(("strategy", "status"), [("interrupt", "interrupted"), ("rollback", None)])
async def test_a_second_run_replaces_the_first(
    client: OfficialClient, gate: asyncio.Event, strategy: str, status: str | None
) -> None:
    first = await start_gated_run(client)
    second = {"thread_id": first["thread_id"], "assistant_id": "echo", "input": user("y")}
    done = await client.call("runs.wait", **second, multitask_strategy=strategy)
    assert texts(done)[-1] == ("ai", "y")
    if status is None:
        assert [text for _, text in texts(done)] == ["y", "y"]
        assert (await refused(client, "runs.get", **first)).type == "NotFoundError"
    else:
        assert (await client.call("runs.get", **first))["status"] == status


async def test_a_second_run_is_enqueued(client: OfficialClient, gate: asyncio.Event) -> None:
    thread_id = await new_thread(client)
    first = await client.call("runs.create", thread_id=thread_id, assistant_id="gated", input=user("x"))
    second = await client.call("runs.create", thread_id=thread_id, assistant_id="echo", input=user("y"))
    assert (await client.call("runs.get", thread_id=thread_id, run_id=second["run_id"]))["status"] == "pending"
    assert (await client.call("threads.get", thread_id=thread_id))["status"] == "busy"
    gate.set()
    done = await client.call("runs.join", thread_id=thread_id, run_id=second["run_id"])
    assert [text for _, text in texts(done)] == ["x", "first second", "y", "y"]
    assert (await client.call("runs.get", thread_id=thread_id, run_id=first["run_id"]))["status"] == "success"


# Disconnects and delays


@pytest.mark.parametrize(
    ("options", "is_cancelled"),
    [({}, False), ({"on_disconnect": "continue"}, False), ({"on_disconnect": "cancel"}, True)],
    ids=str,
)
async def test_a_disconnect_cancels_a_run_only_if_requested(
    client: OfficialClient, gate: asyncio.Event, options: dict[str, str], is_cancelled: bool
) -> None:
    request = {"thread_id": await new_thread(client), "assistant_id": "gated", "input": user("x")}
    async with client.stream("runs.stream", **request, stream_mode="messages-tuple", **options) as events:
        metadata = await anext(events)
        await anext(events)
    ids = {"thread_id": request["thread_id"], "run_id": metadata["data"]["run_id"]}
    if not is_cancelled:
        assert (await client.call("runs.get", **ids))["status"] == "running"
        gate.set()
    last = texts(await client.call("runs.join", **ids))[-1]
    assert (await client.call("runs.get", **ids))["status"] == ("interrupted" if is_cancelled else "success")
    assert is_cancelled or last == ("ai", "first second")


async def test_a_disconnect_from_join_cancels_a_run_if_requested(client: OfficialClient, gate: asyncio.Event) -> None:
    ids = await start_gated_run(client)
    joined = {**ids, "cancel_on_disconnect": True, "last_event_id": "-1"}
    async with client.stream("runs.join_stream", **joined, stream_mode="values") as events:
        await anext(events)
    await client.call("runs.join", **ids)
    assert (await client.call("runs.get", **ids))["status"] == "interrupted"


async def test_a_run_is_delayed(client: OfficialClient) -> None:
    thread_id = await new_thread(client)
    request = {"thread_id": thread_id, "assistant_id": "echo", "input": user("x")}
    late = await client.call("runs.create", **request, after_seconds=3600)
    assert late["status"] == "pending"
    assert (datetime.fromisoformat(late["created_at"]) - datetime.now(UTC)).total_seconds() > 3000
    await client.call("runs.cancel", thread_id=thread_id, run_id=late["run_id"])
    cancelled = await client.call("runs.get", thread_id=thread_id, run_id=late["run_id"])
    assert cancelled["status"] == "interrupted"
    assert texts(await client.call("runs.wait", **request, after_seconds=1))[-1] == ("ai", "x")


async def test_the_url_of_one_agent_is_a_separate_origin(gateway: Running) -> None:
    async with start_client("langgraph-sdk", base_url=f"{gateway.url}/agent/echo") as client:
        assert [each["graph_id"] for each in await client.call("assistants.search")] == ["echo"]
        thread_id = await new_thread(client)
        events = await client.call("runs.stream", thread_id=thread_id, assistant_id="echo", input=user("Hello"))
        assert texts(events[-1]["data"])[-1] == ("ai", "Hello")
        done = await client.call("runs.wait", thread_id=thread_id, assistant_id="echo", input=user("Again"))
        assert len(done["messages"]) == 4


async def test_a_key_names_the_owner(tmp_path: Path) -> None:
    async with (
        running(tmp_path, keys={"alice": "a" * 32, "bob": "b" * 32}) as gateway,
        start_client("langgraph-sdk", base_url=gateway.url, api_key="a" * 32) as alice,
        start_client("langgraph-sdk", base_url=gateway.url, api_key="b" * 32) as bob,
        start_client("langgraph-sdk", base_url=gateway.url) as anonymous,
    ):
        thread_id = await new_thread(alice)
        assert (await refused(bob, "threads.get", thread_id=thread_id)).type == "NotFoundError"
        assert (await refused(anonymous, "threads.get", thread_id=thread_id)).type == "AuthenticationError"
