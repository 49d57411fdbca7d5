"""The agent of another AIEF server: what the client asks it over a socket, and what it makes of the answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, cast

import httpx
import pytest

from babelgate.adapters.aief import Client, discover, upstream, upstream_name
from babelgate.adapters.aief.client import task as task_module
from babelgate.adapters.aief.client.http import HttpClient, root_of
from babelgate.canonical import (
    DataPart,
    Event,
    Fault,
    FaultCode,
    FaultError,
    FilePart,
    Invocation,
    Message,
    Record,
    RefusalPart,
    RunStatus,
    TextPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    PartAdded,
    RunEnded,
    StepEnded,
    StepStarted,
    UpstreamBound,
)
from babelgate.conformance.contract import check_agent
from tests.adapters.a2a.talk import Reminded
from tests.adapters.aief.far import TASKS, Far, step
from tests.adapters.aief.site import BOUND
from tests.driving import all_of, bound_ids
from tests.given import make

STEPS = f"POST {TASKS}/task-1/steps"
HISTORY = (Message.of("one", "user"), Message.of("eins", "agent"))
OURS = {"babelgate": {"thread_id": "x", "task_id": "y", "run_id": "z"}}


@pytest.fixture
def agent(far: Far, http: httpx.AsyncClient) -> Client:
    return Client(far.url, http=http, headers={"Authorization": "Bearer secret"})


def call(text: str | None = "Hi", **given: Any) -> Invocation:
    if text is not None:
        given.setdefault("messages", (Message.of(text, "user"),))
    return make(Invocation, agent="near", thread_id="t", task_id="k", run_id="x", **given)


def answering(value: Any, asked: InterruptRaised | None = None, action: Any = "answer", **given: Any) -> Invocation:
    question = (asked or InterruptRaised()).replace(interrupt_id="i")

    async def past() -> Sequence[Record]:
        return [Record(1, 1, "k", "before", 1, question)]

    answer = InterruptAnswered(interrupt_id="i", action=action, value=value)
    given.setdefault("upstream", {"task": "task-1"})
    return call(cause="answer", answers=(answer,), past=past, **given)


async def until_fault(events: AsyncIterator[Event]) -> tuple[list[Event], Fault]:
    """What was said before the fault, and the fault."""
    heard: list[Event] = []
    with pytest.raises(FaultError) as caught:
        async with asyncio.timeout(BOUND):
            async for event in events:
                heard.append(event)
    return heard, caught.value.fault


def said(events: Sequence[Event]) -> list[str]:
    return [event.part.text for event in events if isinstance(event, PartAdded) and event.part.kind == "text"]


def losses(events: Sequence[Event]) -> list[str]:
    return [event.feature for event in events if isinstance(event, LossNoted)]


def files(events: Sequence[Event]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for event in events:
        if isinstance(event, ArtifactAdded):
            assert isinstance(event.part, FilePart)
            found[f"{event.folder or ''}{event.name}"] = event.part.inline or b""
    return found


async def make_task(far: Far, agent: Client) -> None:
    """A task of an earlier run, `task-1`, whose steps so far are forgotten."""
    await all_of(agent.run(call()))
    far.asked.clear()


# What goes out


async def test_a_task_is_made_and_its_first_step_gets_an_empty_object(far: Far, agent: Client) -> None:
    events = await all_of(agent.run(call("Hello")))
    assert far.calls("POST") == [f"POST {TASKS}", STEPS]
    assert far.bodies(f"POST {TASKS}") == [{"input": "Hello"}]
    # The JavaScript SDK answers a POST without a body with 415, and one with a null for the object with 400.
    assert far.bodies(STEPS) == [{}]
    for _, headers, _ in far.asked[:2]:
        assert headers["content-type"] == "application/json"
        assert headers["authorization"] == "Bearer secret"
    assert said(events) == ["Hello"]
    assert bound_ids(events) == {"task": "task-1", "context": "task-1"}


@pytest.mark.parametrize(
    ("given", "body"),
    [
        ({"data": {"a": [1, None]}}, {"input": "Hi", "additional_input": {"a": [1, None]}}),
        ({"data": {}}, {"input": "Hi"}),
        ({"data": [1, 2]}, {"input": "Hi\n[1,2]"}),
        ({"config": {"additional_input": {"b": 2}, "x": 1}}, {"input": "Hi", "additional_input": {"b": 2}}),
        ({"config": {"additional_input": "b"}}, {"input": "Hi"}),
        (
            {"config": {"additional_input": {"a": 0, "b": 2}}, "data": {"a": 1}},
            {"input": "Hi", "additional_input": {"a": 1, "b": 2}},
        ),
    ],
)
async def test_an_object_goes_beside_the_text_and_nothing_else_does(
    far: Far, agent: Client, given: dict[str, Any], body: dict[str, Any]
) -> None:
    await all_of(agent.run(call(**given)))
    assert far.body(f"POST {TASKS}") == body


@pytest.mark.parametrize(
    ("given", "body"),
    [
        ({"data": {"prompt": "Do"}}, {"input": "Do", "additional_input": {"prompt": "Do"}}),
        ({"data": "Do"}, {"input": "Do"}),
        ({"data": {"a": 1, "b": 2}}, {"additional_input": {"a": 1, "b": 2}}),
        ({}, {"input": ""}),
        ({"messages": (Message(role="user"),)}, {"input": ""}),
        (
            {"messages": (Message(role="user", parts=(DataPart(data={"a": 1}), DataPart(data=[2]))),)},
            {"input": "[2]", "additional_input": {"a": 1}},
        ),
    ],
)
async def test_input_that_is_no_message_finds_its_place(
    far: Far, agent: Client, given: dict[str, Any], body: dict[str, Any]
) -> None:
    await all_of(agent.run(call(None, **given)))
    assert far.body(f"POST {TASKS}") == body


@pytest.mark.parametrize(
    ("text", "data", "step"),
    [(None, {"a": 1}, {"input": '{"a":1}'}), ("Hi", {"a": 1}, {"input": 'Hi\n{"a":1}'}), ("Hi", None, {})],
)
async def test_an_object_that_the_server_loses_is_told_as_text_with_the_first_step(
    far: Far, agent: Client, text: str | None, data: Any, step: Any
) -> None:
    """As the Python SDK 1.0.2 does."""
    far.keeps = False
    await all_of(agent.run(call(text, data=data)))
    assert far.bodies(STEPS) == [step]


async def test_several_messages_are_one_text_and_strangers_among_them_are_named(far: Far, agent: Client) -> None:
    await all_of(agent.run(call(messages=(Message.of("One", "user"), Message.of("Two", "user")))))
    assert far.body(f"POST {TASKS}")["input"] == "One\nTwo"
    await all_of(agent.run(call(messages=(Message.of("Be kind", "system"), Message.of("Two", "user")))))
    assert far.body(f"POST {TASKS}")["input"] == "system: Be kind\nuser: Two"


async def test_files_are_uploaded_before_the_first_step_under_names_that_differ(far: Far, agent: Client) -> None:
    parts = (
        FilePart(name="../../evil.txt", inline=b"one"),
        FilePart(name="evil.txt", inline=b"two"),
        FilePart(name="page", url="http://files.invalid/page"),
    )
    events = await all_of(agent.run(call(messages=(Message(role="user", parts=parts),))))
    upload = f"POST {TASKS}/task-1/artifacts"
    assert far.calls("POST") == [f"POST {TASKS}", upload, upload, upload, STEPS]
    bodies = far.bodies(upload)
    assert [b'filename="evil.txt"' in bodies[0], b"one" in bodies[0], b".." in bodies[0]] == [True, True, False]
    assert b'filename="evil-2.txt"' in bodies[1]
    assert b'filename="page.uri"' in bodies[2]
    assert b"http://files.invalid/page" in bodies[2]
    assert losses(events) == ["file-url"]
    assert files(events) == {}, "what the caller gave is not given back"


# Steps


async def test_steps_are_posted_until_the_last_and_each_is_a_message(far: Far, agent: Client) -> None:
    far.steps = [step("Planned", name="plan", last=False), step("Worked", last=False), step("Reviewed", name="review")]
    events = await all_of(agent.run(call()))
    assert said(events) == ["Planned", "Worked", "Reviewed"]
    assert far.bodies(STEPS) == [{}, {}, {}]
    assert [event.name for event in events if isinstance(event, StepStarted)] == ["plan", "step 2", "review"]
    assert [event.name for event in events if isinstance(event, StepEnded)] == ["plan", "step 2", "review"]
    assert [type(event) for event in events[-2:]] == [UpstreamBound, RunEnded]


@pytest.mark.parametrize(
    ("given", "lost"),
    [
        ({"metadata": {"customer": 7}}, ["metadata"]),
        ({"messages": (Message(role="user", parts=(TextPart(text="a", metadata={"m": 1}),)),)}, ["metadata"]),
        (
            {"messages": (Message(role="user", parts=(RefusalPart(text="No."),), metadata={"m": 1}),)},
            ["metadata", "refusal"],
        ),
    ],
)
async def test_metadata_and_refusals_of_an_input_are_noted_as_lost(
    far: Far, agent: Client, given: dict[str, Any], lost: list[str]
) -> None:
    assert losses(await all_of(agent.run(call(**given)))) == lost


async def test_an_agent_that_never_says_that_it_is_done_is_stopped_at_the_limit_of_steps(
    far: Far, http: httpx.AsyncClient
) -> None:
    """As the minimal example of the JavaScript SDK, whose handler runs again with each POST."""
    far.steps = [step("Again", last=False)] * 9
    heard, fault = await until_fault(Client(far.url, http=http, max_steps=3).run(call()))
    assert fault.code is FaultCode.AGENT_FAILED
    assert len(far.bodies(STEPS)) == len(said(heard)) == 3
    assert "context" not in bound_ids(heard)


async def test_a_run_is_over_when_its_time_is(far: Far, http: httpx.AsyncClient) -> None:
    far.steps = [(-1, None)]
    _, fault = await until_fault(Client(far.url, http=http, max_seconds=0.2).run(call()))
    assert fault.code is FaultCode.AGENT_TIMEOUT
    await asyncio.wait_for(far.left.wait(), BOUND)


async def test_an_agent_without_a_last_step_is_done_when_none_is_left(far: Far, agent: Client) -> None:
    """As the minimal example of the Python SDK: the next POST is a 500, and every step is completed."""
    far.steps = [step("All", last=False)]
    events = await all_of(agent.run(call()))
    assert said(events) == ["All"]
    assert losses(events) == ["step"]
    assert isinstance(events[-1], RunEnded) and events[-1].status is RunStatus.SUCCESS
    assert "context" not in bound_ids(events), "it takes no other turn"


@pytest.mark.parametrize(
    "listed",
    [
        (200, {"steps": [{"step_id": "a", "status": "completed"}, {"step_id": "b", "status": "running"}]}),
        (200, {"steps": []}),
        (500, {"error": "response validation"}),
    ],
    ids=["one is running for ever, as the Python SDK leaves it", "none is known", "the JavaScript SDK lists none"],
)
async def test_a_step_that_fails_later_fails_the_run(far: Far, agent: Client, listed: tuple[int, Any]) -> None:
    far.steps = [step("Half", last=False), (500, b"Internal Server Error")]
    far.answers[f"GET {TASKS}/task-1/steps"] = listed
    heard, fault = await until_fault(agent.run(call()))
    assert said(heard) == ["Half"]
    assert fault.code is FaultCode.AGENT_FAILED


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ((500, b"Internal Server Error"), FaultCode.AGENT_FAILED, "answered 500"),
        ((500, {"error": "Boom"}), FaultCode.AGENT_FAILED, "answered 500: Boom"),
        ((404, {"message": "Task with x not found."}), FaultCode.AGENT_FAILED, "answered 404: Task with x not found."),
        ((422, {"detail": [{"msg": "no"}]}), FaultCode.AGENT_FAILED, "answered 422"),
        ((415, b"<html>no</html>"), FaultCode.AGENT_FAILED, "answered 415"),
        ((401, {"message": "Bearer secret is wrong"}), FaultCode.AGENT_FAILED, "answered 401"),
        ((302, b""), FaultCode.AGENT_FAILED, "answered 302"),
        ((503, b""), FaultCode.AGENT_UNREACHABLE, "answered 503"),
        ((0, None), FaultCode.AGENT_UNREACHABLE, "cannot be reached (RemoteProtocolError)"),
    ],
    ids=lambda given: repr(given)[:20],
)
async def test_a_refused_step_fails_the_run_in_the_words_of_the_server_and_is_never_repeated(
    far: Far, agent: Client, answer: tuple[int, Any], code: FaultCode, words: str
) -> None:
    far.steps = [answer, step("Again")]
    heard, fault = await until_fault(agent.run(call()))
    assert (fault.code, fault.message.removeprefix("The agent's server ")) == (code, words)
    assert len(far.bodies(STEPS)) == 1
    assert bound_ids(heard) == {"task": "task-1"}


@pytest.mark.parametrize(
    "answer",
    [b"not JSON", b"\xff", [], "x", {"output": {"a": 1}}, {"artifacts": [{"x": 1}]}, {"is_last": "no?"}, b"[" * 100],
    ids=lambda given: repr(given)[:20],
)
async def test_an_answer_that_is_no_step_is_the_agents_fault(far: Far, agent: Client, answer: Any) -> None:
    far.steps = [(200, answer)]
    _, fault = await until_fault(agent.run(call()))
    assert fault.code is FaultCode.AGENT_INVALID


@pytest.mark.parametrize("made", [{}, {"task_id": ""}, {"task_id": ".."}, {"task_id": "x" * 2000}, {"task_id": None}])
async def test_a_task_without_an_id_that_can_be_used_is_the_agents_fault(far: Far, agent: Client, made: Any) -> None:
    far.answers[f"POST {TASKS}"] = (200, made)
    _, fault = await until_fault(agent.run(call()))
    assert fault.code is FaultCode.AGENT_INVALID


async def test_an_id_cannot_lead_to_another_path(far: Far, agent: Client) -> None:
    far.answers[f"POST {TASKS}"] = (200, {"task_id": "../x?y#z"})
    await until_fault(agent.run(call()))
    assert far.calls("POST")[1] == f"POST {TASKS}/..%2Fx%3Fy%23z/steps"


async def test_an_answer_without_end_is_cut_off(far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpClient, "answer_limit", 1000)
    far.steps = [step("x" * 2000)]
    _, fault = await until_fault(agent.run(call()))
    assert fault.code is FaultCode.AGENT_INVALID


async def test_fields_that_servers_forget_are_not_needed(far: Far, agent: Client) -> None:
    far.steps = [{"output": 42, "is_last": True, "additional_output": None, "artifacts": None}]
    assert said(await all_of(agent.run(call()))) == ["42"]


@pytest.mark.parametrize("ids", [{}, {"context": "task-1"}], ids=["a new task", "the next turn"])
async def test_a_server_that_is_gone_is_unreachable_before_anything_is_said(
    http: httpx.AsyncClient, ids: dict[str, str]
) -> None:
    """So that the run can be given to another server."""
    run = Client("http://127.0.0.1:9", http=http).run(call(upstream=ids, config={"tools": [{}]}))
    heard, fault = await until_fault(run)
    assert (heard, fault.code) == ([], FaultCode.AGENT_UNREACHABLE)


async def test_who_stops_listening_hangs_up_and_no_other_step_is_asked_for(far: Far, agent: Client) -> None:
    far.steps = [step("One", last=False), (-1, None)]
    async with asyncio.timeout(BOUND), aclosing(agent.run(call())) as events:
        async for event in events:
            if isinstance(event, StepEnded):
                break
    assert len(far.bodies(STEPS)) == 1
    running = asyncio.ensure_future(all_of(agent.run(call())))
    await asyncio.wait_for(far.stepping.wait(), BOUND)
    running.cancel()
    await asyncio.wait_for(far.left.wait(), BOUND)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(far.calls("POST")) == 5, "a task and two steps, after a task and a step"


# Questions


async def test_a_step_that_is_not_the_last_is_a_question_where_the_operator_says_so(
    far: Far, http: httpx.AsyncClient
) -> None:
    far.steps = [step("What is your name?", last=False), step("Hello, Ada.")]
    agent = Client(far.url, http=http, steps="ask")
    asked = await all_of(agent.run(call()))
    assert isinstance(asked[-1], InterruptRaised)
    assert (asked[-1].message.text, asked[-1].ask, said(asked)) == ("What is your name?", "input", [])
    assert bound_ids(asked) == {"task": "task-1"}, "what comes next on the thread is not an answer"
    events = await all_of(agent.run(answering("Ada", asked[-1])))
    assert far.bodies(STEPS) == [{}, {"input": "Ada"}]
    assert said(events) == ["Hello, Ada."]
    assert bound_ids(events) == {"task": "task-1", "context": "task-1"}


async def test_a_step_of_a_gateway_that_is_no_question_is_none(far: Far, http: httpx.AsyncClient) -> None:
    far.steps = [step("One", last=False, additional_output=OURS), step("Two")]
    assert said(await all_of(Client(far.url, http=http, steps="ask").run(call()))) == ["One", "Two"]


@pytest.mark.parametrize("ours", [OURS, {}], ids=["a gateway", "any other server"])
async def test_a_step_that_says_that_it_asks_is_a_question(far: Far, agent: Client, ours: dict[str, Any]) -> None:
    schema = {"type": "object"}
    question = {"id": "q", "kind": "approval", "message": "May I?", "value": {"file": "x"}, "schema": schema}
    other = {"id": "r", "kind": "input", "message": "Who?", "value": None, "schema": None}
    more = {**ours, "status": "input-required", "questions": [question, other]}
    far.steps = [step("One moment.\nMay I?", last=False, additional_output=more)]
    events = await all_of(agent.run(call()))
    assert said(events) == ["One moment."]
    [asked] = [event for event in events if isinstance(event, InterruptRaised)]
    assert (asked.ask, asked.message.text) == ("approval", "May I?")
    assert (asked.value, asked.answer_schema) == ({"file": "x"}, schema)
    assert not any(isinstance(event, RunEnded) for event in events)


async def test_a_question_without_a_name_is_the_whole_output(far: Far, agent: Client) -> None:
    far.steps = [step("Who?", last=False, additional_output={"status": "auth-required"})]
    asked = (await all_of(agent.run(call())))[-1]
    assert isinstance(asked, InterruptRaised)
    assert (asked.ask, asked.message.text) == ("auth", "Who?")


NAMED = {"aief": {"id": "q"}}


@pytest.mark.parametrize(
    ("asked", "value", "body"),
    [
        (InterruptRaised(), "yes", {"input": "yes"}),
        (InterruptRaised(), {"a": 1}, {"input": '{"a":1}'}),
        (InterruptRaised(), True, {"input": "true"}),
        (InterruptRaised(extra=NAMED), {"a": 1}, {"additional_input": {"a": 1}}),
        (InterruptRaised(extra=NAMED, answer_schema={"type": "object"}), {"a": 1}, {"input": '{"a":1}'}),
        (InterruptRaised(extra=NAMED), {}, {"input": "{}"}),
    ],
)
async def test_an_answer_is_told_so_that_the_server_understands_it(
    far: Far, agent: Client, asked: InterruptRaised, value: Any, body: dict[str, Any]
) -> None:
    await make_task(far, agent)
    far.steps.append(step("Good"))
    events = await all_of(agent.run(answering(value, asked)))
    assert far.body(STEPS) == body
    assert said(events) == ["Good"]


async def test_a_refusal_to_answer_is_an_empty_answer_and_a_loss(far: Far, agent: Client) -> None:
    await make_task(far, agent)
    far.steps.append(step("Good"))
    assert losses(await all_of(agent.run(answering(None, action="decline")))) == ["question"]
    assert far.body(STEPS) == {"input": ""}


async def test_an_answer_to_a_task_that_was_never_told_is_a_fault_and_no_new_task(far: Far, agent: Client) -> None:
    _, fault = await until_fault(agent.run(answering("Ada", upstream={"context": "task-1"})))
    assert fault.code is FaultCode.AGENT_INVALID
    assert far.asked == []


@pytest.mark.parametrize("answer", [(404, {"message": "gone"}), (500, b"")])
async def test_an_answer_that_the_server_refuses_is_a_fault_and_no_new_task(
    far: Far, agent: Client, answer: tuple[int, Any]
) -> None:
    far.answers[STEPS] = answer
    _, fault = await until_fault(agent.run(answering("Ada")))
    assert fault.code is FaultCode.AGENT_FAILED
    assert far.calls("POST") == [STEPS]


# The next turn


async def test_the_next_turn_is_the_next_step_of_the_task_and_nothing_is_told_twice(far: Far, agent: Client) -> None:
    await make_task(far, agent)
    far.steps.append(step("zwei"))
    given = call("two", history=HISTORY, upstream={"context": "task-1"}, data={"a": 1})
    events = await all_of(agent.run(given))
    assert far.calls("POST") == [STEPS]
    assert far.body(STEPS) == {"input": "two", "additional_input": {"a": 1}}
    assert said(events) == ["zwei"]
    assert bound_ids(events) == {"task": "task-1", "context": "task-1"}


@pytest.mark.parametrize("at", ["steps", "artifacts"])
@pytest.mark.parametrize("refusal", [(404, {"message": "gone"}), (500, b"Internal Server Error")])
async def test_a_task_that_takes_no_other_turn_is_followed_by_one_that_is_told_what_was_said(
    far: Far, agent: Client, at: str, refusal: tuple[int, Any]
) -> None:
    await make_task(far, agent)
    far.answers[f"POST {TASKS}/task-1/{at}"] = refusal
    parts = (*Message.of("two").parts, FilePart(name="a.txt", inline=b"a"))
    given = call(messages=(Message(role="user", parts=parts),), history=HISTORY, upstream={"context": "task-1"})
    events = await all_of(agent.run(given))
    assert far.calls("POST")[-3:] == [f"POST {TASKS}{below}" for below in ("", "/task-2/artifacts", "/task-2/steps")]
    before = "Said before in this conversation:\nuser: one\nagent: eins"
    assert far.body(f"POST {TASKS}") == {"input": f"{before}\n\ntwo"}
    assert bound_ids(events) == {"task": "task-2", "context": "task-2"}
    assert files(events) == {}


@pytest.mark.parametrize("answer", [(503, b""), (502, b""), (0, None), (422, {"message": "no"})])
async def test_a_turn_that_may_have_reached_the_agent_is_not_told_to_another_task(
    far: Far, agent: Client, answer: tuple[int, Any]
) -> None:
    await make_task(far, agent)
    far.answers[STEPS] = answer
    heard, _ = await until_fault(agent.run(call(upstream={"context": "task-1"})))
    assert far.calls("POST") == [STEPS]
    assert bound_ids(heard)["context"] == "", "the turn after it begins a task of its own"


async def test_a_task_that_was_left_in_its_middle_takes_no_other_turn(far: Far, agent: Client) -> None:
    """Its next step would be the rest of the last turn, and the new input would be lost."""
    await make_task(far, agent)
    far.steps += [step("half", last=False, name="half"), step("rest")]
    async with aclosing(agent.run(call(upstream={"context": "task-1"}))) as events:
        ids: dict[str, str] = {}
        async for event in events:
            if isinstance(event, StepEnded):
                break
            ids |= bound_ids([event])
    assert ids == {"task": "task-1", "context": ""}
    far.steps = [step("fresh")]
    assert said(await all_of(agent.run(call("Next", history=HISTORY, upstream={"context": ""})))) == ["fresh"]
    assert far.body(f"POST {TASKS}")["input"].endswith("Next")


async def test_a_conversation_that_began_elsewhere_is_told_to_a_new_task(far: Far, agent: Client) -> None:
    await all_of(agent.run(call("two", history=HISTORY)))
    assert far.body(f"POST {TASKS}")["input"].splitlines()[1:] == ["user: one", "agent: eins", "", "two"]


# Files


def listed(artifact_id: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"artifact_id": artifact_id, "file_name": name or f"{artifact_id}.txt", "agent_created": True, **more}


async def test_files_of_a_step_are_fetched_and_named_so_that_they_lead_nowhere(far: Far, agent: Client) -> None:
    far.files = {"a": b"one", "b": b"two", "c": b"three"}
    made = [
        listed("a", "../../evil.py", relative_path="../../etc/"),
        listed("b", "pic.png", relative_path="code/deep"),
        listed("c", ".."),
    ]
    far.steps = [step("Done", artifacts=made)]
    events = await all_of(agent.run(call()))
    assert files(events) == {"etc/evil.py": b"one", "code/deeppic.png": b"two", "artifact": b"three"}
    parts = [event.part for event in events if isinstance(event, ArtifactAdded)]
    assert [part.media_type for part in parts] == ["text/x-python", "image/png", "application/octet-stream"]


async def test_files_come_with_their_step_and_once(far: Far, agent: Client) -> None:
    far.files = {"a": b"one", "b": b"two"}
    far.steps = [step("1", name="1", last=False, artifacts=[listed("a")]), step("2", name="2", artifacts=[listed("b")])]
    far.listed = [listed("a"), listed("b")]
    events = await all_of(agent.run(call()))
    order = [event.name for event in events if isinstance(event, StepStarted | StepEnded | ArtifactAdded)]
    assert order == ["1", "a.txt", "1", "2", "b.txt", "2"]


async def test_a_file_that_no_step_tells_of_is_found_in_the_list(far: Far, agent: Client) -> None:
    """The Python SDK puts a later step's file on the first step; the list has them all, and the caller's too."""
    far.files = {"a": b"one", "up": b"mine"}
    far.listed = [listed("up", agent_created=False), listed("a")]
    assert files(await all_of(agent.run(call()))) == {"a.txt": b"one"}


async def test_files_of_earlier_turns_are_not_told_again(far: Far, agent: Client) -> None:
    await make_task(far, agent)
    far.files = {"a": b"one", "b": b"two"}
    far.listed = [listed("a")]
    far.steps.append(step("zwei", artifacts=[listed("b")]))
    assert files(await all_of(agent.run(call(upstream={"context": "task-1"})))) == {"b.txt": b"two"}


@pytest.mark.parametrize("total", [999, "x", None, "an array"])
async def test_a_list_that_gives_the_same_page_for_ever_ends(far: Far, agent: Client, total: Any) -> None:
    """The Python SDK lists them as an array, whatever page is asked for."""
    far.files = {"a": b"one"}
    page = {"artifacts": [listed("a")], "pagination": {"total_items": total, "total_pages": 0}}
    answer = page["artifacts"] if total == "an array" else page
    far.answers[f"GET {TASKS}/task-1/artifacts"] = (200, answer)
    assert files(await all_of(agent.run(call()))) == {"a.txt": b"one"}
    assert far.calls("GET").count(f"GET {TASKS}/task-1/artifacts") <= (1 if total == "an array" else 2)


async def test_all_pages_of_a_list_are_read(far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its items, because the Python SDK rounds `total_pages` down."""
    names = [f"f{number}" for number in range(5)]
    far.files = {name: name.encode() for name in names}

    def page(request_: str) -> dict[str, Any]:
        number = int(request_.partition("current_page=")[2].partition("&")[0])
        shown = [listed(name) for name in names[(number - 1) * 2 : number * 2]]
        return {"artifacts": shown, "pagination": {"total_items": 5, "total_pages": 0}}

    ordinary = far._answer  # pyright: ignore[reportPrivateUsage]

    def paged(method: str, path: str, body: Any) -> tuple[int, Any]:
        if (method, path) == ("GET", f"{TASKS}/task-1/artifacts"):
            return 200, page(far.asked[-1][0])
        return ordinary(method, path, body)

    monkeypatch.setattr(far, "_answer", paged)
    assert list(files(await all_of(agent.run(call())))) == [f"{name}.txt" for name in names]


@pytest.mark.parametrize(
    ("there", "kept"),
    [
        ({"a": b"x" * 11, "b": b"x" * 10}, ["b.txt"]),
        ({}, []),
        ({"a": b"", "b": b"", "c": b"", "d": b""}, ["a.txt", "b.txt", "c.txt"]),
    ],
    ids=["one is over the limit", "none is there", "there are too many"],
)
async def test_lost_files_are_one_loss_and_the_run_goes_on(
    far: Far, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, there: dict[str, bytes], kept: list[str]
) -> None:
    monkeypatch.setattr(task_module, "MAX_FILES", 3)
    far.files = there
    far.steps = [step("Done", artifacts=[listed(name) for name in there or "ab"])]
    events = await all_of(Client(far.url, http=http, file_limit=10).run(call()))
    assert (said(events), list(files(events)), losses(events)) == (["Done"], kept, ["artifact"])


@pytest.mark.parametrize(
    ("answer", "lost"), [((404, {"message": "no"}), []), ((500, b""), ["artifact"]), ((200, {"x": 1}), ["artifact"])]
)
async def test_a_list_that_cannot_be_read_is_a_loss_unless_there_is_none(
    far: Far, agent: Client, answer: tuple[int, Any], lost: list[str]
) -> None:
    far.answers[f"GET {TASKS}/task-1/artifacts"] = answer
    events = await all_of(agent.run(call()))
    assert (said(events), losses(events)) == (["Hello"], lost)


# The contract, and where agents are found


def test_the_upstream_says_what_its_client_can_be_told() -> None:
    for value in upstream.options["steps"]:
        assert isinstance(upstream.client("http://far", "x", headers={}, timeout=1.0, steps=value), Client)


@pytest.mark.parametrize("kind", ["plain", "steps", "asking", "failing", "without a last"])
async def test_the_contract_of_agents_is_kept(far: Far, http: httpx.AsyncClient, kind: str) -> None:
    far.files = {"a": b"one"}
    ask = {**OURS, "status": "input-required", "questions": [{"id": "q", "message": "Who?"}]}
    far.steps = {
        "plain": [step("Hello")],
        "steps": [step("One", name="one", last=False, artifacts=[listed("a")]), step("Two", name="two")],
        "asking": [step("Hm.\nWho?", last=False, additional_output=ask), step("Hello")],
        "failing": [step("One", last=False), (503, b"")],
        "without a last": [step("One", last=False)],
    }[kind]
    await check_agent(lambda: cast("Any", Reminded(Client(far.url, http=http))), bound=BOUND)


@pytest.mark.parametrize("path", ["/x", "/x/", "/x/ap/v1", "/x/ap/v1/", "/x/ap/v1/agent", "/x/ap/v1/agent/tasks"])
def test_a_url_may_say_as_much_of_the_path_as_its_owner_knows(path: str) -> None:
    assert root_of(f"http://far{path}") == "http://far/x"


NAMELESS = ("agent", "agent", "1.0.0", "")
NO_PAGES: list[Any] = [b"<html>", {"name": ["x"]}, {"version": "2"}, []]
ABOUT = {"name": "My Agent/1", "protocol": 1, "version": "2.0", "description": "Writes."}


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ((200, ABOUT), ("my-agent-1", "My Agent/1", "2.0", "Writes.")),
        ((404, {"message": "no page"}), NAMELESS),
        *(((200, page), NAMELESS) for page in NO_PAGES),
    ],
)
async def test_the_agent_is_described_as_its_server_describes_it(
    far: Far, http: httpx.AsyncClient, answer: tuple[int, Any], shown: tuple[Any, ...]
) -> None:
    far.answers["GET /ap/v2/agent/info"] = answer
    [info] = await discover(f"{far.url}/", http, {"X-Key": "k"})
    assert (info.name, upstream_name(info), info.version, info.description) == shown
    assert not info.remembers
    assert {headers["x-key"] for _, headers, _ in far.asked} == {"k"}


@pytest.mark.parametrize("answer", [(200, {"agents": []}), (200, b"hello"), (404, {"detail": "Not Found"})])
async def test_a_server_that_lists_no_tasks_is_none_of_these(
    far: Far, http: httpx.AsyncClient, answer: tuple[int, Any]
) -> None:
    far.answers[f"GET {TASKS}"] = answer
    with pytest.raises(FaultError) as caught:
        await discover(far.url, http)
    assert caught.value.fault.code in (FaultCode.AGENT_INVALID, FaultCode.AGENT_FAILED)


async def test_connections_of_its_own_are_closed_with_it(far: Far) -> None:
    agent = Client(far.url)
    assert said(await all_of(agent.run(call()))) == ["Hello"]
    await agent.aclose()
    await agent.aclose()
    assert json.dumps(far.body(f"POST {TASKS}")) == '{"input": "Hi"}'
