"""Agents of another gateway, called as it serves them in AIEF: what two of them carry between each other."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from babelgate.adapters.aief import Client, discover, upstream_name
from babelgate.canonical import FaultCode
from babelgate.canonical.event import ArtifactAdded, LossNoted, PartAdded, StepStarted, UpstreamBound
from babelgate.conformance.contract import Dialogue, Transcript
from babelgate.gateway.registered_agent import RegisteredAgent
from tests import loopback
from tests.adapters.a2a.talk import Talk
from tests.adapters.aief.site import BOUND, Site, opened, within


@pytest.fixture
async def far(tmp_path: Path) -> AsyncGenerator[Site]:
    (folder := tmp_path / "far").mkdir()
    async with opened(folder) as made:
        yield made


@pytest.fixture
async def http() -> AsyncGenerator[httpx.AsyncClient]:
    async with loopback.client() as made:
        yield made


def talk(far: Site, http: httpx.AsyncClient, name: str) -> Dialogue:
    """Without the extension, by which all is told as it is (tests/behaviour/test_whole.py)."""
    return Talk(Client(f"{far.url}/agent/{name}", name, extension="off", http=http), bound=BOUND)


def ids(heard: Transcript) -> dict[str, str]:
    found: dict[str, str] = {}
    for event in heard.events:
        if isinstance(event, UpstreamBound):
            found |= event.ids
    return found


async def test_its_agents_are_found_under_their_names(far: Site, http: httpx.AsyncClient) -> None:
    [info] = await discover(f"{far.url}/agent/steps", http)
    assert (info.name, upstream_name(info), info.remembers) == ("steps", "steps", False)
    [default] = await discover(far.url, http)
    assert default.name == "echo"


async def test_an_answer_arrives_and_the_next_turn_is_on_the_same_thread(far: Site, http: httpx.AsyncClient) -> None:
    dialogue = talk(far, http, "echo")
    first, second = await dialogue.say("One"), await dialogue.say("Two")
    assert [first.text, second.text] == ["One", "Two"]
    assert ids(first)["context"] == ids(second)["context"]
    steps = await far.steps("echo", ids(first)["context"])
    assert [(step["input"], step["output"]) for step in steps] == [("One", "One"), ("Two", "Two")]


async def test_marked_steps_come_with_their_names(far: Site, http: httpx.AsyncClient) -> None:
    heard = await talk(far, http, "steps").say("Hello")
    assert [event.name for event in heard.events if isinstance(event, StepStarted)] == ["plan", "work", "review"]
    assert [message.text.strip() for message in heard.messages] == ["Planned.", "Worked.", "Reviewed."]


async def test_a_question_is_asked_and_answered(far: Site, http: httpx.AsyncClient) -> None:
    dialogue = talk(far, http, "ask")
    asked = await dialogue.say("Hello")
    assert [question.message.text for question in asked.questions] == ["What is your name?"]
    assert asked.text == ""
    assert (await dialogue.answer("Ada")).text == "Hello, Ada."


async def test_questions_come_one_at_a_time_with_their_schemas(far: Site, http: httpx.AsyncClient) -> None:
    dialogue = talk(far, http, "approve")
    [first] = (await dialogue.say("Hello")).questions
    assert first.ask == "approval"
    assert first.answer_schema is not None
    [second] = (await dialogue.answer({"approved": True})).questions
    assert second.message.text != first.message.text
    done = await dialogue.answer({"approved": False})
    assert (done.questions, done.fault) == ([], None)


async def test_a_question_in_the_middle_of_steps_keeps_their_order(far: Site, http: httpx.AsyncClient) -> None:
    dialogue = talk(far, http, "interview")
    asked = await dialogue.say("x")
    assert (asked.text, [question.message.text for question in asked.questions]) == ("Hello.", ["Who?"])
    assert (await dialogue.answer("Ada")).text == "Ada.Thanks."


async def test_files_go_there_and_come_back(far: Site, http: httpx.AsyncClient) -> None:
    dialogue = talk(far, http, "kinds")
    heard = await dialogue.say("x")
    made = {f"{e.folder or ''}{e.name}": e.part for e in heard.events if isinstance(e, ArtifactAdded)}
    assert set(made) == {"notes.txt", "table.json", "far.pdf.uri", "src/deep/evil.py", "said.bin"}


async def test_structured_output_stays_what_it_is(far: Site, http: httpx.AsyncClient) -> None:
    heard = await talk(far, http, "json").say("two words")
    assert heard.ended is not None
    assert heard.ended.output == {"text": "two words", "words": 2, "length": 9}
    assert heard.messages == []


async def test_input_that_is_no_message_arrives_as_it_was(far: Site, http: httpx.AsyncClient) -> None:
    heard = await talk(far, http, "given").say({"a": [1, None], "b": {}})
    assert heard.ended is not None
    assert heard.ended.output == {
        "text": '{"a": [1, null], "b": {}}',
        "data": {"a": [1, None], "b": {}},
        "files": [],
    }


async def test_a_tool_that_the_agent_called_is_told(far: Site, http: httpx.AsyncClient) -> None:
    heard = await talk(far, http, "tools").say("two words")
    assert [event.kind for event in heard.events if event.kind.startswith("tool")] == ["tool_started", "tool_ended"]


async def test_a_fault_is_told_in_its_own_words_after_what_was_said(far: Site, http: httpx.AsyncClient) -> None:
    heard = await talk(far, http, "fail").say("Boom")
    assert heard.fault is not None
    assert heard.fault.code is FaultCode.AGENT_FAILED
    assert "Boom" in heard.fault.message
    assert [event.part.kind for event in heard.events if isinstance(event, PartAdded)] == ["text"]


async def test_what_got_lost_there_is_told_here(far: Site, http: httpx.AsyncClient) -> None:
    heard = await talk(far, http, "graph").say("x")
    assert {event.feature for event in heard.events if isinstance(event, LossNoted)} == {"custom", "step"}


async def test_a_turn_after_one_that_was_left_is_not_swallowed_by_it(far: Site, http: httpx.AsyncClient) -> None:
    """The other gateway would show the rest of the run that was left, and its agent would never read the input."""
    dialogue = talk(far, http, "staged")
    running = asyncio.ensure_future(dialogue.say("One"))
    await within(far.gates.began.wait())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    far.gates.go.set()
    heard = await dialogue.say("Two")
    assert [message.text for message in heard.messages] == ["Done one.", "Done two."]
    tasks = (await far.http.get(far.at("staged"))).json()["tasks"]
    assert [task["input"] for task in tasks] == ["Two", "One"]


# Behind a gateway of this kind


@pytest.fixture
async def near(far: Site, tmp_path: Path) -> AsyncGenerator[Site]:
    async with loopback.client() as http:
        registered: dict[str, RegisteredAgent] = {}
        for name in ("echo", "ask", "steps", "gated", "given"):
            url = f"{far.url}/agent/{name}"
            [info] = await discover(url, http)
            registered[name] = RegisteredAgent(info, Client(url, upstream_name(info), http=http))
        async with opened(tmp_path, registered) as made:
            yield made


async def test_an_aief_client_sees_the_steps_of_the_agent_behind_two_gateways(near: Site) -> None:
    task_id = await near.create("steps")
    done = [await near.post("steps", task_id)]
    while not done[-1]["is_last"]:
        done.append(await near.post("steps", task_id))
    assert [(step["name"], step["output"].strip()) for step in done] == [
        ("plan", "Planned."),
        ("work", "Worked."),
        ("review", "Reviewed."),
    ]


async def test_an_acp_client_answers_its_question(near: Site) -> None:
    body = {"agent_name": "ask", "input": [{"role": "user", "parts": [{"content": "x"}]}], "mode": "sync"}
    run = (await near.http.post("/acp/runs", content=json.dumps(body))).json()
    assert run["status"] == "awaiting"
    assert run["await_request"]["message"]["parts"][0]["content"] == "What is your name?"
    answer: dict[str, Any] = {"type": "message", "message": {"role": "user", "parts": [{"content": "Ada"}]}}
    resumed = {"run_id": run["run_id"], "await_resume": answer, "mode": "sync"}
    done = (await near.http.post(f"/acp/runs/{run['run_id']}", content=json.dumps(resumed))).json()
    assert (done["status"], done["output"][-1]["parts"][0]["content"]) == ("completed", "Hello, Ada.")


async def test_an_upload_reaches_the_agent_behind_two_gateways(near: Site) -> None:
    task_id = await near.create("given", "Look")
    await near.upload("given", task_id, "a.bin", b"\0\1\2")
    step = await near.post("given", task_id)
    assert step["additional_output"]["output"]["files"] == [["a.bin", 3]]


async def test_a_cancel_here_lets_go_of_the_step_there_and_it_goes_on(near: Site, far: Site) -> None:
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


async def test_the_next_turn_goes_on_there_with_the_conversation(near: Site, far: Site) -> None:
    task_id = await near.create("echo", "One")
    first = await near.post("echo", task_id)
    second = await near.post("echo", task_id, "Two")
    assert (first["output"], second["output"]) == ("One", "Two")
    [task] = (await far.http.get(far.at("echo"))).json()["tasks"]
    assert [step["input"] for step in await far.steps("echo", task["task_id"])] == ["One", "Two"]
