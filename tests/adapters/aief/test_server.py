"""Endpoints of AIEF on a whole gateway, and the details that its clients rely on."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from babelgate.canonical import (
    AgentInfo,
    Answers,
    Message,
    Receipt,
    RefusalPart,
    RunInput,
    RunStatus,
    Scope,
    Submission,
    TextPart,
)
from babelgate.canonical.event import RunEnded
from babelgate.canonical.json import to_json
from babelgate.canonical.thread import next_run_id
from babelgate.gateway.agents.python.agent import wrap
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.adapters.aief.site import BOUND, OWNER, Site, opened, within
from tests.adapters.langchain.site import ALONE, SHARED

pytestmark = SHARED

STEPS = "/agent/echo/ap/v1/agent/tasks"


def message(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    assert answer.headers["content-type"] == "application/json"
    assert set(body) <= {"message", "detail"}
    return answer.status_code, body["message"]


# Bodies and shapes


async def test_a_new_task_has_a_created_step_with_its_id(site: Site) -> None:
    answer = await site.http.post(site.at("inputs"), json={"input": "Hi", "additional_input": {"a": 1}})
    task = answer.json()
    assert answer.status_code == 200
    assert (task["input"], task["additional_input"], task["artifacts"]) == ("Hi", {"a": 1}, [])
    assert task["created_at"].endswith("Z")
    [step] = await site.steps("inputs", task["task_id"])
    assert (step["status"], step["is_last"]) == ("created", False)
    assert step["output"] is step["additional_output"] is None
    assert (step["input"], step["additional_input"]) == ("Hi", {"a": 1})
    assert task["steps"] == [step]
    assert site.gates.calls == []
    done = await site.post("inputs", task["task_id"])
    assert done["step_id"] == step["step_id"] == next_run_id(task["task_id"])
    assert [each["step_id"] for each in await site.steps("inputs", task["task_id"])] == [step["step_id"]]
    assert len(site.gates.calls) == 1


async def test_a_body_is_optional_in_every_form(site: Site) -> None:
    for content, headers in (
        (b"", {}),
        (b"", {"Content-Type": "application/json"}),
        (b"null", {}),
        (b"null", {"Content-Type": "application/json"}),
        (b"{}", {}),
        (b'{"input": null, "additional_input": null}', {"Content-Type": "text/plain"}),
        (b'{"unknown": 1}', {"Content-Type": "application/x-www-form-urlencoded"}),
    ):
        created = await site.http.post(STEPS, content=content, headers=headers)
        assert (created.status_code, created.json()["input"], created.json()["additional_input"]) == (200, None, {}), (
            content
        )
        done = await site.http.post(f"{STEPS}/{created.json()['task_id']}/steps", content=content, headers=headers)
        assert (done.status_code, done.json()["status"], done.json()["output"]) == (200, "completed", ""), content


WRONG = (
    *(b"[]", b'"text"', b'{"input": 1}', b'{"input": {}}', b'{"additional_input": "x"}', b'{"additional_input": []}'),
    *(b"{", b"\xff", b'{"input": "\\ud800"}'),
    *(b'{"additional_input": {"a": NaN}}', b'{"additional_input": {"a": 1e999}}'),
    b'{"additional_input": ' + b'{"a":' * 100 + b"1" + b"}" * 101,
)


async def test_a_wrong_body_is_422_with_a_message(site: Site) -> None:
    task_id = await site.create("echo")
    for content in WRONG:
        for path in (STEPS, f"{STEPS}/{task_id}/steps"):
            status, words = message(await site.http.post(path, content=content))
            assert status == 422, content
            assert words
    assert [step["status"] for step in await site.steps("echo", task_id)] == ["created"]
    answer = await site.http.post(STEPS, json={"input": 1})
    assert [each["loc"] for each in answer.json()["detail"]] == [["input"]]


async def test_a_body_over_the_limit_is_413(tmp_path: Path) -> None:
    async with opened(tmp_path, limits={"body": 1000}) as site:
        assert message(await site.http.post(STEPS, json={"input": "x" * 2000}))[0] == 413
        task_id = await site.create("echo")
        assert message(await site.upload("echo", task_id, "a.txt", b"x" * 2000))[0] == 413
        assert (await site.upload("echo", task_id, "a.txt", b"x" * 100)).status_code == 200


async def test_a_task_is_found_by_any_spelling_of_its_uuid(site: Site) -> None:
    task_id = await site.create("echo")
    assert (await site.task("echo", task_id.upper()))["task_id"] == task_id


NO_PAGES = (
    *("page_size=0", "page_size=-1", "page_size=x", "page_size=", "page_size=1.5", "page_size=99999999999"),
    *("current_page=0", "current_page=٣", "current_page=2147483648"),
)


async def test_an_invalid_page_is_422(site: Site) -> None:
    task_id = await site.create("echo")
    for query in NO_PAGES:
        for path in (STEPS, f"{STEPS}/{task_id}/steps", f"{STEPS}/{task_id}/artifacts"):
            answer = await site.http.get(f"{path}?{query}")
            assert message(answer)[0] == 422, query
            assert answer.json()["detail"][0]["loc"] == [query.partition("=")[0]]


def pagination(items: int, pages: int, page: int, size: int) -> dict[str, int]:
    return {"total_items": items, "total_pages": pages, "current_page": page, "page_size": size}


@ALONE
async def test_lists_have_pages_of_ten_with_the_newest_tasks_first(site: Site) -> None:
    task_ids = [await site.create("echo", str(number)) for number in range(12)]
    first = (await site.http.get(STEPS)).json()
    assert first["pagination"] == pagination(12, 2, 1, 10)
    second = (await site.http.get(f"{STEPS}?current_page=2")).json()
    assert [task["task_id"] for task in (*first["tasks"], *second["tasks"])] == task_ids[::-1]
    beyond = (await site.http.get(f"{STEPS}?current_page=2147483647&page_size=2147483647")).json()
    assert (beyond["tasks"], beyond["pagination"]["total_items"]) == ([], 12)


async def test_artifacts_come_in_pages_in_order_of_creation(site: Site) -> None:
    task_id = await site.create("files")
    for number in range(5):
        await site.upload("files", task_id, f"{number}.txt", b"x")
    page = (await site.http.get(site.at("files", f"/{task_id}/artifacts?page_size=2&current_page=3"))).json()
    assert [each["file_name"] for each in page["artifacts"]] == ["4.txt"]
    assert page["pagination"] == pagination(5, 3, 3, 2)


@pytest.mark.parametrize("marked", [False, True])
async def test_pages_of_steps_contain_all_steps_of_the_task(site: Site, *, marked: bool) -> None:
    async def begin(agent: str) -> Receipt:
        message = Message.of(f"to {agent}", "user")
        submission = Submission(agent=agent, thread_id=task_id, input=RunInput(messages=(message,)))
        receipt = await site.hub.submit(OWNER, submission)
        await ended(site, task_id, receipt.run_id)
        return receipt

    task_id = await site.create("ask")
    await site.upload("ask", task_id, "a.txt", b"x")
    begun = [await begin(agent) for agent in ("ask", "echo", "ask", "steps" if marked else "files", "ask", "ask")]
    answered = await site.hub.answer(OWNER, Answers(task_id=begun[2].task_id, bare="Eve"))
    await ended(site, task_id, answered.run_id)
    await site.hub.cancel(OWNER, begun[4].task_id)
    await site.hub.remove_run(OWNER, begun[4].run_id)
    for agent, count in (("ask", 6), ("echo", 1)):
        whole = (await site.task(agent, task_id))["steps"]
        assert len(whole) == count
        for size in range(1, 8):
            pages = -(-count // size)
            paged: list[Any] = []
            for page in range(1, pages + 2):
                path = site.at(agent, f"/{task_id}/steps?page_size={size}&current_page={page}")
                answer = (await site.http.get(path)).json()
                assert answer["pagination"] == pagination(count, pages, page, size)
                paged += answer["steps"]
            assert paged == whole


# Steps are runs


async def test_a_step_is_returned_when_the_run_ends(site: Site) -> None:
    task_id = await site.create("echo", "Hi")
    answer = await site.http.post(f"{STEPS}/{task_id}/steps")
    step = answer.json()
    assert (step["status"], step["is_last"], step["output"], step["input"]) == ("completed", True, "Hi", "Hi")
    ids = step["additional_output"]["babelgate"]
    assert ids["thread_id"] == task_id == answer.headers["babelgate-thread"]
    assert ids["run_id"] == step["step_id"] == answer.headers["babelgate-run"]
    assert ids["task_id"] == answer.headers["babelgate-task"]
    assert (await site.hub.reads.task(OWNER, ids["task_id"])).protocol == "aief"
    assert await site.step("echo", task_id, step["step_id"]) == step


@pytest.mark.parametrize(
    ("task", "step", "output"),
    [
        ("task", "step", "task\n\nstep"),
        ("task", "", "task"),
        ("task", " task\n", "task"),
        ("", "step", "step"),
        (None, "step", "step"),
    ],
)
async def test_the_first_steps_input_is_appended_to_the_tasks(
    site: Site, task: str | None, step: str, output: str
) -> None:
    task_id = await site.create("echo", task)
    done = await site.post("echo", task_id, step)
    assert (done["output"], done["input"]) == (output, step)
    assert (await site.task("echo", task_id))["input"] == task
    assert (await site.post("echo", task_id, "next"))["output"] == "next"


@pytest.mark.parametrize("word", ["y", "Yes", " continue\n"])
async def test_a_confirmation_as_first_input_does_not_replace_the_tasks(site: Site, word: str) -> None:
    task_id = await site.create("echo", "task")
    step = await site.post("echo", task_id, word)
    assert (step["output"], step["input"]) == ("task", word)
    assert await site.steps("echo", task_id) == [step]
    assert (await site.post("echo", task_id, word))["output"] == word, "a later turn has no other input"
    assert (await site.post("echo", await site.create("echo", None), word))["output"] == word
    assert (await site.post("echo", await site.create("echo", ""), word))["output"] == word


async def test_additional_input_is_the_data_of_the_run(site: Site) -> None:
    task_id = await site.create("inputs", "Hi", additional_input={"a": 1, "b": 1})
    step = await site.post("inputs", task_id, additional_input={"b": 2})
    assert step["additional_output"]["output"] == {"text": "Hi", "data": {"a": 1, "b": 2}, "files": []}
    assert step["additional_input"] == {"a": 1, "b": 2}
    step = await site.post("inputs", task_id, "Again")
    assert step["additional_output"]["output"] == {"text": "Again", "data": None, "files": []}


async def test_text_in_the_additional_input_is_used_without_an_input(site: Site) -> None:
    task_id = await site.create("echo", None, additional_input={"prompt": "from there"})
    assert (await site.post("echo", task_id))["output"] == "from there"


async def test_a_step_after_the_last_is_the_next_turn(site: Site) -> None:
    task_id = await site.create("inputs", "One")
    first = await site.post("inputs", task_id)
    second = await site.post("inputs", task_id, "Two")
    assert first["is_last"] and second["is_last"]
    assert [each.text for each in site.gates.calls[1].history if each.role == "user"] == ["One"]
    ids = [step["additional_output"]["babelgate"]["task_id"] for step in (first, second)]
    assert (await site.hub.reads.task(OWNER, ids[1])).continues == ids[0]
    assert await site.steps("inputs", task_id) == [first, second]


async def test_a_failure_is_a_last_step_with_an_error(site: Site) -> None:
    task_id = await site.create("fail", "boom")
    step = await site.post("fail", task_id)
    assert (step["status"], step["is_last"], step["output"]) == ("completed", True, "Failing.")
    error = step["additional_output"]["error"]
    assert error["code"] == "agent_failed"
    assert "boom" in error["message"]
    assert "Traceback" not in json.dumps(step)


async def test_a_timeout_is_reported_as_a_failure(tmp_path: Path) -> None:
    async with opened(tmp_path, limits={"run": 0.1}) as site:
        task_id = await site.create("gated")
        step = await site.post("gated", task_id)
        assert (step["status"], step["is_last"]) == ("completed", True)
        assert step["additional_output"]["error"]["code"] == "agent_timeout"


async def test_a_broken_agent_shows_tasks_but_runs_no_step(tmp_path: Path) -> None:
    async with opened(tmp_path) as site:
        task_id = await site.create("inputs")
        step = await site.post("inputs", task_id)
    broken = RegisteredAgent(AgentInfo(name="inputs"), None, broken="its import failed")
    async with opened(tmp_path, registered={"inputs": broken}) as site:
        assert await site.steps("inputs", task_id) == [step]
        assert message(await site.http.post(site.at("inputs", f"/{task_id}/steps")))[0] == 502


# Questions


async def test_a_question_is_an_intermediate_step_before_a_created_one(site: Site) -> None:
    task_id = await site.create("ask")
    question_step = await site.post("ask", task_id)
    assert (question_step["status"], question_step["is_last"], question_step["output"]) == (
        "completed",
        False,
        "What is your name?",
    )
    assert question_step["additional_output"]["status"] == "input-required"
    [question] = question_step["additional_output"]["questions"]
    assert (question["message"], question["kind"], question["schema"]) == ("What is your name?", "input", None)
    first, created = await site.steps("ask", task_id)
    assert first == question_step
    assert (created["status"], created["input"], created["output"]) == ("created", None, None)
    done = await site.post("ask", task_id, "Bob")
    assert (done["step_id"], done["output"], done["is_last"]) == (created["step_id"], "Hello, Bob.", True)
    assert done["input"] == "Bob"
    assert await site.steps("ask", task_id) == [question_step, done]


async def test_a_question_answered_from_another_protocol_is_the_created_step(site: Site) -> None:
    task_id = await site.create("ask")
    question_step = await site.post("ask", task_id)
    created = (await site.steps("ask", task_id))[1]
    answers = Answers(task_id=question_step["additional_output"]["babelgate"]["task_id"], bare="Eve")
    receipt = await site.hub.answer(OWNER, answers)
    assert receipt.run_id == created["step_id"]
    await ended(site, receipt.thread_id, receipt.run_id)
    assert (await site.step("ask", task_id, created["step_id"]))["output"] == "Hello, Eve."
    assert (await site.post("ask", task_id, "Bob"))["output"] == "What is your name?"


async def ended(site: Site, thread_id: str, run_id: str) -> None:
    async with asyncio.timeout(BOUND):
        async for batch in site.hub.reads.follow(OWNER, Scope(thread_id, "run", run_id)):
            if any(isinstance(record.event, RunEnded) for record in batch):
                return


# Agents that mark steps


async def test_marked_steps_are_returned_one_per_call(site: Site) -> None:
    task_id = await site.create("steps", "do it")
    done = [await site.post("steps", task_id) for _ in range(3)]
    assert [(each["name"], each["output"], each["is_last"]) for each in done] == [
        ("plan", "Planned. ", False),
        ("work", "Worked. ", False),
        ("review", "Reviewed.", True),
    ]
    assert await site.steps("steps", task_id) == done
    assert len({each["step_id"] for each in done}) == 3
    assert len({each["additional_output"]["babelgate"]["run_id"] for each in done}) == 1
    for step in done:
        assert await site.step("steps", task_id, step["step_id"]) == step
    assert (await site.post("steps", task_id))["name"] == "plan"


async def test_future_steps_are_created_and_keep_their_ids(site: Site) -> None:
    task_id = await site.create("steps")
    await site.post("steps", task_id)
    # The agent ends long before all of its steps are requested.
    await ended(site, task_id, next_run_id(task_id))
    listed = await site.steps("steps", task_id)
    names = [(step["name"], step["status"]) for step in listed]
    assert names == [("plan", "completed"), ("work", "created"), ("review", "created")]
    assert listed[1]["output"] is listed[1]["additional_output"] is None
    for step in listed[1:]:
        assert (await site.post("steps", task_id))["step_id"] == step["step_id"]


async def test_a_step_is_returned_while_the_next_one_runs(site: Site) -> None:
    task_id = await site.create("staged")
    assert (await site.post("staged", task_id))["output"] == "Done one."
    await within(site.gates.began.wait())
    listed = await site.steps("staged", task_id)
    assert [step["status"] for step in listed] == ["completed", "created"]
    posting = asyncio.ensure_future(site.post("staged", task_id))
    await until_revealed(site, task_id)
    listed = await site.steps("staged", task_id)
    assert [step["status"] for step in listed] == ["completed", "running"]
    site.gates.go.set()
    assert (await within(posting))["output"] == "Done two."


async def until_revealed(site: Site, task_id: str) -> None:
    """Wait until the log contains the request for the second step."""
    async with asyncio.timeout(BOUND):
        async for batch in site.hub.reads.follow(OWNER, Scope(task_id)):
            for record in batch:
                if "revealed" in json.dumps(to_json(record.event)):
                    return


async def test_the_number_of_revealed_steps_survives_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as site:
        task_id = await site.create("steps")
        for name in ("plan", "work"):
            assert (await site.post("steps", task_id))["name"] == name
    async with opened(tmp_path) as site:
        assert [step["status"] for step in await site.steps("steps", task_id)] == ["completed", "completed", "created"]
        last = await site.post("steps", task_id)
        assert (last["name"], last["is_last"]) == ("review", True)


async def test_a_question_in_a_marked_step_is_answered_in_order(site: Site) -> None:
    task_id = await site.create("interview")
    first = await site.post("interview", task_id)
    await ended(site, task_id, first["step_id"])
    # The question is already open, but the request that reveals its step does not answer it.
    second = await site.post("interview", task_id, "continue")
    assert (second["name"], second["output"], second["is_last"]) == ("ask", "Who?", False)
    third = await site.post("interview", task_id, "Ada")
    assert (third["name"], third["output"], third["is_last"]) == ("thank", "Ada.Thanks.", True)
    assert await site.steps("interview", task_id) == [first, second, third]


async def test_an_input_that_is_not_used_is_a_loss(site: Site) -> None:
    task_id = await site.create("steps")
    await site.post("steps", task_id)
    answer = await site.http.post(site.at("steps", f"/{task_id}/steps"), json={"input": "no, do it otherwise"})
    assert answer.json()["name"] == "work"
    assert 'step="the agent was already running' in answer.headers["babelgate-loss"]
    assert "babelgate-loss" not in (await site.http.post(site.at("steps", f"/{task_id}/steps"))).headers


async def test_a_refusal_and_metadata_are_losses(tmp_path: Path) -> None:
    async def refuse(text: str) -> AsyncGenerator[Message]:
        yield Message(parts=(RefusalPart(text="Not that."),), metadata={"tone": "firm"})

    async def marked(text: str) -> Message:
        return Message(parts=(TextPart(text="Yes.", metadata={"n": 1}),))

    lost = {"refusal": "shown as text", "metadata": "tasks and steps have no metadata"}
    agents = {agent.__name__: RegisteredAgent(*wrap(agent, agent.__name__)) for agent in (refuse, marked)}
    async with opened(tmp_path, agents) as site:
        for agent, output, features in (
            ("refuse", "Not that.", ("metadata", "refusal")),
            ("marked", "Yes.", ("metadata",)),
        ):
            answer = await site.http.post(site.at(agent, f"/{await site.create(agent)}/steps"))
            step = answer.json()
            assert step["output"] == output
            assert step["additional_output"]["babelgate"]["loss"] == {name: lost[name] for name in features}
            assert answer.headers["babelgate-loss"] == ", ".join(f'{name}="{lost[name]}"' for name in features)


async def test_metadata_of_another_protocol_is_a_loss(site: Site) -> None:
    run_input = RunInput(messages=(Message.of("Hello", "user"),), metadata={"customer": 7})
    receipt = await site.hub.submit(OWNER, Submission(agent="echo", input=run_input))
    await ended(site, receipt.thread_id, receipt.run_id)
    step = await site.step("echo", receipt.thread_id, receipt.run_id)
    assert set(step["additional_output"]["babelgate"]["loss"]) == {"metadata"}


async def test_nested_steps_are_a_loss(site: Site) -> None:
    task_id = await site.create("graph")
    answer = await site.http.post(site.at("graph", f"/{task_id}/steps"))
    step = answer.json()
    assert (step["name"], step["is_last"]) == ("outer", True)
    assert set(step["additional_output"]["babelgate"]["loss"]) == {"step", "custom"}
    assert "custom=" in answer.headers["babelgate-loss"]


# Concurrent calls and disconnected clients


async def start_gated(site: Site) -> tuple[str, asyncio.Future[Any]]:
    """Start a task whose first step waits at the gate. Return its id and the pending call."""
    task_id = await site.create("gated")
    posting = asyncio.ensure_future(site.post("gated", task_id))
    await within(site.gates.began.wait())
    return task_id, posting


async def test_concurrent_steps_run_one_after_the_other(site: Site) -> None:
    task_id = await site.create("gated", None)
    posting = [asyncio.ensure_future(site.post("gated", task_id, word)) for word in ("a", "b")]
    await within(site.gates.began.wait())
    site.gates.go.set()
    done = [await within(each) for each in posting]
    assert {step["output"] for step in done} == {"a: first second", "b: first second"}
    assert site.gates.most == 1
    assert len(await site.steps("gated", task_id)) == 2


async def test_concurrent_answers_do_not_answer_the_same_question(site: Site) -> None:
    task_id = await site.create("ask")
    await site.post("ask", task_id)
    one, two = await asyncio.gather(site.post("ask", task_id, "Ann"), site.post("ask", task_id, "Bob"))
    outputs = {one["output"], two["output"]}
    assert "What is your name?" in outputs
    assert outputs & {"Hello, Ann.", "Hello, Bob."}


async def test_a_disconnected_client_does_not_stop_its_step(site: Site) -> None:
    task_id, leaving = await start_gated(site)
    leaving.cancel()
    await asyncio.wait([leaving])
    [step] = await site.steps("gated", task_id)
    assert (step["status"], step["is_last"], step["output"]) == ("running", False, None)
    site.gates.go.set()
    await ended(site, task_id, step["step_id"])
    [step] = await site.steps("gated", task_id)
    assert (step["status"], step["is_last"], step["output"]) == ("completed", True, "Hello: first second")


@ALONE
@pytest.mark.parametrize("text", [None, "y"])
async def test_a_step_interrupted_by_shutdown_ends_with_the_next_call(site: Site, text: str | None) -> None:
    task_id, posting = await start_gated(site)
    site.hub.close_readers()
    with pytest.raises(httpx.RemoteProtocolError):
        await within(posting)
    [cut] = await site.steps("gated", task_id)
    assert (cut["status"], cut["is_last"]) == ("running", False)
    site.gates.go.set()
    async with asyncio.timeout(10):
        while (await site.steps("gated", task_id))[0]["status"] == "running":
            pass
    step = await site.post("gated", task_id, text)
    assert (step["step_id"], step["status"], step["is_last"]) == (cut["step_id"], "completed", True)
    with pytest.raises(httpx.RemoteProtocolError):  # another turn: a gateway that shuts down does not return it
        await site.http.post(site.at("gated", f"/{task_id}/steps"), json={"input": "more"})
    assert next(step["step_id"] for step in await site.steps("gated", task_id)) == cut["step_id"]
    assert len(await site.steps("gated", task_id)) == 2


async def test_a_task_deleted_during_a_step_is_404(site: Site) -> None:
    task_id = await site.create("gated")
    posting = asyncio.ensure_future(site.http.post(site.at("gated", f"/{task_id}/steps")))
    await within(site.gates.began.wait())
    await site.hub.delete_thread(OWNER, task_id)
    assert message(await within(posting))[0] == 404
    assert message(await site.http.get(site.at("gated", f"/{task_id}")))[0] == 404


# Agents, owners, other protocols


@ALONE
async def test_each_agent_has_a_path_and_the_default_the_root(site: Site) -> None:
    mine, other = await site.create("echo"), await site.create("json")
    for base in ("/ap/v1/agent/tasks", STEPS):
        assert [task["task_id"] for task in (await site.http.get(base)).json()["tasks"]] == [mine]
    assert message(await site.http.get(f"{STEPS}/{other}"))[0] == 404
    assert message(await site.http.post(f"{STEPS}/{other}/steps"))[0] == 404
    assert (await site.hub.reads.thread_view(OWNER, other)).status == "idle"


@ALONE
async def test_another_protocols_thread_is_a_task_of_its_agents(site: Site) -> None:
    async def run(agent: str, text: str, thread_id: str) -> str:
        submission = Submission(
            agent=agent, thread_id=thread_id, protocol="a2a", input=RunInput(messages=(Message.of(text, "user"),))
        )
        receipt = await site.hub.submit(OWNER, submission)
        await ended(site, thread_id, receipt.run_id)
        return receipt.run_id

    thread_id = str(uuid4())
    first = await run("echo", "One", thread_id)
    await run("json", "Two", thread_id)
    third = await run("steps", "Three", thread_id)
    [step] = await site.steps("echo", thread_id)
    assert (step["step_id"], step["input"], step["output"], step["is_last"]) == (first, "One", "One", True)
    assert (await site.task("echo", thread_id))["input"] == "One"
    assert [each["task_id"] for each in (await site.http.get(STEPS)).json()["tasks"]] == [thread_id]
    # No client steps through a run that was not begun by a step.
    assert [each["status"] for each in await site.steps("steps", thread_id)] == ["completed"] * 3
    assert (await site.steps("steps", thread_id))[0]["step_id"] == third
    assert (await site.post("echo", thread_id, "Four"))["output"] == "Four"
    assert message(await site.http.get(site.at("ask", f"/{thread_id}")))[0] == 404


async def test_a_step_waits_for_a_run_of_another_protocol(site: Site) -> None:
    task_id = await site.create("gated")
    waiting = Submission(agent="gated", thread_id=task_id, input=RunInput(messages=(Message.of("other", "user"),)))
    await site.hub.submit(OWNER, waiting)
    await within(site.gates.began.wait())
    posting = asyncio.ensure_future(site.post("gated", task_id, "mine"))
    await created(site, task_id, 2)
    listed = await site.steps("gated", task_id)
    assert [step["status"] for step in listed] == ["running", "created"]
    queued = await site.http.get(site.at("gated", f"/{task_id}/steps/{listed[1]['step_id']}"))
    run = await site.hub.reads.run(OWNER, queued.headers["babelgate-run"])
    assert (run.status, run.run_id) == (RunStatus.PENDING, listed[1]["step_id"])
    assert queued.headers["babelgate-task"] == run.task_id
    assert queued.headers["babelgate-thread"] == task_id
    site.gates.go.set()
    assert (await within(posting))["output"] == "mine: first second"


async def created(site: Site, thread_id: str, count: int) -> None:
    """Wait until the thread has that many runs."""
    found = 0
    async with asyncio.timeout(BOUND):
        async for batch in site.hub.reads.follow(OWNER, Scope(thread_id)):
            found += sum(record.event.kind == "run_created" for record in batch)
            if found >= count:
                return


async def test_a_removed_run_has_no_step_and_no_artifacts(site: Site) -> None:
    task_id = await site.create("files")
    step = await site.post("files", task_id)
    assert len(await site.artifacts("files", task_id)) == 1
    await site.hub.remove_run(OWNER, step["step_id"])
    assert await site.artifacts("files", task_id) == []
    [created] = await site.steps("files", task_id)
    assert created["status"] == "created"
    assert created["step_id"] != step["step_id"]
    again = await site.post("files", task_id)
    assert (again["step_id"], again["status"]) == (created["step_id"], "completed")


async def test_a_restart_keeps_tasks_without_runs(tmp_path: Path) -> None:
    async with opened(tmp_path) as site:
        task_id = await site.create("echo", "Hi")
        [before] = await site.steps("echo", task_id)
    async with opened(tmp_path) as site:
        assert await site.steps("echo", task_id) == [before]
        assert (await site.post("echo", task_id))["output"] == "Hi"


async def test_full_queues_return_a_retry_time(tmp_path: Path) -> None:
    async with opened(tmp_path, limits={"queue": {"thread": 1, "agent": 100, "owner": 100}}) as site:
        task_id = await site.create("gated")
        for _ in range(2):
            await site.hub.submit(OWNER, Submission(agent="gated", thread_id=task_id))
        answer = await site.http.post(site.at("gated", f"/{task_id}/steps"))
        assert message(answer)[0] == 429
        assert int(answer.headers["retry-after"]) > 0


async def test_endpoints_outside_of_v1_exist(site: Site) -> None:
    assert (await site.http.get("/ap/versions")).json() == {"versions": ["v1"]}
    info = (await site.http.get("/agent/json/ap/v2/agent/info")).json()
    assert (info["name"], info["protocol"], info["config_options"]) == ("json", 1, {})
    assert info["url"] == f"{site.url}/agent/json/ap/v1"
    assert info["version"] and info["description"]
