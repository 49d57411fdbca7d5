"""Streams in every mode, and readers whose connection is cut."""

import asyncio
from typing import Any, Final

import pytest

from tests.interop.driver import BOUND, OfficialClient, start_client
from tests.interop.langgraph.talk import MODES, new_thread, texts, user, wait_until_running
from tests.interop.proxy import CUT, CuttingProxy, cutting
from tests.running import Running

pytestmark = pytest.mark.asyncio(loop_scope="module")


# Streams


NAMES: Final = {
    "values": {"values"},
    "messages": {"messages/metadata", "messages/partial", "messages/complete"},
    "messages-tuple": {"messages"},
    "updates": {"updates"},
    "events": {"events"},
    "tasks": {"tasks"},
    "checkpoints": {"checkpoints"},
    "debug": {"debug"},
    "custom": {"custom"},
}
QUIET: Final = {"events", "custom"}
"""Modes without events, if the agent is no graph and writes no custom output."""


@pytest.mark.parametrize("mode", MODES)
async def test_a_stream_has_only_the_events_of_its_mode(either: OfficialClient, mode: str) -> None:
    thread_id = await new_thread(either)
    events = await either.call(
        "runs.stream", thread_id=thread_id, assistant_id="stream", input=user("one two"), stream_mode=mode
    )
    [run] = await either.call("runs.list", thread_id=thread_id)
    assert events[0]["event"] == "metadata"
    assert (events[0]["data"]["run_id"], events[0]["data"]["attempt"]) == (run["run_id"], 1)
    names = {event["event"] for event in events[1:]}
    assert names <= NAMES[mode]
    assert names or mode in QUIET
    ids = [event["id"] for event in events]
    assert None not in ids
    assert len(set(ids)) == len(ids)


async def test_a_stream_of_several_modes_has_the_events_of_each(either: OfficialClient) -> None:
    thread_id = await new_thread(either)
    events = await either.call(
        "runs.stream", thread_id=thread_id, assistant_id="stream", input=user("one two"), stream_mode=list(MODES)
    )
    names = {event["event"] for event in events}
    assert names >= {"metadata"}.union(*(expected for mode, expected in NAMES.items() if mode not in QUIET))


async def test_tokens_arrive_in_every_form(either: OfficialClient) -> None:
    run = {"thread_id": None, "assistant_id": "stream", "input": user("one two three")}
    events = await either.call("runs.stream", **run, stream_mode=["messages-tuple", "messages", "values", "updates"])
    chunks = [event["data"] for event in events if event["event"] == "messages"]
    assert [chunk["content"] for chunk, _ in chunks if chunk["content"]] == ["one", " two", " three"]
    assert len({chunk["id"] for chunk, _ in chunks}) == 1
    partial = [event["data"][0]["content"] for event in events if event["event"] == "messages/partial"]
    assert [text for text in partial if text][:3] == ["one", "one two", "one two three"]
    [complete] = [event["data"] for event in events if event["event"] == "messages/complete"]
    assert complete[0]["content"] == "one two three"
    values = [event["data"] for event in events if event["event"] == "values"]
    assert texts(values[-1]) == [("human", "one two three"), ("ai", "one two three")]
    updates = [event["data"] for event in events if event["event"] == "updates"]
    assert [update["stream"]["messages"][0]["content"] for update in updates] == ["one two three"]


async def test_version_two_of_the_stream_has_the_same_content(either: OfficialClient) -> None:
    events = await either.call(
        "runs.stream", thread_id=None, assistant_id="ask", input=user("x"), stream_mode="values", version="v2"
    )
    assert [event["type"] for event in events[:1]] == ["metadata"]
    last = events[-1]
    assert (last["type"], last["ns"], last["interrupts"][0]["value"]) == ("values", [], "What is your name?")


async def test_the_client_reports_the_created_run(client: OfficialClient) -> None:
    thread_id = await new_thread(client)
    request = {"assistant_id": "echo", "input": user("x"), "on_run_created": True}
    [created, *_] = await client.call("runs.stream", thread_id=thread_id, **request)
    [run] = await client.call("runs.list", thread_id=thread_id)
    assert created == {"created": {"run_id": run["run_id"], "thread_id": thread_id}}
    [created, metadata, *_] = await client.call("runs.stream", thread_id=None, **request)
    assert created["created"]["run_id"] == metadata["data"]["run_id"]


async def test_the_first_token_arrives_before_the_agent_ends(client: OfficialClient, gate: asyncio.Event) -> None:
    words: list[str] = []
    request = {"thread_id": await new_thread(client), "assistant_id": "gated", "input": user("x")}
    async with client.stream("runs.stream", **request, stream_mode="messages-tuple") as events:
        async for event in events:
            if event["event"] == "messages" and event["data"][0]["content"]:
                words.append(event["data"][0]["content"])
                gate.set()
    assert words == ["first", " second"]


async def test_a_run_is_joined_while_it_runs_and_replayed_afterwards(
    client: OfficialClient, gate: asyncio.Event
) -> None:
    thread_id = await new_thread(client)
    run = await client.call("runs.create", thread_id=thread_id, assistant_id="gated", input=user("x"))
    ids = {"thread_id": thread_id, "run_id": run["run_id"], "stream_mode": list(MODES)}
    await wait_until_running(client, run)
    async with client.stream("runs.join_stream", **ids, last_event_id="-1") as events:
        live = [await anext(events)]
        gate.set()
        live += [event async for event in events]
    assert live[0]["event"] == "metadata"
    assert await client.call("runs.join_stream", **ids, last_event_id="-1") == live
    middle = len(live) // 2
    assert await client.call("runs.join_stream", **ids, last_event_id=live[middle]["id"]) == live[middle + 1 :]
    assert await client.call("runs.join_stream", **ids) == []
    assert await client.call("runs.join_stream", **ids, last_event_id="garbage") == []


async def test_a_thread_is_joined_across_its_runs(client: OfficialClient) -> None:
    thread_id = await new_thread(client)
    async with client.stream("threads.join_stream", thread_id=thread_id, last_event_id="0-0") as events:
        for text in ("One", "Two"):
            await client.call("runs.wait", thread_id=thread_id, assistant_id="echo", input=user(text))
        ended: list[str] = []
        async for event in events:
            if event["event"] == "metadata" and event["data"].get("status") == "run_done":
                ended.append(event["data"]["run_id"])
            if len(ended) == 2:
                break
    assert ended == [run["run_id"] for run in await client.call("runs.list", thread_id=thread_id)][::-1]


# Reconnecting


WORDS: Final = " ".join(f"word{number}" for number in range(12))
FIRST: Final = 200
"""Number of bytes that contain the first event of a stream. A client without an event has no id to resume from."""


async def _stream_cut(
    client: OfficialClient, proxy: CuttingProxy, name: str, thread_id: str | None, agent: str
) -> list[Any]:
    received = await client.call(
        "runs.stream",
        thread_id=thread_id,
        assistant_id=agent,
        input=user(WORDS),
        stream_mode=["values", "messages-tuple", "updates"],
        headers={CUT: name},
        on_run_created=True,
    )
    created = received.pop(0)["created"]
    replayed = await client.call(
        "runs.join_stream",
        thread_id=created["thread_id"],
        run_id=created["run_id"],
        stream_mode=["values", "messages-tuple", "updates"],
        last_event_id="-1",
    )
    assert received == replayed, name
    assert (received[0]["event"], len(proxy.cuts[name])) == ("metadata", 0), name
    return received


@pytest.mark.parametrize("sync", [False, True], ids=["asynchronous", "blocking"])
async def test_each_event_arrives_once_wherever_the_connection_is_cut(gateway: Running, sync: bool) -> None:
    cuts = {f"after-{after}": [after] for after in range(FIRST, 2600, 160)}
    async with (
        cutting(gateway.url, cuts) as proxy,
        start_client("langgraph-sdk", base_url=proxy.url, sync=sync) as client,
    ):
        threads = [await new_thread(client) for _ in cuts]
        streams = [
            _stream_cut(client, proxy, name, thread_id, "stream") for name, thread_id in zip(cuts, threads, strict=True)
        ]
        for received in await asyncio.gather(*streams):
            words = [event["data"][0]["content"] for event in received if event["event"] == "messages"]
            assert "".join(words) == WORDS
        assert all(len(resumed) == 1 for resumed in proxy.resumed.values())


async def test_a_stream_survives_repeated_cuts(gateway: Running) -> None:
    async with (
        cutting(gateway.url, {"stateful": [FIRST, 1500], "stateless": [500, 1500]}) as proxy,
        start_client("langgraph-sdk", base_url=proxy.url) as client,
    ):
        thread_id = await new_thread(client)
        await asyncio.gather(
            _stream_cut(client, proxy, "stateful", thread_id, "stream"),
            _stream_cut(client, proxy, "stateless", None, "stream"),
        )
        assert [len(resumed) for resumed in proxy.resumed.values()] == [2, 2]


async def test_a_cut_stream_continues_with_the_tokens_missed(
    gateway: Running, client: OfficialClient, gate: asyncio.Event
) -> None:
    async with (
        cutting(gateway.url, {"live": [FIRST]}) as proxy,
        start_client("langgraph-sdk", base_url=proxy.url) as cut,
    ):
        thread_id = await new_thread(client)
        async with asyncio.TaskGroup() as group:
            streaming = group.create_task(_stream_cut(cut, proxy, "live", thread_id, "gated"))
            async with asyncio.timeout(BOUND):
                while not (runs := await client.call("runs.list", thread_id=thread_id)):
                    pass
            await wait_until_running(client, runs[0])
            gate.set()
        words = [event["data"][0]["content"] for event in streaming.result() if event["event"] == "messages"]
        assert "".join(words) == "first second"


@pytest.mark.parametrize("sync", [False, True], ids=["asynchronous", "blocking"])
async def test_an_interrupted_wait_is_joined_again(gateway: Running, sync: bool) -> None:
    async with (
        cutting(gateway.url, {"stateful": [1], "stateless": [1]}) as proxy,
        start_client("langgraph-sdk", base_url=proxy.url, sync=sync) as client,
    ):
        request = {"assistant_id": "echo", "input": user("Hello")}
        thread_id = await new_thread(client)
        both = await asyncio.gather(
            client.call("runs.wait", thread_id=thread_id, headers={CUT: "stateful"}, **request),
            client.call("runs.wait", thread_id=None, headers={CUT: "stateless"}, **request),
        )
        assert [texts(values)[-1] for values in both] == [("ai", "Hello")] * 2
        assert proxy.cuts == {"stateful": [], "stateless": []}
        assert len(await client.call("runs.list", thread_id=thread_id)) == 1


async def test_a_reader_below_one_agent_reconnects_there(gateway: Running) -> None:
    """Join `Location` to a base URL that has a path."""
    async with (
        cutting(gateway.url, {"alone": [FIRST]}) as proxy,
        start_client("langgraph-sdk", base_url=f"{proxy.url}/agent/stream") as client,
    ):
        await _stream_cut(client, proxy, "alone", None, "stream")
