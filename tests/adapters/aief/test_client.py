"""Client of an agent on another AIEF server: its requests, and the events that it reads from the responses."""

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
from tests.submissions import make

STEPS = f"POST {TASKS}/task-1/steps"
HISTORY = (Message.of("one", "user"), Message.of("eins", "agent"))
FROM_GATEWAY = {"babelgate": {"thread_id": "x", "task_id": "y", "run_id": "z"}}


@pytest.fixture
def agent(far: Far, http: httpx.AsyncClient) -> Client:
    return Client(far.url, http=http, headers={"Authorization": "Bearer secret"})


def call(text: str | None = "Hi", **members: Any) -> Invocation:
    if text is not None:
        members.setdefault("messages", (Message.of(text, "user"),))
    return make(Invocation, agent="near", thread_id="t", task_id="k", run_id="x", **members)


def answering(
    value: Any, question: InterruptRaised | None = None, action: Any = "answer", **members: Any
) -> Invocation:
    raised = (question or InterruptRaised()).replace(interrupt_id="i")

    async def past() -> Sequence[Record]:
        return [Record(1, 1, "k", "before", 1, raised)]

    answer = InterruptAnswered(interrupt_id="i", action=action, value=value)
    members.setdefault("upstream", {"task": "task-1"})
    return call(cause="answer", answers=(answer,), past=past, **members)


async def until_fault(run: AsyncIterator[Event]) -> tuple[list[Event], Fault]:
    """Return the events before the fault, and the fault."""
    events: list[Event] = []
    with pytest.raises(FaultError) as caught:
        async with asyncio.timeout(BOUND):
            async for event in run:
                events.append(event)
    return events, caught.value.fault


def texts_of(events: Sequence[Event]) -> list[str]:
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
    """Create `task-1` in an earlier run, and forget its requests."""
    await all_of(agent.run(call()))
    far.requests.clear()


# Requests


async def test_a_new_tasks_first_step_has_an_empty_object(far: Far, agent: Client) -> None:
    events = await all_of(agent.run(call("Hello")))
    assert far.calls("POST") == [f"POST {TASKS}", STEPS]
    assert far.bodies(f"POST {TASKS}") == [{"input": "Hello"}]
    # The JavaScript SDK answers a POST without a body with 415, and one with a null for the object with 400.
    assert far.bodies(STEPS) == [{}]
    for _, headers, _ in far.requests[:2]:
        assert headers["content-type"] == "application/json"
        assert headers["authorization"] == "Bearer secret"
    assert texts_of(events) == ["Hello"]
    assert bound_ids(events) == {"task": "task-1", "context": "task-1"}


@pytest.mark.parametrize(
    ("members", "body"),
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
async def test_an_object_is_sent_as_additional_input(
    far: Far, agent: Client, members: dict[str, Any], body: dict[str, Any]
) -> None:
    await all_of(agent.run(call(**members)))
    assert far.body(f"POST {TASKS}") == body


@pytest.mark.parametrize(
    ("members", "body"),
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
async def test_input_without_a_message_is_converted(
    far: Far, agent: Client, members: dict[str, Any], body: dict[str, Any]
) -> None:
    await all_of(agent.run(call(None, **members)))
    assert far.body(f"POST {TASKS}") == body


@pytest.mark.parametrize(
    ("text", "data", "step"),
    [(None, {"a": 1}, {"input": '{"a":1}'}), ("Hi", {"a": 1}, {"input": 'Hi\n{"a":1}'}), ("Hi", None, {})],
)
async def test_a_lost_object_is_repeated_as_text(
    far: Far, agent: Client, text: str | None, data: Any, step: Any
) -> None:
    """Check a server that loses the additional input, as the Python SDK 1.0.2 does."""
    far.keeps = False
    await all_of(agent.run(call(text, data=data)))
    assert far.bodies(STEPS) == [step]


async def test_several_messages_are_joined_with_their_roles(far: Far, agent: Client) -> None:
    await all_of(agent.run(call(messages=(Message.of("One", "user"), Message.of("Two", "user")))))
    assert far.body(f"POST {TASKS}")["input"] == "One\nTwo"
    await all_of(agent.run(call(messages=(Message.of("Be kind", "system"), Message.of("Two", "user")))))
    assert far.body(f"POST {TASKS}")["input"] == "system: Be kind\nuser: Two"


async def test_files_are_uploaded_under_unique_names_before_the_first_step(far: Far, agent: Client) -> None:
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
    assert files(events) == {}, "uploads are not artifacts of the agent"


# Steps


async def test_steps_are_posted_until_the_last(far: Far, agent: Client) -> None:
    far.steps = [step("Planned", name="plan", last=False), step("Worked", last=False), step("Reviewed", name="review")]
    events = await all_of(agent.run(call()))
    assert texts_of(events) == ["Planned", "Worked", "Reviewed"]
    assert far.bodies(STEPS) == [{}, {}, {}]
    assert [event.name for event in events if isinstance(event, StepStarted)] == ["plan", "step 2", "review"]
    assert [event.name for event in events if isinstance(event, StepEnded)] == ["plan", "step 2", "review"]
    assert [type(event) for event in events[-2:]] == [UpstreamBound, RunEnded]


@pytest.mark.parametrize(
    ("members", "lost"),
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
    far: Far, agent: Client, members: dict[str, Any], lost: list[str]
) -> None:
    assert losses(await all_of(agent.run(call(**members)))) == lost


async def test_an_endless_agent_stops_at_the_limit_of_steps(far: Far, http: httpx.AsyncClient) -> None:
    """Check an agent without a last step, as in the minimal example of the JavaScript SDK."""
    far.steps = [step("Again", last=False)] * 9
    events, fault = await until_fault(Client(far.url, http=http, max_steps=3).run(call()))
    assert fault.code is FaultCode.AGENT_FAILED
    assert len(far.bodies(STEPS)) == len(texts_of(events)) == 3
    assert "context" not in bound_ids(events)


async def test_a_run_ends_at_its_timeout(far: Far, http: httpx.AsyncClient) -> None:
    far.steps = [(-1, None)]
    _, fault = await until_fault(Client(far.url, http=http, max_seconds=0.2).run(call()))
    assert fault.code is FaultCode.AGENT_TIMEOUT
    await asyncio.wait_for(far.left.wait(), BOUND)


async def test_an_agent_without_a_last_step_ends_without_a_fault(far: Far, agent: Client) -> None:
    """Check the minimal example of the Python SDK: the next POST is a 500, and every step is completed."""
    far.steps = [step("All", last=False)]
    events = await all_of(agent.run(call()))
    assert texts_of(events) == ["All"]
    assert losses(events) == ["step"]
    assert isinstance(events[-1], RunEnded) and events[-1].status is RunStatus.SUCCESS
    assert "context" not in bound_ids(events), "the task cannot be continued"


@pytest.mark.parametrize(
    "listed",
    [
        (200, {"steps": [{"step_id": "a", "status": "completed"}, {"step_id": "b", "status": "running"}]}),
        (200, {"steps": []}),
        (500, {"error": "response validation"}),
    ],
    ids=["a step stays running, as in the Python SDK", "no steps", "the JavaScript SDK cannot list steps"],
)
async def test_a_step_that_fails_later_fails_the_run(far: Far, agent: Client, listed: tuple[int, Any]) -> None:
    far.steps = [step("Half", last=False), (500, b"Internal Server Error")]
    far.answers[f"GET {TASKS}/task-1/steps"] = listed
    events, fault = await until_fault(agent.run(call()))
    assert texts_of(events) == ["Half"]
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
    ids=lambda value: repr(value)[:20],
)
async def test_a_refused_step_fails_the_run_and_is_not_retried(
    far: Far, agent: Client, answer: tuple[int, Any], code: FaultCode, words: str
) -> None:
    far.steps = [answer, step("Again")]
    events, fault = await until_fault(agent.run(call()))
    assert (fault.code, fault.message.removeprefix("The agent's server ")) == (code, words)
    assert len(far.bodies(STEPS)) == 1
    assert bound_ids(events) == {"task": "task-1"}


@pytest.mark.parametrize(
    "answer",
    [b"not JSON", b"\xff", [], "x", {"output": {"a": 1}}, {"artifacts": [{"x": 1}]}, {"is_last": "no?"}, b"[" * 100],
    ids=lambda value: repr(value)[:20],
)
async def test_a_malformed_step_is_the_agents_fault(far: Far, agent: Client, answer: Any) -> None:
    far.steps = [(200, answer)]
    _, fault = await until_fault(agent.run(call()))
    assert fault.code is FaultCode.AGENT_INVALID


@pytest.mark.parametrize("task", [{}, {"task_id": ""}, {"task_id": ".."}, {"task_id": "x" * 2000}, {"task_id": None}])
async def test_a_task_without_a_valid_id_is_the_agents_fault(far: Far, agent: Client, task: Any) -> None:
    far.answers[f"POST {TASKS}"] = (200, task)
    _, fault = await until_fault(agent.run(call()))
    assert fault.code is FaultCode.AGENT_INVALID


async def test_an_id_cannot_lead_to_another_path(far: Far, agent: Client) -> None:
    far.answers[f"POST {TASKS}"] = (200, {"task_id": "../x?y#z"})
    await until_fault(agent.run(call()))
    assert far.calls("POST")[1] == f"POST {TASKS}/..%2Fx%3Fy%23z/steps"


async def test_a_too_large_response_is_cut_off(far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpClient, "answer_limit", 1000)
    far.steps = [step("x" * 2000)]
    _, fault = await until_fault(agent.run(call()))
    assert fault.code is FaultCode.AGENT_INVALID


async def test_missing_fields_of_a_step_have_defaults(far: Far, agent: Client) -> None:
    far.steps = [{"output": 42, "is_last": True, "additional_output": None, "artifacts": None}]
    assert texts_of(await all_of(agent.run(call()))) == ["42"]


@pytest.mark.parametrize("ids", [{}, {"context": "task-1"}], ids=["a new task", "the next turn"])
async def test_an_unreachable_server_fails_before_the_first_event(http: httpx.AsyncClient, ids: dict[str, str]) -> None:
    """Fail without having yielded an event, so that failover can start the run on another server."""
    run = Client("http://127.0.0.1:9", http=http).run(call(upstream=ids, config={"tools": [{}]}))
    events, fault = await until_fault(run)
    assert (events, fault.code) == ([], FaultCode.AGENT_UNREACHABLE)


async def test_a_detached_reader_disconnects_and_posts_no_further_step(far: Far, agent: Client) -> None:
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


async def test_an_intermediate_step_is_a_question_if_so_configured(far: Far, http: httpx.AsyncClient) -> None:
    far.steps = [step("What is your name?", last=False), step("Hello, Ada.")]
    agent = Client(far.url, http=http, steps="ask")
    asking = await all_of(agent.run(call()))
    assert isinstance(asking[-1], InterruptRaised)
    assert (asking[-1].message.text, asking[-1].ask, texts_of(asking)) == ("What is your name?", "input", [])
    assert bound_ids(asking) == {"task": "task-1"}, "no context: the next input of the thread may be no answer"
    events = await all_of(agent.run(answering("Ada", asking[-1])))
    assert far.bodies(STEPS) == [{}, {"input": "Ada"}]
    assert texts_of(events) == ["Hello, Ada."]
    assert bound_ids(events) == {"task": "task-1", "context": "task-1"}


async def test_a_gateways_intermediate_step_is_not_a_question(far: Far, http: httpx.AsyncClient) -> None:
    far.steps = [step("One", last=False, additional_output=FROM_GATEWAY), step("Two")]
    assert texts_of(await all_of(Client(far.url, http=http, steps="ask").run(call()))) == ["One", "Two"]


@pytest.mark.parametrize("gateway", [FROM_GATEWAY, {}], ids=["a gateway", "any other server"])
async def test_a_step_with_the_status_input_required_is_a_question(
    far: Far, agent: Client, gateway: dict[str, Any]
) -> None:
    schema = {"type": "object"}
    question = {"id": "q", "kind": "approval", "message": "May I?", "value": {"file": "x"}, "schema": schema}
    other = {"id": "r", "kind": "input", "message": "Who?", "value": None, "schema": None}
    more = {**gateway, "status": "input-required", "questions": [question, other]}
    far.steps = [step("One moment.\nMay I?", last=False, additional_output=more)]
    events = await all_of(agent.run(call()))
    assert texts_of(events) == ["One moment."]
    [raised] = [event for event in events if isinstance(event, InterruptRaised)]
    assert (raised.ask, raised.message.text) == ("approval", "May I?")
    assert (raised.value, raised.answer_schema) == ({"file": "x"}, schema)
    assert not any(isinstance(event, RunEnded) for event in events)


async def test_a_question_without_an_entry_is_the_whole_output(far: Far, agent: Client) -> None:
    far.steps = [step("Who?", last=False, additional_output={"status": "auth-required"})]
    raised = (await all_of(agent.run(call())))[-1]
    assert isinstance(raised, InterruptRaised)
    assert (raised.ask, raised.message.text) == ("auth", "Who?")


NAMED = {"aief": {"id": "q"}}


@pytest.mark.parametrize(
    ("question", "value", "body"),
    [
        (InterruptRaised(), "yes", {"input": "yes"}),
        (InterruptRaised(), {"a": 1}, {"input": '{"a":1}'}),
        (InterruptRaised(), True, {"input": "true"}),
        (InterruptRaised(extra=NAMED), {"a": 1}, {"additional_input": {"a": 1}}),
        (InterruptRaised(extra=NAMED, answer_schema={"type": "object"}), {"a": 1}, {"input": '{"a":1}'}),
        (InterruptRaised(extra=NAMED), {}, {"input": "{}"}),
    ],
)
async def test_an_answer_has_the_form_that_the_server_expects(
    far: Far, agent: Client, question: InterruptRaised, value: Any, body: dict[str, Any]
) -> None:
    await make_task(far, agent)
    far.steps.append(step("Good"))
    events = await all_of(agent.run(answering(value, question)))
    assert far.body(STEPS) == body
    assert texts_of(events) == ["Good"]


async def test_a_declined_question_is_an_empty_answer_and_a_loss(far: Far, agent: Client) -> None:
    await make_task(far, agent)
    far.steps.append(step("Good"))
    assert losses(await all_of(agent.run(answering(None, action="decline")))) == ["question"]
    assert far.body(STEPS) == {"input": ""}


async def test_an_answer_without_a_bound_task_is_a_fault(far: Far, agent: Client) -> None:
    _, fault = await until_fault(agent.run(answering("Ada", upstream={"context": "task-1"})))
    assert fault.code is FaultCode.AGENT_INVALID
    assert far.requests == []


@pytest.mark.parametrize("answer", [(404, {"message": "gone"}), (500, b"")])
async def test_a_refused_answer_is_a_fault_and_creates_no_task(
    far: Far, agent: Client, answer: tuple[int, Any]
) -> None:
    far.answers[STEPS] = answer
    _, fault = await until_fault(agent.run(answering("Ada")))
    assert fault.code is FaultCode.AGENT_FAILED
    assert far.calls("POST") == [STEPS]


# The next turn


async def test_the_next_turn_is_the_next_step_without_history(far: Far, agent: Client) -> None:
    await make_task(far, agent)
    far.steps.append(step("zwei"))
    turn = call("two", history=HISTORY, upstream={"context": "task-1"}, data={"a": 1})
    events = await all_of(agent.run(turn))
    assert far.calls("POST") == [STEPS]
    assert far.body(STEPS) == {"input": "two", "additional_input": {"a": 1}}
    assert texts_of(events) == ["zwei"]
    assert bound_ids(events) == {"task": "task-1", "context": "task-1"}


@pytest.mark.parametrize("at", ["steps", "artifacts"])
@pytest.mark.parametrize("refusal", [(404, {"message": "gone"}), (500, b"Internal Server Error")])
async def test_a_refused_turn_starts_a_new_task_with_the_history(
    far: Far, agent: Client, at: str, refusal: tuple[int, Any]
) -> None:
    await make_task(far, agent)
    far.answers[f"POST {TASKS}/task-1/{at}"] = refusal
    parts = (*Message.of("two").parts, FilePart(name="a.txt", inline=b"a"))
    turn = call(messages=(Message(role="user", parts=parts),), history=HISTORY, upstream={"context": "task-1"})
    events = await all_of(agent.run(turn))
    assert far.calls("POST")[-3:] == [f"POST {TASKS}{below}" for below in ("", "/task-2/artifacts", "/task-2/steps")]
    before = "Said before in this conversation:\nuser: one\nagent: eins"
    assert far.body(f"POST {TASKS}") == {"input": f"{before}\n\ntwo"}
    assert bound_ids(events) == {"task": "task-2", "context": "task-2"}
    assert files(events) == {}


@pytest.mark.parametrize("answer", [(503, b""), (502, b""), (0, None), (422, {"message": "no"})])
async def test_a_turn_that_may_have_run_is_not_repeated(far: Far, agent: Client, answer: tuple[int, Any]) -> None:
    await make_task(far, agent)
    far.answers[STEPS] = answer
    events, _ = await until_fault(agent.run(call(upstream={"context": "task-1"})))
    assert far.calls("POST") == [STEPS]
    assert bound_ids(events)["context"] == "", "the next turn creates a new task"


async def test_an_abandoned_task_is_not_continued(far: Far, agent: Client) -> None:
    """Check that a new task is created.

    The next step of the old task would be the rest of the last turn, and ignore the new input.
    """
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
    assert texts_of(await all_of(agent.run(call("Next", history=HISTORY, upstream={"context": ""})))) == ["fresh"]
    assert far.body(f"POST {TASKS}")["input"].endswith("Next")


async def test_history_from_elsewhere_is_sent_to_a_new_task(far: Far, agent: Client) -> None:
    await all_of(agent.run(call("two", history=HISTORY)))
    assert far.body(f"POST {TASKS}")["input"].splitlines()[1:] == ["user: one", "agent: eins", "", "two"]


# Files


def listed(artifact_id: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"artifact_id": artifact_id, "file_name": name or f"{artifact_id}.txt", "agent_created": True, **more}


async def test_files_of_a_step_are_fetched_under_safe_names(far: Far, agent: Client) -> None:
    far.files = {"a": b"one", "b": b"two", "c": b"three"}
    artifacts = [
        listed("a", "../../evil.py", relative_path="../../etc/"),
        listed("b", "pic.png", relative_path="code/deep"),
        listed("c", ".."),
    ]
    far.steps = [step("Done", artifacts=artifacts)]
    events = await all_of(agent.run(call()))
    assert files(events) == {"etc/evil.py": b"one", "code/deeppic.png": b"two", "artifact": b"three"}
    parts = [event.part for event in events if isinstance(event, ArtifactAdded)]
    assert [part.media_type for part in parts] == ["text/x-python", "image/png", "application/octet-stream"]


async def test_files_come_once_and_with_their_step(far: Far, agent: Client) -> None:
    far.files = {"a": b"one", "b": b"two"}
    far.steps = [step("1", name="1", last=False, artifacts=[listed("a")]), step("2", name="2", artifacts=[listed("b")])]
    far.listed = [listed("a"), listed("b")]
    events = await all_of(agent.run(call()))
    order = [event.name for event in events if isinstance(event, StepStarted | StepEnded | ArtifactAdded)]
    assert order == ["1", "a.txt", "1", "2", "b.txt", "2"]


async def test_a_file_of_no_step_is_found_in_the_list(far: Far, agent: Client) -> None:
    """Check the list of the Python SDK.

    It shows a later step's file on the first step, and the list contains all files, including those of the caller.
    """
    far.files = {"a": b"one", "up": b"mine"}
    far.listed = [listed("up", agent_created=False), listed("a")]
    assert files(await all_of(agent.run(call()))) == {"a.txt": b"one"}


async def test_files_of_earlier_turns_are_not_repeated(far: Far, agent: Client) -> None:
    await make_task(far, agent)
    far.files = {"a": b"one", "b": b"two"}
    far.listed = [listed("a")]
    far.steps.append(step("zwei", artifacts=[listed("b")]))
    assert files(await all_of(agent.run(call(upstream={"context": "task-1"})))) == {"b.txt": b"two"}


@pytest.mark.parametrize("total", [999, "x", None, "an array"])
async def test_a_list_that_repeats_its_page_is_read_once(far: Far, agent: Client, total: Any) -> None:
    """Check a server that ignores the page. The Python SDK returns all artifacts as an array."""
    far.files = {"a": b"one"}
    page = {"artifacts": [listed("a")], "pagination": {"total_items": total, "total_pages": 0}}
    answer = page["artifacts"] if total == "an array" else page
    far.answers[f"GET {TASKS}/task-1/artifacts"] = (200, answer)
    assert files(await all_of(agent.run(call()))) == {"a.txt": b"one"}
    assert far.calls("GET").count(f"GET {TASKS}/task-1/artifacts") <= (1 if total == "an array" else 2)


async def test_all_pages_of_a_list_are_read(far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the items are counted, because the Python SDK rounds `total_pages` down."""
    names = [f"f{number}" for number in range(5)]
    far.files = {name: name.encode() for name in names}

    def page(request_: str) -> dict[str, Any]:
        number = int(request_.partition("current_page=")[2].partition("&")[0])
        artifacts = [listed(name) for name in names[(number - 1) * 2 : number * 2]]
        return {"artifacts": artifacts, "pagination": {"total_items": 5, "total_pages": 0}}

    ordinary = far._answer  # pyright: ignore[reportPrivateUsage]

    def paged(method: str, path: str, body: Any) -> tuple[int, Any]:
        if (method, path) == ("GET", f"{TASKS}/task-1/artifacts"):
            return 200, page(far.requests[-1][0])
        return ordinary(method, path, body)

    monkeypatch.setattr(far, "_answer", paged)
    assert list(files(await all_of(agent.run(call())))) == [f"{name}.txt" for name in names]


@pytest.mark.parametrize(
    ("there", "fetched"),
    [
        ({"a": b"x" * 11, "b": b"x" * 10}, ["b.txt"]),
        ({}, []),
        ({"a": b"", "b": b"", "c": b"", "d": b""}, ["a.txt", "b.txt", "c.txt"]),
    ],
    ids=["one is over the limit", "none is there", "there are too many"],
)
async def test_missing_files_are_one_loss_and_the_run_continues(
    far: Far, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, there: dict[str, bytes], fetched: list[str]
) -> None:
    monkeypatch.setattr(task_module, "MAX_FILES", 3)
    far.files = there
    far.steps = [step("Done", artifacts=[listed(name) for name in there or "ab"])]
    events = await all_of(Client(far.url, http=http, file_limit=10).run(call()))
    assert (texts_of(events), list(files(events)), losses(events)) == (["Done"], fetched, ["artifact"])


@pytest.mark.parametrize(
    ("answer", "lost"), [((404, {"message": "no"}), []), ((500, b""), ["artifact"]), ((200, {"x": 1}), ["artifact"])]
)
async def test_an_unreadable_list_is_a_loss_unless_it_is_missing(
    far: Far, agent: Client, answer: tuple[int, Any], lost: list[str]
) -> None:
    far.answers[f"GET {TASKS}/task-1/artifacts"] = answer
    events = await all_of(agent.run(call()))
    assert (texts_of(events), losses(events)) == (["Hello"], lost)


# Contract and discovery


def test_the_client_accepts_all_declared_options() -> None:
    for value in upstream.options["steps"]:
        assert isinstance(upstream.client("http://far", "x", headers={}, timeout=1.0, steps=value), Client)


@pytest.mark.parametrize("kind", ["plain", "steps", "asking", "failing", "without a last"])
async def test_the_client_fulfills_the_contract_of_agents(far: Far, http: httpx.AsyncClient, kind: str) -> None:
    far.files = {"a": b"one"}
    ask = {**FROM_GATEWAY, "status": "input-required", "questions": [{"id": "q", "message": "Who?"}]}
    far.steps = {
        "plain": [step("Hello")],
        "steps": [step("One", name="one", last=False, artifacts=[listed("a")]), step("Two", name="two")],
        "asking": [step("Hm.\nWho?", last=False, additional_output=ask), step("Hello")],
        "failing": [step("One", last=False), (503, b"")],
        "without a last": [step("One", last=False)],
    }[kind]
    await check_agent(lambda: cast("Any", Reminded(Client(far.url, http=http))), bound=BOUND)


@pytest.mark.parametrize("path", ["/x", "/x/", "/x/ap/v1", "/x/ap/v1/", "/x/ap/v1/agent", "/x/ap/v1/agent/tasks"])
def test_a_url_can_contain_any_part_of_the_path(path: str) -> None:
    assert root_of(f"http://far{path}") == "http://far/x"


NAMELESS = ("agent", "agent", "1.0.0", "")
NO_PAGES: list[Any] = [b"<html>", {"name": ["x"]}, {"version": "2"}, []]
ABOUT = {"name": "My Agent/1", "protocol": 1, "version": "2.0", "description": "Writes."}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((200, ABOUT), ("my-agent-1", "My Agent/1", "2.0", "Writes.")),
        ((404, {"message": "no page"}), NAMELESS),
        *(((200, page), NAMELESS) for page in NO_PAGES),
    ],
)
async def test_the_agent_has_its_servers_description(
    far: Far, http: httpx.AsyncClient, answer: tuple[int, Any], expected: tuple[Any, ...]
) -> None:
    far.answers["GET /ap/v2/agent/info"] = answer
    [info] = await discover(f"{far.url}/", http, {"X-Key": "k"})
    assert (info.name, upstream_name(info), info.version, info.description) == expected
    assert not info.remembers
    assert {headers["x-key"] for _, headers, _ in far.requests} == {"k"}


@pytest.mark.parametrize("answer", [(200, {"agents": []}), (200, b"hello"), (404, {"detail": "Not Found"})])
async def test_a_server_without_a_task_list_is_no_aief_server(
    far: Far, http: httpx.AsyncClient, answer: tuple[int, Any]
) -> None:
    far.answers[f"GET {TASKS}"] = answer
    with pytest.raises(FaultError) as caught:
        await discover(far.url, http)
    assert caught.value.fault.code in (FaultCode.AGENT_INVALID, FaultCode.AGENT_FAILED)


async def test_closing_a_client_closes_its_connections(far: Far) -> None:
    agent = Client(far.url)
    assert texts_of(await all_of(agent.run(call()))) == ["Hello"]
    await agent.aclose()
    await agent.aclose()
    assert json.dumps(far.body(f"POST {TASKS}")) == '{"input": "Hi"}'
