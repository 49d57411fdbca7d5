"""What the official ACP client sees of an agent through the gateway is what it sees of the agent's own server.

The server is made with the official SDK, unmodified; each test asks it directly and through the gateway, and compares.
The subjects are those of the SDK's own end-to-end tests, and what they leave out.
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
OWN: Final = ("run_id", "session_id", "created_at", "finished_at")
"""Of a run, what each server says for itself."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncGenerator[OfficialServer]:
    async with start_server("acp", gated=False) as made:
        yield made


async def registered(url: str) -> dict[str, RegisteredAgent]:
    async with loopback.client() as http:
        infos = await discover(url, http)
    return {info.name: RegisteredAgent(info, Client(url, upstream_name(info))) for info in infos}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, server: OfficialServer) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("acp"), registered=await registered(server.url)) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def direct(server: OfficialServer) -> AsyncGenerator[OfficialClient]:
    async with start_client("acp", base_url=server.url) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def through(gateway: Running) -> AsyncGenerator[OfficialClient]:
    async with start_client("acp", base_url=f"{gateway.url}/acp") as made:
        yield made


def texts(messages: list[Any]) -> list[str]:
    return ["".join(part["content"] or "" for part in said["parts"] if part["name"] is None) for said in messages]


def timeless(value: Any) -> Any:
    """Without the times at which two runs said the same."""
    match value:
        case list():
            return [timeless(each) for each in cast("list[Any]", value)]
        case dict():
            members = cast("dict[str, Any]", value).items()
            return {name: timeless(each) for name, each in members if name not in ("created_at", "completed_at")}
        case _:
            return value


def shown(run: Any) -> Any:
    return {name: value for name, value in timeless(run).items() if name not in OWN}


async def test_manifests_are_equal(direct: OfficialClient, through: OfficialClient) -> None:
    manifests = await direct.call("agents")
    assert [unannounced(manifest) for manifest in await through.call("agents")] == manifests
    for manifest in manifests:
        assert unannounced(await through.call("agent", name=manifest["name"])) == manifest


def unannounced(manifest: Any) -> Any:
    """Without the extension, which the gateway adds, where the official client shows nulls beside it."""
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
    theirs = await direct.call("run_sync", agent=agent, input=INPUT)
    ours = await through.call("run_sync", agent=agent, input=INPUT)
    assert shown(ours) == shown(theirs)
    events = await through.call("run_stream", agent=agent, input=INPUT)
    assert shown(events[-1]["run"]) == shown(theirs)
    assert await through.call("run_events", run_id=events[0]["run"]["run_id"]) == events
    assert shown(await through.call("run_status", run_id=events[0]["run"]["run_id"])) == shown(theirs)


@pytest.mark.parametrize(
    "agent", ["stream", "content_types", "artifacts", "artifact_alone", "trajectories", "metadata"]
)
async def test_a_stream_has_the_same_events_in_the_same_order(
    direct: OfficialClient, through: OfficialClient, agent: str
) -> None:
    def told(events: list[Any]) -> list[Any]:
        """A message that is said whole is told of twice by the SDK's server, and in the role that the agent gave it."""
        return [{"type": event["type"], "part": event.get("part"), "generic": event.get("generic")} for event in events]

    theirs = await direct.call("run_stream", agent=agent, input=INPUT)
    assert told(await through.call("run_stream", agent=agent, input=INPUT)) == told(theirs)


async def test_messages_keep_their_times(through: OfficialClient) -> None:
    run = await through.call("run_sync", agent="message_echo", input=INPUT)
    [said] = run["output"]
    assert (said["created_at"], said["completed_at"]) == (INPUT[0]["created_at"], INPUT[0]["completed_at"])


async def test_an_agent_knows_the_session_by_the_id_that_its_caller_has(through: OfficialClient) -> None:
    for session in (None, "one", "one"):
        run = await through.call("run_sync", agent="session_id", input="x", session=session)
        assert run["output"][0]["parts"][0]["content"] == run["session_id"]


async def test_a_session_holds_the_same_messages_with_the_same_times(
    direct: OfficialClient, through: OfficialClient
) -> None:
    said: list[list[Any]] = []
    for client in (direct, through):
        await client.call("run_sync", agent="history_echo", input=INPUT, session="held")
        run = await client.call("run_sync", agent="history_echo", input=INPUT, session="held")
        said += [run["output"], await client.call("history", session="held")]
    assert said[2] == said[0]
    assert len(said[0]) == 3
    # The SDK's server records a message in the role that the agent gave it, and shows it in its own.
    assert [timeless({**each, "role": ""}) for each in said[3]] == [timeless({**each, "role": ""}) for each in said[1]]


async def test_a_question_without_words_is_asked_and_answered_without_words(
    direct: OfficialClient, through: OfficialClient
) -> None:
    runs: list[Any] = []
    for client in (direct, through):
        asked = await client.call("run_sync", agent="ask_nothing", input="x")
        done = await client.call("run_resume_sync", run_id=asked["run_id"], answer={"parts": []})
        # The SDK's server never takes a question away.
        runs.append([shown(asked), {**shown(done), "await_request": None}])
    assert runs[1] == runs[0]


async def test_two_questions_of_one_run_are_asked_and_answered(through: OfficialClient) -> None:
    run = await through.call("run_sync", agent="ask_twice", input="x")
    for answer in ("Ada", "Lovelace"):
        assert run["status"] == "awaiting"
        run = await through.call("run_resume_sync", run_id=run["run_id"], answer=answer)
    assert texts(run["output"]) == ["Two questions. ", "Hello, Ada Lovelace."]


async def test_an_answer_to_a_completed_run_never_reaches_its_server(
    server: OfficialServer, gateway: Running, through: OfficialClient
) -> None:
    """The SDK's server would take it, and leave its run in progress for ever."""
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
    # A server of its own: an agent that was cancelled before may still stand at the gate, and take the release.
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
