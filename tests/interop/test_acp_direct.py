"""Comparison of an official ACP server called directly and through the gateway.

The server uses the unmodified official SDK. Each test calls it both ways with the official client and compares the
results. The subjects are those of the SDK's end-to-end tests, and those that they omit.
"""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final, cast

import pytest
import pytest_asyncio

from babelgate.adapters.acp.agents import upstream_name
from babelgate.adapters.acp.client import Client, discover
from babelgate.adapters.kit.extension import URI
from babelgate.gateway.registered_agent import RegisteredAgent
from tests import loopback
from tests.interop.acp import texts
from tests.interop.driver import OfficialClient, OfficialServer, start_client, start_server
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

INPUT: Final = [
    {
        "role": "user",
        "parts": [
            {"content": "Hello!"},
            {"content": '{"key": "value"}', "content_type": "application/json", "color": "blue"},
            {"name": "a.txt", "content": "A note"},
            {"name": "b.bin", "content": "AAEC", "content_encoding": "base64", "content_type": "image/png"},
        ],
        "created_at": "2025-01-02T03:04:05.000006Z",
        "completed_at": "2025-01-02T03:04:06Z",
    }
]
SERVER_MEMBERS: Final = ("run_id", "session_id", "created_at", "finished_at")
"""Members of a run that differ between servers."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncGenerator[OfficialServer]:
    async with start_server("acp", gated=False) as server:
        yield server


async def registered(url: str) -> dict[str, RegisteredAgent]:
    async with loopback.client() as http:
        infos = await discover(url, http)
    return {info.name: RegisteredAgent(info, Client(url, upstream_name(info))) for info in infos}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, server: OfficialServer) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("acp"), registered=await registered(server.url)) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def direct(server: OfficialServer) -> AsyncGenerator[OfficialClient]:
    async with start_client("acp", base_url=server.url) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def through(gateway: Running) -> AsyncGenerator[OfficialClient]:
    async with start_client("acp", base_url=f"{gateway.url}/acp") as client:
        yield client


def without_times(value: Any) -> Any:
    """Return the value without the times, which differ between two runs."""
    match value:
        case list():
            return [without_times(each) for each in cast("list[Any]", value)]
        case dict():
            members = cast("dict[str, Any]", value).items()
            return {name: without_times(each) for name, each in members if name not in ("created_at", "completed_at")}
        case _:
            return value


def comparable(run: Any) -> Any:
    return {name: value for name, value in without_times(run).items() if name not in SERVER_MEMBERS}


async def test_manifests_are_equal(direct: OfficialClient, through: OfficialClient) -> None:
    manifests = await direct.call("agents")
    assert [without_extension(manifest) for manifest in await through.call("agents")] == manifests
    for manifest in manifests:
        assert without_extension(await through.call("agent", name=manifest["name"])) == manifest


def without_extension(manifest: Any) -> Any:
    """Return the manifest without the gateway's extension, and without the nulls that the official client adds to
    it."""
    annotations = manifest["metadata"].pop("annotations")
    assert URI in annotations
    others = {name: value for name, value in annotations.items() if name != URI and value is not None}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": others or None}}


@pytest.mark.parametrize(
    "agent",
    [
        *("echo", "message", "message_echo", "history_echo", "files", "metadata", "fail"),
        *("give_error", "raise_error", "content_types", "artifacts", "artifact_alone", "trajectories"),
    ],
)
async def test_a_run_is_equal_in_every_mode(direct: OfficialClient, through: OfficialClient, agent: str) -> None:
    expected = await direct.call("run_sync", agent=agent, input=INPUT)
    run = await through.call("run_sync", agent=agent, input=INPUT)
    assert comparable(run) == comparable(expected)
    events = await through.call("run_stream", agent=agent, input=INPUT)
    assert comparable(events[-1]["run"]) == comparable(expected)
    assert await through.call("run_events", run_id=events[0]["run"]["run_id"]) == events
    assert comparable(await through.call("run_status", run_id=events[0]["run"]["run_id"])) == comparable(expected)


@pytest.mark.parametrize(
    "agent", ["stream", "content_types", "artifacts", "artifact_alone", "trajectories", "metadata"]
)
async def test_a_stream_has_the_same_events_in_the_same_order(
    direct: OfficialClient, through: OfficialClient, agent: str
) -> None:
    def parts(events: list[Any]) -> list[Any]:
        # The SDK's server sends a whole message twice, and in the role that the agent chose.
        return [{"type": event["type"], "part": event.get("part"), "generic": event.get("generic")} for event in events]

    expected = await direct.call("run_stream", agent=agent, input=INPUT)
    assert parts(await through.call("run_stream", agent=agent, input=INPUT)) == parts(expected)


async def test_messages_keep_their_times(through: OfficialClient) -> None:
    run = await through.call("run_sync", agent="message_echo", input=INPUT)
    [message] = run["output"]
    assert (message["created_at"], message["completed_at"]) == (INPUT[0]["created_at"], INPUT[0]["completed_at"])


async def test_an_agent_receives_the_session_id_of_its_caller(through: OfficialClient) -> None:
    for session in (None, "one", "one"):
        run = await through.call("run_sync", agent="session_id", input="x", session=session)
        assert run["output"][0]["parts"][0]["content"] == run["session_id"]


async def test_sessions_hold_the_same_messages_and_times(direct: OfficialClient, through: OfficialClient) -> None:
    histories: list[list[Any]] = []
    for client in (direct, through):
        await client.call("run_sync", agent="history_echo", input=INPUT, session="held")
        run = await client.call("run_sync", agent="history_echo", input=INPUT, session="held")
        histories += [run["output"], await client.call("history", session="held")]
    assert histories[2] == histories[0]
    assert len(histories[0]) == 3
    # The SDK's server stores a message in the role that the agent chose, and shows it in another.
    assert [without_times({**each, "role": ""}) for each in histories[3]] == [
        without_times({**each, "role": ""}) for each in histories[1]
    ]


async def test_an_empty_question_takes_an_empty_answer(direct: OfficialClient, through: OfficialClient) -> None:
    runs: list[Any] = []
    for client in (direct, through):
        paused = await client.call("run_sync", agent="ask_nothing", input="x")
        done = await client.call("run_resume_sync", run_id=paused["run_id"], answer={"parts": []})
        # The SDK's server never removes a question.
        runs.append([comparable(paused), {**comparable(done), "await_request": None}])
    assert runs[1] == runs[0]


async def test_two_questions_of_one_run_are_answered(through: OfficialClient) -> None:
    run = await through.call("run_sync", agent="ask_twice", input="x")
    for answer in ("Ada", "Lovelace"):
        assert run["status"] == "awaiting"
        run = await through.call("run_resume_sync", run_id=run["run_id"], answer=answer)
    assert texts(run["output"]) == ["Two questions. ", "Hello, Ada Lovelace."]


async def test_an_answer_to_a_completed_run_never_reaches_its_server(
    server: OfficialServer, gateway: Running, through: OfficialClient
) -> None:
    """Answer a completed run. The SDK's server would accept it, and the run would stay in progress."""
    run = await through.call("run_sync", agent="ask", input="x")
    await through.call("run_resume_sync", run_id=run["run_id"], answer="Ada")
    answer = {"await_resume": {"type": "message", "message": {"parts": [{"content": "Again"}]}}, "mode": "sync"}
    refused = await gateway.http.post(f"/acp/runs/{run['run_id']}", content=json.dumps(answer))
    assert refused.status_code == 403
    headers = (await gateway.http.get(f"/acp/runs/{run['run_id']}")).headers
    bound = (await gateway.hub.reads.run("default", headers["babelgate-run"])).upstream
    async with loopback.client(base_url=server.url) as http:
        assert (await http.get(f"/runs/{bound['run']}")).json()["status"] == "completed"


async def test_a_run_outlives_a_restart_of_the_gateway(tmp_path: Path) -> None:
    # A separate server: on a shared one, an agent cancelled earlier could use the release.
    async with start_server("acp") as server:
        async with running(tmp_path, registered=await registered(server.url)) as gateway:
            body = {"agent_name": "slow", "input": [{"role": "user", "parts": [{"content": "x"}]}], "mode": "stream"}
            async with gateway.http.stream("POST", "/acp/runs", content=json.dumps(body)) as response:
                run_id = response.headers["run-id"]
                text = ""
                async for chunk in response.aiter_text():
                    text += chunk
                    if "message.part" in text:
                        break
        server.release()
        async with running(tmp_path, registered=await registered(server.url)) as gateway:
            follow = await gateway.http.get(f"/acp/runs/{run_id}/events", headers={"Accept": "text/event-stream"})
            run = (await gateway.http.get(f"/acp/runs/{run_id}")).json()
    assert follow.text.startswith(text)
    assert run["error"] is None
    assert (run["status"], texts(run["output"])) == ("completed", ["first last"])
