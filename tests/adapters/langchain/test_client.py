"""An agent on another server of the family: what the client asks of it, and what it makes of its answers."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from babelgate.adapters.kit.client import driver
from babelgate.adapters.langchain.client import Client
from babelgate.adapters.langchain.client import resume as following
from babelgate.canonical import Event, FaultCode, FaultError, Invocation, Message, Record, RunStatus
from babelgate.canonical.agent import DETACH
from babelgate.canonical.event import (
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    RunEnded,
    StateSaved,
    UpstreamBound,
)
from babelgate.canonical.json import to_json
from tests.adapters.langchain.far import (
    RUN,
    STREAM,
    THREAD,
    Far,
    Frames,
    Kept,
    ai,
    call,
    checkpoint,
    chunk,
    human,
    interrupts,
    metadata,
    numbered,
    task,
)
from tests.driving import BOUND, all_of, fault_of, raised_fault

CREATE = "POST /threads/T/runs/stream"
RUN_PATH = "GET /threads/T/runs/R"
JOIN_STREAM = f"{RUN_PATH}/stream"
JOIN = f"{RUN_PATH}/join"
CANCEL = "POST /threads/T/runs/R/cancel"
SCHEMAS = "GET /assistants/T/schemas"
BOUND_IDS = {"thread": THREAD, "task": THREAD, "run": RUN}


def run_is(status: str, **more: Any) -> dict[str, Any]:
    return {"run_id": RUN, "thread_id": THREAD, "status": status, "metadata": {}, **more}


@pytest.fixture
def far() -> Far:
    far = Far()
    far.set("POST /assistants/search", [])
    far.set(CREATE, Frames(STREAM))
    far.set(RUN_PATH, run_is("success"))
    far.set(CANCEL, None, status=202)
    return far


@pytest.fixture
def agent(http: httpx.AsyncClient) -> Client:
    return Client("http://far", "graph", headers={"Authorization": "Bearer secret"}, http=http)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FIRST_WAIT", 0.0)


def words(events: Sequence[Event]) -> str:
    said = ""
    for event in events:
        if isinstance(event, PartDelta):
            said += event.text
        elif isinstance(event, PartAdded) and event.part.kind == "text":
            said += event.part.text
    return said


def of(kind: type, events: Sequence[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def records(*events: Event, run_id: str = "x") -> list[Record]:
    return [Record(n, n, "k", run_id, 1, event) for n, event in enumerate(events, 1)]


def answering(past: Sequence[Record], *answers: InterruptAnswered) -> Invocation:
    async def told() -> Sequence[Record]:
        return past

    return call(messages=(), cause="answer", answers=answers, upstream=BOUND_IDS, past=told)


# A run


async def test_a_run_is_asked_for_in_a_thread_of_its_own_with_all_that_can_be_heard(far: Far, agent: Client) -> None:
    given = call(data={"topic": "cats"}, config={"tags": ["a"], "configurable": {"user": 1, "thread_id": "no"}})
    events = await all_of(agent.run(given))
    assert words(events) == "one two three"
    [body] = far.bodies(CREATE)
    assert body["assistant_id"] == "graph"
    assert body["input"]["topic"] == "cats"
    assert [(m["type"], m["content"]) for m in body["input"]["messages"]] == [("human", "Hello")]
    assert body["stream_mode"] == ["values", "updates", "messages-tuple", "custom", "tasks", "checkpoints"]
    assert (body["stream_resumable"], body["stream_subgraphs"], body["on_disconnect"]) == (True, True, "continue")
    assert (body["if_not_exists"], body["multitask_strategy"]) == ("create", "enqueue")
    assert body["config"] == {"tags": ["a"], "configurable": {"user": 1}}
    assert all(headers["authorization"] == "Bearer secret" for _, headers, _ in far.asked)


@pytest.mark.parametrize("located", [True, False], ids=["Content-Location", "the first event"])
async def test_the_servers_ids_are_told_first(far: Far, agent: Client, located: bool) -> None:
    far.set(CREATE, Frames(STREAM, located=located))
    first = (await all_of(agent.run(call())))[0]
    assert isinstance(first, UpstreamBound)
    assert first.ids["run"] == RUN and first.ids["thread"] == first.ids["task"]


async def test_what_is_said_next_goes_into_the_same_thread(far: Far, agent: Client) -> None:
    far.set("GET /threads/T", {"thread_id": THREAD, "status": "idle"})
    await all_of(agent.run(call(upstream={"thread": THREAD})))
    assert CREATE in far.calls() and "if_not_exists" not in far.bodies(CREATE)[0]


BASIC = ["values", "updates", "messages-tuple", "custom"]
_VALUE = {"code": "invalid_enum_value", "received": "tasks", "options": BASIC, "path": ["stream_mode", 4]}
ZOD = {"success": False, "error": {"issues": [{"code": "invalid_union", "unionErrors": [{"issues": [_VALUE]}]}]}}
FASTAPI = {"detail": [{"loc": ["body", "stream_mode", "list", 4], "msg": "Input should be 'values' or 'updates'"}]}


@pytest.mark.parametrize(
    ("refusals", "takes"),
    [
        ([(422, {"detail": "stream_mode: invalid"})], BASIC),
        ([(422, {"detail": "no"})], BASIC),
        ([(400, {"detail": "Bad Request"})], BASIC),
        ([(400, ZOD)], BASIC),
        ([(422, FASTAPI), (422, FASTAPI)], ["values", "updates", "messages"]),
        ([(400, "unknown stream mode")] * 3, ["values"]),
    ],
)
async def test_a_server_is_asked_for_the_stream_modes_that_it_knows(
    far: Far, agent: Client, refusals: list[Any], takes: list[str]
) -> None:
    far.answers[CREATE] = [*refusals, (200, Frames(STREAM))]
    assert words(await all_of(agent.run(call()))) == "one two three"
    await all_of(agent.run(call()))
    asked = [body["stream_mode"] for body in far.bodies(CREATE)]
    assert asked[len(refusals) :] == [takes] * 2


@pytest.mark.parametrize(("refusal", "runs"), [({"detail": "No such tool"}, 2), (ZOD, 4)])
async def test_a_run_that_is_refused_in_every_form_is_told_why(
    far: Far, agent: Client, refusal: Any, runs: int
) -> None:
    far.set(CREATE, refusal, status=400)
    fault = await raised_fault(agent.run(call()))
    assert fault.code is FaultCode.AGENT_FAILED and ("No such tool" in fault.message or "tasks" in fault.message)
    assert len(far.bodies(CREATE)) == runs
    far.set(CREATE, Frames(STREAM))
    await all_of(agent.run(call()))
    assert len(far.bodies(CREATE)[-1]["stream_mode"]) == 6


@pytest.mark.parametrize("modes", ["events", ["values", "events"], ["values"]])
async def test_events_are_asked_for_where_the_caller_wants_them(far: Far, agent: Client, modes: Any) -> None:
    told: Any = {"event": "on_chain_start", "name": "graph", "data": {}}
    far.set(CREATE, Frames([*STREAM[:2], ("events", told), *STREAM[2:]]))
    events = await all_of(agent.run(call(extra={"langgraph": {"kwargs": {"stream_mode": modes}}})))
    assert ("events" in far.bodies(CREATE)[0]["stream_mode"]) is ("events" in modes)
    assert [(native.event, native.data) for native in of(Native, events)] == [("events", told)]
    assert words(events) == "one two three"


async def test_where_no_checkpoints_are_streamed_the_thread_tells_the_newest(far: Far, agent: Client) -> None:
    far.answers[CREATE] = [(400, ZOD), (200, Frames(STREAM))]
    place = {"thread_id": THREAD, "checkpoint_ns": ""}
    told: Any = {
        "values": {"messages": [human("Hello"), ai("one two three")]},
        "next": [],
        "metadata": {"source": "loop", "step": 1, "run_id": RUN},
        "checkpoint": {**place, "checkpoint_id": "c2"},
        "parent_checkpoint": {**place, "checkpoint_id": "c1"},
    }
    far.set("GET /threads/T/state", told)
    [saved] = of(StateSaved, await all_of(agent.run(call())))
    assert (saved.checkpoint_id, saved.parent_id, saved.next, saved.values) == ("c2", "c1", (), told["values"])
    far.set("GET /threads/T/state", {**told, "metadata": {"run_id": THREAD}})
    [saved] = of(StateSaved, await all_of(agent.run(call())))
    assert saved.checkpoint_id is None, "that state is one of another run"


ENDED = ("end", None)


@pytest.mark.parametrize("frames", [STREAM, [*STREAM, ENDED], numbered([*STREAM, ENDED])])
async def test_a_server_that_tells_of_no_runs_has_told_all_when_its_stream_ends(
    far: Far, agent: Client, frames: Any
) -> None:
    far.set(CREATE, Frames(frames))
    far.answers.pop(RUN_PATH)
    events = await all_of(agent.run(call()))
    assert words(events) == "one two three"
    assert of(RunEnded, events)[0].status is RunStatus.SUCCESS


@pytest.mark.parametrize("frames", [Frames(STREAM, cut=True), Frames(STREAM[:1])], ids=["cut", "nothing"])
async def test_a_stream_that_ends_out_of_order_is_no_success(far: Far, agent: Client, frames: Any) -> None:
    far.set(CREATE, frames)
    far.answers.pop(RUN_PATH)
    await raised_fault(agent.run(call()))


async def test_a_thread_is_created_where_no_run_creates_it(far: Far, agent: Client) -> None:
    far.answers[CREATE] = [(404, {"detail": "Thread not found"}), (200, Frames(STREAM))]
    far.set("POST /threads", {"thread_id": THREAD})
    events = await all_of(agent.run(call()))
    assert of(UpstreamBound, events)[0].ids["thread"] == THREAD
    assert ["if_not_exists" in body for body in far.bodies(CREATE)] == [True, False]


async def test_no_thread_is_created_for_an_agent_that_is_not_there(far: Far, agent: Client) -> None:
    far.set(CREATE, {"detail": "Thread or assistant not found."}, status=404)
    await raised_fault(agent.run(call()))
    assert "POST /threads" not in far.calls()


async def test_what_a_graph_takes_decides_where_a_text_goes(far: Far, agent: Client) -> None:
    schema = {"properties": {"topic": {"type": "string"}, "n": {"type": "integer"}}, "required": ["topic"]}
    far.set(SCHEMAS, {"graph_id": "graph", "input_schema": schema, "output_schema": {"properties": {"joke": {}}}})
    far.set(CREATE, Frames([metadata(), ("values", {"topic": "Hello", "joke": "Why?"})]))
    events = await all_of(agent.run(call()))
    assert far.bodies(CREATE)[0]["input"] == {"topic": "Hello"}
    assert (words(events), of(RunEnded, events)[0].output) == ("Why?", {"joke": "Why?"})


async def test_where_the_input_has_no_schema_the_states_decides(far: Far, agent: Client) -> None:
    """LangGraph's server gives null where it cannot describe the types of the input."""
    state = {"properties": {"topic": {"type": "string"}, "joke": {"type": "string"}}}
    far.set(SCHEMAS, {"input_schema": None, "output_schema": None, "state_schema": state})
    await all_of(agent.run(call()))
    assert far.bodies(CREATE)[0]["input"] == {"topic": "Hello"}


async def test_a_graph_that_takes_no_text_says_what_it_takes(far: Far, agent: Client) -> None:
    far.set(SCHEMAS, {"input_schema": {"properties": {"n": {"type": "integer"}}}})
    code, message = await fault_of(agent.run(call()))
    assert code is FaultCode.INVALID and "n" in message
    assert CREATE not in far.calls()


# Streams that break


GRAPH: list[tuple[str, Any]] = [
    metadata(),
    checkpoint({"messages": [human("Hello")]}, "c1", next=["model"]),
    task(),
    chunk("one "),
    chunk("two "),
    chunk("three", chunk_position="last"),
    checkpoint({"messages": [human("Hello"), ai("one two three")]}, "c2", parent="c1"),
]


@pytest.mark.parametrize("numbers", [(1, 2, 3, 4, 5, 6, 7), (1, 1, 1, 1, 1, 1, 1), (1, 1, 2, 2, 2, 3, 3)])
@pytest.mark.parametrize("heard", range(1, 8))
async def test_wherever_a_stream_breaks_it_goes_on_without_a_gap_or_a_repetition(
    far: Far, agent: Client, heard: int, numbers: Sequence[int]
) -> None:
    """LangGraph's development server gives events of one millisecond the same id."""
    frames = numbered(GRAPH, *numbers)
    far.set(CREATE, Frames(frames))
    whole = await all_of(agent.run(call()))
    far.set(CREATE, Frames(frames[:heard], cut=True))
    far.set(JOIN_STREAM, Kept(frames))
    cut = await all_of(agent.run(call()))
    assert [event.kind for event in cut] == [event.kind for event in whole]
    assert words(cut) == words(whole) == "one two three"


async def test_a_stream_that_breaks_again_and_again_is_heard_to_its_end(far: Far, agent: Client) -> None:
    frames = numbered(GRAPH)
    far.set(CREATE, Frames(frames[:2], cut=True))
    far.answers[JOIN_STREAM] = [(200, Frames(frames[n : n + 1], cut=True)) for n in range(2, 6)]
    far.then(JOIN_STREAM, Kept(frames))
    assert words(await all_of(agent.run(call()))) == "one two three"
    asked = [headers["last-event-id"] for path, headers, _ in far.asked if path == JOIN_STREAM]
    # Always one before the last that was heard: how many of the last there were is known here alone.
    assert asked == [frames[n][2] for n in range(5)]


WHOLE = {"messages": [human("Hello"), ai("one two three")]}


@pytest.mark.parametrize(
    "answers",
    [
        {
            CREATE: [Frames(numbered(STREAM)[:3])],
            RUN_PATH: [run_is("running"), run_is("success")],
            JOIN_STREAM: [Kept(numbered(STREAM))],
        },
        # A proxy that is replaced closes it, and then the run ends: all that is seen of it is a success.
        {CREATE: [Frames(numbered(GRAPH)[:4])], JOIN_STREAM: [Kept(numbered(GRAPH))]},
        {CREATE: [Frames(numbered(STREAM)[:3], cut=True)], JOIN: [WHOLE]},
        {
            CREATE: [Frames(STREAM[:4], cut=True)],
            RUN_PATH: [],
            "GET /threads/T": [{"thread_id": THREAD, "status": "idle", "values": WHOLE}],
        },
    ],
    ids=["the run goes on", "the last state is missing", "streams cannot be joined", "there are no single runs"],
)
async def test_the_rest_of_a_stream_that_ended_too_early_is_told(far: Far, agent: Client, answers: Any) -> None:
    for path, bodies in answers.items():
        far.set(path, *bodies)
    assert words(await all_of(agent.run(call()))) == "one two three"


@pytest.mark.parametrize("event_id", ["é", "x" * 20_000, "a\tb"])
async def test_an_id_that_no_header_can_hold_breaks_no_run(far: Far, agent: Client, event_id: str) -> None:
    far.set(CREATE, Frames([(*frame, event_id) for frame in STREAM[:4]], cut=True))
    far.set(JOIN, WHOLE)
    assert words(await all_of(agent.run(call()))) == "one two three"
    assert all(len(headers.get("last-event-id", "")) < 10 for _, headers, _ in far.asked)


async def test_of_a_server_that_keeps_no_streams_the_rest_is_told_from_the_state(far: Far, agent: Client) -> None:
    far.set(CREATE, Frames(STREAM[:4], cut=True))
    far.answers[RUN_PATH] = [(200, run_is("running")), (200, run_is("success"))]
    far.set(JOIN, {"messages": [human("Hello"), ai("one two three"), ai(" And more.", "m2")]})
    events = await all_of(agent.run(call()))
    assert words(events) == "one two three And more."
    assert len(of(MessageStarted, events)) == 2


async def test_a_question_that_was_asked_while_nobody_heard_is_asked(far: Far, agent: Client) -> None:
    """The join of a run that has ended holds nothing but its questions."""
    far.set(CREATE, Frames(STREAM[:1], cut=True))
    far.set(JOIN, interrupts("Name?"))
    [question] = of(InterruptRaised, await all_of(agent.run(call())))
    assert question.message.text == "Name?"


@pytest.mark.parametrize(
    ("left", "told"),
    [
        ([1, 2], "not a JSON object"),
        ("done", "not a JSON object"),
        (7, "not a JSON object"),
        (b"<html>hello</html>", "JSON"),
    ],
)
async def test_what_a_run_left_behind_that_is_no_state_is_the_agents_fault(
    far: Far, agent: Client, left: Any, told: str
) -> None:
    far.set(CREATE, Frames(STREAM[:4], cut=True))
    far.set(JOIN, left)
    code, message = await fault_of(agent.run(call()))
    assert code is FaultCode.AGENT_INVALID
    assert told in message


async def test_an_agent_that_is_gone_is_unreachable_after_a_bounded_number_of_tries(far: Far, agent: Client) -> None:
    far.set(CREATE, Frames(numbered(STREAM)[:3], cut=True))
    far.set(JOIN_STREAM, Frames([], cut=True))
    far.set(RUN_PATH, b"<html>bad gateway</html>", status=502)
    code, _ = await fault_of(agent.run(call()))
    assert code is FaultCode.AGENT_UNREACHABLE
    assert len([path for path in far.calls() if path.startswith(RUN_PATH)]) < 15


async def test_a_run_that_never_ends_its_silence_is_given_up(far: Far, agent: Client) -> None:
    far.set(CREATE, Frames(numbered(STREAM)[:3]))
    far.set(JOIN_STREAM, Frames([]))
    far.set(RUN_PATH, run_is("running"))
    code, _ = await fault_of(agent.run(call()))
    assert code is FaultCode.AGENT_INVALID


# What a run comes to


async def test_the_upstreams_error_keeps_its_name(far: Far, agent: Client) -> None:
    far.set(CREATE, Frames([*STREAM[:3], ("error", {"error": "ValueError", "message": "No."})]))
    fault = await raised_fault(agent.run(call()))
    assert (fault.code, fault.message) == (FaultCode.AGENT_FAILED, "No.")
    assert fault.details == {"langchain": {"error": "ValueError"}, "status": 200}
    assert CANCEL not in far.calls()


async def test_an_error_that_no_event_told_is_found_where_the_run_is_joined(far: Far, agent: Client) -> None:
    far.set(RUN_PATH, run_is("error"))
    far.set(JOIN, {"__error__": {"error": "GraphRecursionError", "message": "Too deep"}})
    assert await fault_of(agent.run(call())) == (FaultCode.AGENT_FAILED, "Too deep")


@pytest.mark.parametrize(
    ("status", "ended"),
    [("interrupted", RunStatus.CANCELLED), ("cancelled", RunStatus.CANCELLED), ("timeout", RunStatus.TIMEOUT)],
)
async def test_a_run_that_the_server_ended_has_ended(far: Far, agent: Client, status: str, ended: RunStatus) -> None:
    far.set(RUN_PATH, run_is(status))
    assert to_json((await all_of(agent.run(call())))[-1])["status"] == ended
    assert CANCEL not in far.calls()


@pytest.mark.parametrize("told", [run_is("paused-ish"), [1, 2]])
async def test_a_run_whose_status_nobody_knows_is_the_agents_fault(far: Far, agent: Client, told: Any) -> None:
    far.set(RUN_PATH, told)
    assert (await fault_of(agent.run(call())))[0] is FaultCode.AGENT_INVALID


async def test_a_server_that_calls_its_asking_runs_interrupted_asks_all_the_same(far: Far, agent: Client) -> None:
    """aegra: a run that asks is interrupted, and the stream has an end."""
    frames = [metadata(), ("updates", interrupts("Name?")), ("end", {"status": "interrupted"})]
    far.set(CREATE, Frames(frames))
    far.set(RUN_PATH, run_is("interrupted"))
    [question] = of(InterruptRaised, await all_of(agent.run(call())))
    assert question.message.text == "Name?"


async def test_usage_and_losses_of_a_gateway_like_this_one_are_told_on(far: Far, agent: Client) -> None:
    about = {"usage": {"input_tokens": 1}, "loss": {"reasoning": "no form in A2A 0.3"}}
    far.set(RUN_PATH, run_is("success", metadata={"babelgate": about}))
    events = await all_of(agent.run(call()))
    assert of(RunEnded, events)[0].usage == {"input_tokens": 1}
    assert [(loss.feature, loss.how) for loss in of(LossNoted, events)] == [("reasoning", "no form in A2A 0.3")]


@pytest.mark.parametrize("messages", [{}, {"messages": []}])
@pytest.mark.parametrize(
    ("named", "output"), [(["n", "of"], {"n": 1, "of": None}), (["n", "gone"], ...), ("n", ...), ([7], ...)]
)
async def test_the_output_of_a_gateway_like_this_one_are_the_members_of_the_state_that_it_names(
    far: Far, agent: Client, named: Any, output: Any, messages: Any
) -> None:
    values = {**messages, "n": 1, "of": None, "note": 2}
    far.set(CREATE, Frames([metadata(), ("values", values)]))
    far.set(RUN_PATH, run_is("success", metadata={"babelgate": {"output": named}}))
    told = of(RunEnded, await all_of(agent.run(call())))[0].output
    assert told == ((None if messages else values) if output is ... else output)


# Answers


def asked(*ids: str | None, **more: Any) -> list[Record]:
    events = [
        InterruptRaised(interrupt_id=i or "minted", extra={"langchain": {"id": i.partition("+")[0]} if i else {}})
        for i in ids
    ]
    return records(*events, run_id="before")


def reply(interrupt_id: str, value: Any, action: Any = "answer") -> InterruptAnswered:
    return InterruptAnswered(interrupt_id=interrupt_id, value=value, action=action)


A, B = "a" * 32, "b" * 32


@pytest.mark.parametrize(
    ("past", "answers", "resume"),
    [
        (asked(A), [reply(A, "Ada")], "Ada"),
        (asked(A), [reply(A, {"approved": True})], {"approved": True}),
        (asked(A), [reply(A, None)], {A: None}),
        (asked(A), [reply(A, {})], {A: {}}),
        (asked(A), [reply(A, {B: 1})], {A: {B: 1}}),
        (asked(A), [reply(A, "x", "decline")], {A: None}),
        (asked(A, B), [reply(A, 1), reply(B, 2)], {A: 1, B: 2}),
        (asked(f"{A}+2"), [reply(f"{A}+2", "again")], "again"),
        (asked(None), [reply("minted", "Ada")], "Ada"),
    ],
)
async def test_answers_go_to_the_questions_under_the_servers_own_ids(
    far: Far, agent: Client, past: list[Record], answers: list[InterruptAnswered], resume: Any
) -> None:
    await all_of(agent.run(answering(past, *answers)))
    [body] = far.bodies(CREATE)
    assert body["command"] == {"resume": resume} and "input" not in body and "if_not_exists" not in body


async def test_a_refusal_to_answer_is_noted_as_what_becomes_of_it(agent: Client) -> None:
    events = await all_of(agent.run(answering(asked(A), reply(A, None, "decline"))))
    assert [loss.feature for loss in of(LossNoted, events)] == ["question"]


async def test_a_breakpoint_that_is_answered_goes_on_with_no_input(far: Far, agent: Client) -> None:
    past = records(InterruptRaised(interrupt_id="breakpoint-c1", extra={"langchain": {"breakpoint": True}}))
    await all_of(agent.run(answering(past, reply("breakpoint-c1", "whatever"))))
    [body] = far.bodies(CREATE)
    assert body["input"] is None and "command" not in body


async def test_an_answer_for_a_thread_that_was_never_told_is_the_agents_fault(agent: Client) -> None:
    given = replace(answering(asked(A), reply(A, 1)), upstream={})
    assert (await fault_of(agent.run(given)))[0] is FaultCode.AGENT_INVALID


# Inputs


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"messages": ()}, None),
        ({"messages": (), "data": {}}, {}),
        ({"messages": (), "data": {"topic": "cats"}}, {"topic": "cats"}),
        ({"messages": (), "config": {"command": {"goto": "x"}}}, None),
        ({"messages": (), "data": {}, "config": {"command": {"goto": "x"}}}, {}),
    ],
)
@pytest.mark.parametrize("more", [{}, {"checkpoint": "c1", "upstream": {"thread": THREAD}}])
async def test_no_input_reaches_the_server_as_null_and_an_empty_one_as_empty(
    far: Far, agent: Client, given: dict[str, Any], sent: Any, more: dict[str, Any]
) -> None:
    far.set("GET /threads/T", {"thread_id": THREAD, "status": "idle"})
    await all_of(agent.run(call(**given, **more)))
    [body] = far.bodies(CREATE)
    assert (body["input"], body.get("checkpoint_id")) == (sent, more.get("checkpoint"))


async def test_a_thread_that_waits_is_asked_again_in_place(far: Far, agent: Client) -> None:
    far.set("GET /threads/T", {"thread_id": THREAD, "status": "interrupted"})
    events = await all_of(agent.run(call(messages=(), upstream={"thread": THREAD})))
    assert of(UpstreamBound, events)[0].ids["thread"] == THREAD
    assert "POST /threads/T/copy" not in far.calls()


# Threads


async def test_a_thread_that_the_server_has_forgotten_begins_anew_and_the_loss_is_noted(
    far: Far, agent: Client
) -> None:
    far.set("GET /threads/T", {"detail": "Thread with ID … not found"}, status=404)
    events = await all_of(agent.run(call(upstream={"thread": THREAD})))
    assert [loss.feature for loss in of(LossNoted, events)] == ["history"]
    assert isinstance(events[0], UpstreamBound) and events[0].ids["thread"] != THREAD


async def test_new_input_does_not_take_away_the_question_that_a_thread_waits_with(far: Far, agent: Client) -> None:
    waits = {"thread_id": THREAD, "status": "interrupted", "interrupts": {"t1": [{"value": "?", "id": A}]}}
    copy = "33333333-3333-4333-8333-333333333333"
    far.set("GET /threads/T", waits)
    far.set("POST /threads/T/copy", {"thread_id": copy, "status": "idle"})
    first = (await all_of(agent.run(call(upstream={"thread": THREAD}))))[0]
    assert isinstance(first, UpstreamBound) and first.ids["thread"] == copy


async def test_a_thread_whose_run_was_cancelled_is_no_thread_that_waits(far: Far, agent: Client) -> None:
    far.set("GET /threads/T", {"thread_id": THREAD, "status": "interrupted", "interrupts": {}})
    await all_of(agent.run(call(upstream={"thread": THREAD})))
    assert "POST /threads/T/copy" not in far.calls()


async def test_a_server_that_copies_nothing_goes_on_in_the_thread(far: Far, agent: Client) -> None:
    far.set("GET /threads/T", {"thread_id": THREAD, "status": "interrupted"})
    assert words(await all_of(agent.run(call(upstream={"thread": THREAD})))) == "one two three"


async def test_a_branch_is_told_what_was_said_before_it_in_a_thread_of_its_own(far: Far, agent: Client) -> None:
    history = (Message.of("Before", "user"), Message.of("Then", "agent"))
    far.set(CREATE, Frames(GRAPH))
    events = await all_of(agent.run(call(checkpoint="old", history=history)))
    [body] = far.bodies(CREATE)
    told = [(m["type"], m["content"]) for m in body["input"]["messages"]]
    assert told == [("human", "Before"), ("ai", "Then"), ("human", "Hello")]
    assert "checkpoint_id" not in body and body["if_not_exists"] == "create"
    assert [loss.feature for loss in of(LossNoted, events)] == ["fork"]
    assert of(StateSaved, events)[0].parent_id == "old"


async def test_a_branch_of_a_thread_that_is_known_starts_from_its_checkpoint(far: Far, agent: Client) -> None:
    far.set("GET /threads/T", {"thread_id": THREAD, "status": "idle"})
    await all_of(agent.run(call(checkpoint="c1", upstream={"thread": THREAD})))
    assert far.bodies(CREATE)[0]["checkpoint_id"] == "c1"


# Cancels


async def heard(agent: Client, events: int) -> AsyncGenerator[Event]:
    stream = agent.run(call())
    for _ in range(events):
        await anext(stream)
    return stream


@pytest.mark.parametrize("answer", [(202, None), (404, {"detail": "No matching runs to cancel."})])
async def test_whoever_stops_listening_cancels(far: Far, agent: Client, answer: tuple[int, Any]) -> None:
    far.set(CREATE, Frames(STREAM[:3], holds=True))
    far.answers[CANCEL] = [answer]
    await (await heard(agent, 3)).aclose()
    assert far.calls()[-1] == CANCEL


async def test_a_gateway_that_will_be_back_leaves_the_run_alone(far: Far, agent: Client) -> None:
    far.set(CREATE, Frames(STREAM[:3], holds=True))
    stream = await heard(agent, 3)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    waiting.cancel(DETACH)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert CANCEL not in far.calls()


async def test_a_run_that_was_created_and_never_heard_of_is_found_and_cancelled(far: Far, agent: Client) -> None:
    """The caller leaves while the server is creating it."""
    far.set(CREATE, Frames([], holds=True, located=False))
    far.set("GET /threads/T/runs", [run_is("running", metadata={"gateway_run": "x"})])
    waiting = asyncio.ensure_future(all_of(agent.run(call())))
    async with asyncio.timeout(BOUND):
        while CREATE not in far.calls():  # noqa: ASYNC110  nobody tells of it
            await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert far.calls()[-2:] == ["GET /threads/T/runs", CANCEL]


async def test_a_server_that_does_not_hear_of_a_cancel_holds_nobody_up(
    far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "CANCEL_TIMEOUT", 0.05)
    far.set(CREATE, Frames(STREAM[:3], holds=True))
    far.set(CANCEL, Frames([], holds=True))
    async with asyncio.timeout(BOUND):
        await (await heard(agent, 3)).aclose()


# Re-attaching


def attached(said: Sequence[Event]) -> Invocation:
    past = records(*said)

    async def told() -> Sequence[Record]:
        return past

    return call(upstream=BOUND_IDS, past=told)


async def test_a_run_is_told_again_from_its_start(far: Far, agent: Client) -> None:
    frames = numbered(GRAPH)
    far.set(CREATE, Frames(frames))
    far.set(JOIN_STREAM, Kept(frames))
    whole = await all_of(agent.run(call()))
    again = await all_of(agent.reattach(attached(whole[:4])))
    assert again == whole
    assert far.asked[-2][1]["last-event-id"] == "-1"


async def test_of_a_run_whose_stream_is_gone_the_rest_is_told_from_the_state(far: Far, agent: Client) -> None:
    whole = await all_of(agent.run(call()))
    far.set(JOIN_STREAM, Frames([]))
    far.set(JOIN, {"messages": [human("Hello"), ai("one two three")]})
    again = await all_of(agent.reattach(attached(whole[:3])))
    assert again[:3] == whole[:3]
    assert words(again) == "one two three"
    assert len(of(MessageStarted, again)) == 1


async def test_a_run_that_was_never_known_cannot_be_attached_to(agent: Client) -> None:
    assert (await fault_of(agent.reattach(call())))[0] is FaultCode.AGENT_INVALID


async def test_a_run_that_the_server_does_not_know_any_more_is_the_agents_fault(far: Far, agent: Client) -> None:
    """LangGraph answers 200, and tells it in the stream."""
    told = ("error", {"error": "HTTPException", "message": "404: Run not found"})
    far.set(JOIN_STREAM, Frames([told]))
    assert await fault_of(agent.reattach(attached([]))) == (FaultCode.AGENT_FAILED, "404: Run not found")


# States that callers make


async def test_a_state_is_changed_where_it_is_kept(far: Far, agent: Client) -> None:
    far.set("POST /threads/T/state", {"checkpoint_id": "c9"})
    state = {"values": {"a": 1}, "next": ["x"], "metadata": {"source": "update", "step": 3}}
    far.set("GET /threads/T/state", {**state, "checkpoint": {"checkpoint_id": "c9"}, "parent_checkpoint": None})
    given = call(cause="update", data={"a": 1}, checkpoint="c8", upstream={"thread": THREAD})
    saved = await agent.update_state(given, removed_ids=("m1",), as_node="plan")
    assert (saved.checkpoint_id, saved.values, saved.next, saved.step) == ("c9", {"a": 1}, ("x",), 3)
    [body] = far.bodies("POST /threads/T/state")
    assert (body["checkpoint_id"], body["as_node"], body["values"]["a"]) == ("c8", "plan", 1)
    assert [(m["type"], m.get("id")) for m in body["values"]["messages"]] == [("remove", "m1"), ("human", None)]


async def test_a_state_that_is_nowhere_yet_cannot_be_changed(agent: Client) -> None:
    with pytest.raises(FaultError) as caught:
        await agent.update_state(call(cause="update", data={"a": 1}))
    assert caught.value.fault.code is FaultCode.UNSUPPORTED


# Servers that break the protocol


@pytest.mark.parametrize(
    ("status", "body", "code", "told"),
    [
        (404, {"detail": "Thread or assistant not found."}, FaultCode.AGENT_FAILED, "Thread or assistant not found."),
        (422, {"detail": [{"loc": ["body"], "msg": "no input"}]}, FaultCode.AGENT_FAILED, "no input"),
        (400, {"error": "Key is required"}, FaultCode.AGENT_FAILED, "Key is required"),
        (409, {"code": "conflict", "message": "busy"}, FaultCode.AGENT_FAILED, "busy"),
        (422, "text", FaultCode.AGENT_FAILED, "text"),
        (500, b"Internal Server Error", FaultCode.AGENT_FAILED, "500"),
        (503, b"<html>", FaultCode.AGENT_UNREACHABLE, "503"),
        (504, b"<html>", FaultCode.AGENT_TIMEOUT, "504"),
        (307, None, FaultCode.AGENT_FAILED, "307"),
        (401, {"detail": None}, FaultCode.AGENT_FAILED, "401"),
        (404, {"detail": {"a": []}}, FaultCode.AGENT_FAILED, "404"),
        (200, {"messages": []}, FaultCode.AGENT_INVALID, "stream"),
        (200, Frames([b"event: values\ndata: {\n\n"]), FaultCode.AGENT_INVALID, "JSON"),
        (200, Frames([b'event: values\ndata: {"a": NaN}\n\n']), FaultCode.AGENT_INVALID, "JSON"),
        (200, Frames([b"event: values\ndata: \xff\xfe\n\n"]), FaultCode.AGENT_INVALID, "JSON"),
        (200, Frames([("tasks", {"id": 5})]), FaultCode.AGENT_INVALID, "protocol"),
        (200, Frames([], located=False), FaultCode.AGENT_INVALID, "run"),
        (200, Frames([], cut=True, located=False), FaultCode.AGENT_UNREACHABLE, "reached"),
    ],
)
async def test_whatever_a_server_answers_the_run_fails_and_says_why(
    far: Far, agent: Client, status: int, body: Any, code: FaultCode, told: str
) -> None:
    far.set(CREATE, body, status=status)
    found, message = await fault_of(agent.run(call()))
    assert found is code and told in message


async def test_an_answer_in_pretty_print_over_several_lines_is_read(far: Far, agent: Client) -> None:
    """The JavaScript server writes its data so."""
    pretty = b'event: values\r\ndata: {\r\ndata:   "messages": []\r\ndata: }\r\nid: 7\r\n\r\n'
    far.set(CREATE, Frames([STREAM[0], pretty, *STREAM[2:]]))
    assert words(await all_of(agent.run(call()))) == "one two three"


@pytest.mark.parametrize("run_id", ["../../secrets", "..", "a/b", "a?b", "a b", "", "a\nb", "x" * 1000])
async def test_an_id_of_the_servers_is_never_a_way_to_elsewhere(far: Far, agent: Client, run_id: str) -> None:
    far.set(CREATE, Frames([("metadata", {"run_id": run_id})], located=False))
    code, _ = await fault_of(agent.run(call()))
    assert code is FaultCode.AGENT_INVALID
    assert far.calls()[-1] in (CREATE, "GET /threads/T/runs")
