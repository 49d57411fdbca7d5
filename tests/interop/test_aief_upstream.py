"""The agent of a server built with the unmodified official AIEF SDK, called by the adapter and through the gateway.

The server has one agent, and the input of a task names the behavior: `echo: Hello`.
"""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters.aief import Client, discover
from babelgate.canonical import FaultCode, FilePart, Message, TextPart
from babelgate.canonical.event import ArtifactAdded, StepStarted, UpstreamBound
from babelgate.conformance.contract import Transcript, check_agent
from babelgate.gateway.registered_agent import RegisteredAgent
from tests import loopback
from tests.adapters.a2a.talk import Reminded, Talk
from tests.interop.driver import BOUND, OfficialServer, start_server
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncGenerator[OfficialServer]:
    async with start_server("aief") as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def http() -> AsyncGenerator[httpx.AsyncClient]:
    async with loopback.client() as client:
        yield client


def talk(server: OfficialServer, http: httpx.AsyncClient) -> Talk:
    return Talk(Client(server.url, http=http), bound=BOUND)


def contexts(transcript: Transcript) -> list[str]:
    bound = [event.ids for event in transcript.events if isinstance(event, UpstreamBound)]
    return [ids["context"] for ids in bound if ids.get("context")]


async def test_an_agent_without_a_description_is_discovered(server: OfficialServer, http: httpx.AsyncClient) -> None:
    assert [info.name for info in await discover(server.url, http)] == ["agent"]


async def test_steps_run_one_after_the_other(server: OfficialServer, http: httpx.AsyncClient) -> None:
    transcript = await talk(server, http).say("steps: Hello")
    assert [event.name for event in transcript.events if isinstance(event, StepStarted)] == ["plan", "work", "review"]
    assert [message.text for message in transcript.messages] == ["plan: Hello", "work: Hello", "review: Hello"]


async def test_files_are_sent_and_returned(server: OfficialServer, http: httpx.AsyncClient) -> None:
    file = FilePart(name="in.txt", inline=b"in", media_type="text/plain")
    message = Message(role="user", parts=(TextPart(text="files: A report"), file))
    transcript = await talk(server, http).say(message)
    artifacts = {event.name: event for event in transcript.events if isinstance(event, ArtifactAdded)}
    assert set(artifacts) == {"copy-of-in.txt", "report.txt"}
    assert {event.folder for event in artifacts.values()} == {"out"}
    assert [event.part.size for event in artifacts.values() if isinstance(event.part, FilePart)] == [2, 8]


async def test_the_turn_after_a_failure_is_a_new_task(server: OfficialServer, http: httpx.AsyncClient) -> None:
    """Fail a step. The server answers 500 without a message, and the step stays running."""
    dialogue = talk(server, http)
    failed = await dialogue.say("fail: Boom")
    assert failed.fault is not None
    assert failed.fault.code is FaultCode.AGENT_FAILED
    assert contexts(failed) == []
    assert (await dialogue.say("echo: Again")).text == "echo: Again"


async def test_the_turn_after_the_last_step_is_a_new_task(server: OfficialServer, http: httpx.AsyncClient) -> None:
    """Send two turns. After the last step the server answers 500 and disconnects."""
    dialogue = talk(server, http)
    first, second = await dialogue.say("echo: One"), await dialogue.say("echo: Two")
    assert [first.text, second.text] == ["echo: One", "echo: Two"]
    assert contexts(first) != contexts(second)


async def test_the_client_meets_the_contract_of_agents(server: OfficialServer, http: httpx.AsyncClient) -> None:
    def make() -> Any:
        return Reminded(Client(server.url, http=http))

    await check_agent(make, text="steps: Hello", bound=BOUND)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, server: OfficialServer) -> AsyncGenerator[Running]:
    async with loopback.client() as http:
        [info] = await discover(server.url, http)
        registered = {info.name: RegisteredAgent(info, Client(server.url, http=http))}
        async with running(tmp_path_factory.mktemp("aief"), registered=registered) as gateway:
            yield gateway


async def test_a_conversation_continues_in_a_new_task_with_its_history(gateway: Running, tmp_path: Path) -> None:
    task_id = (await gateway.http.post("/ap/v1/agent/tasks", json={"input": "echo: One"})).json()["task_id"]
    steps = f"/ap/v1/agent/tasks/{task_id}/steps"
    first = (await gateway.http.post(steps)).json()
    second = (await gateway.http.post(steps, json={"input": "echo: Two"})).json()
    assert first["output"] == "echo: One"
    # The history comes before the new text, so no behavior matches and the server returns the whole input.
    assert second["output"].endswith("agent: echo: One\n\necho: Two")


async def test_files_of_a_task_remain_after_its_last_step(gateway: Running) -> None:
    """Send "y" with each step, as the protocol's Postman collection does. The server's agent knows its task."""
    task_id = (await gateway.http.post("/ap/v1/agent/tasks", json={"input": "files: A report"})).json()["task_id"]
    path = f"/ap/v1/agent/tasks/{task_id}"
    step = (await gateway.http.post(f"{path}/steps", json={"input": "y"})).json()
    assert step["is_last"]
    [artifact] = (await gateway.http.get(f"{path}/artifacts")).json()["artifacts"]
    assert (artifact["file_name"], artifact["agent_created"]) == ("report.txt", True)
    assert (await gateway.http.get(f"{path}/artifacts/{artifact['artifact_id']}")).content == b"A report"
