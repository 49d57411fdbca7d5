"""Tests of the invocation of an agent: its whole input, the earlier messages, and the ids of its server."""

from dataclasses import replace
from functools import partial

from babelgate.canonical import Answers, FilePart, Message, RunInput, StateHistory, Submission, TaskState, TextPart
from babelgate.canonical.event import MessageEnded, MessageStarted, PartAdded, RunCreated, UpstreamBound
from tests.gateway.hubs import (
    OWNER,
    HubFactory,
    Scripted,
    answer,
    begin,
    converse,
    ends,
    finish,
    log,
    reaches,
    registered,
    submit,
    submit_and_ask,
)

INPUT = RunInput(
    messages=(
        Message(
            role="user",
            message_id="m",
            parts=(TextPart(text="whole"), FilePart(name="a.txt", url="https://example.com/a.txt")),
        ),
    ),
    uploaded=1,
    data={"n": [1, None]},
    config={"tags": ["t"]},
    metadata={"customer": 7},
    headers={"x-tenant": "t"},
    assistant="mine",
    extra={"acp": {"x": 1}},
)


async def test_every_field_of_an_input_reaches_the_agent(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(replace(registered("a", agent), forward=frozenset({"x-tenant"})))
    first, activation = await begin(hub, agent)
    await finish(hub, activation.say("one"), first)
    thread_id = first.thread_id
    history = await hub.reads.snapshot(OWNER, thread_id, StateHistory, partial(StateHistory, thread_id, OWNER))
    assert history.head is not None
    whole = INPUT.replace(checkpoint=history.head.checkpoint_id)
    unset = {name for name in RunInput.__struct_fields__ if not getattr(whole, name)}
    assert unset == {"trace"}, "this test must set every field that a caller sets"

    at_once = await hub.submit(OWNER, Submission(agent="a", thread_id=thread_id, input=whole))
    activation = await agent.called()
    another = whole.replace(messages=(whole.messages[0].replace(message_id="n"),))
    waiting = await hub.submit(OWNER, Submission(agent="a", thread_id=thread_id, input=another))
    assert activation.call.input == whole
    activation.end()
    later = await agent.called()
    assert later.call.input == another
    await finish(hub, later, at_once)
    await ends(hub, waiting)
    assert [r.event.input for r in await log(hub, first) if isinstance(r.event, RunCreated)][1:] == [whole, another]


async def test_every_field_of_an_answers_input_reaches_the_agent(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(replace(registered("a", agent), forward=frozenset({"x-tenant"})))
    paused = await submit_and_ask(hub, agent, "q")
    whole = INPUT.replace(checkpoint="c")
    answered = await hub.answer(OWNER, Answers(task_id=paused.task_id, bare="yes", input=whole))
    activation = await agent.called()
    assert (activation.call.cause, activation.call.input) == ("answer", whole)
    await finish(hub, activation, answered)


async def test_headers_not_named_in_the_settings_are_dropped(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(replace(registered("a", agent), forward=frozenset({"x-tenant"})))
    run_input = INPUT.replace(headers={"x-tenant": "t", "cookie": "secret"})
    receipt = await hub.submit(OWNER, Submission(agent="a", input=run_input))
    activation = await agent.called()
    assert activation.call.input.headers == {"x-tenant": "t"}
    await finish(hub, activation, receipt)


# Earlier messages


async def test_an_agent_without_memory_receives_the_history_in_order(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(remembers=False)
    first, activation = await begin(hub, agent, "one")
    await submit(hub, "a", "two", thread_id=first.thread_id)
    last = await submit(hub, "a", "three", thread_id=first.thread_id)
    assert activation.call.history == ()
    progress = [MessageStarted(phase="progress"), PartAdded(part=TextPart(text="thinking")), MessageEnded()]
    activation.say(*progress).say("first").end()
    activation = await agent.called()
    assert [message.text for message in activation.call.history] == ["one", "first"]
    activation.say("second").end()
    activation = await agent.called()
    assert [message.text for message in activation.call.history] == ["one", "first", "two", "second"]
    assert [message.role for message in activation.call.history] == ["user", "agent", "user", "agent"]
    await finish(hub, activation, last)


async def test_an_agent_with_memory_receives_no_history(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first = await converse(hub, agent, "one", says="first")
    await submit(hub, "a", "two", thread_id=first.thread_id)
    assert (await agent.called()).call.history == ()


async def test_later_runs_receive_the_upstreams_ids(hubs: HubFactory) -> None:
    agent, other = Scripted(), Scripted()
    hub = await hubs.start(registered("a", agent), registered("b", other))
    first, activation = await begin(hub, agent)
    assert activation.call.upstream == {}
    activation.say(UpstreamBound(protocol="a2a", ids={"context": "c", "task": "t1", "run": "r1"})).ask("name").end()
    await reaches(hub, first, TaskState.INPUT_REQUIRED)
    beside, activation = await begin(hub, agent, thread_id=first.thread_id)
    assert activation.call.upstream == {"context": "c"}
    activation.say(UpstreamBound(protocol="a2a", ids={"context": "c", "task": "t2"})).end()
    await ends(hub, beside)
    await answer(hub, first.task_id, "Bob")
    activation = await agent.called()
    assert activation.call.upstream == {"context": "c", "task": "t1", "run": "r1"}
    await finish(hub, activation, first)
    foreign = await submit(hub, "b", thread_id=first.thread_id)
    activation = await other.called()
    assert activation.call.upstream == {}
    await finish(hub, activation, foreign)
