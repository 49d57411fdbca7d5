"""Responses over a WebSocket: events, continued responses, prewarmed inputs, errors, and the end of a connection."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from babelgate.adapters.kit.extension import HEADER, URI, RecordReader
from babelgate.adapters.openai.codec.names import RESPONSE, decode_id
from babelgate.adapters.openai.server import response_socket, socket_memory
from babelgate.canonical.value import Json
from tests.adapters.openai.server.agents import AGENTS, ASK_TOOL, ASKS, ENDED, GATE, STARTED
from tests.adapters.openai.server.test_responses import calls_of, output, text_of
from tests.gateway.command import served
from tests.gateway.conversing import connected, refusal
from tests.gateway.hostile import BODIES, mutations
from tests.gateway.hubs import PausedWriter, erased, within
from tests.gateway.owning import ALICE, BOB
from tests.gateway.shape import check_error
from tests.gateway.siege import besieged
from tests.running import Running, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("closed")]

AT: Final = "/v1/responses"
ENDS: Final = ("response.completed", "response.incomplete", "response.failed", "error")
NOT_FOUND: Final = "previous_response_not_found"


class Talk:
    """Client of one WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, model: str, request_input: Any = "hi", **more: Any) -> None:
        tools = {"tools": [ASK_TOOL]} if model in ASKS else {}
        message = {"type": "response.create", "model": model, "input": request_input, **tools, **more}
        await self.connection.send(json.dumps(message))

    async def next(self) -> Any:
        return json.loads(await within(self.connection.recv(), "a message"))

    async def until(self, *kinds: str) -> list[Any]:
        """Return all events up to the first one of these kinds."""
        events = [await self.next()]
        while events[-1]["type"] not in kinds:
            events.append(await self.next())
        return events

    async def ends(self) -> Any:
        """Return the last event of a response."""
        return (await self.until(*ENDS))[-1]

    async def ask(self, model: str, request_input: Any = "hi", **more: Any) -> Any:
        """Request a response over the WebSocket, wait for its end, and return it."""
        await self.send(model, request_input, **more)
        return (await self.ends())["response"]

    async def fail(self, model: str, request_input: Any = "hi", **more: Any) -> Any:
        """Request a response that the gateway must refuse, and return the error."""
        await self.send(model, request_input, **more)
        return is_error(await self.next())

    async def closes(self) -> tuple[int, list[Any]]:
        """Return the close code, and the events before it."""
        events: list[Any] = []
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                events.append(await self.next())
        assert caught.value.rcvd is not None
        return caught.value.rcvd.code, events


def is_error(event: Any) -> Any:
    """Assert that an event is an error (SPEC/responses/responses_server_event.py, ResponseWsError), and return the
    error. In Open Responses, errors have no sequence number."""
    assert event["type"] == "error", event
    assert set(event) <= {"type", "status", "error", "stream_id"}
    error = event["error"]
    assert set(error) - {"headers"} == {"type", "code", "message", "param"}
    assert 400 <= event["status"] < 600
    assert all(isinstance(error[name], str) for name in ("type", "message"))
    assert error["message"] and len(error["message"]) < 2_000
    return error


@asynccontextmanager
async def talking(gateway: Running, path: str = AT, **options: Any) -> AsyncGenerator[Talk]:
    async with connected(gateway.url, path, **options) as connection:
        yield Talk(connection)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talk(gateway: Running) -> AsyncGenerator[Talk]:
    """Connection that most tests share. Each test leaves it ready for the next response."""
    async with talking(gateway) as talk:
        yield talk


# Events


@pytest.mark.parametrize("model", ["rich", "ask", "stream"])
async def test_websocket_events_equal_those_of_the_stream(gateway: Running, talk: Talk, model: str) -> None:
    await talk.send(model, "one two")
    events = await talk.until(*ENDS)
    again = await gateway.http.get(f"{AT}/{events[0]['response']['id']}?stream=true")
    lines = [line.removeprefix("data: ") for line in again.text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    assert [json.loads(line) for line in lines] == events


async def test_text_arrives_before_the_agent_continues(talk: Talk) -> None:
    await talk.send("gated", stream_id="lane")
    events = await talk.until("response.output_text.delta")
    GATE.set()
    events += await talk.until(*ENDS)
    assert text_of(events[-1]["response"]) == "first last"
    assert {event["stream_id"] for event in events} == {"lane"}


async def test_messages_sent_together_are_answered_in_order(talk: Talk) -> None:
    for text in ("one", "two", "three"):
        await talk.send("echo", text)
    assert [text_of((await talk.ends())["response"]) for _ in range(3)] == ["one", "two", "three"]


async def test_stream_options_of_a_message_are_ignored(talk: Talk) -> None:
    response = await talk.ask("settings", stream=False, stream_options={"include_obfuscation": True}, top_p=0.5)
    assert json.loads(text_of(response)) == {"config": {"top_p": 0.5}, "metadata": {}}


async def test_extension_records_arrive_if_the_handshake_requests_them(gateway: Running) -> None:
    async with talking(gateway, additional_headers={HEADER: URI}) as talk:
        assert talk.connection.response is not None
        assert talk.connection.response.headers[HEADER] == URI
        for _ in range(2):
            await talk.send("tools", "one two")
            reader = RecordReader(of_run=True)
            events: list[Any] = []
            while not reader.stopped:
                events.append(await talk.next())
                if URI in events[-1]:
                    list(reader.read(events[-1][URI]))
            if "response.completed" not in {event["type"] for event in events}:
                await talk.until("response.completed")


async def test_path_of_one_agent_has_a_websocket(gateway: Running) -> None:
    async with talking(gateway, f"/agent/echo{AT}") as talk:
        assert text_of(await talk.ask("echo", "hello")) == "hello"


# Continued responses


async def test_unstored_response_is_continued_only_on_its_connection(gateway: Running, talk: Talk) -> None:
    one = await talk.ask("history", "one", store=False)
    async with talking(gateway) as other:
        assert (await other.fail("history", previous_response_id=one["id"]))["code"] == NOT_FOUND
        assert text_of(await other.ask("history", "fresh")) == "user: fresh"
    request_body = {"model": "history", "input": "hi", "previous_response_id": one["id"]}
    over_http = await gateway.http.post(AT, json=request_body)
    assert (over_http.status_code, over_http.json()["error"]["code"]) == (400, NOT_FOUND)
    assert (await gateway.http.get(f"{AT}/{one['id']}")).status_code == 404
    two = await talk.ask("history", "two", store=False, previous_response_id=one["id"])
    assert (two["store"], two["previous_response_id"]) == (False, one["id"])
    assert text_of(two) == "user: one | agent: user: one | user: two"


async def test_continuation_of_an_unstored_response_is_not_stored(gateway: Running, talk: Talk) -> None:
    one = await talk.ask("echo", "one", store=False)
    two = await talk.ask("echo", "two", previous_response_id=one["id"])
    assert two["store"] is False
    assert (await gateway.http.get(f"{AT}/{two['id']}")).status_code == 404
    three = await talk.ask("history", "three", previous_response_id=two["id"])
    assert [line.split(": ")[-1] for line in text_of(three).split(" | ")] == ["one", "one", "two", "two", "three"]


async def test_two_continuations_do_not_see_each_other(talk: Talk) -> None:
    one = await talk.ask("history", "one", store=False)
    texts = [text_of(await talk.ask("history", text, previous_response_id=one["id"])) for text in ("left", "right")]
    assert texts == [f"user: one | agent: user: one | user: {text}" for text in ("left", "right")]


async def test_stored_response_is_continued_from_anywhere(gateway: Running, talk: Talk) -> None:
    one = await talk.ask("history", "one")
    assert one["store"] is True
    request_body = {"model": "history", "input": "two", "previous_response_id": one["id"]}
    two = (await gateway.http.post(AT, json=request_body)).json()
    async with talking(gateway) as other:
        three = await other.ask("history", "three", previous_response_id=two["id"])
    assert text_of(three) == f"user: one | agent: {text_of(one)} | user: two | agent: {text_of(two)} | user: three"
    assert (await gateway.http.get(f"{AT}/{three['id']}")).json() == three


async def test_question_of_an_unstored_response_is_answered(talk: Talk) -> None:
    response = await talk.ask("ask", store=False)
    (call,) = calls_of(response)
    error = await talk.fail("ask", "Ada", previous_response_id=response["id"])
    assert error["param"] == "input"
    done = await talk.ask("ask", [output(call, "Ada")])
    assert text_of(done) == "Hello, Ada."


async def test_failed_continuation_evicts_the_response_it_continued(talk: Talk) -> None:
    """Check what Open Responses requires in websocket-failed-continuation-evicts-cache."""
    stray_output = {"type": "function_call_output", "call_id": "call_nobody", "output": "x"}
    one = await talk.ask("echo", "one", store=False)
    error = await talk.fail("echo", [stray_output], store=False, previous_response_id=one["id"])
    assert error["code"] == "invalid_function_call_output"
    assert (await talk.fail("echo", previous_response_id=one["id"]))["code"] == NOT_FOUND
    two = await talk.ask("echo", "two", store=False)
    failed = await talk.ask("failing", store=False, previous_response_id=two["id"])
    assert failed["status"] == "failed"
    for each in (two, failed):
        assert (await talk.fail("echo", previous_response_id=each["id"]))["code"] == NOT_FOUND
    stored = await talk.ask("echo", "three")
    assert (await talk.ask("failing", previous_response_id=stored["id"]))["status"] == "failed"
    assert text_of(await talk.ask("echo", "four", previous_response_id=stored["id"])) == "four", "it is kept elsewhere"


async def test_oldest_unstored_responses_are_forgotten(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_memory, "_RESPONSES", 2)
    async with talking(gateway) as talk:
        responses = [await talk.ask("echo", text, store=False) for text in ("one", "two", "three")]
        assert (await talk.fail("echo", previous_response_id=responses[0]["id"]))["code"] == NOT_FOUND
        for each in responses[1:]:
            assert text_of(await talk.ask("echo", "x", previous_response_id=each["id"])) == "x"


async def test_unstored_response_lives_as_long_as_its_connection(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS, limits={"ephemeral_ttl": 0.05}) as gateway:

        async def passing() -> str:
            answer = await gateway.http.post(AT, json={"model": "echo", "input": "x", "store": False})
            return answer.headers["babelgate-thread"]

        async with talking(gateway) as talk:
            one = await talk.ask("history", "one", store=False)
            for _ in range(2):  # threads that were created later are deleted
                await erased(gateway.hub, await passing(), "default")
            two = await talk.ask("history", "two", store=False, previous_response_id=one["id"])
            assert text_of(two).count("user:") == 3
            run_id = decode_id(RESPONSE, two["id"])
            assert run_id is not None
            run = await gateway.hub.reads.run("default", run_id)
        await erased(gateway.hub, run.thread_id, "default")


# Prewarmed inputs


async def test_prewarmed_input_runs_no_agent_until_it_is_continued(gateway: Running, talk: Talk) -> None:
    await talk.send("history", "one", generate=False)
    events = await talk.until(*ENDS)
    assert [(event["type"], event["sequence_number"]) for event in events] == [
        ("response.created", 0),
        ("response.in_progress", 1),
        ("response.completed", 2),
    ]
    prewarmed = events[-1]["response"]
    plain = await talk.ask("echo", "x")
    assert (prewarmed["output"], prewarmed["store"], set(prewarmed)) == ([], False, set(plain))
    response = await talk.ask("history", "two", previous_response_id=prewarmed["id"])
    assert (text_of(response), response["previous_response_id"]) == ("user: one | user: two", prewarmed["id"])
    items = (await gateway.http.get(f"{AT}/{response['id']}/input_items?order=asc")).json()["data"]
    assert [item["content"][0]["text"] for item in items] == ["one", "two"]


async def test_prewarmed_inputs_can_be_chained_and_reused(talk: Talk) -> None:
    stored = await talk.ask("history", "zero")
    one = await talk.ask("history", "one", generate=False, previous_response_id=stored["id"])
    two = await talk.ask("history", "two", prompt_cache_options={"prewarm": True}, previous_response_id=one["id"])
    assert (two["output"], two["previous_response_id"]) == ([], one["id"])
    for _ in range(2):  # a prewarmed input can be continued any number of times
        response = await talk.ask("history", [], previous_response_id=two["id"])
        assert text_of(response) == "user: zero | agent: user: zero | user: one | user: two"


async def test_prewarmed_input_is_unknown_to_other_connections(gateway: Running, talk: Talk) -> None:
    prewarmed = await talk.ask("echo", "one", generate=False)
    request_body = {"model": "echo", "input": "hi", "previous_response_id": prewarmed["id"]}
    assert (await gateway.http.post(AT, json=request_body)).json()["error"]["code"] == NOT_FOUND
    async with talking(gateway) as other:
        assert (await other.fail("echo", previous_response_id=prewarmed["id"]))["code"] == NOT_FOUND


async def test_invalid_prewarmed_input_is_rejected_at_once(talk: Talk) -> None:
    assert (await talk.fail("nobody", generate=False))["code"] == "model_not_found"
    assert (await talk.fail("echo", [{"role": "user", "content": 5}], generate=False))["param"].startswith("input")
    assert (await talk.fail("echo", generate=False, previous_response_id="resp_x"))["code"] == NOT_FOUND
    prewarmed = await talk.ask("echo", generate=False)
    conversation = {"previous_response_id": prewarmed["id"], "conversation": "conv_x"}
    assert (await talk.fail("echo", **conversation))["param"] == "conversation"


async def test_prewarmed_inputs_are_limited_in_size_and_number(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_memory, "_INPUT_BYTES", 1_000)
    monkeypatch.setattr(socket_memory, "_ALL_BYTES", 2_000)
    monkeypatch.setattr(socket_memory, "_INPUTS", 3)
    async with talking(gateway) as talk, talking(gateway) as other:
        assert (await talk.fail("echo", "x" * 1_000, generate=False))["code"] == "request_too_large"
        first = await talk.ask("echo", "x" * 800, generate=False)
        retained = [await other.ask("echo", "x" * 800, generate=False) for _ in range(2)]
        assert (await talk.fail("echo", previous_response_id=first["id"]))["code"] == NOT_FOUND
        for each in retained:
            assert text_of(await other.ask("echo", "y", previous_response_id=each["id"])) == "y"
        small = [await talk.ask("echo", "x", generate=False) for _ in range(4)]
        assert (await talk.fail("echo", previous_response_id=small[0]["id"]))["code"] == NOT_FOUND
        assert text_of(await talk.ask("echo", "y", previous_response_id=small[1]["id"])) == "y"


# Errors


@pytest.mark.parametrize("kind", ["text", "bytes"])
async def test_invalid_message_is_answered_and_the_connection_stays_open(talk: Talk, kind: str) -> None:
    for name, body in BODIES.items():
        if kind == "bytes" or name not in ("invalid UTF-8", "UTF-16"):
            await talk.connection.send(body if kind == "bytes" else body.decode())
            event = await talk.next()
            is_error(event)
            assert event["status"] in (400, 413), name
    assert text_of(await talk.ask("echo", "still here")) == "still here"


@pytest.mark.parametrize(
    ("message", "status", "param", "code"),
    [
        ({"type": "response.create", "input": "x"}, 400, "model", "missing_required_parameter"),
        ({"type": "response.create", "model": "nobody"}, 404, "model", "model_not_found"),
        ({"type": "response.create", "model": "echo"}, 400, "input", None),
        ({"type": "response.create", "model": "echo", "input": "x", "background": True}, 400, "background", None),
        ({"type": "response.create", "model": "echo", "input": "x", "stream_id": "x" * 65}, 400, "stream_id", None),
        ({"type": "response.create", "model": "echo", "input": "x", "stream_id": 1}, 400, "stream_id", None),
        ({"type": "response.create", "model": "echo", "input": "x", "generate": "no"}, 400, "generate", None),
        ({"type": "response.cancel", "model": "echo", "input": "x"}, 400, "type", None),
        ({"model": "echo", "input": "x"}, 400, "type", None),
    ],
)
async def test_invalid_message_is_answered_with_the_field_name(
    talk: Talk, message: Json, status: int, param: str, code: str | None
) -> None:
    await talk.connection.send(json.dumps(message))
    event = await talk.next()
    error = is_error(event)
    assert (event["status"], error["param"], error["code"]) == (status, param, code)
    assert error["headers"] == {"x-should-retry": "false"}
    assert "stream_id" not in event


async def test_wrong_types_in_every_member_are_answered(tmp_path: Path) -> None:
    """Check the members of a message. Other tests check those of a body over HTTP."""
    whole: Any = {
        "type": "response.create",
        "model": "echo",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "generate": True,
        "stream_id": "s",
        "stream": True,
        "stream_options": {"include_obfuscation": False},
        "background": False,
        "store": False,
        "previous_response_id": None,
        "conversation": None,
        "prompt_cache_options": {"prewarm": False},
    }
    async with besieged(tmp_path) as gateway, talking(gateway) as talk:
        for name, message in mutations(whole):
            await talk.connection.send(json.dumps(message))
            ended = await talk.ends()
            assert ended["type"] == "response.completed" or is_error(ended), name


async def test_failing_agent_fails_only_its_response(talk: Talk) -> None:
    failed = await talk.ask("failing")
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
    assert text_of(await talk.ask("echo", "still here")) == "still here"


async def test_steering_is_rejected_while_the_response_continues(talk: Talk) -> None:
    await talk.send("gated")
    events = await talk.until("response.output_text.delta")
    steer = {"input": "not so", "previous_response_id": events[0]["response"]["id"]}
    await talk.connection.send(json.dumps({"type": "response.steer", **steer}))
    refused = (await talk.until("response.steer.failed"))[-1]
    assert (refused["steer"], refused["error"]["code"]) == (steer, "steering_not_supported")
    GATE.set()
    assert text_of((await talk.ends())["response"]) == "first last"


async def test_message_beyond_the_queue_limit_is_rejected(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_socket, "_WAITING", 2)
    async with talking(gateway) as talk:
        await talk.send("gated")
        await talk.until("response.output_text.delta")
        for text in ("one", "two", "three"):
            await talk.send("echo", text)
        assert is_error(await talk.next())["code"] == "rate_limit_exceeded"
        GATE.set()
        texts = [text_of((await talk.ends())["response"]) for _ in range(3)]
        assert texts == ["first last", "one", "two"]
        assert text_of(await talk.ask("echo", "four")) == "four"


# Disconnects, expiry and shutdown


async def test_disconnect_cancels_an_unstored_response(gateway: Running) -> None:
    async with talking(gateway) as talk:
        await talk.send("waiting", store=False)
        await talk.until("response.output_text.delta")
        await talk.send("echo", "waits")
    await within(ENDED.wait(), "the end of the agent")


async def test_disconnect_during_submission_cancels_an_unstored_response(gateway: Running) -> None:
    never = asyncio.get_running_loop().create_future()
    async with PausedWriter(gateway.hub) as held:
        async with talking(gateway) as talk:
            await talk.send("waiting", store=False)
            await held.queued(never)
        assert not STARTED.is_set()
    await within(ENDED.wait(), "the end of the agent")


async def test_stored_response_can_be_read_after_a_disconnect(gateway: Running) -> None:
    async with talking(gateway) as talk:
        await talk.send("gated")
        events = await talk.until("response.output_text.delta")
    GATE.set()
    answer = await gateway.http.get(f"{AT}/{events[0]['response']['id']}?stream=true")
    assert "first last" in answer.text


async def test_expired_connection_is_closed_with_an_error(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_socket, "_LIFETIME", 0.05)
    async with talking(gateway) as talk:
        code, events = await talk.closes()
    assert code == CloseCode.GOING_AWAY
    assert is_error(events[-1])["code"] == "websocket_connection_limit_reached"


async def test_response_in_progress_at_expiry_is_sent_to_its_end(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_socket, "_LIFETIME", 2.0)
    async with talking(gateway) as talk:
        await talk.send("gated")
        await talk.until("response.output_text.delta")
        await talk.send("echo", "too late")
        asyncio.get_running_loop().call_later(2.1, GATE.set)
        code, events = await talk.closes()
    assert text_of(events[-2]["response"]) == "first last"
    assert is_error(events[-1])["code"] == "websocket_connection_limit_reached"
    assert code == CloseCode.GOING_AWAY


async def test_shutdown_closes_connections_with_service_restart(tmp_path: Path) -> None:
    """Check a client that waits for a response, and an idle one. Official clients reconnect after this close code
    (openai 3.52.0, types/websocket_reconnection.py)."""
    with served(tmp_path) as process:
        async with (
            connected(process.url, AT) as idle,
            connected(process.url, AT) as working,
        ):
            await Talk(working).send("slow", "60")
            await Talk(working).until("response.created")
            stopping = asyncio.get_running_loop().run_in_executor(None, process.stop)
            codes = [(await Talk(each).closes())[0] for each in (idle, working)]
            logs = await stopping
    assert codes == [CloseCode.SERVICE_RESTART] * 2
    assert "Traceback" not in logs


async def test_shutdown_cuts_off_a_response_without_an_end_event(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS) as gateway, talking(gateway) as talk:
        await talk.send("gated")
        await talk.until("response.output_text.delta")
        gateway.hub.close_readers()
        code, events = await talk.closes()
    assert (code, events) == (CloseCode.SERVICE_RESTART, [])


# Access


async def test_connection_needs_a_key_and_hides_other_owners_responses(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS, keys={"alice": ALICE, "bob": BOB}) as gateway:
        refused = await refusal(gateway.url, AT)
        assert refused.status_code == 401
        check_error("openai", refused)
        alice, bob = ({"Authorization": f"Bearer {key}"} for key in (ALICE, BOB))
        async with (
            talking(gateway, additional_headers=alice) as hers,
            talking(gateway, additional_headers=bob) as his,
        ):
            stored, with_question = await hers.ask("echo", "one"), await hers.ask("ask")
            unstored = await hers.ask("echo", "two", store=False)
            prewarmed = await hers.ask("echo", "three", generate=False)
            for each in (stored, with_question, unstored, prewarmed):
                error = await his.fail("echo", previous_response_id=each["id"])
                unknown = f"resp_{'0' * 32}"
                nothing = await his.fail("echo", previous_response_id=unknown)
                assert {**error, "message": error["message"].replace(each["id"], unknown)} == nothing
            (call,) = calls_of(with_question)
            assert (await his.fail("ask", [output(call, "Bob")]))["code"] == "tool_call_not_found"
            assert text_of(await hers.ask("ask", [output(call, "Ada")])) == "Hello, Ada."


async def test_connection_with_an_unknown_host_is_rejected(gateway: Running) -> None:
    refused = await refusal(gateway.url.replace("127.0.0.1", "evil.example"), AT, host="127.0.0.1")
    assert refused.status_code == 403
    check_error("openai", refused)


async def test_connection_from_a_foreign_origin_is_rejected(gateway: Running) -> None:
    refused = await refusal(gateway.url, AT, {"Origin": "https://evil.example"})
    assert refused.status_code == 401
    check_error("openai", refused)
