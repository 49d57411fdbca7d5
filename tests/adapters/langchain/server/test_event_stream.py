"""The Agent Protocol's event streaming: what a thread's readers are told, over Server-Sent Events and WebSockets."""

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
from tests.adapters.langchain.site import NOBODY, SHARED, Site, Stream, new_id, opened, said
from tests.adapters.langchain.watching import ALL, command, perform, socket, watching

pytestmark = SHARED


async def start(site: Site, thread_id: str, agent: str = "scripted", **params: Any) -> Any:
    given: dict[str, Any] = {"assistant_id": agent, "input": said("hi"), **params}
    told = await command(site, thread_id, "run.start", **given)
    assert told["type"] == "success", told
    return told


def brief(events: list[Any]) -> list[str]:
    """Each as its channel, and what it says of it."""
    made: list[str] = []
    for event in events:
        data = event["params"]["data"]
        what = data.get("event", data.get("name", "")) if event["method"] not in ("values", "updates", "tasks") else ""
        made.append(f"{event['method']} {what}".strip())
    return made


async def performed(site: Site) -> str:
    """A thread with a run of everything behind it."""
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


# What is told


async def test_a_run_from_its_start_to_its_end(site: Site) -> None:
    thread_id = await performed(site)
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


async def test_tools_that_an_agent_tells_of_in_messages_are_told_as_tools(site: Site, thread_id: str) -> None:
    calls = [ToolCallPart(call_id=name, name="look", arguments='{"q": 1}') for name in ("c", "d")]
    results = [ToolResultPart(call_id="c", output=[1]), ToolResultPart(call_id="d", output="no", error=True)]
    async with watching(site, thread_id, ["tools", "messages", "lifecycle"]) as watch:
        await start(site, thread_id)
        going = await site.agent.called()
        going.say(MessageStarted(), *(PartAdded(part=part) for part in calls), MessageEnded())
        for part in results:
            going.say(MessageStarted(role="tool"), PartAdded(part=part), MessageEnded())
        going.end()
        events = await watch.ends()
    assert [event["params"]["data"] for event in events if event["method"] == "tools"] == [
        {"event": "tool-started", "tool_call_id": "c", "tool_name": "look", "input": {"q": 1}},
        {"event": "tool-started", "tool_call_id": "d", "tool_name": "look", "input": {"q": 1}},
        {"event": "tool-finished", "tool_call_id": "c", "output": [1]},
        {"event": "tool-error", "tool_call_id": "d", "message": "no"},
    ]
    assert brief(events).count("messages message-start") == 1, "there is no role for what a tool says"


async def test_each_channel_alone_is_what_it_is_among_the_others(site: Site) -> None:
    thread_id = await performed(site)
    async with watching(site, thread_id) as watch:
        every = await watch.ends()
    for channel in ALL:
        async with watching(site, thread_id, [channel, "lifecycle"]) as watch:
            alone = await watch.ends()
        assert alone == [event for event in every if event["method"] in (channel, "lifecycle")]
    async with watching(site, thread_id, ["custom:artifact", "lifecycle"]) as watch:
        named = [event for event in await watch.ends() if event["method"] == "custom"]
    assert [event["params"]["data"]["name"] for event in named] == ["artifact"]


async def test_a_reader_that_was_cut_off_anywhere_gets_byte_for_byte_the_rest(site: Site) -> None:
    thread_id = await performed(site)

    async def read(count: int, **more: Any) -> list[bytes]:
        async with watching(site, thread_id, **more) as watch:
            for _ in range(count):
                await watch.next()
            return [frame for frame in watch.stream.taken.split(b"\n\n") if frame and not frame.startswith(b":")]

    async with watching(site, thread_id) as watch:
        seqs = [event["seq"] for event in await watch.ends()]
    frames = await read(len(seqs))
    for at, seq in enumerate(seqs[:-1], start=1):
        assert await read(len(seqs) - at, since=seq) == frames[at:]


async def _many_runs(site: Site) -> tuple[str, list[Any]]:
    """A thread of runs that answer, ask, are answered, fail and are cancelled while they wait; and its events."""
    thread_id = new_id()
    async with watching(site, thread_id) as watch:
        for agent, given in (("echo", said("one")), ("ask", said("two")), ("ask", "Ann"), ("fail", said("no"))):
            await start(site, thread_id, agent, input=given)
            await watch.ends()
        await start(site, thread_id)
        going = await site.agent.called()
        waits = await start(site, thread_id)
        cancel = f"/threads/{thread_id}/runs/{waits['result']['run_id']}/cancel"
        assert (await site.post(cancel, None)).status_code < 300
        going.say(StepStarted(step_id="s", name="deep", ns=("outer:1",))).open("last").end()
        await watch.ends()
    async with watching(site, thread_id) as watch:
        return thread_id, await watch.ends(5)


async def test_a_reader_of_many_runs_gets_the_rest_from_any_event_on(site: Site) -> None:
    thread_id, every = await _many_runs(site)
    places = [at for at, event in enumerate(every[:-1]) if event["method"] in ("lifecycle", "updates", "messages")]
    for at in places:
        rest = every[at + 1 :]
        async with watching(site, thread_id, since=every[at]["seq"]) as watch:
            assert [await watch.next() for _ in rest] == rest
    async with socket(site, thread_id) as talk:
        for at in (places[-1], places[len(places) // 2], places[0]):
            told = await talk.tell("subscription.reconnect", channels=list(ALL), since=every[at]["seq"])
            rest = [*every[at + 1 :]]
            # What the connection has read by then is counted, and comes again; the rest comes as it is read.
            assert told["result"]["missed_events"] <= len(rest)
            assert await talk.some(len(rest)) == rest
            await talk.tell("subscription.unsubscribe", subscription_id=told["result"]["subscription_id"])


async def test_a_reader_that_comes_back_and_the_tree_read_the_newest_run_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    read: list[int] = []
    apply = StateHistory.apply

    def counted(history: StateHistory, record: Any) -> Any:
        read.append(record.seq)
        return apply(history, record)

    monkeypatch.setattr(StateHistory, "apply", counted)
    begins = last["seq"] // EVENTS_PER_RECORD - 15
    async with watching(site, thread_id, ["values"], since=last["seq"] - EVENTS_PER_RECORD) as watch:
        assert [m["content"] for m in (await watch.next())["params"]["data"]["messages"]] == ["hi"] * 24
    async with socket(site, thread_id) as talk:
        subscribed = await talk.tell("subscription.subscribe", channels=["lifecycle"], since=last["seq"] - 1)
        assert subscribed["type"] == "success"
        assert await talk.some(1) == [last]
    for named in ({}, {"run_id": run}):
        tree = (await command(site, thread_id, "agent.getTree", **named))["result"]["tree"]
        assert tree["status"] == "completed"
    assert min(read) > begins, f"a run has fewer than 15 records, and these were read: {read}"


async def test_what_other_protocols_do_on_the_thread_is_told_too(site: Site) -> None:
    thread_id = await site.thread()
    async with watching(site, thread_id, ["messages", "lifecycle"]) as watch:
        await site.wait(thread_id, "echo", said("one"))
        events = await watch.ends()
    deltas = [event["params"]["data"] for event in events if event["method"] == "messages"]
    assert [data["delta"]["text"] for data in deltas if "delta" in data] == ["one"]


async def test_a_failure_says_why(site: Site, thread_id: str) -> None:
    async with watching(site, thread_id, ["lifecycle"]) as watch:
        await start(site, thread_id, "fail", input=said("boom"))
        *_, last = await watch.ends()
    assert last["params"]["data"]["event"] == "failed"
    assert "boom" in last["params"]["data"]["error"]


@pytest.mark.parametrize("action", ["interrupt", "rollback"])
async def test_a_run_that_is_cancelled_has_failed_and_says_so(site: Site, thread_id: str, action: str) -> None:
    """LangGraph Platform says `interrupted`, at which its own client waits for ever."""
    async with watching(site, thread_id, ["lifecycle"]) as watch:
        run_id = (await start(site, thread_id))["result"]["run_id"]
        await site.agent.called()
        assert (await site.post(f"/threads/{thread_id}/runs/{run_id}/cancel?action={action}")).status_code < 300
        events = await watch.ends()
    assert brief(events) == ["lifecycle running", "lifecycle failed"]
    assert events[-1]["params"]["data"]["error"] == "The run was cancelled"


@pytest.mark.parametrize("strategy", ["interrupt", "rollback"])
async def test_a_run_that_another_one_takes_the_place_of_is_interrupted(site: Site, strategy: str) -> None:
    thread_id = new_id()
    async with watching(site, thread_id, ["lifecycle"]) as watch:
        await start(site, thread_id)
        await site.agent.called()
        await start(site, thread_id, multitask_strategy=strategy)
        (await site.agent.called()).end()
        events = [*await watch.ends(), *await watch.ends()]
    statuses = ("running", "interrupted", "running", "completed")
    assert brief(events) == [f"lifecycle {status}" for status in statuses]


async def test_a_run_that_is_cancelled_while_it_waits_says_nothing_of_the_one_at_work(site: Site) -> None:
    thread_id = new_id()
    async with (
        watching(site, thread_id, ["lifecycle", "messages"]) as watch,
        site.streaming("GET", f"/threads/{await site.thread(thread_id=thread_id)}/stream") as joined,
    ):
        told = await command(site, thread_id, "run.start", assistant_id="scripted", input="hi")
        going = (await site.agent.called()).open("one")
        waits = await start(site, thread_id)
        cancel = f"/threads/{thread_id}/runs/{waits['result']['run_id']}/cancel"
        assert (await site.post(cancel, None)).status_code < 300
        assert await site.status(thread_id, waits["result"]["run_id"]) == "interrupted"
        going.more(" two").end()
        events = await watch.ends()
        assert await site.ends(thread_id, told["result"]["run_id"]) == "success"
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


async def test_the_agent_protocol_spells_its_own_members_in_camel_case(site: Site) -> None:
    thread_id = await performed(site)
    path = "/agent-protocol/threads/{}/stream"
    async with watching(site, thread_id, path=path) as watch:
        events = await watch.ends()
    assert all("eventId" in event for event in events)
    started = next(event for event in events if event["params"]["data"].get("event") == "tool-started")
    assert {"toolCallId": "c", "toolName": "look", "input": {"q": 1}}.items() <= started["params"]["data"].items()
    finish = next(event for event in events if event["params"]["data"].get("event") == "message-finish")
    assert finish["params"]["data"]["usage"] == {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    assert events[0]["params"]["data"]["graphName"] == "scripted"


async def test_updates_and_what_an_agent_writes_have_the_members_of_the_cddl_in_the_agent_protocol_alone(
    site: Site,
) -> None:
    thread_id = await performed(site)
    told: list[list[Any]] = []
    for path in ("/agent-protocol/threads/{}/stream", "/threads/{}/stream"):
        async with watching(site, thread_id, ["updates", "custom", "lifecycle"], path=path) as watch:
            events = await watch.ends()
        told.append([event["params"]["data"] for event in events if event["method"] in ("updates", "custom")])
    ours, platforms = told
    assert ours[1:4:2] == [{"payload": {"n": 1}}, {"node": "plan", "values": {"plan": "made"}}]
    assert platforms[1:4:2] == [{"n": 1}, {"plan": {"plan": "made"}}]
    assert ours[0] == platforms[0] == {"name": "progress", "payload": {"done": 0.5}}


@pytest.mark.parametrize(("prefix", "status"), [("", 400), ("/agent-protocol", 422)])
async def test_a_stream_of_nothing_and_no_command_are_refused(site: Site, prefix: str, status: int) -> None:
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


async def test_a_question_is_told_and_answered(site: Site, thread_id: str) -> None:
    async with watching(site, thread_id, ["input", "lifecycle", "messages"]) as watch:
        await start(site, thread_id, "ask")
        _, asked, stopped = await watch.ends()
        question = asked["params"]["data"]
        assert (asked["method"], question["payload"]) == ("input.requested", "What is your name?")
        assert question["value"] == question["payload"], "the official Python client reads this"
        assert stopped["params"]["data"]["event"] == "interrupted"
        answer: Any = {"namespace": [], "interrupt_id": question["interrupt_id"], "response": "Ann"}
        told = await command(site, thread_id, "input.respond", **answer)
        assert (told["type"], told["result"]) == ("success", {})
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
    going = await site.agent.called()
    assert {answer.interrupt_id: answer.value for answer in going.call.answers} == dict(zip(ids, range(2), strict=True))
    going.end()


async def test_an_input_that_comes_while_a_question_is_open_is_its_answer(site: Site, thread_id: str) -> None:
    """CDDL, section 4a."""
    async with watching(site, thread_id, ["lifecycle"]) as watch:
        await start(site, thread_id)
        (await site.agent.called()).ask("name").end()
        await watch.ends()
        await start(site, thread_id, input=said("Ann"))
        going = await site.agent.called()
        assert [answer.value for answer in going.call.answers] == [said("Ann")]
        assert [message.text for message in going.call.messages] == ["Ann"], "and agents that read text can read it"
        going.end()
        assert (await watch.ends())[-1]["params"]["data"]["event"] == "completed"


async def test_a_question_that_is_not_asked_cannot_be_answered(site: Site, thread_id: str) -> None:
    async with watching(site, thread_id, ["lifecycle", "input"]) as watch:
        await start(site, thread_id)
        question = InterruptRaised(interrupt_id="q", message=Message.of("?"), ns=("inner:1",))
        (await site.agent.called()).say(question).end()
        events = await watch.ends()
    asked = next(event for event in events if event["method"] == "input.requested")
    assert asked["params"]["namespace"] == ["inner:1"]
    wire_id = asked["params"]["data"]["interrupt_id"]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "invalid_argument"),
        ({"interrupt_id": 1}, "invalid_argument"),
        ({"responses": []}, "invalid_argument"),
        ({"responses": ["x"]}, "invalid_argument"),
        ({"interrupt_id": "nope"}, "no_such_interrupt"),
        ({"interrupt_id": wire_id, "namespace": ["other:1"]}, "no_such_interrupt"),
        ({"interrupt_id": wire_id, "namespace": "inner:1"}, "invalid_argument"),
        ({"interrupt_id": wire_id, "update": {"a": 1}}, "not_supported"),
    ]
    for params, code in wrong:
        assert (await command(site, thread_id, "input.respond", **params))["error"] == code, params
    right: Any = {"interrupt_id": wire_id, "namespace": ["inner:1"], "response": 1}
    assert (await command(site, thread_id, "input.respond", **right))["type"] == "success"
    assert (await command(site, thread_id, "input.respond", **right))["error"] == "no_such_interrupt"
    (await site.agent.called()).end()


# Commands


async def test_run_start_makes_the_thread_and_says_from_where_on_to_read(site: Site) -> None:
    thread_id = await performed(site)
    told = await start(site, thread_id, "echo", metadata={"a": 1}, config={"tags": ["t"]})
    since = told["meta"]["applied_through_seq"]
    async with watching(site, thread_id, ["lifecycle"], since=since) as watch:
        assert brief(await watch.ends()) == ["lifecycle running", "lifecycle completed"]
    run = await site.look(f"/threads/{thread_id}/runs/{told['result']['run_id']}")
    assert run["metadata"]["a"] == 1
    assert run["kwargs"]["config"]["tags"] == ["t"]


async def test_an_input_behind_a_run_waits_for_it(site: Site, thread_id: str) -> None:
    first = await start(site, thread_id)
    going = await site.agent.called()
    second = await start(site, thread_id)
    assert second["meta"]["applied_through_seq"] == 0, "what the first run is yet to say is not skipped"
    assert await site.status(thread_id, second["result"]["run_id"]) == "pending"
    going.end()
    (await site.agent.called()).end()
    assert await site.ends(thread_id, second["result"]["run_id"]) == "success"
    assert await site.status(thread_id, first["result"]["run_id"]) == "success"


@pytest.mark.parametrize("name", ["multitaskStrategy", "multitask_strategy"])
async def test_run_start_takes_a_strategy(site: Site, thread_id: str, name: str) -> None:
    await start(site, thread_id)
    going = await site.agent.called()
    told = await command(site, thread_id, "run.start", assistant_id="scripted", input="x", **{name: "reject"})
    assert told["type"] == "error"
    assert "already running" in told["message"]
    going.end()


async def test_commands_that_are_wrong_say_so(site: Site) -> None:
    thread_id = await site.thread()
    wrong: list[tuple[str, dict[str, Any], str]] = [
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
    for method, params, code in wrong:
        told = await command(site, thread_id, method, **params)
        assert (told["type"], told["error"]) == ("error", code), (method, told)
        assert told["message"]


async def test_the_state_can_be_read_and_gone_on_from(site: Site, thread_id: str) -> None:
    for text in ("one", "two"):
        told = await start(site, thread_id, "echo", input={**said(text), text: 1})
        await site.ends(thread_id, told["result"]["run_id"])
    state = (await command(site, thread_id, "state.get", namespace=[], keys=["one", "nope"]))["result"]
    assert state["values"] == {"one": 1}
    listed = (await command(site, thread_id, "state.listCheckpoints", limit=3))["result"]["checkpoints"]
    assert listed[0]["id"] == state["checkpoint"]["id"]
    assert [each["step"] for each in listed] == sorted((each["step"] for each in listed), reverse=True)
    older = (await command(site, thread_id, "state.listCheckpoints", before=listed[1]["id"]))["result"]
    assert older["checkpoints"][0] == listed[2]
    forked = (await command(site, thread_id, "state.fork", checkpointId=listed[2]["id"], input=said("again")))["result"]
    assert forked["thread_id"] == thread_id
    await site.ends(thread_id, forked["run_id"])
    values = (await command(site, thread_id, "state.get"))["result"]["values"]
    assert [message["content"] for message in values["messages"]] == ["one", "one", "again", "again"]


async def test_the_tree_shows_where_the_agent_is(site: Site, thread_id: str) -> None:
    async with watching(site, thread_id, ["lifecycle"]) as watch:
        await start(site, thread_id)
        going = await site.agent.called()
        going.say(StepStarted(step_id="s", name="deep", ns=("outer:1", "inner:2")))
        places = [event["params"]["namespace"] for event in await watch.until(event="started", graph_name="inner")]
        assert places == [[], ["outer:1"], ["outer:1", "inner:2"]]
        tree = (await command(site, thread_id, "agent.getTree"))["result"]["tree"]
        going.end()
        ends = [(event["params"]["namespace"], event["params"]["data"]["event"]) for event in await watch.ends()]
    assert tree["status"] == "running"
    assert tree["children"][0]["graph_name"] == "outer"
    assert tree["children"][0]["children"][0]["namespace"] == ["outer:1", "inner:2"]
    assert ends == [(["outer:1", "inner:2"], "completed"), (["outer:1"], "completed"), ([], "completed")]


async def test_the_tree_of_an_earlier_run_is_as_it_was_at_its_end(site: Site, thread_id: str) -> None:
    async with watching(site, thread_id, ["lifecycle"]) as watch:
        first = await start(site, thread_id, "ask")
        await watch.ends()
        await start(site, thread_id, "ask", input="Ann")
        await watch.ends()
    for run_id, status in ((first["result"]["run_id"], "interrupted"), (None, "completed")):
        tree = (await command(site, thread_id, "agent.getTree", run_id=run_id))["result"]["tree"]
        assert tree["status"] == status


async def test_a_run_that_has_not_begun_has_no_tree(site: Site, thread_id: str) -> None:
    first = await start(site, thread_id)
    going = await site.agent.called()
    waits = await start(site, thread_id)
    told = await command(site, thread_id, "agent.getTree", run_id=waits["result"]["run_id"])
    assert told["error"] == "no_such_run"
    for run_id in (None, first["result"]["run_id"]):
        assert (await command(site, thread_id, "agent.getTree", run_id=run_id))["result"]["tree"]["status"] == "running"
    going.end()
    (await site.agent.called()).end()


async def test_the_agent_protocol_takes_and_gives_commands_in_camel_case(site: Site) -> None:
    thread_id, prefix = new_id(), "/agent-protocol"
    told = await command(site, thread_id, "run.start", prefix, assistantId="ask", input=said("hi"))
    assert set(told["result"]) == {"runId"}
    assert set(told["meta"]) == {"appliedThroughSeq"}
    await site.ends(thread_id, told["result"]["runId"])
    async with watching(site, thread_id, ["input"], path=prefix + "/threads/{}/stream") as watch:
        question = (await watch.next())["params"]["data"]["interruptId"]
    answer: Any = {"namespace": [], "interruptId": question, "response": "Ann"}
    assert (await command(site, thread_id, "input.respond", prefix, **answer))["type"] == "success"


# WebSockets


@pytest.mark.parametrize("path", ["/threads/{}/stream/events", "/threads/{}/stream", "/agent/echo/threads/{}/stream"])
async def test_a_websocket_takes_commands_and_tells_events(site: Site, thread_id: str, path: str) -> None:
    async with socket(site, thread_id, path) as talk:
        told = await talk.tell("subscription.subscribe", channels=["lifecycle", "messages"])
        assert told["result"]["replayed_events"] == 0
        started = await talk.tell("run.start", assistant_id="echo", input=said("one"))
        assert started["result"]["run_id"]
        events = await talk.ends()
    message = ("message-start", "content-block-start", "content-block-delta", "content-block-finish", "message-finish")
    parts = [f"messages {part}" for part in message]
    assert brief(events) == ["lifecycle running", *parts, "lifecycle completed"]


async def test_a_new_subscription_is_told_what_was_and_each_event_comes_once(site: Site) -> None:
    thread_id = await performed(site)
    async with watching(site, thread_id) as watch:
        every = await watch.ends()
    async with socket(site, thread_id) as talk:
        first = await talk.tell("subscription.subscribe", channels=["lifecycle"])
        lifecycle = await talk.some(2)
        assert lifecycle == [event for event in every if event["method"] == "lifecycle"]
        second = await talk.tell("subscription.subscribe", channels=["lifecycle", "tools"])
        assert second["result"]["replayed_events"] == 6
        assert await talk.some(6) == [event for event in every if event["method"] in ("lifecycle", "tools")]
        await talk.tell("run.start", assistant_id="echo", input="x")
        assert brief(await talk.ends()) == ["lifecycle running", "lifecycle completed"]
        for told in (first, second):
            left = await talk.tell("subscription.unsubscribe", subscription_id=told["result"]["subscription_id"])
            assert left["type"] == "success"
        again = await talk.tell("subscription.unsubscribe", subscription_id=first["result"]["subscription_id"])
        assert again["error"] == "no_such_subscription"
        run = (await talk.tell("run.start", assistant_id="echo", input="x"))["result"]["run_id"]
        await site.ends(thread_id, run)
        assert (await talk.tell("agent.getTree"))["type"] == "success"
        assert talk.events == [], "nobody asked for them"


async def test_a_connection_that_was_lost_is_taken_up_again(site: Site) -> None:
    thread_id = await performed(site)
    async with watching(site, thread_id) as watch:
        every = await watch.ends()
    async with socket(site, thread_id) as talk:
        await talk.tell("subscription.subscribe", channels=["lifecycle"])
        await talk.some(2)
        told = await talk.tell("subscription.reconnect", channels=list(ALL), since=every[20]["seq"])
        assert (told["result"]["restored"], told["result"]["missed_events"]) == (True, len(every) - 21)
        assert await talk.some(len(every) - 21) == every[21:]
        assert (await talk.tell("subscription.reconnect", channels=["values"]))["error"] == "invalid_argument"


async def test_what_is_no_command_does_not_end_the_conversation(site: Site) -> None:
    async with socket(site, new_id()) as talk:
        for text in ("", "{", "[]", '{"id": 1}', '{"id": "x", "method": "run.start"}', '"x"', "\ud800"[:0]):
            told = await talk.raw(text)
            assert (told["type"], told["error"]) == ("error", "invalid_argument")
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
    """Also those of a thread that there is not."""
    path, body = f"/threads/{NOBODY}/stream/events", {"channels": ["values"]}
    async with opened(tmp_path) as site, site.streaming("POST", path, body) as silent, socket(site, NOBODY) as talk:
        assert isinstance(silent, Stream)
        site.gateway.hub.close_readers()
        with pytest.raises(httpx.RemoteProtocolError):
            await silent.rest()
        with pytest.raises(ConnectionClosed):
            await talk.next()


async def test_a_websocket_that_fails_is_closed_and_the_log_says_why(
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
