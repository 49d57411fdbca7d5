"""What a caller's run is started with reaches the agent whole; what lies between knows no member by name."""

from dataclasses import replace
from functools import partial

from canonical import Answers, Message, RunInput, StateHistory, Submission, TaskState
from canonical.event import RunCreated
from tests.gateway.hubs import OWNER, House, Scripted, ends, fronted, log, reaches, submit

WHOLE = RunInput(
    messages=(Message.of("whole", "user").model_copy(update={"message_id": "m"}),),
    data={"n": [1, None]},
    config={"tags": ["t"]},
    metadata={"customer": 7},
    headers={"x-tenant": "t"},
    assistant="mine",
    extra={"acp": {"x": 1}},
)


async def test_every_member_of_an_input_reaches_the_agent_from_memory_and_from_the_log(hubs: House) -> None:
    agent = Scripted()
    hub = await hubs.start(replace(fronted("a", agent), forward=frozenset({"x-tenant"})))
    first = await submit(hub, "a")
    going = await agent.called()
    going.say("one").end()
    await ends(hub, first)
    thread_id = first.thread_id
    history = await hub.snapshot(OWNER, thread_id, StateHistory, partial(StateHistory, thread_id, OWNER))
    assert history.head is not None
    whole = WHOLE.model_copy(update={"checkpoint": history.head.checkpoint_id})
    assert not {name for name in RunInput.model_fields if not getattr(whole, name)}, "this test gives every member"

    at_once = await hub.submit(OWNER, Submission(agent="a", thread_id=thread_id, input=whole))
    going = await agent.called()
    another = whole.model_copy(update={"messages": (whole.messages[0].model_copy(update={"message_id": "n"}),)})
    waiting = await hub.submit(OWNER, Submission(agent="a", thread_id=thread_id, input=another))
    assert going.call.input == whole
    going.end()
    later = await agent.called()
    assert later.call.input == another
    later.end()
    await ends(hub, at_once)
    await ends(hub, waiting)
    assert [r.event.input for r in await log(hub, first) if isinstance(r.event, RunCreated)][1:] == [whole, another]


async def test_every_member_of_an_answers_input_reaches_the_agent(hubs: House) -> None:
    agent = Scripted()
    hub = await hubs.start(replace(fronted("a", agent), forward=frozenset({"x-tenant"})))
    asked = await submit(hub, "a")
    (await agent.called()).ask("q").end()
    await reaches(hub, asked, TaskState.INPUT_REQUIRED)
    whole = WHOLE.model_copy(update={"checkpoint": "c"})
    answered = await hub.answer(OWNER, Answers(task_id=asked.task_id, bare="yes", input=whole))
    going = await agent.called()
    assert (going.call.cause, going.call.input) == ("answer", whole)
    going.end()
    await ends(hub, answered)


async def test_headers_that_the_agents_settings_do_not_name_are_not_kept(hubs: House) -> None:
    agent = Scripted()
    hub = await hubs.start(replace(fronted("a", agent), forward=frozenset({"x-tenant"})))
    given = WHOLE.model_copy(update={"headers": {"x-tenant": "t", "cookie": "secret"}})
    made = await hub.submit(OWNER, Submission(agent="a", input=given))
    going = await agent.called()
    assert going.call.input.headers == {"x-tenant": "t"}
    going.end()
    await ends(hub, made)
