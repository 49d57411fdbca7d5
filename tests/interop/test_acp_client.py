"""Every call of the official ACP client, over real sockets, to agents of the gateway."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import Ask
from babelgate.gateway import demo
from tests.interop.acp import kinds, texts
from tests.interop.driver import BOUND, ClientError, OfficialClient, start_client
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNKNOWN_ID: Final = "00000000-0000-4000-8000-000000000000"


async def ask_twice(text: str) -> AsyncGenerator[Any, Any]:
    yield "Two questions. "
    first = yield Ask("First name?")
    last = yield Ask("Last name?")
    yield f"Hello, {first} {last}."


GATE: Final = asyncio.Event()


async def gated(text: str) -> AsyncGenerator[str]:
    """Yield one word, and the next when the gate opens."""
    yield "first"
    await GATE.wait()
    yield " second"


@pytest.fixture
def gate() -> asyncio.Event:
    GATE.clear()
    return GATE


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    agents = {name: getattr(demo, name) for name in demo.__all__}
    async with running(tmp_path_factory.mktemp("acp"), {**agents, "ask_twice": ask_twice, "gated": gated}) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(gateway: Running) -> AsyncGenerator[OfficialClient]:
    async with start_client("acp", base_url=f"{gateway.url}/acp") as client:
        yield client


async def ended(client: OfficialClient, run_id: str) -> Any:
    """Return the terminal run. Poll its status, because the protocol offers nothing to wait for."""
    async with asyncio.timeout(BOUND):
        while True:
            run = await client.call("run_status", run_id=run_id)
            if run["status"] in ("completed", "failed", "cancelled"):
                return run


async def test_agents_are_listed_and_described(client: OfficialClient) -> None:
    await client.call("ping")
    agents = await client.call("agents")
    assert {"echo", "ask", "ask-twice"} <= {agent["name"] for agent in agents}
    assert (await client.call("agent", name="echo"))["input_content_types"]
    for name in ("ask_twice", "ask-twice"):
        assert (await client.call("agent", name=name))["name"] == name


async def test_a_run_in_every_mode(client: OfficialClient) -> None:
    done = await client.call("run_sync", agent="echo", input="Hello")
    assert (done["status"], texts(done["output"])) == ("completed", ["Hello"])
    created = await client.call("run_async", agent="echo", input="Hello")
    assert created["status"] == "created"
    assert texts((await ended(client, created["run_id"]))["output"]) == ["Hello"]
    text = "a\x0bb\x0cc\x1cd\x1de\x1ef\x85g\u2028h\u2029i"  # Unicode line separators
    events = await client.call("run_stream", agent="echo", input=text)
    assert texts(events[-1]["run"]["output"]) == [text]


async def test_the_first_token_arrives_before_the_agent_ends(client: OfficialClient, gate: asyncio.Event) -> None:
    tokens: list[str] = []
    async with client.stream("run_stream", agent="gated", input="x") as events:
        async for event in events:
            if event["type"] == "message.part":
                tokens.append(event["part"]["content"])
                gate.set()
    assert tokens == ["first", " second"]


async def test_a_disconnect_does_not_cancel_the_run(client: OfficialClient, gate: asyncio.Event) -> None:
    async with client.stream("run_stream", agent="gated", input="x") as events:
        run_id = (await anext(events))["run"]["run_id"]
    gate.set()
    assert (await ended(client, run_id))["status"] == "completed"


async def test_streamed_events_equal_the_list_of_events(client: OfficialClient) -> None:
    events = await client.call("run_stream", agent="stream", input="one two three")
    assert kinds(events)[:3] == ["run.created", "run.in-progress", "message.created"]
    assert kinds(events)[-2:] == ["message.completed", "run.completed"]
    assert [e["part"]["content"] for e in events if e["type"] == "message.part"] == ["one", " two", " three"]
    assert await client.call("run_events", run_id=events[0]["run"]["run_id"]) == events


async def test_a_question_is_answered_in_every_mode(client: OfficialClient) -> None:
    async def ask() -> str:
        run = await client.call("run_sync", agent="ask", input="x")
        assert (run["status"], texts([run["await_request"]["message"]])) == ("awaiting", ["What is your name?"])
        return run["run_id"]

    run = await client.call("run_resume_sync", run_id=await ask(), answer="Ada")
    assert (run["status"], texts(run["output"])) == ("completed", ["Hello, Ada."])
    run_id = await ask()
    assert (await client.call("run_resume_async", run_id=run_id, answer="Ada"))["status"] == "in-progress"
    assert texts((await ended(client, run_id))["output"]) == ["Hello, Ada."]
    run_id = await ask()
    events = await client.call("run_resume_stream", run_id=run_id, answer="Ada")
    assert (kinds(events)[0], kinds(events)[-1]) == ("run.in-progress", "run.completed")
    assert (await client.call("run_events", run_id=run_id))[-len(events) :] == events


async def test_a_streamed_run_ends_at_each_question(client: OfficialClient) -> None:
    events = await client.call("run_stream", agent="ask_twice", input="x")
    assert kinds(events)[-2:] == ["message.completed", "run.awaiting"]
    run_id = events[0]["run"]["run_id"]
    again = await client.call("run_resume_stream", run_id=run_id, answer="Ada")
    assert kinds(again) == ["run.in-progress", "run.awaiting"]
    last = await client.call("run_resume_sync", run_id=run_id, answer="Lovelace")
    assert texts(last["output"]) == ["Two questions. ", "Hello, Ada Lovelace."]


async def test_two_questions_at_once_arrive_in_turn(client: OfficialClient) -> None:
    run = await client.call("run_sync", agent="approve", input="x")
    for approved in ("true", "false"):
        assert run["status"] == "awaiting"
        answer = {"parts": [{"content_type": "application/json", "content": f'{{"approved": {approved}}}'}]}
        run = await client.call("run_resume_sync", run_id=run["run_id"], answer=answer)
    assert texts(run["output"]) == ["write: approved\nsend: not approved\n"]


async def test_a_run_is_cancelled_right_after_its_creation(client: OfficialClient, gate: asyncio.Event) -> None:
    run = await client.call("run_async", agent="gated", input="x")
    assert (await client.call("run_cancel", run_id=run["run_id"]))["status"] == "cancelling"
    done = await ended(client, run["run_id"])
    assert (done["status"], done["error"]) == ("cancelled", None)
    assert kinds(await client.call("run_events", run_id=run["run_id"]))[-1] == "run.cancelled"


async def test_files_are_sent_and_returned(client: OfficialClient) -> None:
    parts = [
        {"content": "A report"},
        {"name": "a.txt", "content": "A note"},
        {"name": "b.bin", "content": "AAEC", "content_encoding": "base64", "content_type": "image/png"},
    ]
    run = await client.call("run_sync", agent="files", input=[{"parts": parts}])
    named = {part["name"]: part["content"] for message in run["output"] for part in message["parts"]}
    assert named == {"a.txt": "A note", "b.bin": "AAEC", "report.txt": "A report"}


async def test_tool_calls_steps_and_data_are_read_by_the_client(client: OfficialClient) -> None:
    run = await client.call("run_sync", agent="tools", input="a b")
    [call] = [part["metadata"] for message in run["output"] for part in message["parts"] if part["metadata"]]
    assert (call["tool_name"], call["tool_input"], call["tool_output"]) == ("word_count", {"text": "a b"}, {"value": 2})
    assert (await client.call("run_sync", agent="steps", input="x"))["status"] == "completed"
    [part] = (await client.call("run_sync", agent="json", input="a b"))["output"][0]["parts"]
    assert part["content_type"] == "application/json"


async def test_the_failure_of_an_agent_is_a_failed_run(client: OfficialClient) -> None:
    run = await client.call("run_sync", agent="fail", input="Boom")
    assert (run["status"], run["error"]["code"], run["error"]["message"]) == (
        "failed",
        "server_error",
        "RuntimeError: Boom",
    )
    assert kinds(await client.call("run_stream", agent="fail", input="Boom"))[-1] == "run.failed"


async def test_a_session_continues_and_its_history_can_be_fetched(client: OfficialClient) -> None:
    first = await client.call("run_sync", agent="echo", input="One", session="s")
    second = await client.call("run_sync", agent="echo", input="Two", session="s")
    assert first["session_id"] == second["session_id"]
    assert len((await client.call("refresh_session", session="s"))["history"]) == 4
    history = await client.call("history", session="s")
    assert [(message["role"], text) for message, text in zip(history, texts(history), strict=True)] == [
        ("user", "One"),
        ("agent/echo", "One"),
        ("user", "Two"),
        ("agent/echo", "Two"),
    ]


async def test_another_program_continues_the_session(gateway: Running, client: OfficialClient) -> None:
    run = await client.call("run_sync", agent="echo", input="One", session="mine")
    async with start_client("acp", base_url=f"{gateway.url}/acp") as other:
        await other.call("open_session", session="other", id=run["session_id"])
        await other.call("run_sync", agent="echo", input="Two", session="other")
    assert texts(await client.call("history", session="mine")) == ["One", "One", "Two", "Two"]


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("run_sync", {"agent": "nope", "input": "x"}, "not_found"),
        ("run_stream", {"agent": "nope", "input": "x"}, "not_found"),
        ("agent", {"name": "nope"}, "not_found"),
        ("run_status", {"run_id": UNKNOWN_ID}, "not_found"),
        ("run_events", {"run_id": UNKNOWN_ID}, "not_found"),
        ("run_cancel", {"run_id": UNKNOWN_ID}, "not_found"),
        ("run_resume_sync", {"run_id": UNKNOWN_ID, "answer": "x"}, "not_found"),
        ("run_resume_sync", {"answer": "x"}, "server_error"),
        ("run_cancel", {}, "server_error"),
    ],
)
async def test_faults_have_the_codes_of_the_protocol(
    client: OfficialClient, name: str, arguments: dict[str, Any], code: str
) -> None:
    if code == "server_error":  # the run has ended
        run = await client.call("run_sync", agent="echo", input="x")
        arguments = {"run_id": run["run_id"], **arguments}
    with pytest.raises(ClientError) as caught:
        await client.call(name, **arguments)
    assert (caught.value.type, caught.value.data["code"]) == ("ACPError", code)


async def test_the_url_of_one_agent_is_a_separate_origin(gateway: Running) -> None:
    async with start_client("acp", base_url=f"{gateway.url}/agent/echo/acp") as client:
        assert [agent["name"] for agent in await client.call("agents")] == ["echo"]
        run = await client.call("run_sync", agent="echo", input="One", session="s")
        assert texts(run["output"]) == ["One"]
        assert texts(await client.call("history", session="s")) == ["One", "One"]
