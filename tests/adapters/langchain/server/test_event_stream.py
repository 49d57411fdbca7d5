"""Event streaming of the Agent Protocol: events, questions and commands, over Server-Sent Events and WebSockets."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from babelgate.adapters.langchain.write.thread_events import EVENTS_PER_RECORD
from babelgate.canonical import StateHistory
from babelgate.canonical.event import InterruptRaised, MessageEnded, MessageStarted, PartAdded, StepStarted
from babelgate.canonical.message import Message, ToolCallPart, ToolResultPart
from tests.adapters.langchain.site import NOBODY, SHARED, Site, Stream, new_id, opened, user_input
from tests.adapters.langchain.watching import ALL, command, perform, socket, watching

pytestmark = SHARED


async def start(site: Site, thread_id: str, agent: str = "scripted", **params: Any) -> Any:
    values: dict[str, Any] = {"assistant_id": agent, "input": user_input("hi"), **params}
    answer = await command(site, thread_id, "run.start", **values)
    assert answer["type"] == "success", answer
    return answer


def brief(events: list[Any]) -> list[str]:
    """Return the channel of each event, with the name of what it reports."""
    lines: list[str] = []
    for event in events:
        data = event["params"]["data"]
        name = data.get("event", data.get("name", "")) if event["method"] not in ("values", "updates", "tasks") else ""
        lines.append(f"{event['method']} {name}".strip())
    return lines


async def thread_with_run(site: Site) -> str:
    """Create a thread whose only run has sent every kind of event."""
    thread_id = new_id()
    async with watching(site, thread_id, ["lifecycle"]) as watch:
        await start(site, thread_id)
        perform(await site.agent.called())
        await watch.ends()
    return thread_id


@pytest.fixture
def thread_id() -> str:
    """The id of a thread that does not exist yet."""
    return new_id()


# Events


async def test_a_run_is_streamed_from_start_to_end(site: Site) -> None:
    thread_id = await thread_with_run(site)
    async with watching(site, thread_id) as watch:
        events = await watch.ends()
    assert brief(events) == [
        "lifecycle running",
        "checkpoints",
        "values",
        "tasks",
        "tasks",
        "custom progress",
        "custom",
        "custom progress",
        "tools tool-started",
        "tools tool-finished",
        "tools tool-started",
        "tools tool-error",
        "tasks",
        "updates",
        "custom artifact",
        "messages message-start",
        "messages content-block-start",
        *["messages content-block-delta"] * 11,
        "messages content-block-finish",
        "messages message-finish",
        "updates",
        "tasks",
        "checkpoints",
        "values",
        "lifecycle completed",
    ]
    assert [event["seq"] for event in events] == sorted({event["seq"] for event in events})
    assert len({event["event_id"] for event in events}) == len(events)
    assert {event["type"] for event in events} == {"event"}
    assert {tuple(event["params"]["namespace"]) for event in events} == {()}
    finish = next(event for event in events if event["params"]["data"].get("event") == "message-finish")
    assert finish["params"]["data"]["usage"] == {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    assert finish["params"]["node"] == "scripted"
    progress = events[7]["params"]["data"]
    assert progress == {"name": "progress", "payload": "On my way."}


async def test_tool_calls_in_messages_are_tool_events(site: Site, thread_id: str) -> None:
    calls = [ToolCallPart(call_id=name, name="look", arguments='{"q": 1}') for name in ("c", "d")]
    results = [ToolResultPart(call_id="c", output=[1]), ToolResultPart(call_id="d", output="no", error=True)]
    async with watching(site, thread_id, ["tools", "messages", "lifecycle"]) as watch:
        await start(site, thread_id)
        activation = await site.agent.called()
        activation.say(MessageStarted(), *(PartAdded(part=part) for part in calls), MessageEnded())
        for part in results:
            activation.say(MessageStarted(role="tool"), PartAdded(part=part), MessageEnded())
        activation.end()
        events = await watch.ends()
    assert [event["params"]["data"] for event in events if event["method"] == "tools"] == [
        {"event": "tool-started", "tool_call_id": "c", "tool_name": "look", "input": {"q": 1}},
        {"event": "tool-started", "tool_call_id": "d", "tool_name": "look", "input": {"q": 1}},
        {"event": "tool-finished", "tool_call_id": "c", "output": [1]},
        {"event": "tool-error", "tool_call_id": "d", "message": "no"},
    ]
    assert brief(events).count("messages message-start") == 1, "messages of tools have no role in this protocol"


async def test_each_channel_has_the_same_events_alone_and_combined(site: Site) -> None:
    thread_id = await thread_with_run(site)
    async with watching(site, thread_id) as watch:
        all_events = await watch.ends()
    for channel in ALL:
        async with watching(site, thread_id, [channel, "lifecycle"]) as watch:
            events = await watch.ends()
        assert events == [event for event in all_events if event["method"] in (channel, "lifecycle")]
    async with watching(site, thread_id, ["custom:artifact", "lifecycle"]) as watch:
        artifacts = [event for event in await watch.ends() if event["method"] == "custom"]
    assert [event["params"]["data"]["name"] for event in artifacts] == ["artifact"]


async def test_resuming_after_any_event_gives_the_same_bytes(site: Site) -> None:
    thread_id = await thread_with_run(site)

    async def read(count: int, **more: Any) -> list[bytes]:
        async with watching(site, thread_id, **more) as watch:
            for _ in range(count):
                await watch.next()
            return [frame for frame in watch.stream.content.split(b"\n\n") if frame and not frame.startswith(b":")]

    async with watching(site, thread_id) as watch:
        seqs = [event["seq"] for event in await watch.ends()]
    frames = await read(len(seqs))
    for at, seq in enumerate(seqs[:-1], start=1):
        assert await read(len(seqs) - at, since=seq) == frames[at:]


async def _many_runs(site: Site) -> tuple[str, list[Any]]:
    """Create a thread of several runs, and return its id and events.

    The runs answer, ask, continue after an answer, fail, and are cancelled while they wait.
    """
    thread_id = new_id()
    async with watching(site, thread_id) as watch:
        for agent, input in (
            ("echo", user_input("one")),
            ("ask", user_input("two")),
            ("ask", "Ann"),
            ("fail", user_input("no")),
        ):
            await start(site, thread_id, agent, input=input)
            await watch.ends()
        await start(site, thread_id)
        activation = await site.agent.called()
        waiting = await start(site, thread_id)
        cancel = f"/threads/{thread_id}/runs/{waiting['result']['run_id']}/cancel"
        assert (await site.post(cancel, None)).status_code < 300
        activation.say(StepStarted(step_id="s", name="deep", ns=("outer:1",))).open("last").end()
        await watch.ends()
    async with watching(site, thread_id) as watch:
        return thread_id, await watch.ends(5)


async def test_resuming_after_many_runs_gives_the_rest(site: Site) -> None:
    thread_id, all_events = await _many_runs(site)
    places = [at for at, event in enumerate(all_events[:-1]) if event["method"] in ("lifecycle", "updates", "messages")]
    for at in places:
        rest = all_events[at + 1 :]
        async with watching(site, thread_id, since=all_events[at]["seq"]) as watch:
            assert [await watch.next() for _ in rest] == rest
    async with socket(site, thread_id) as talk:
        for at in (places[-1], places[len(places) // 2], places[0]):
            answer = await talk.tell("subscription.reconnect", channels=list(ALL), since=all_events[at]["seq"])
            rest = [*all_events[at + 1 :]]
            # `missed_events` counts only the events that the connection has already read; the others follow.
            assert answer["result"]["missed_events"] <= len(rest)
            assert await talk.some(len(rest)) == rest
            await talk.tell("subscription.unsubscribe", subscription_id=answer["result"]["subscription_id"])


async def test_resuming_and_the_tree_read_only_the_newest_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    thread_id = new_id()
    async with watching(site, thread_id, ["lifecycle"]) as watch:
        for _ in range(11):
            await start(site, thread_id, "echo")
            await watch.ends()
        run = (await start(site, thread_id, "echo"))["result"]["run_id"]
        last = (await watch.ends())[-1]
    async with watching(site, thread_id, since=last["seq"] - 1) as watch:
        assert await watch.next() == last
    await site.look(f"/threads/{thread_id}/state")
    seqs: list[int] = []
    apply = StateHistory.apply

    def count(history: StateHistory, record: Any) -> Any:
        seqs.append(record.seq)
        return apply(history, record)

    monkeypatch.setattr(StateHistory, "apply", count)
    first_seq = last["seq"] // EVENTS_PER_RECORD - 15
    async with watching(site, thread_id, ["values"], since=last["seq"] - EVENTS_PER_RECORD) as watch:
        assert [m["content"] for m in (await watch.next())["params"]["data"]["messages"]] == ["hi"] * 24
    async with socket(site, thread_id) as talk:
        subscribed = await talk.tell("subscription.subscribe", channels=["lifecycle"], since=last["seq"] - 1)
        assert subscribed["type"] == "success"
        assert await talk.some(1) == [last]
    for params in ({}, {"run_id": run}):
        tree = (await command(site, thread_id, "agent.getTree", **params))["result"]["tree"]
        assert tree["status"] == "completed"
    assert min(seqs) > first_seq, f"a run has fewer than 15 records, and the seqs read are {seqs}"


async def test_runs_of_other_protocols_are_streamed(site: Site) -> None:
    thread_id = await site.thread()
    async with watching(site, thread_id, ["messages", "lifecycle"]) as watch:
        await site.wait(thread_id, "echo", user_input("one"))
        events = await watch.ends()
    deltas = [event["params"]["data"] for event in events if event["method"] == "messages"]
    assert [data["delta"]["text"] for data in deltas if "delta" in data] == ["one"]


async def test_a_failed_run_has_an_error(site: Site, thread_id: str) -> None:
    async with watching(site, thread_id, ["lifecycle"]) as watch:
        await start(site, thread_id, "fail", input=user_input("boom"))
        *_, last = await watch.ends()
    assert last["params"]["data"]["event"] == "failed"
    assert "boom" in last["params"]["data"]["error"]


@pytest.mark.parametrize("action", ["interrupt", "rollback"])
async def test_a_cancelled_run_has_failed_with_an_error(site: Site, thread_id: str, action: str) -> None:
    """Report a failure, because LangGraph's own client waits without end after Platform's `interrupted`."""
    async with watching(site, thread_id, ["lifecycle"]) as watch:
        run_id = (await start(site, thread_id))["result"]["run_id"]
        await site.agent.called()
        assert (await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel?action={action}")).status_code < 300
        events = await watch.ends()
    assert brief(events) == ["lifecycle running", "lifecycle failed"]
    assert events[-1]["params"]["data"]["error"] == "The run was cancelled"


@pytest.mark.parametrize("strategy", ["interrupt", "rollback"])
async def test_a_run_that_another_one_replaces_is_interrupted(site: Site, strategy: str) -> None:
    thread_id = new_id()
    async with watching(site, thread_id, ["lifecycle"]) as watch:
        await start(site, thread_id)
        await site.agent.called()
        await start(site, thread_id, multitask_strategy=strategy)
        (await site.agent.called()).end()
        events = [*await watch.ends(), *await watch.ends()]
    statuses = ("running", "interrupted", "running", "completed")
    assert brief(events) == [f"lifecycle {status}" for status in statuses]


async def test_cancelling_a_pending_run_does_not_end_the_active_one(site: Site) -> None:
    thread_id = new_id()
    async with (
        watching(site, thread_id, ["lifecycle", "messages"]) as watch,
        site.streaming("GET", f"/threads/{await site.thread(thread_id=thread_id)}/stream") as joined,
    ):
        answer = await command(site, thread_id, "run.start", assistant_id="scripted", input="hi")
        activation = (await site.agent.called()).open("one")
        waiting = await start(site, thread_id)
        cancel = f"/threads/{thread_id}/runs/{waiting['result']['run_id']}/cancel"
        assert (await site.post(cancel, None)).status_code < 300
        assert await site.status(thread_id, waiting["result"]["run_id"]) == "interrupted"
        activation.more(" two").end()
        events = await watch.ends()
        assert await site.ends(thread_id, answer["result"]["run_id"]) == "success"
        last = await joined.until("values")
        while len(json.loads(last.data)["messages"]) < 2:
            last = await joined.until("values")
    lifecycle = [event for event in events if event["method"] == "lifecycle"]
    assert brief(lifecycle) == ["lifecycle running", "lifecycle completed"]
    texts = [event["params"]["data"].get("delta", {}).get("text") for event in events]
    assert [text for text in texts if text] == ["one", " two"]
    assert [message["content"] for message in json.loads(last.data)["messages"]] == ["hi", "one two"]


async def test_a_stream_ends_with_its_thread(site: Site) -> None:
    thread_id = await site.thread()
    async with watching(site, thread_id) as watch:
        assert (await site.http.delete(f"/threads/{thread_id}")).status_code == 204
        assert await watch.stream.rest() == []


async def test_members_of_the_agent_protocol_are_in_camel_case(site: Site) -> None:
    thread_id = await thread_with_run(site)
    path = "/agent-protocol/threads/{}/stream"
    async with watching(site, thread_id, path=path) as watch:
        events = await watch.ends()
    assert all("eventId" in event for event in events)
    started = next(event for event in events if event["params"]["data"].get("event") == "tool-started")
    assert {"toolCallId": "c", "toolName": "look", "input": {"q": 1}}.items() <= started["params"]["data"].items()
    finish = next(event for event in events if event["params"]["data"].get("event") == "message-finish")
    assert finish["params"]["data"]["usage"] == {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    assert events[0]["params"]["data"]["graphName"] == "scripted"


async def test_only_the_agent_protocol_wraps_updates_and_custom_events(
    site: Site,
) -> None:
    thread_id = await thread_with_run(site)
    streams: list[list[Any]] = []
    for path in ("/agent-protocol/threads/{}/stream", "/threads/{}/stream"):
        async with watching(site, thread_id, ["updates", "custom", "lifecycle"], path=path) as watch:
            events = await watch.ends()
        streams.append([event["params"]["data"] for event in events if event["method"] in ("updates", "custom")])
    protocol, platform = streams
    assert protocol[1:4:2] == [{"payload": {"n": 1}}, {"node": "plan", "values": {"plan": "made"}}]
    assert platform[1:4:2] == [{"n": 1}, {"plan": {"plan": "made"}}]
    assert protocol[0] == platform[0] == {"name": "progress", "payload": {"done": 0.5}}


@pytest.mark.parametrize(("prefix", "status"), [("", 400), ("/agent-protocol", 422)])
async def test_invalid_streams_and_commands_are_rejected(site: Site, prefix: str, status: int) -> None:
    streams: list[Any] = [{}, {"channels": []}, {"channels": ["nope"]}, []]
    for body in streams:
        answer = await site.post(f"{prefix}/threads/{NOBODY}/stream", body)
        assert answer.status_code == status
        assert "channels" in answer.text
    ids: list[Any] = ["1", True, -1, 2**53]
    commands: list[Any] = [{}, [], {"id": 1}, "x", *({"id": each, "method": "run.start"} for each in ids)]
    for body in commands:
        answer = await site.post(f"{prefix}/threads/{NOBODY}/commands", body)
        assert answer.status_code == status
        assert answer.json()["error"] == "invalid_argument"


# Questions


async def test_a_question_is_streamed_and_answered(site: Site, thread_id: str) -> None:
    async with watching(site, thread_id, ["input", "lifecycle", "messages"]) as watch:
        await start(site, thread_id, "ask")
        _, request, stopped = await watch.ends()
        question = request["params"]["data"]
        assert (request["method"], question["payload"]) == ("input.requested", "What is your name?")
        assert question["value"] == question["payload"], "the official Python client reads `value`"
        assert stopped["params"]["data"]["event"] == "interrupted"
        answer: Any = {"namespace": [], "interrupt_id": question["interrupt_id"], "response": "Ann"}
        reply = await command(site, thread_id, "input.respond", **answer)
        assert (reply["type"], reply["result"]) == ("success", {})
        events = await watch.ends()
    assert events[-1]["params"]["data"]["event"] == "completed"
    assert "Hello, Ann." in json.dumps(events)


async def test_several_questions_are_answered_at_once(site: Site, thread_id: str) -> None:
    async with watching(site, thread_id, ["input", "lifecycle"]) as watch:
        await start(site, thread_id)
        (await site.agent.called()).ask("one", "two").end()
        _, first, second, _ = await watch.ends()
    ids = [event["params"]["data"]["interrupt_id"] for event in (first, second)]
    responses: list[Any] = [{"interruptId": wire_id, "namespace": [], "response": n} for n, wire_id in enumerate(ids)]
    assert (await command(site, thread_id, "input.respond", responses=responses))["type"] == "success"
    activation = await site.agent.called()
    assert {answer.interrupt_id: answer.value for answer in activation.call.answers} == dict(
        zip(ids, range(2), strict=True)
    )
    activation.end()


async def test_an_input_answers_the_open_question(site: Site, thread_id: str) -> None:
    """Treat an input as the answer (CDDL, section 4a)."""
    async with watching(site, thread_id, ["lifecycle"]) as watch:
        await start(site, thread_id)
        (await site.agent.called()).ask("name").end()
        await watch.ends()
        await start(site, thread_id, input=user_input("Ann"))
        activation = await site.agent.called()
        assert [answer.value for answer in activation.call.answers] == [user_input("Ann")]
        assert [message.text for message in activation.call.messages] == ["Ann"], (
            "agents that read only text get the answer"
        )
        activation.end()
        assert (await watch.ends())[-1]["params"]["data"]["event"] == "completed"


async def test_invalid_answers_are_rejected(site: Site, thread_id: str) -> None:
    async with watching(site, thread_id, ["lifecycle", "input"]) as watch:
        await start(site, thread_id)
        question = InterruptRaised(interrupt_id="q", message=Message.of("?"), ns=("inner:1",))
        (await site.agent.called()).say(question).end()
        events = await watch.ends()
    request = next(event for event in events if event["method"] == "input.requested")
    assert request["params"]["namespace"] == ["inner:1"]
    wire_id = request["params"]["data"]["interrupt_id"]
    invalid: list[tuple[dict[str, Any], str]] = [
        ({}, "invalid_argument"),
        ({"interrupt_id": 1}, "invalid_argument"),
        ({"responses": []}, "invalid_argument"),
        ({"responses": ["x"]}, "invalid_argument"),
        ({"interrupt_id": "nope"}, "no_such_interrupt"),
        ({"interrupt_id": wire_id, "namespace": ["other:1"]}, "no_such_interrupt"),
        ({"interrupt_id": wire_id, "namespace": "inner:1"}, "invalid_argument"),
        ({"interrupt_id": wire_id, "update": {"a": 1}}, "not_supported"),
    ]
    for params, code in invalid:
        assert (await command(site, thread_id, "input.respond", **params))["error"] == code, params
    valid: Any = {"interrupt_id": wire_id, "namespace": ["inner:1"], "response": 1}
    assert (await command(site, thread_id, "input.respond", **valid))["type"] == "success"
    assert (await command(site, thread_id, "input.respond", **valid))["error"] == "no_such_interrupt"
    (await site.agent.called()).end()


# Commands


async def test_run_start_returns_the_seq_to_read_from(site: Site) -> None:
    thread_id = await thread_with_run(site)
    answer = await start(site, thread_id, "echo", metadata={"a": 1}, config={"tags": ["t"]})
    since = answer["meta"]["applied_through_seq"]
    async with watching(site, thread_id, ["lifecycle"], since=since) as watch:
        assert brief(await watch.ends()) == ["lifecycle running", "lifecycle completed"]
    run = await site.look(f"/threads/{thread_id}/runs/{answer['result']['run_id']}")
    assert run["metadata"]["a"] == 1
    assert run["kwargs"]["config"]["tags"] == ["t"]


async def test_a_second_input_waits_for_the_active_run(site: Site, thread_id: str) -> None:
    first = await start(site, thread_id)
    activation = await site.agent.called()
    second = await start(site, thread_id)
    assert second["meta"]["applied_through_seq"] == 0, "later events of the first run are not skipped"
    assert await site.status(thread_id, second["result"]["run_id"]) == "pending"
    activation.end()
    (await site.agent.called()).end()
    assert await site.ends(thread_id, second["result"]["run_id"]) == "success"
    assert await site.status(thread_id, first["result"]["run_id"]) == "success"


@pytest.mark.parametrize("name", ["multitaskStrategy", "multitask_strategy"])
async def test_run_start_accepts_a_strategy_in_both_spellings(site: Site, thread_id: str, name: str) -> None:
    await start(site, thread_id)
    activation = await site.agent.called()
    answer = await command(site, thread_id, "run.start", assistant_id="scripted", input="x", **{name: "reject"})
    assert answer["type"] == "error"
    assert "already running" in answer["message"]
    activation.end()


async def test_invalid_commands_are_rejected_with_a_message(site: Site) -> None:
    thread_id = await site.thread()
    invalid: list[tuple[str, dict[str, Any], str]] = [
        ("run.start", {}, "invalid_argument"),
        ("run.start", {"assistant_id": "nobody", "input": "x"}, "invalid_argument"),
        ("run.start", {"assistant_id": NOBODY, "input": "x"}, "no_such_run"),
        ("run.start", {"assistant_id": "echo", "config": "x"}, "invalid_argument"),
        ("input.inject", {"namespace": [], "message": {"role": "user", "content": "x"}}, "not_supported"),
        ("agent.getTree", {}, "no_such_run"),
        ("agent.getTree", {"runId": NOBODY}, "no_such_run"),
        ("state.get", {"namespace": ["x"]}, "no_such_namespace"),
        ("state.get", {"keys": "x"}, "invalid_argument"),
        ("state.listCheckpoints", {"limit": 0}, "invalid_argument"),
        ("state.listCheckpoints", {"before": "x"}, "no_such_checkpoint"),
        ("state.fork", {"checkpointId": "x"}, "no_such_checkpoint"),
        ("subscription.subscribe", {"channels": ["values"]}, "not_supported"),
        ("run.stop", {}, "unknown_command"),
    ]
    for method, params, code in invalid:
        answer = await command(site, thread_id, method, **params)
        assert (answer["type"], answer["error"]) == ("error", code), (method, answer)
        assert answer["message"]


async def test_the_state_can_be_read_and_forked(site: Site, thread_id: str) -> None:
    for text in ("one", "two"):
        answer = await start(site, thread_id, "echo", input={**user_input(text), text: 1})
        await site.ends(thread_id, answer["result"]["run_id"])
    state = (await command(site, thread_id, "state.get", namespace=[], keys=["one", "nope"]))["result"]
    assert state["values"] == {"one": 1}
    listed = (await command(site, thread_id, "state.listCheckpoints", limit=3))["result"]["checkpoints"]
    assert listed[0]["id"] == state["checkpoint"]["id"]
    assert [each["step"] for each in listed] == sorted((each["step"] for each in listed), reverse=True)
    older = (await command(site, thread_id, "state.listCheckpoints", before=listed[1]["id"]))["result"]
    assert older["checkpoints"][0] == listed[2]
    forked = (await command(site, thread_id, "state.fork", checkpointId=listed[2]["id"], input=user_input("again")))[
        "result"
    ]
    assert forked["thread_id"] == thread_id
    await site.ends(thread_id, forked["run_id"])
    values = (await command(site, thread_id, "state.get"))["result"]["values"]
    assert [message["content"] for message in values["messages"]] == ["one", "one", "again", "again"]


async def test_the_tree_shows_the_active_namespaces(site: Site, thread_id: str) -> None:
    async with watching(site, thread_id, ["lifecycle"]) as watch:
        await start(site, thread_id)
        activation = await site.agent.called()
        activation.say(StepStarted(step_id="s", name="deep", ns=("outer:1", "inner:2")))
        places = [event["params"]["namespace"] for event in await watch.until(event="started", graph_name="inner")]
        assert places == [[], ["outer:1"], ["outer:1", "inner:2"]]
        tree = (await command(site, thread_id, "agent.getTree"))["result"]["tree"]
        activation.end()
        ends = [(event["params"]["namespace"], event["params"]["data"]["event"]) for event in await watch.ends()]
    assert tree["status"] == "running"
    assert tree["children"][0]["graph_name"] == "outer"
    assert tree["children"][0]["children"][0]["namespace"] == ["outer:1", "inner:2"]
    assert ends == [(["outer:1", "inner:2"], "completed"), (["outer:1"], "completed"), ([], "completed")]


async def test_the_tree_of_an_earlier_run_shows_its_end(site: Site, thread_id: str) -> None:
    async with watching(site, thread_id, ["lifecycle"]) as watch:
        first = await start(site, thread_id, "ask")
        await watch.ends()
        await start(site, thread_id, "ask", input="Ann")
        await watch.ends()
    for run_id, status in ((first["result"]["run_id"], "interrupted"), (None, "completed")):
        tree = (await command(site, thread_id, "agent.getTree", run_id=run_id))["result"]["tree"]
        assert tree["status"] == status


async def test_a_pending_run_has_no_tree(site: Site, thread_id: str) -> None:
    first = await start(site, thread_id)
    activation = await site.agent.called()
    waiting = await start(site, thread_id)
    answer = await command(site, thread_id, "agent.getTree", run_id=waiting["result"]["run_id"])
    assert answer["error"] == "no_such_run"
    for run_id in (None, first["result"]["run_id"]):
        assert (await command(site, thread_id, "agent.getTree", run_id=run_id))["result"]["tree"]["status"] == "running"
    activation.end()
    (await site.agent.called()).end()


async def test_commands_of_the_agent_protocol_are_in_camel_case(site: Site) -> None:
    thread_id, prefix = new_id(), "/agent-protocol"
    started = await command(site, thread_id, "run.start", prefix, assistantId="ask", input=user_input("hi"))
    assert set(started["result"]) == {"runId"}
    assert set(started["meta"]) == {"appliedThroughSeq"}
    await site.ends(thread_id, started["result"]["runId"])
    async with watching(site, thread_id, ["input"], path=prefix + "/threads/{}/stream") as watch:
        question = (await watch.next())["params"]["data"]["interruptId"]
    answer: Any = {"namespace": [], "interruptId": question, "response": "Ann"}
    assert (await command(site, thread_id, "input.respond", prefix, **answer))["type"] == "success"


# WebSockets


@pytest.mark.parametrize("path", ["/threads/{}/stream/events", "/threads/{}/stream", "/agent/echo/threads/{}/stream"])
async def test_a_websocket_accepts_commands_and_sends_events(site: Site, thread_id: str, path: str) -> None:
    async with socket(site, thread_id, path) as talk:
        subscription = await talk.tell("subscription.subscribe", channels=["lifecycle", "messages"])
        assert subscription["result"]["replayed_events"] == 0
        started = await talk.tell("run.start", assistant_id="echo", input=user_input("one"))
        assert started["result"]["run_id"]
        events = await talk.ends()
    message = ("message-start", "content-block-start", "content-block-delta", "content-block-finish", "message-finish")
    parts = [f"messages {part}" for part in message]
    assert brief(events) == ["lifecycle running", *parts, "lifecycle completed"]


async def test_a_new_subscription_replays_events_once(site: Site) -> None:
    thread_id = await thread_with_run(site)
    async with watching(site, thread_id) as watch:
        all_events = await watch.ends()
    async with socket(site, thread_id) as talk:
        first = await talk.tell("subscription.subscribe", channels=["lifecycle"])
        lifecycle = await talk.some(2)
        assert lifecycle == [event for event in all_events if event["method"] == "lifecycle"]
        second = await talk.tell("subscription.subscribe", channels=["lifecycle", "tools"])
        assert second["result"]["replayed_events"] == 6
        assert await talk.some(6) == [event for event in all_events if event["method"] in ("lifecycle", "tools")]
        await talk.tell("run.start", assistant_id="echo", input="x")
        assert brief(await talk.ends()) == ["lifecycle running", "lifecycle completed"]
        for subscription in (first, second):
            answer = await talk.tell(
                "subscription.unsubscribe", subscription_id=subscription["result"]["subscription_id"]
            )
            assert answer["type"] == "success"
        again = await talk.tell("subscription.unsubscribe", subscription_id=first["result"]["subscription_id"])
        assert again["error"] == "no_such_subscription"
        run = (await talk.tell("run.start", assistant_id="echo", input="x"))["result"]["run_id"]
        await site.ends(thread_id, run)
        assert (await talk.tell("agent.getTree"))["type"] == "success"
        assert talk.events == [], "no subscription remains"


async def test_a_lost_connection_can_be_resumed(site: Site) -> None:
    thread_id = await thread_with_run(site)
    async with watching(site, thread_id) as watch:
        all_events = await watch.ends()
    async with socket(site, thread_id) as talk:
        await talk.tell("subscription.subscribe", channels=["lifecycle"])
        await talk.some(2)
        answer = await talk.tell("subscription.reconnect", channels=list(ALL), since=all_events[20]["seq"])
        assert (answer["result"]["restored"], answer["result"]["missed_events"]) == (True, len(all_events) - 21)
        assert await talk.some(len(all_events) - 21) == all_events[21:]
        assert (await talk.tell("subscription.reconnect", channels=["values"]))["error"] == "invalid_argument"


async def test_an_invalid_command_keeps_the_websocket_open(site: Site) -> None:
    async with socket(site, new_id()) as talk:
        for text in ("", "{", "[]", '{"id": 1}', '{"id": "x", "method": "run.start"}', '"x"', "\ud800"[:0]):
            answer = await talk.raw(text)
            assert (answer["type"], answer["error"]) == ("error", "invalid_argument")
        assert (await talk.tell("subscription.subscribe", channels=["nope"]))["error"] == "invalid_argument"
        assert (await talk.tell("subscription.subscribe", channels=["values"]))["type"] == "success"


async def test_a_websocket_ends_with_its_thread(site: Site) -> None:
    thread_id = await site.thread()
    async with socket(site, thread_id) as talk:
        await talk.tell("subscription.subscribe", channels=["values"])
        assert (await site.http.delete(f"/threads/{thread_id}")).status_code == 204
        with pytest.raises(ConnectionClosed):
            await talk.next()
        assert talk.connection.close_code == 1001


async def test_streams_end_with_the_gateway(tmp_path: Path) -> None:
    """End the streams of a thread that does not exist, too."""
    path, body = f"/threads/{NOBODY}/stream/events", {"channels": ["values"]}
    async with opened(tmp_path) as site, site.streaming("POST", path, body) as silent, socket(site, NOBODY) as talk:
        assert isinstance(silent, Stream)
        site.gateway.hub.close_readers()
        with pytest.raises(httpx.RemoteProtocolError):
            await silent.rest()
        with pytest.raises(ConnectionClosed):
            await talk.next()


async def test_a_failed_websocket_is_closed_and_logged(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    thread_id = await site.thread()

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async with socket(site, thread_id) as talk:
        await talk.tell("subscription.subscribe", channels=["lifecycle"])
        monkeypatch.setattr("babelgate.adapters.langchain.write.thread_events.encode", broken)
        await site.run(thread_id, "echo")
        with pytest.raises(ConnectionClosed):
            await talk.next()
        assert talk.connection.close_code == 1011
    assert "a WebSocket failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text
