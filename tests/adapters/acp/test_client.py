"""Client of an agent on another ACP server: its requests, and the events that it reads from the responses."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, cast

import httpx
import pytest

from babelgate.adapters.acp import client as client_module
from babelgate.adapters.acp.agents import upstream_name
from babelgate.adapters.acp.client import Client, discover
from babelgate.adapters.kit.client.backoff import MAX_FAILURES
from babelgate.adapters.kit.server.sse import frame
from babelgate.canonical import (
    Event,
    FaultCode,
    FaultError,
    FilePart,
    Invocation,
    Message,
    Record,
    RefusalPart,
    RunInput,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.agent import DETACH
from babelgate.canonical.event import (
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    UpstreamBound,
)
from tests import loopback
from tests.adapters.acp.site import BOUND
from tests.bridge import client as bridge
from tests.driving import all_of, fault_of, streamed_text, until_first_token
from tests.submissions import make

RUN, SESSION = "22222222-2222-4222-8222-222222222222", "11111111-1111-4111-8111-111111111111"


def of_run(kind: str, **more: Any) -> dict[str, Any]:
    status = kind.removeprefix("run.")
    return {"type": kind, "run": {"run_id": RUN, "agent_name": "far", "session_id": SESSION, "status": status, **more}}


def part(content: str) -> dict[str, Any]:
    return {"type": "message.part", "part": {"content": content}}


CREATED, WORKING, COMPLETED = of_run("run.created"), of_run("run.in-progress"), of_run("run.completed")
OPENED: dict[str, Any] = {"type": "message.created", "message": {"role": "agent/far", "parts": []}}
CLOSED: dict[str, Any] = {
    "type": "message.completed",
    "message": {"role": "agent/far", "parts": [{"content": "a"}, {"content": "b"}]},
}
PLAIN: list[Any] = [CREATED, WORKING, OPENED, part("a"), part("b"), CLOSED, COMPLETED]
QUESTION = {"type": "message", "message": {"role": "agent", "parts": [{"content": "Name?"}]}}
AWAITING = of_run("run.awaiting", await_request=QUESTION)

Body = Sequence[dict[str, Any] | bytes] | dict[str, Any] | bytes


@dataclass
class Far:
    """Another ACP server. Each call receives the next of its prepared responses, and then always the last one."""

    answers: dict[str, list[tuple[int, Body]]] = field(default_factory=dict[str, list[tuple[int, Body]]])
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list[tuple[str, dict[str, str], Any]])
    holds: bool = False
    """True if streams stay open after their last event."""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, call: str, *bodies: Body, status: int = 200) -> None:
        self.answers[call] = [(status, body) for body in bodies]

    def calls(self) -> list[str]:
        return [call for call, _, _ in self.requests]

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message.get("body", b"")
        call = f"{scope['method']} {scope['path']}"
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append((call, headers, json.loads(body) if body else None))
        if call.endswith("/cancel"):
            self.cancelled.set()
        answers = self.answers.get(call) or [(404, {"code": "not_found", "message": f"{call} is not there"})]
        status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        streams = isinstance(answer, Sequence) and not isinstance(answer, bytes)
        kind = b"text/event-stream" if streams else b"application/json"
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(b"content-type", kind), (b"run-id", RUN.encode())],
            }
        )
        if isinstance(answer, Sequence) and not isinstance(answer, bytes):
            for event in answer:
                raw = event if isinstance(event, bytes) else frame(json.dumps(event).encode())
                await send({"type": "http.response.body", "body": raw, "more_body": True})
            if self.holds:
                await receive()
                return
        else:
            raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            await send({"type": "http.response.body", "body": raw, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.fixture
def far() -> Far:
    far = Far()
    far.set("POST /runs", PLAIN)
    far.set(f"POST /runs/{RUN}/cancel", of_run("run.cancelling")["run"], status=202)
    return far


@pytest.fixture
async def http(far: Far) -> AsyncGenerator[httpx.AsyncClient]:
    async with bridge(cast("Any", far)) as client:
        yield client


@pytest.fixture
def agent(http: httpx.AsyncClient) -> Client:
    return Client("http://far", "far", headers={"Authorization": "Bearer secret"}, http=http)


def call(**members: Any) -> Invocation:
    members.setdefault("messages", (Message.of("Hello", "user"),))
    return make(Invocation, agent="near", thread_id="t", task_id="k", run_id="x", **members)


# A run


async def test_a_run_is_streamed_and_bound_to_its_ids(far: Far, agent: Client) -> None:
    events = await all_of(agent.run(call()))
    assert events[0] == UpstreamBound(protocol="acp", ids={"run": RUN, "session": SESSION})
    assert streamed_text(events) == "ab"
    assert [type(event) for event in events].count(MessageStarted) == 1
    assert far.calls() == ["POST /runs"]


async def test_requests_have_a_content_type(far: Far, agent: Client) -> None:
    await all_of(agent.run(call()))
    _, headers, body = far.requests[0]
    assert headers["content-type"] == "application/json"
    assert headers["accept"].startswith("text/event-stream")
    assert headers["authorization"] == "Bearer secret"
    assert body == {
        "agent_name": "far",
        "mode": "stream",
        "input": [
            {
                "role": "user",
                "parts": [
                    {
                        "name": None,
                        "content_type": "text/plain",
                        "content": "Hello",
                        "content_encoding": "plain",
                        "content_url": None,
                        "metadata": None,
                    }
                ],
            }
        ],
    }


async def test_files_are_sent_as_base64(far: Far, agent: Client) -> None:
    file = FilePart(name="a.bin", media_type="image/png", inline=b"\x00\x01")
    await all_of(agent.run(call(messages=(Message(role="user", parts=(file,)),))))
    [sent] = far.requests[0][2]["input"][0]["parts"]
    assert (sent["name"], sent["content"], sent["content_encoding"]) == ("a.bin", "AAE=", "base64")


def losses_in(events: Sequence[Event]) -> list[str]:
    return [event.feature for event in events if isinstance(event, LossNoted)]


async def test_losses_of_the_input_are_noted_again_on_reattach(far: Far, agent: Client) -> None:
    called = ToolCallPart(call_id="1", name="f", side="caller")
    parts = (RefusalPart(text="No."), called, ToolResultPart(call_id="1"), TextPart(text="a", metadata={"m": 1}))
    messages = (Message(role="user", parts=parts, metadata={"m": 1}),)
    first = await all_of(agent.run(call(messages=messages)))
    assert losses_in(first) == ["metadata", "refusal", "caller-tools", "tool-activity"]
    far.set(f"GET /runs/{RUN}", COMPLETED["run"])
    far.set(f"GET /runs/{RUN}/events", {"events": PLAIN})
    again = await all_of(agent.reattach(call(messages=messages, upstream={"run": RUN, "session": SESSION})))
    assert again == first


async def test_run_metadata_is_sent_and_noted_as_a_loss(far: Far, agent: Client) -> None:
    assert losses_in(await all_of(agent.run(call(metadata={"customer": 7})))) == ["metadata"]
    assert far.requests[-1][2]["metadata"] == {"customer": 7}
    from_acp = await all_of(agent.run(call(metadata={"customer": 7}, extra={"acp": {"metadata": {"customer": 7}}})))
    assert losses_in(from_acp) == []
    assert far.requests[-1][2]["metadata"] == {"customer": 7}


async def test_an_existing_session_continues_without_a_transcript(far: Far, agent: Client) -> None:
    await all_of(agent.run(call(upstream={"session": SESSION})))
    body = far.requests[0][2]
    assert body["session_id"] == SESSION
    assert len(body["input"]) == 1


async def test_events_after_the_end_are_ignored(far: Far, agent: Client) -> None:
    far.set("POST /runs", [*PLAIN, b"data: [DONE]\n\n", b"data: {garbage\n\n", CREATED])
    assert streamed_text(await all_of(agent.run(call()))) == "ab"


async def test_a_stream_left_open_after_its_end_is_closed(
    far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "DRAIN", 0.01)
    far.holds = True
    assert streamed_text(await all_of(agent.run(call()))) == "ab"
    assert not far.cancelled.is_set()


async def test_done_marks_and_comments_are_ignored(far: Far, agent: Client) -> None:
    far.set("POST /runs", [b": ping\n\n", *PLAIN[:-1], b"data: [DONE]\n\n", COMPLETED])
    assert streamed_text(await all_of(agent.run(call()))) == "ab"


async def test_a_run_instead_of_a_stream_is_read(far: Far, agent: Client) -> None:
    output = [{"role": "agent/far", "parts": [{"content": "ab"}]}]
    far.set("POST /runs", of_run("run.completed", output=output)["run"])
    events = await all_of(agent.run(call()))
    assert isinstance(events[0], UpstreamBound)
    assert streamed_text(events) == "ab"


# Broken streams


async def test_a_broken_stream_continues_from_the_list_of_events(
    far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(client_module, "LAST_WAIT", 0.0)
    far.set("POST /runs", PLAIN[:4])
    working, done = WORKING["run"], COMPLETED["run"]
    far.set(f"GET /runs/{RUN}", working, working, done)
    far.set(f"GET /runs/{RUN}/events", {"events": PLAIN[:4]}, {"events": PLAIN[:5]}, {"events": PLAIN})
    events = await all_of(agent.run(call()))
    assert streamed_text(events) == "ab"
    assert [type(event) for event in events].count(MessageStarted) == 1
    assert isinstance(events[-1], MessageEnded)


async def test_a_run_without_its_last_events_ends_by_its_status(far: Far, agent: Client) -> None:
    far.set("POST /runs", [CREATED, WORKING])
    output = [{"role": "agent/far", "parts": [{"content": "ab"}]}]
    far.set(f"GET /runs/{RUN}", of_run("run.completed", output=output)["run"])
    far.set(f"GET /runs/{RUN}/events", {"events": [CREATED, WORKING]})
    assert streamed_text(await all_of(agent.run(call()))) == "ab"


async def test_a_server_lost_after_a_broken_stream_is_unreachable(
    far: Far, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "FIRST_WAIT", 0.0)
    monkeypatch.setattr(client_module, "LAST_WAIT", 0.0)
    far.set("POST /runs", PLAIN[:4])
    far.set(f"GET /runs/{RUN}", b"", status=503)
    assert (await fault_of(agent.run(call())))[0] is FaultCode.AGENT_UNREACHABLE
    assert far.calls().count(f"GET /runs/{RUN}") == MAX_FAILURES


async def test_a_stream_without_a_run_breaks_the_protocol(far: Far, agent: Client) -> None:
    far.set("POST /runs", [])
    far.set(f"GET /runs/{RUN}", {})
    assert (await fault_of(agent.run(call())))[0] is FaultCode.AGENT_INVALID


# Await and resume


def answering(*past: Event, **members: Any) -> Invocation:
    async def records() -> Sequence[Record]:
        return [Record(seq, seq, "k", "before", 1, event) for seq, event in enumerate(past, start=1)]

    return call(
        cause="answer",
        answers=(InterruptAnswered(interrupt_id="i", value="Ada"),),
        messages=(Message.of("Ada", "user"),),
        upstream={"run": RUN, "session": SESSION},
        past=records,
        **members,
    )


async def test_an_await_is_a_question_and_its_answer_resumes_it(far: Far, agent: Client) -> None:
    far.set("POST /runs", [CREATED, WORKING, AWAITING])
    question = (await all_of(agent.run(call())))[-1]
    assert isinstance(question, InterruptRaised)
    assert question.message.text == "Name?"
    far.set(f"POST /runs/{RUN}", [WORKING, *PLAIN[2:]])
    events = await all_of(agent.run(answering(question)))
    assert events[0] == UpstreamBound(protocol="acp", ids={"run": RUN, "session": SESSION})
    assert streamed_text(events) == "ab"
    path, _, body = far.requests[-1]
    assert path == f"POST /runs/{RUN}"
    assert (body["mode"], body["await_resume"]["type"]) == ("stream", "message")
    assert body["await_resume"]["message"]["parts"][0]["content"] == "Ada"
    assert "run_id" not in body


async def test_a_broken_resumed_stream_continues_after_the_await(far: Far, agent: Client) -> None:
    whole: list[Any] = [
        CREATED,
        WORKING,
        OPENED,
        part("before"),
        AWAITING,
        WORKING,
        OPENED,
        part("a"),
        part("b"),
        CLOSED,
        COMPLETED,
    ]
    far.set(f"POST /runs/{RUN}", whole[5:8])
    far.set(f"GET /runs/{RUN}", COMPLETED["run"])
    far.set(f"GET /runs/{RUN}/events", {"events": whole})
    assert streamed_text(await all_of(agent.run(answering(InterruptRaised())))) == "ab"


async def test_a_declined_question_is_noted_as_a_loss(far: Far, agent: Client) -> None:
    far.set(f"POST /runs/{RUN}", [WORKING, *PLAIN[2:]])
    declined = (InterruptAnswered(interrupt_id="i", action="decline"),)
    events = await all_of(agent.run(replace(answering(InterruptRaised()), answers=declined, input=RunInput())))
    assert losses_in(events) == ["question"]
    assert far.requests[-1][2]["await_resume"]["message"]["parts"][0]["content"] == "null"


async def test_an_answer_without_a_bound_run_is_a_fault(far: Far, agent: Client) -> None:
    lost = call(answers=(InterruptAnswered(interrupt_id="i", value="Ada"),))
    assert (await fault_of(agent.run(lost)))[0] is FaultCode.AGENT_INVALID
    assert far.calls() == []


# Re-attaching


async def test_reattach_repeats_the_events_of_a_run(far: Far, agent: Client) -> None:
    far.set(f"GET /runs/{RUN}", COMPLETED["run"])
    far.set(f"GET /runs/{RUN}/events", {"events": PLAIN})
    first = await all_of(agent.run(call()))
    again = await all_of(agent.reattach(call(upstream={"run": RUN, "session": SESSION})))
    assert again == first
    assert "POST /runs" not in far.calls()[1:]
    # A gateway returns the list of events as a stream to a client that accepts one.
    assert {headers["accept"] for _, headers, _ in far.requests[1:]} == {"application/json"}


async def test_reattach_repeats_the_events_since_the_resume(far: Far, agent: Client) -> None:
    far.set(f"POST /runs/{RUN}", [WORKING, *PLAIN[2:]])
    far.set(f"GET /runs/{RUN}", COMPLETED["run"])
    far.set(f"GET /runs/{RUN}/events", {"events": [CREATED, WORKING, AWAITING, WORKING, *PLAIN[2:]]})
    first = await all_of(agent.run(answering(InterruptRaised())))
    again = await all_of(agent.reattach(answering(InterruptRaised())))
    assert again == first


async def test_reattach_without_a_run_id_is_a_fault(agent: Client) -> None:
    assert (await fault_of(agent.reattach(call())))[0] is FaultCode.AGENT_INVALID


# Cancel


async def test_closing_the_iterator_cancels_the_run_upstream(far: Far, agent: Client) -> None:
    far.set("POST /runs", PLAIN[:4])
    far.holds = True
    async with asyncio.timeout(BOUND):
        async with aclosing(agent.run(call())) as events:
            await until_first_token(events)
    assert far.calls() == ["POST /runs", f"POST /runs/{RUN}/cancel"]


@pytest.mark.parametrize("message", [None, DETACH])
async def test_cancelling_the_reader_cancels_upstream_unless_it_detaches(
    far: Far, agent: Client, message: str | None
) -> None:
    far.set("POST /runs", PLAIN[:4])
    far.holds = True
    waiting = asyncio.Event()

    async def pump() -> None:
        async with aclosing(agent.run(call())) as events:
            await until_first_token(events)
            waiting.set()
            await until_first_token(events)

    pumping = asyncio.ensure_future(pump())
    async with asyncio.timeout(BOUND):
        await waiting.wait()
        await asyncio.sleep(0)
        pumping.cancel(message)
        await asyncio.wait((pumping,))
    assert pumping.cancelled()
    assert far.cancelled.is_set() == (message is None)


async def test_a_stopped_run_is_not_cancelled(far: Far, agent: Client) -> None:
    far.set("POST /runs", [CREATED, WORKING, AWAITING])
    await all_of(agent.run(call()))
    far.set("POST /runs", PLAIN)
    await all_of(agent.run(call()))
    assert not far.cancelled.is_set()


async def test_a_refused_cancel_does_not_block_the_caller(far: Far, agent: Client) -> None:
    far.set("POST /runs", PLAIN[:4])
    far.set(f"POST /runs/{RUN}/cancel", {"code": "server_error", "message": "no"}, status=403)
    far.holds = True
    async with asyncio.timeout(BOUND):
        async with aclosing(agent.run(call())) as events:
            await until_first_token(events)


# Faults


@pytest.mark.parametrize(
    ("status", "answer", "code", "words"),
    [
        (
            404,
            {"code": "not_found", "message": "Agent far not found"},
            FaultCode.AGENT_FAILED,
            "404: Agent far not found",
        ),
        (500, b"<html>secret</html>", FaultCode.AGENT_FAILED, "The agent's server answered 500"),
        (503, b"", FaultCode.AGENT_UNREACHABLE, "The agent's server answered 503"),
        (302, b"", FaultCode.AGENT_FAILED, "The agent's server answered 302"),
        (200, b"Hello", FaultCode.AGENT_INVALID, "did not answer with JSON"),
        (200, b"[]", FaultCode.AGENT_INVALID, "breaks its protocol"),
    ],
)
async def test_a_refusal_is_reported_in_the_upstreams_words(
    far: Far, agent: Client, status: int, answer: Body, code: FaultCode, words: str
) -> None:
    far.set("POST /runs", answer, status=status)
    found, message = await fault_of(agent.run(call()))
    assert found is code
    assert words in message
    assert "secret" not in message


@pytest.mark.parametrize(
    "event",
    [
        b"data: {garbage\n\n",
        b"data: NaN\n\n",
        b"data: \xff\n\n",
        b'data: {"no": "type"}\n\n',
        {"type": "message.part", "part": {"content": "x", "content_url": "y"}},
        {"type": "message.part", "part": {"content": "!", "content_encoding": "base64"}},
        {"type": "run.completed"},
    ],
)
async def test_events_that_break_the_protocol_end_the_run(far: Far, agent: Client, event: Any) -> None:
    far.set("POST /runs", [CREATED, event])
    assert (await fault_of(agent.run(call())))[0] is FaultCode.AGENT_INVALID
    assert far.cancelled.is_set()


async def test_failed_runs_and_error_events_are_agent_failures(far: Far, agent: Client) -> None:
    error = {"code": "server_error", "message": "Boom"}
    for last in (of_run("run.failed", error=error), {"type": "error", "error": error}):
        far.set("POST /runs", [CREATED, WORKING, last])
        assert await fault_of(agent.run(call())) == (FaultCode.AGENT_FAILED, "Boom")


async def test_an_unreachable_server_is_reported_without_its_address() -> None:
    async with loopback.client() as http:
        agent = Client("http://127.0.0.1:1", "far", http=http)
        code, message = await fault_of(agent.run(call()))
    assert code is FaultCode.AGENT_UNREACHABLE
    assert "127.0.0.1" not in message


async def test_a_client_can_be_used_again_after_closing() -> None:
    agent = Client("http://127.0.0.1:1", "far")
    for _ in range(2):
        assert (await fault_of(agent.run(call())))[0] is FaultCode.AGENT_UNREACHABLE
        await agent.aclose()


# Discovery


async def test_discovered_agents_get_valid_names_and_keep_the_original(far: Far, http: httpx.AsyncClient) -> None:
    far.set("GET /agents", {"agents": [{"name": "Slow Echo", "description": "Echoes"}, {"name": "slow_echo"}]})
    found = await discover("http://far/", http)
    assert [(info.name, upstream_name(info)) for info in found] == [
        ("slow-echo", "Slow Echo"),
        ("slow_echo", "slow_echo"),
    ]
    assert all(info.remembers for info in found)


async def test_a_server_without_an_agent_list_is_no_acp_server(far: Far, http: httpx.AsyncClient) -> None:
    answers: list[Body] = [{"data": []}, b"[]", b"<html>", {"agents": [{}]}]
    for answer in answers:
        far.set("GET /agents", answer)
        with pytest.raises(FaultError) as caught:
            await discover("http://far", http)
        assert caught.value.fault.code is FaultCode.AGENT_INVALID
