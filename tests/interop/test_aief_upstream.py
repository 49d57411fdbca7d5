"""The agent of a server made with the official AIEF SDK for Python, unchanged, called by our client and through the
gateway. Its server is one agent, and the input of a task names the one that is meant: `echo: Hello`."""

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
    async with start_server("aief") as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def http() -> AsyncGenerator[httpx.AsyncClient]:
    async with loopback.client() as made:
        yield made


def talk(server: OfficialServer, http: httpx.AsyncClient) -> Talk:
    return Talk(Client(server.url, http=http), bound=BOUND)


def contexts(heard: Transcript) -> list[str]:
    bound = [event.ids for event in heard.events if isinstance(event, UpstreamBound)]
    return [ids["context"] for ids in bound if ids.get("context")]


async def test_it_is_found_although_nothing_describes_it(server: OfficialServer, http: httpx.AsyncClient) -> None:
    assert [info.name for info in await discover(server.url, http)] == ["agent"]


async def test_its_steps_are_done_one_after_the_other(server: OfficialServer, http: httpx.AsyncClient) -> None:
    heard = await talk(server, http).say("steps: Hello")
    assert [event.name for event in heard.events if isinstance(event, StepStarted)] == ["plan", "work", "review"]
    assert [message.text for message in heard.messages] == ["plan: Hello", "work: Hello", "review: Hello"]


async def test_files_go_there_and_come_back(server: OfficialServer, http: httpx.AsyncClient) -> None:
    file = FilePart(name="in.txt", inline=b"in", media_type="text/plain")
    said = Message(role="user", parts=(TextPart(text="files: A report"), file))
    heard = await talk(server, http).say(said)
    made = {event.name: event for event in heard.events if isinstance(event, ArtifactAdded)}
    assert set(made) == {"copy-of-in.txt", "report.txt"}
    assert {event.folder for event in made.values()} == {"out"}
    assert [event.part.size for event in made.values() if isinstance(event.part, FilePart)] == [2, 8]


async def test_a_failure_is_a_fault_and_the_next_turn_is_a_new_task(
    server: OfficialServer, http: httpx.AsyncClient
) -> None:
    """It answers 500 without a word, and leaves the step running for ever."""
    dialogue = talk(server, http)
    failed = await dialogue.say("fail: Boom")
    assert failed.fault is not None
    assert failed.fault.code is FaultCode.AGENT_FAILED
    assert contexts(failed) == []
    assert (await dialogue.say("echo: Again")).text == "echo: Again"


async def test_after_the_last_step_the_next_turn_is_a_new_task(server: OfficialServer, http: httpx.AsyncClient) -> None:
    """It answers 500 where no step is left, and hangs up."""
    dialogue = talk(server, http)
    first, second = await dialogue.say("echo: One"), await dialogue.say("echo: Two")
    assert [first.text, second.text] == ["echo: One", "echo: Two"]
    assert contexts(first) != contexts(second)


async def test_the_contract_of_agents_is_kept(server: OfficialServer, http: httpx.AsyncClient) -> None:
    def make() -> Any:
        return Reminded(Client(server.url, http=http))

    await check_agent(make, text="steps: Hello", bound=BOUND)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, server: OfficialServer) -> AsyncGenerator[Running]:
    async with loopback.client() as http:
        [info] = await discover(server.url, http)
        registered = {info.name: RegisteredAgent(info, Client(server.url, http=http))}
        async with running(tmp_path_factory.mktemp("aief"), registered=registered) as made:
            yield made


async def test_a_conversation_goes_on_in_a_new_task_with_what_was_said(gateway: Running, tmp_path: Path) -> None:
    task_id = (await gateway.http.post("/ap/v1/agent/tasks", json={"input": "echo: One"})).json()["task_id"]
    steps = f"/ap/v1/agent/tasks/{task_id}/steps"
    first = (await gateway.http.post(steps)).json()
    second = (await gateway.http.post(steps, json={"input": "echo: Two"})).json()
    assert first["output"] == "echo: One"
    # What was said comes first, and so its agent is none that the program has: it gives back what it was told.
    assert second["output"].endswith("agent: echo: One\n\necho: Two")


async def test_the_files_of_a_task_are_there_after_its_last_step(gateway: Running) -> None:
    """Asked for with a "y" a step, as the protocol's Postman collection does; the server's agent knows its task."""
    task_id = (await gateway.http.post("/ap/v1/agent/tasks", json={"input": "files: A report"})).json()["task_id"]
    path = f"/ap/v1/agent/tasks/{task_id}"
    step = (await gateway.http.post(f"{path}/steps", json={"input": "y"})).json()
    assert step["is_last"]
    [artifact] = (await gateway.http.get(f"{path}/artifacts")).json()["artifacts"]
    assert (artifact["file_name"], artifact["agent_created"]) == ("report.txt", True)
    assert (await gateway.http.get(f"{path}/artifacts/{artifact['artifact_id']}")).content == b"A report"
