"""Client of LangGraph servers and of the Agent Protocol: its requests, and what it reads from the answers."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from babelgate.adapters.kit.client import driver
from babelgate.adapters.langchain.client import Client, resume
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
    Resumable,
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
def without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "FIRST_WAIT", 0.0)


def text_of(events: Sequence[Event]) -> str:
    text = ""
    for event in events:
        if isinstance(event, PartDelta):
            text += event.text
        elif isinstance(event, PartAdded) and event.part.kind == "text":
            text += event.part.text
    return text


def of_kind(kind: type, events: Sequence[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def records(*events: Event, run_id: str = "x") -> list[Record]:
    return [Record(n, n, "k", run_id, 1, event) for n, event in enumerate(events, 1)]


def answer_call(past: Sequence[Record], *answers: InterruptAnswered) -> Invocation:
    async def read_past() -> Sequence[Record]:
        return past

    return call(messages=(), cause="answer", answers=answers, upstream=BOUND_IDS, past=read_past)


# A run


async def test_a_run_is_created_with_a_thread_and_all_modes(far: Far, agent: Client) -> None:
    invocation = call(data={"topic": "cats"}, config={"tags": ["a"], "configurable": {"user": 1, "thread_id": "no"}})
    events = await all_of(agent.run(invocation))
    assert text_of(events) == "one two three"
    [body] = far.bodies(CREATE)
    assert body["assistant_id"] == "graph"
    assert body["input"]["topic"] == "cats"
    assert [(m["type"], m["content"]) for m in body["input"]["messages"]] == [("human", "Hello")]
    assert body["stream_mode"] == ["values", "updates", "messages-tuple", "custom", "tasks", "checkpoints"]
    assert (body["stream_resumable"], body["stream_subgraphs"], body["on_disconnect"]) == (True, True, "continue")
    assert (body["if_not_exists"], body["multitask_strategy"]) == ("create", "enqueue")
    assert body["config"] == {"tags": ["a"], "configurable": {"user": 1}}
    assert all(headers["authorization"] == "Bearer secret" for _, headers, _ in far.requests)


@pytest.mark.parametrize("located", [True, False], ids=["Content-Location", "the first event"])
async def test_the_first_event_has_the_servers_ids(far: Far, agent: Client, located: bool) -> None:
    far.set(CREATE, Frames(STREAM, located=located))
    first = (await all_of(agent.run(call())))[0]
    assert isinstance(first, UpstreamBound)
    assert first.ids["run"] == RUN and first.ids["thread"] == first.ids["task"]


async def test_a_second_input_goes_into_the_same_thread(far: Far, agent: Client) -> None:
    far.set("GET /threads/T", {"thread_id": THREAD, "status": "idle"})
    await all_of(agent.run(call(upstream={"thread": THREAD})))
    assert CREATE in far.calls() and "if_not_exists" not in far.bodies(CREATE)[0]


BASIC = ["values", "updates", "messages-tuple", "custom"]
_VALUE = {"code": "invalid_enum_value", "received": "tasks", "options": BASIC, "path": ["stream_mode", 4]}
ZOD = {"success": False, "error": {"issues": [{"code": "invalid_union", "unionErrors": [{"issues": [_VALUE]}]}]}}
FASTAPI = {"detail": [{"loc": ["body", "stream_mode", "list", 4], "msg": "Input should be 'values' or 'updates'"}]}


@pytest.mark.parametrize(
    ("refusals", "modes"),
    [
        ([(422, {"detail": "stream_mode: invalid"})], BASIC),
        ([(422, {"detail": "no"})], BASIC),
        ([(400, {"detail": "Bad Request"})], BASIC),
        ([(400, ZOD)], BASIC),
        ([(422, FASTAPI), (422, FASTAPI)], ["values", "updates", "messages"]),
        ([(400, "unknown stream mode")] * 3, ["values"]),
    ],
)
async def test_rejected_stream_modes_are_not_requested_again(
    far: Far, agent: Client, refusals: list[Any], modes: list[str]
) -> None:
    far.answers[CREATE] = [*refusals, (200, Frames(STREAM))]
    assert text_of(await all_of(agent.run(call()))) == "one two three"
    await all_of(agent.run(call()))
    requested = [body["stream_mode"] for body in far.bodies(CREATE)]
    assert requested[len(refusals) :] == [modes] * 2


@pytest.mark.parametrize(("refusal", "runs"), [({"detail": "No such tool"}, 2), (ZOD, 4)])
async def test_a_run_rejected_in_every_form_has_the_reason(far: Far, agent: Client, refusal: Any, runs: int) -> None:
    far.set(CREATE, refusal, status=400)
    fault = await raised_fault(agent.run(call()))
    assert fault.code is FaultCode.AGENT_FAILED and ("No such tool" in fault.message or "tasks" in fault.message)
    assert len(far.bodies(CREATE)) == runs
    far.set(CREATE, Frames(STREAM))
    await all_of(agent.run(call()))
    assert len(far.bodies(CREATE)[-1]["stream_mode"]) == 6


@pytest.mark.parametrize("modes", ["events", ["values", "events"], ["values"]])
async def test_events_are_requested_if_the_caller_wants_them(far: Far, agent: Client, modes: Any) -> None:
    event: Any = {"event": "on_chain_start", "name": "graph", "data": {}}
    far.set(CREATE, Frames([*STREAM[:2], ("events", event), *STREAM[2:]]))
    events = await all_of(agent.run(call(extra={"langgraph": {"kwargs": {"stream_mode": modes}}})))
    assert ("events" in far.bodies(CREATE)[0]["stream_mode"]) is ("events" in modes)
    assert [(native.event, native.data) for native in of_kind(Native, events)] == [("events", event)]
    assert text_of(events) == "one two three"


async def test_without_streamed_checkpoints_the_state_is_read(far: Far, agent: Client) -> None:
    far.answers[CREATE] = [(400, ZOD), (200, Frames(STREAM))]
    place = {"thread_id": THREAD, "checkpoint_ns": ""}
    state: Any = {
        "values": {"messages": [human("Hello"), ai("one two three")]},
        "next": [],
        "metadata": {"source": "loop", "step": 1, "run_id": RUN},
        "checkpoint": {**place, "checkpoint_id": "c2"},
        "parent_checkpoint": {**place, "checkpoint_id": "c1"},
    }
    far.set("GET /threads/T/state", state)
    [saved] = of_kind(StateSaved, await all_of(agent.run(call())))
    assert (saved.checkpoint_id, saved.parent_id, saved.next, saved.values) == ("c2", "c1", (), state["values"])
    far.set("GET /threads/T/state", {**state, "metadata": {"run_id": THREAD}})
    [saved] = of_kind(StateSaved, await all_of(agent.run(call())))
    assert saved.checkpoint_id is None, "the state belongs to another run"


ENDED = ("end", None)


@pytest.mark.parametrize("frames", [STREAM, [*STREAM, ENDED], numbered([*STREAM, ENDED])])
async def test_without_run_status_the_end_of_stream_is_success(far: Far, agent: Client, frames: Any) -> None:
    far.set(CREATE, Frames(frames))
    far.answers.pop(RUN_PATH)
    events = await all_of(agent.run(call()))
    assert text_of(events) == "one two three"
    assert of_kind(RunEnded, events)[0].status is RunStatus.SUCCESS


@pytest.mark.parametrize("frames", [Frames(STREAM, cut=True), Frames(STREAM[:1])], ids=["cut", "nothing"])
async def test_without_run_status_a_cut_stream_is_a_fault(far: Far, agent: Client, frames: Any) -> None:
    far.set(CREATE, frames)
    far.answers.pop(RUN_PATH)
    await raised_fault(agent.run(call()))


async def test_a_thread_is_created_if_runs_do_not_create_it(far: Far, agent: Client) -> None:
    far.answers[CREATE] = [(404, {"detail": "Thread not found"}), (200, Frames(STREAM))]
    far.set("POST /threads", {"thread_id": THREAD})
    events = await all_of(agent.run(call()))
    assert of_kind(UpstreamBound, events)[0].ids["thread"] == THREAD
    assert ["if_not_exists" in body for body in far.bodies(CREATE)] == [True, False]


async def test_no_thread_is_created_for_an_unknown_agent(far: Far, agent: Client) -> None:
    far.set(CREATE, {"detail": "Thread or assistant not found."}, status=404)
    await raised_fault(agent.run(call()))
    assert "POST /threads" not in far.calls()


async def test_the_input_schema_decides_which_member_gets_the_text(far: Far, agent: Client) -> None:
    schema = {"properties": {"topic": {"type": "string"}, "n": {"type": "integer"}}, "required": ["topic"]}
    far.set(SCHEMAS, {"graph_id": "graph", "input_schema": schema, "output_schema": {"properties": {"joke": {}}}})
    far.set(CREATE, Frames([metadata(), ("values", {"topic": "Hello", "joke": "Why?"})]))
    events = await all_of(agent.run(call()))
    assert far.bodies(CREATE)[0]["input"] == {"topic": "Hello"}
    assert (text_of(events), of_kind(RunEnded, events)[0].output) == ("Why?", {"joke": "Why?"})


async def test_without_input_schema_the_state_schema_decides(far: Far, agent: Client) -> None:
    """Use the state's schema, because LangGraph's server sends null if it cannot describe the input's types."""
    state = {"properties": {"topic": {"type": "string"}, "joke": {"type": "string"}}}
    far.set(SCHEMAS, {"input_schema": None, "output_schema": None, "state_schema": state})
    await all_of(agent.run(call()))
    assert far.bodies(CREATE)[0]["input"] == {"topic": "Hello"}


async def test_text_for_a_graph_without_text_input_is_rejected(far: Far, agent: Client) -> None:
    far.set(SCHEMAS, {"input_schema": {"properties": {"n": {"type": "integer"}}}})
    code, message = await fault_of(agent.run(call()))
    assert code is FaultCode.INVALID and "n" in message
    assert CREATE not in far.calls()


# Broken streams


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
@pytest.mark.parametrize("frames_read", range(1, 8))
async def test_a_broken_stream_is_resumed_without_gap_or_repetition(
    far: Far, agent: Client, frames_read: int, numbers: Sequence[int]
) -> None:
    """Resume with repeated ids: LangGraph's development server gives events of one millisecond the same id."""
    frames = numbered(GRAPH, *numbers)
    far.set(CREATE, Frames(frames))
    whole = await all_of(agent.run(call()))
    far.set(CREATE, Frames(frames[:frames_read], cut=True))
    far.set(JOIN_STREAM, Resumable(frames))
    cut = await all_of(agent.run(call()))
    assert [event.kind for event in cut] == [event.kind for event in whole]
    assert text_of(cut) == text_of(whole) == "one two three"


async def test_a_stream_that_breaks_repeatedly_is_read_completely(far: Far, agent: Client) -> None:
    frames = numbered(GRAPH)
    far.set(CREATE, Frames(frames[:2], cut=True))
    far.answers[JOIN_STREAM] = [(200, Frames(frames[n : n + 1], cut=True)) for n in range(2, 6)]
    far.then(JOIN_STREAM, Resumable(frames))
    assert text_of(await all_of(agent.run(call()))) == "one two three"
    last_ids = [headers["last-event-id"] for path, headers, _ in far.requests if path == JOIN_STREAM]
    # The id before the last one, because only the client knows how many events with the last id it has read.
    assert last_ids == [frames[n][2] for n in range(5)]


WHOLE = {"messages": [human("Hello"), ai("one two three")]}


@pytest.mark.parametrize(
    "answers",
    [
        {
            CREATE: [Frames(numbered(STREAM)[:3])],
            RUN_PATH: [run_is("running"), run_is("success")],
            JOIN_STREAM: [Resumable(numbered(STREAM))],
        },
        # A replaced proxy closes the stream, and then the run ends: the client sees only its success.
        {CREATE: [Frames(numbered(GRAPH)[:4])], JOIN_STREAM: [Resumable(numbered(GRAPH))]},
        {CREATE: [Frames(numbered(STREAM)[:3], cut=True)], JOIN: [WHOLE]},
        {
            CREATE: [Frames(STREAM[:4], cut=True)],
            RUN_PATH: [],
            "GET /threads/T": [{"thread_id": THREAD, "status": "idle", "values": WHOLE}],
        },
    ],
    ids=["the run continues", "the last state is missing", "streams cannot be joined", "runs cannot be read"],
)
async def test_the_rest_of_a_stream_that_ended_early_is_read(far: Far, agent: Client, answers: Any) -> None:
    for path, bodies in answers.items():
        far.set(path, *bodies)
    assert text_of(await all_of(agent.run(call()))) == "one two three"


@pytest.mark.parametrize("event_id", ["é", "x" * 20_000, "a\tb"])
async def test_an_event_id_invalid_in_headers_is_not_sent(far: Far, agent: Client, event_id: str) -> None:
    far.set(CREATE, Frames([(*frame, event_id) for frame in STREAM[:4]], cut=True))
    far.set(JOIN, WHOLE)
    assert text_of(await all_of(agent.run(call()))) == "one two three"
    assert all(len(headers.get("last-event-id", "")) < 10 for _, headers, _ in far.requests)


async def test_without_resumable_streams_the_rest_is_read_from_the_state(far: Far, agent: Client) -> None:
    far.set(CREATE, Frames(STREAM[:4], cut=True))
    far.answers[RUN_PATH] = [(200, run_is("running")), (200, run_is("success"))]
    far.set(JOIN, {"messages": [human("Hello"), ai("one two three"), ai(" And more.", "m2")]})
    events = await all_of(agent.run(call()))
    assert text_of(events) == "one two three And more."
    assert len(of_kind(MessageStarted, events)) == 2


async def test_a_question_after_the_break_is_raised(far: Far, agent: Client) -> None:
    """Read the question from the join, which has only the questions of an ended run."""
    far.set(CREATE, Frames(STREAM[:1], cut=True))
    far.set(JOIN, interrupts("Name?"))
    [question] = of_kind(InterruptRaised, await all_of(agent.run(call())))
    assert question.message.text == "Name?"


@pytest.mark.parametrize(
    ("result", "expected"),
    [([1, 2], "not a JSON"), ("done", "not a JSON"), (7, "not a JSON"), (b"<html>hello</html>", "JSON")],
)
async def test_an_invalid_result_of_a_run_is_the_agents_fault(
    far: Far, agent: Client, result: Any, expected: str
) -> None:
    far.set(CREATE, Frames(STREAM[:4], cut=True))
    far.set(JOIN, result)
    code, message = await fault_of(agent.run(call()))
    assert code is FaultCode.AGENT_INVALID
    assert expected in message


async def test_a_lost_server_is_unreachable_after_limited_retries(far: Far, agent: Client) -> None:
    far.set(CREATE, Frames(numbered(STREAM)[:3], cut=True))
    far.set(JOIN_STREAM, Frames([], cut=True))
    far.set(RUN_PATH, b"<html>bad gateway</html>", status=502)
    code, _ = await fault_of(agent.run(call()))
    assert code is FaultCode.AGENT_UNREACHABLE
    assert len([path for path in far.calls() if path.startswith(RUN_PATH)]) < 15


async def test_an_active_run_without_new_events_is_the_agents_fault(far: Far, agent: Client) -> None:
    far.set(CREATE, Frames(numbered(STREAM)[:3]))
    far.set(JOIN_STREAM, Frames([]))
    far.set(RUN_PATH, run_is("running"))
    code, _ = await fault_of(agent.run(call()))
    assert code is FaultCode.AGENT_INVALID


# Ends of runs


async def test_the_name_of_an_error_is_preserved(far: Far, agent: Client) -> None:
    far.set(CREATE, Frames([*STREAM[:3], ("error", {"error": "ValueError", "message": "No."})]))
    fault = await raised_fault(agent.run(call()))
    assert (fault.code, fault.message) == (FaultCode.AGENT_FAILED, "No.")
    assert fault.details == {"langchain": {"error": "ValueError"}, "status": 200}
    assert CANCEL not in far.calls()


async def test_an_error_without_event_is_read_from_the_join(far: Far, agent: Client) -> None:
    far.set(RUN_PATH, run_is("error"))
    far.set(JOIN, {"__error__": {"error": "GraphRecursionError", "message": "Too deep"}})
    assert await fault_of(agent.run(call())) == (FaultCode.AGENT_FAILED, "Too deep")


@pytest.mark.parametrize(
    ("status", "expected"),
    [("interrupted", RunStatus.CANCELLED), ("cancelled", RunStatus.CANCELLED), ("timeout", RunStatus.TIMEOUT)],
)
async def test_a_run_ended_by_the_server_has_its_status(
    far: Far, agent: Client, status: str, expected: RunStatus
) -> None:
    far.set(RUN_PATH, run_is(status))
    assert to_json((await all_of(agent.run(call())))[-1])["status"] == expected
    assert CANCEL not in far.calls()


@pytest.mark.parametrize("answer", [run_is("paused-ish"), [1, 2]])
async def test_an_unknown_run_status_is_the_agents_fault(far: Far, agent: Client, answer: Any) -> None:
    far.set(RUN_PATH, answer)
    assert (await fault_of(agent.run(call())))[0] is FaultCode.AGENT_INVALID


async def test_a_question_of_an_interrupted_run_is_raised(far: Far, agent: Client) -> None:
    """Raise the question of aegra, which marks a paused run as interrupted and ends its stream."""
    frames = [metadata(), ("updates", interrupts("Name?")), ("end", {"status": "interrupted"})]
    far.set(CREATE, Frames(frames))
    far.set(RUN_PATH, run_is("interrupted"))
    [question] = of_kind(InterruptRaised, await all_of(agent.run(call())))
    assert question.message.text == "Name?"


async def test_usage_and_losses_of_another_gateway_are_read(far: Far, agent: Client) -> None:
    details = {"usage": {"input_tokens": 1}, "loss": {"reasoning": "no form in A2A 0.3"}}
    far.set(RUN_PATH, run_is("success", metadata={"babelgate": details}))
    events = await all_of(agent.run(call()))
    assert of_kind(RunEnded, events)[0].usage == {"input_tokens": 1}
    assert [(loss.feature, loss.how) for loss in of_kind(LossNoted, events)] == [("reasoning", "no form in A2A 0.3")]


@pytest.mark.parametrize("messages", [{}, {"messages": []}])
@pytest.mark.parametrize(
    ("names", "expected"), [(["n", "of"], {"n": 1, "of": None}), (["n", "gone"], ...), ("n", ...), ([7], ...)]
)
async def test_the_output_members_of_another_gateway_are_read(
    far: Far, agent: Client, names: Any, expected: Any, messages: Any
) -> None:
    values = {**messages, "n": 1, "of": None, "note": 2}
    far.set(CREATE, Frames([metadata(), ("values", values)]))
    far.set(RUN_PATH, run_is("success", metadata={"babelgate": {"output": names}}))
    result = of_kind(RunEnded, await all_of(agent.run(call())))[0].output
    assert result == ((None if messages else values) if expected is ... else expected)


# Answers


def question_records(*ids: str | None, **more: Any) -> list[Record]:
    events = [
        InterruptRaised(interrupt_id=i or "minted", extra={"langchain": {"id": i.partition("+")[0]} if i else {}})
        for i in ids
    ]
    return records(*events, run_id="before")


def answer_to(interrupt_id: str, value: Any, action: Any = "answer") -> InterruptAnswered:
    return InterruptAnswered(interrupt_id=interrupt_id, value=value, action=action)


A, B = "a" * 32, "b" * 32


@pytest.mark.parametrize(
    ("past", "answers", "expected"),
    [
        (question_records(A), [answer_to(A, "Ada")], "Ada"),
        (question_records(A), [answer_to(A, {"approved": True})], {"approved": True}),
        (question_records(A), [answer_to(A, None)], {A: None}),
        (question_records(A), [answer_to(A, {})], {A: {}}),
        (question_records(A), [answer_to(A, {B: 1})], {A: {B: 1}}),
        (question_records(A), [answer_to(A, "x", "decline")], {A: None}),
        (question_records(A, B), [answer_to(A, 1), answer_to(B, 2)], {A: 1, B: 2}),
        (question_records(f"{A}+2"), [answer_to(f"{A}+2", "again")], "again"),
        (question_records(None), [answer_to("minted", "Ada")], "Ada"),
    ],
)
async def test_answers_are_sent_with_the_servers_question_ids(
    far: Far, agent: Client, past: list[Record], answers: list[InterruptAnswered], expected: Any
) -> None:
    await all_of(agent.run(answer_call(past, *answers)))
    [body] = far.bodies(CREATE)
    assert body["command"] == {"resume": expected} and "input" not in body and "if_not_exists" not in body


async def test_declining_a_question_is_a_loss(agent: Client) -> None:
    events = await all_of(agent.run(answer_call(question_records(A), answer_to(A, None, "decline"))))
    assert [loss.feature for loss in of_kind(LossNoted, events)] == ["question"]


async def test_answering_a_breakpoint_continues_without_input(far: Far, agent: Client) -> None:
    past = records(InterruptRaised(interrupt_id="breakpoint-c1", extra={"langchain": {"breakpoint": True}}))
    await all_of(agent.run(answer_call(past, answer_to("breakpoint-c1", "whatever"))))
    [body] = far.bodies(CREATE)
    assert body["input"] is None and "command" not in body


async def test_an_answer_without_upstream_thread_is_the_agents_fault(agent: Client) -> None:
    invocation = replace(answer_call(question_records(A), answer_to(A, 1)), upstream={})
    assert (await fault_of(agent.run(invocation)))[0] is FaultCode.AGENT_INVALID


# Inputs


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"messages": ()}, None),
        ({"messages": (), "data": {}}, {}),
        ({"messages": (), "data": {"topic": "cats"}}, {"topic": "cats"}),
        ({"messages": (), "config": {"command": {"goto": "x"}}}, None),
        ({"messages": (), "data": {}, "config": {"command": {"goto": "x"}}}, {}),
    ],
)
@pytest.mark.parametrize("start", [{}, {"checkpoint": "c1", "upstream": {"thread": THREAD}}])
async def test_absent_input_is_sent_as_null_and_empty_as_empty(
    far: Far, agent: Client, fields: dict[str, Any], expected: Any, start: dict[str, Any]
) -> None:
    far.set("GET /threads/T", {"thread_id": THREAD, "status": "idle"})
    await all_of(agent.run(call(**fields, **start)))
    [body] = far.bodies(CREATE)
    assert (body["input"], body.get("checkpoint_id")) == (expected, start.get("checkpoint"))


async def test_an_interrupted_thread_is_continued_without_a_copy(far: Far, agent: Client) -> None:
    far.set("GET /threads/T", {"thread_id": THREAD, "status": "interrupted"})
    events = await all_of(agent.run(call(messages=(), upstream={"thread": THREAD})))
    assert of_kind(UpstreamBound, events)[0].ids["thread"] == THREAD
    assert "POST /threads/T/copy" not in far.calls()


# Threads


async def test_a_deleted_upstream_thread_is_replaced_with_a_loss(far: Far, agent: Client) -> None:
    far.set("GET /threads/T", {"detail": "Thread with ID … not found"}, status=404)
    events = await all_of(agent.run(call(upstream={"thread": THREAD})))
    assert [loss.feature for loss in of_kind(LossNoted, events)] == ["history"]
    assert isinstance(events[0], UpstreamBound) and events[0].ids["thread"] != THREAD


async def test_input_for_a_waiting_thread_goes_into_a_copy(far: Far, agent: Client) -> None:
    waiting = {"thread_id": THREAD, "status": "interrupted", "interrupts": {"t1": [{"value": "?", "id": A}]}}
    copy = "33333333-3333-4333-8333-333333333333"
    far.set("GET /threads/T", waiting)
    far.set("POST /threads/T/copy", {"thread_id": copy, "status": "idle"})
    first = (await all_of(agent.run(call(upstream={"thread": THREAD}))))[0]
    assert isinstance(first, UpstreamBound) and first.ids["thread"] == copy


async def test_input_for_a_cancelled_thread_needs_no_copy(far: Far, agent: Client) -> None:
    far.set("GET /threads/T", {"thread_id": THREAD, "status": "interrupted", "interrupts": {}})
    await all_of(agent.run(call(upstream={"thread": THREAD})))
    assert "POST /threads/T/copy" not in far.calls()


async def test_without_copies_input_goes_into_the_waiting_thread(far: Far, agent: Client) -> None:
    far.set("GET /threads/T", {"thread_id": THREAD, "status": "interrupted"})
    assert text_of(await all_of(agent.run(call(upstream={"thread": THREAD})))) == "one two three"


async def test_a_branch_of_an_unknown_checkpoint_sends_the_history(far: Far, agent: Client) -> None:
    history = (Message.of("Before", "user"), Message.of("Then", "agent"))
    far.set(CREATE, Frames(GRAPH))
    events = await all_of(agent.run(call(checkpoint="old", history=history)))
    [body] = far.bodies(CREATE)
    messages = [(m["type"], m["content"]) for m in body["input"]["messages"]]
    assert messages == [("human", "Before"), ("ai", "Then"), ("human", "Hello")]
    assert "checkpoint_id" not in body and body["if_not_exists"] == "create"
    assert [loss.feature for loss in of_kind(LossNoted, events)] == ["fork"]
    assert of_kind(StateSaved, events)[0].parent_id == "old"


async def test_a_branch_of_an_upstream_thread_sends_its_checkpoint(far: Far, agent: Client) -> None:
    far.set("GET /threads/T", {"thread_id": THREAD, "status": "idle"})
    await all_of(agent.run(call(checkpoint="c1", upstream={"thread": THREAD})))
    assert far.bodies(CREATE)[0]["checkpoint_id"] == "c1"


# Cancelling


async def read_events(agent: Client, events: int) -> AsyncGenerator[Event]:
    stream = agent.run(call())
    for _ in range(events):
        await anext(stream)
    return stream


@pytest.mark.parametrize("answer", [(202, None), (404, {"detail": "No matching runs to cancel."})])
async def test_closing_the_events_cancels_the_run(far: Far, agent: Client, answer: tuple[int, Any]) -> None:
    far.set(CREATE, Frames(STREAM[:3], stays_open=True))
    far.answers[CANCEL] = [answer]
    await (await read_events(agent, 3)).aclose()
    assert far.calls()[-1] == CANCEL


async def test_detaching_does_not_cancel_the_run(far: Far, agent: Client) -> None:
    far.set(CREATE, Frames(STREAM[:3], stays_open=True))
    stream = await read_events(agent, 3)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    waiting.cancel(DETACH)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert CANCEL not in far.calls()


async def test_a_run_without_id_is_found_and_cancelled(far: Far, agent: Client) -> None:
    """Cancel while the server is creating the run."""
    far.set(CREATE, Frames([], stays_open=True, located=False))
    far.set("GET /threads/T/runs", [run_is("running", metadata={"gateway_run": "x"})])
    waiting = asyncio.ensure_future(all_of(agent.run(call())))
    async with asyncio.timeout(BOUND):
        while CREATE not in far.calls():  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert far.calls()[-2:] == ["GET /threads/T/runs", CANCEL]


async def test_a_cancel_without_answer_times_out(far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CANCEL_TIMEOUT", 0.05)
    far.set(CREATE, Frames(STREAM[:3], stays_open=True))
    far.set(CANCEL, Frames([], stays_open=True))
    async with asyncio.timeout(BOUND):
        await (await read_events(agent, 3)).aclose()


# Re-attaching


def reattach_call(events: Sequence[Event]) -> Invocation:
    past = records(*events)

    async def read_past() -> Sequence[Record]:
        return past

    return call(upstream=BOUND_IDS, past=read_past)


async def test_a_reattached_run_is_read_from_its_start(far: Far, agent: Client) -> None:
    frames = numbered(GRAPH)
    far.set(CREATE, Frames(frames))
    far.set(JOIN_STREAM, Resumable(frames))
    whole = await all_of(agent.run(call()))
    again = await all_of(agent.reattach(reattach_call(whole[:4])))
    assert again == whole
    assert far.requests[-2][1]["last-event-id"] == "-1"


async def test_a_reattached_run_without_stream_reads_the_state(far: Far, agent: Client) -> None:
    whole = await all_of(agent.run(call()))
    far.set(JOIN_STREAM, Frames([]))
    far.set(JOIN, {"messages": [human("Hello"), ai("one two three")]})
    again = await all_of(agent.reattach(reattach_call(whole[:3])))
    assert again[:3] == whole[:3]
    assert text_of(again) == "one two three"
    assert len(of_kind(MessageStarted, again)) == 1


async def test_a_run_without_upstream_ids_cannot_be_reattached(agent: Client) -> None:
    assert (await fault_of(agent.reattach(call())))[0] is FaultCode.AGENT_INVALID


async def test_reattaching_to_a_deleted_run_is_the_agents_fault(far: Far, agent: Client) -> None:
    """Read the error from the stream, because LangGraph answers 200."""
    error = ("error", {"error": "HTTPException", "message": "404: Run not found"})
    far.set(JOIN_STREAM, Frames([error]))
    assert await fault_of(agent.reattach(reattach_call([]))) == (FaultCode.AGENT_FAILED, "404: Run not found")


# State updates


async def test_a_state_is_updated_on_the_server(far: Far, agent: Client) -> None:
    far.set("POST /threads/T/state", {"checkpoint_id": "c9"})
    state = {"values": {"a": 1}, "next": ["x"], "metadata": {"source": "update", "step": 3}}
    far.set("GET /threads/T/state", {**state, "checkpoint": {"checkpoint_id": "c9"}, "parent_checkpoint": None})
    invocation = call(cause="update", data={"a": 1}, checkpoint="c8", upstream={"thread": THREAD})
    saved = await agent.update_state(invocation, removed_ids=("m1",), as_node="plan")
    assert (saved.checkpoint_id, saved.values, saved.next, saved.step) == ("c9", {"a": 1}, ("x",), 3)
    [body] = far.bodies("POST /threads/T/state")
    assert (body["checkpoint_id"], body["as_node"], body["values"]["a"]) == ("c8", "plan", 1)
    assert [(m["type"], m.get("id")) for m in body["values"]["messages"]] == [("remove", "m1"), ("human", None)]


async def test_a_state_without_upstream_thread_cannot_be_updated(agent: Client) -> None:
    with pytest.raises(FaultError) as caught:
        await agent.update_state(call(cause="update", data={"a": 1}))
    assert caught.value.fault.code is FaultCode.UNSUPPORTED


# Servers that break the protocol


@pytest.mark.parametrize(
    ("status", "body", "code", "expected"),
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
async def test_an_invalid_answer_fails_the_run_with_a_reason(
    far: Far, agent: Client, status: int, body: Any, code: FaultCode, expected: str
) -> None:
    far.set(CREATE, body, status=status)
    actual, message = await fault_of(agent.run(call()))
    assert actual is code and expected in message


async def test_data_over_several_lines_is_read(far: Far, agent: Client) -> None:
    """Read indented JSON, as the JavaScript server writes it."""
    pretty = b'event: values\r\ndata: {\r\ndata:   "messages": []\r\ndata: }\r\nid: 7\r\n\r\n'
    far.set(CREATE, Frames([STREAM[0], pretty, *STREAM[2:]]))
    assert text_of(await all_of(agent.run(call()))) == "one two three"


@pytest.mark.parametrize("run_id", ["../../secrets", "..", "a/b", "a?b", "a b", "", "a\nb", "x" * 1000])
async def test_a_run_id_cannot_change_the_request_path(far: Far, agent: Client, run_id: str) -> None:
    far.set(CREATE, Frames([("metadata", {"run_id": run_id})], located=False))
    code, _ = await fault_of(agent.run(call()))
    assert code is FaultCode.AGENT_INVALID
    assert far.calls()[-1] in (CREATE, "GET /threads/T/runs")
