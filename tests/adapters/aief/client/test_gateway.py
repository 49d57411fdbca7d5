"""Client of another gateway's agents, over AIEF. `tests/pairs` tests which features two gateways carry."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from babelgate.adapters.aief import Client, discover, upstream_name
from babelgate.adapters.kit.extension import URI
from babelgate.conformance.contract import Dialogue
from babelgate.gateway.registered_agent import RegisteredAgent
from tests import loopback
from tests.adapters.a2a.talk import Talk
from tests.adapters.aief.site import BOUND, Site, opened, within


@pytest.fixture
async def far(tmp_path: Path) -> AsyncGenerator[Site]:
    (folder := tmp_path / "far").mkdir()
    async with opened(folder) as opened_site:
        yield opened_site


def talk(far: Site, http: httpx.AsyncClient, name: str) -> Dialogue:
    """Return a dialogue without the extension, which forwards all events (tests/behaviour/test_whole.py)."""
    return Talk(Client(f"{far.url}/agent/{name}", name, extension="off", http=http), bound=BOUND)


async def test_agents_of_a_gateway_are_discovered_by_name(far: Site, http: httpx.AsyncClient) -> None:
    [info] = await discover(f"{far.url}/agent/steps", http)
    assert (info.name, upstream_name(info), info.remembers) == ("steps", "steps", False)
    [default] = await discover(far.url, http)
    assert default.name == "echo"


async def test_a_question_in_the_middle_of_steps_keeps_their_order(far: Site, http: httpx.AsyncClient) -> None:
    dialogue = talk(far, http, "interview")
    reply = await dialogue.say("x")
    assert (reply.text, [question.message.text for question in reply.questions]) == ("Hello.", ["Who?"])
    assert (await dialogue.answer("Ada")).text == "Ada.Thanks."


async def test_a_turn_after_an_abandoned_one_reaches_the_agent(far: Site, http: httpx.AsyncClient) -> None:
    """Check that the client creates a new task.

    In the old one, the other gateway would return the rest of the abandoned run, and ignore the input.
    """
    dialogue = talk(far, http, "staged")
    running = asyncio.ensure_future(dialogue.say("One"))
    await within(far.gates.began.wait())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    far.gates.go.set()
    reply = await dialogue.say("Two")
    assert [message.text for message in reply.messages] == ["Done one.", "Done two."]
    tasks = (await far.http.get(far.at("staged"))).json()["tasks"]
    assert [task["input"] for task in tasks] == ["Two", "One"]


# Behind another gateway


@pytest.fixture
async def near(far: Site, tmp_path: Path) -> AsyncGenerator[Site]:
    async with loopback.client() as http:
        registered: dict[str, RegisteredAgent] = {}
        for name in ("echo", "steps", "gated"):
            url = f"{far.url}/agent/{name}"
            [info] = await discover(url, http)
            registered[name] = RegisteredAgent(info, Client(url, upstream_name(info), http=http))
        async with opened(tmp_path, registered) as opened_site:
            yield opened_site


async def test_a_task_and_its_first_step_keep_separate_inputs(near: Site, far: Site) -> None:
    task_id = await near.create("echo", "task", additional_input={"a": 1})
    done = await near.post("echo", task_id, "step", additional_input={"b": 2})
    assert done["output"] == "task\n\nstep"
    (task,) = (await far.http.get(far.at("echo"))).json()["tasks"]
    (step,) = await far.steps("echo", task["task_id"])
    assert (task["input"], task["additional_input"]) == ("task", {"a": 1})
    assert (step["input"], step["additional_input"]) == ("step", {"a": 1, "b": 2})


async def test_messages_of_the_extension_replace_the_inputs(near: Site) -> None:
    task_id = await near.create("echo", "task")
    messages = [{"role": "user", "parts": [{"kind": "text", "text": "said"}]}]
    done = await near.post("echo", task_id, "step", additional_input={URI: {"messages": messages}})
    assert done["output"] == "said"


async def test_a_client_sees_the_agents_steps_behind_two_gateways(near: Site) -> None:
    task_id = await near.create("steps")
    done = [await near.post("steps", task_id)]
    while not done[-1]["is_last"]:
        done.append(await near.post("steps", task_id))
    assert [(step["name"], step["output"].strip()) for step in done] == [
        ("plan", "Planned."),
        ("work", "Worked."),
        ("review", "Reviewed."),
    ]


async def test_a_cancel_does_not_stop_the_upstream_step(near: Site, far: Site) -> None:
    body = {"agent_name": "gated", "input": [{"role": "user", "parts": [{"content": "x"}]}], "mode": "async"}
    run = (await near.http.post("/acp/runs", content=json.dumps(body))).json()
    await within(far.gates.began.wait())
    assert (await near.http.post(f"/acp/runs/{run['run_id']}/cancel")).status_code == 202
    headers = (await near.http.get(f"/acp/runs/{run['run_id']}")).headers
    bound = (await near.hub.reads.run("default", headers["babelgate-run"])).upstream
    far.gates.go.set()
    [step] = await far.steps("gated", bound["task"])
    assert step["status"] in ("running", "completed")
    assert (await within(near.http.get(f"/acp/runs/{run['run_id']}"))).json()["status"] in ("cancelling", "cancelled")


async def test_the_next_turn_continues_the_upstream_task(near: Site, far: Site) -> None:
    task_id = await near.create("echo", "One")
    first = await near.post("echo", task_id)
    second = await near.post("echo", task_id, "Two")
    assert (first["output"], second["output"]) == ("One", "Two")
    [task] = (await far.http.get(far.at("echo"))).json()["tasks"]
    assert [step["input"] for step in await far.steps("echo", task["task_id"])] == ["One", "Two"]
