"""Official against official: what these tests show of the SDKs themselves, our own tests against them may rely on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.interop.driver import ClientError, OfficialClient, OfficialServer, start_client, start_server

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


class Pair(NamedTuple):
    client: OfficialClient
    server: OfficialServer
    spoken: str
    served: str

    async def at(self, agent: str) -> OfficialClient:
        """The A2A client, turned to one agent of the server."""
        await self.client.call("use", base_url=f"{self.server.url}/{agent}")
        return self.client


async def _pair(client: str, server: str, **options: Any) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(start_server(server))
        caller = await stack.enter_async_context(start_client(client, base_url=running.url, **options))
        yield Pair(caller, running, client, server)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def acp() -> AsyncIterator[Pair]:
    async for pair in _pair("acp", "acp"):
        yield pair


# One for each test: its server hangs up after a 500, and the client does not always see it before its next call.
@pytest_asyncio.fixture(loop_scope="module")
async def aief() -> AsyncIterator[Pair]:
    async for pair in _pair("aief", "aief"):
        yield pair


A2A_PAIRS = [
    ("a2a-1.0", "a2a-1.0", {"transport": "JSONRPC"}),
    ("a2a-1.0", "a2a-1.0", {"transport": "HTTP+JSON"}),
    ("a2a-1.0", "a2a-1.0", {"transport": "JSONRPC", "version": "0.3"}),
    ("a2a-0.3", "a2a-0.3", {"transport": "JSONRPC"}),
    ("a2a-0.3", "a2a-0.3", {"transport": "HTTP+JSON"}),
    ("a2a-0.3", "a2a-1.0", {"transport": "JSONRPC"}),
    ("a2a-1.0", "a2a-0.3", {"transport": "JSONRPC"}),
]


def pair_name(pair: tuple[str, str, dict[str, str]]) -> str:
    client, server, options = pair
    return "-".join([f"client-{client}-server-{server}", *options.values()])


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=A2A_PAIRS, ids=pair_name)
async def a2a(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    client, server, options = request.param
    async for pair in _pair(client, server, **options):
        yield pair


def state(task: Any) -> str:
    return str(task["status"]["state"]).removeprefix("TASK_STATE_").lower().replace("_", "-")


def text(task: Any) -> str:
    return "".join(part["text"] for artifact in task.get("artifacts", ()) for part in artifact["parts"])


async def test_acp_finds_its_agents(acp: Pair) -> None:
    await acp.client.call("ping")
    names = [agent["name"] for agent in await acp.client.call("agents")]
    assert names[:3] == ["echo", "stream", "ask"]
    assert (await acp.client.call("agent", name="echo"))["description"] == "Gives the caller's text back."


async def test_acp_shows_the_first_token_before_the_agent_is_released(acp: Pair) -> None:
    async with acp.client.stream("run_stream", agent="stream", input="one two three") as events:
        seen = [await anext(events)]
        while seen[-1]["type"] != "message.part":
            seen.append(await anext(events))
        acp.server.release()
        acp.server.release()
        seen += [event async for event in events]
    parts = [event["part"]["content"] for event in seen if event["type"] == "message.part"]
    assert parts == ["one", " two", " three"]
    assert await acp.client.call("run_events", run_id=seen[0]["run"]["run_id"]) == seen


async def test_acp_answers_two_questions_of_one_run(acp: Pair) -> None:
    run = await acp.client.call("run_sync", agent="ask_twice", input="go")
    assert run["status"] == "awaiting"
    run = await acp.client.call("run_resume_sync", run_id=run["run_id"], answer="Ada")
    assert run["await_request"]["message"]["parts"][0]["content"] == "What is your last name?"
    events = await acp.client.call("run_resume_stream", run_id=run["run_id"], answer="Lovelace")
    assert events[-1]["run"]["status"] == "completed"
    assert events[-1]["run"]["output"][0]["parts"][1]["content"] == "Hello, Ada Lovelace."


async def test_acp_resumes_without_waiting(acp: Pair) -> None:
    run = await acp.client.call("run_sync", agent="ask", input="go")
    resumed = await acp.client.call("run_resume_async", run_id=run["run_id"], answer="Ada")
    assert resumed["status"] == "in-progress"


async def test_acp_cancels_a_run_that_another_call_is_streaming(acp: Pair) -> None:
    async with acp.client.stream("run_stream", agent="slow", input="") as events:
        created = await anext(events)
        cancelled = await acp.client.call("run_cancel", run_id=created["run"]["run_id"])
        assert cancelled["status"] == "cancelling"
        last = [event async for event in events][-1]
    assert last["type"] == "run.cancelled"


async def test_acp_run_goes_on_when_its_client_hangs_up(acp: Pair) -> None:
    async with acp.client.stream("run_stream", agent="ask", input="") as events:
        run_id = (await anext(events))["run"]["run_id"]
    assert (await acp.client.call("run_status", run_id=run_id))["status"] in ("in-progress", "awaiting")
    run = await acp.client.call("run_resume_sync", run_id=run_id, answer="Ada")
    assert run["status"] == "completed"


async def test_acp_files_faults_and_metadata_arrive(acp: Pair) -> None:
    given = {"name": "in.txt", "content": "aW4=", "content_encoding": "base64"}
    run = await acp.client.call("run_sync", agent="files", input=[given, {"content": "text"}])
    assert [part["name"] for part in run["output"][0]["parts"]] == ["in.txt", "report.txt"]
    run = await acp.client.call("run_sync", agent="fail", input="on purpose")
    assert run["status"] == "failed"
    assert run["error"]["message"] == "on purpose"
    events = await acp.client.call("run_stream", agent="metadata", input="two words")
    assert [event["generic"] for event in events if event["type"] == "generic"] == [{"progress": 0.5}]
    kinds = [part["metadata"]["kind"] for part in events[-1]["run"]["output"][0]["parts"]]
    assert kinds == ["trajectory", "trajectory", "citation"]
    with pytest.raises(ClientError) as missing:
        await acp.client.call("agent", name="nobody")
    assert missing.value.data["code"] == "not_found"


async def test_acp_session_remembers(acp: Pair) -> None:
    first = await acp.client.call("run_sync", agent="history", input="one", session="s")
    second = await acp.client.call("run_sync", agent="history", input="two", session="s")
    assert first["session_id"] == second["session_id"]
    assert second["output"][0]["parts"][0]["content"] == "2 before: two"
    assert len(await acp.client.call("history", session="s")) == 4


async def _aief_task(pair: Pair, input: str) -> str:
    return (await pair.client.call("create_agent_task", task_request_body={"input": input}))["task_id"]


async def test_aief_works_step_by_step(aief: Pair) -> None:
    task_id = await _aief_task(aief, "steps: Hello")
    steps = [await aief.client.call("execute_agent_task_step", task_id=task_id) for _ in range(3)]
    assert [step["output"] for step in steps] == ["plan: Hello", "work: Hello", "review: Hello"]
    assert [step["is_last"] for step in steps] == [False, False, True]
    listed = await aief.client.call("list_agent_task_steps", task_id=task_id)
    assert (listed["steps"], listed["pagination"]["total_pages"]) == (steps, 0)  # NB: it rounds down
    got = await aief.client.call("get_agent_task_step", task_id=task_id, step_id=steps[2]["step_id"])
    assert got == steps[0]  # NB: whatever the id
    with pytest.raises(ClientError) as none_left:
        await aief.client.call("execute_agent_task_step", task_id=task_id)
    assert none_left.value.data["status"] == 500


async def test_aief_asks_by_a_step_that_is_not_the_last(aief: Pair) -> None:
    task_id = await _aief_task(aief, "ask: x")
    asked = await aief.client.call("execute_agent_task_step", task_id=task_id)
    assert (asked["output"], asked["is_last"]) == ("What is your name?", False)
    answered = await aief.client.call("execute_agent_task_step", task_id=task_id, step_request_body={"input": "Ada"})
    assert (answered["output"], answered["is_last"]) == ("Hello, Ada.", True)


async def test_aief_moves_files_and_its_list_of_them_is_none_of_the_protocol(aief: Pair, tmp_path: Path) -> None:
    task_id = await _aief_task(aief, "files: A report")
    (tmp_path / "in.txt").write_text("in")
    given = {"task_id": task_id, "file": str(tmp_path / "in.txt"), "relative_path": "code"}
    assert (await aief.client.call("upload_agent_task_artifacts", **given))["relative_path"] == "code"
    step = await aief.client.call("execute_agent_task_step", task_id=task_id)
    contents = {
        each["file_name"]: await aief.client.call(
            "download_agent_task_artifact", task_id=task_id, artifact_id=each["artifact_id"]
        )
        for each in step["artifacts"]
    }
    assert contents == {"copy-of-in.txt": "aW4=", "report.txt": "QSByZXBvcnQ="}
    with pytest.raises(ClientError):
        # NB: a bare array, which the client cannot read.
        await aief.client.call("list_agent_task_artifacts", task_id=task_id)


async def test_aief_loses_additional_input_and_leaves_a_failed_step_running(aief: Pair) -> None:
    body = {"input": "fail: Boom", "additional_input": {"a": 1}}
    task = await aief.client.call("create_agent_task", task_request_body=body)
    assert task["additional_input"] == {}
    with pytest.raises(ClientError) as failed:
        await aief.client.call("execute_agent_task_step", task_id=task["task_id"])
    assert (failed.value.data["status"], failed.value.data["body"]) == (500, "Internal Server Error")
    async with start_client("aief", base_url=aief.server.url) as other:
        [step] = (await other.call("list_agent_task_steps", task_id=task["task_id"]))["steps"]
        assert step["status"] == "running"
        with pytest.raises(ClientError) as unknown:
            await other.call("get_agent_task", task_id="nope")
    assert (unknown.value.type, unknown.value.data["status"]) == ("ApiException", 404)


async def test_a2a_sends_and_reads_the_task_again(a2a: Pair) -> None:
    client = await a2a.at("echo")
    assert (await client.call("card"))["name"] == "echo"
    task = (await client.call("send", text="hello", context_id="a-conversation"))["task"]
    assert (state(task), text(task), task["contextId"]) == ("completed", "hello", "a-conversation")
    again = await client.call("get_task", id=task["id"], history_length=1)
    assert again["artifacts"] == task["artifacts"]


async def test_a2a_may_answer_with_a_message_alone(a2a: Pair) -> None:
    client = await a2a.at("message")
    assert list(await client.call("send", text="hello")) == ["message"]
    assert [list(event) for event in await client.call("stream", text="hello")] == [["message"]]


async def test_a2a_shows_the_first_chunk_before_the_agent_is_released(a2a: Pair) -> None:
    client = await a2a.at("stream")
    async with client.stream("stream", text="one two") as events:
        seen: list[Any] = []
        while not seen or "artifact" not in str(seen[-1]).lower():
            seen.append(await anext(events))
        assert "two" not in str(seen[-1].get("artifactUpdate", seen[-1].get("update")))
        a2a.server.release()
        seen += [event async for event in events]
    task = await client.call("get_task", id=seen[0]["task"]["id"])
    assert (state(task), text(task)) == ("completed", "one two")


async def test_a2a_task_goes_on_after_its_question(a2a: Pair) -> None:
    for agent, waiting in (("ask", "input-required"), ("auth", "auth-required")):
        client = await a2a.at(agent)
        asked = (await client.call("send", text="go"))["task"]
        assert state(asked) == waiting
        answer = {"text": "Ada", "task_id": asked["id"], "context_id": asked["contextId"]}
        events = await client.call("stream", **answer)
        assert {event["task"]["id"] for event in events if "task" in event} <= {asked["id"]}
        assert state(await client.call("get_task", id=asked["id"])) == "completed"


async def test_a2a_cancels_a_task_that_it_did_not_wait_for(a2a: Pair) -> None:
    client = await a2a.at("slow")
    started = (await client.call("send_nowait", text="go"))["task"]
    assert state(started) in ("submitted", "working")
    assert state(await client.call("cancel", id=started["id"])) == "canceled"


async def test_a2a_subscribes_to_a_running_task(a2a: Pair) -> None:
    client = await a2a.at("slow")
    async with client.stream("stream", text="go") as events:
        task_id = (await anext(events))["task"]["id"]
    # The caller has hung up; the task is the agent's and goes on.
    async with client.stream("subscribe", id=task_id) as events:
        if a2a.served == "a2a-1.0":
            assert (await anext(events))["task"]["id"] == task_id
            a2a.server.release()
        else:
            # NB: 0.3.26 sends no task first, so nothing tells when it is listening.
            asyncio.get_running_loop().call_later(1, a2a.server.release)
        assert [event async for event in events]
    said = text(await client.call("get_task", id=task_id))
    # NB: in 0.3.26 the reader that hung up and the one that came back both write the event into the task.
    assert said == ("first last" if a2a.served == "a2a-1.0" else "first last last")


async def test_a2a_files_and_faults_arrive(a2a: Pair) -> None:
    client = await a2a.at("files")
    if a2a.spoken == "a2a-1.0":
        parts: list[Any] = [{"raw": "aW4=", "filename": "in.txt", "mediaType": "text/plain"}, {"text": "text"}]
    else:
        file = {"bytes": "aW4=", "name": "in.txt", "mimeType": "text/plain"}
        parts = [{"kind": "file", "file": file}, {"kind": "text", "text": "text"}]
    task = (await client.call("send", parts=parts))["task"]
    assert [artifact["name"] for artifact in task["artifacts"]] == ["in.txt", "report.txt"]
    for agent, end in (("fail", "failed"), ("reject", "rejected")):
        client = await a2a.at(agent)
        assert state((await client.call("send", text="on purpose"))["task"]) == end
    with pytest.raises(ClientError):
        await client.call("get_task", id="no-such-task")


async def test_a2a_shows_more_to_those_who_may_see_it(a2a: Pair) -> None:
    client = await a2a.at("echo")
    assert "may know more" in (await client.call("extended_card"))["description"]


async def test_a2a_keeps_push_configurations(a2a: Pair) -> None:
    client = await a2a.at("ask")
    task_id = (await client.call("send", text="go"))["task"]["id"]
    hook = {"id": "one", "url": "http://127.0.0.1:9/hook", "token": "a-token"}
    if a2a.spoken == "a2a-1.0":
        await client.call("push_set", taskId=task_id, **hook)
    else:
        await client.call("push_set", task_id=task_id, **hook)
    assert hook["url"] in str(await client.call("push_get", task_id=task_id, id="one"))


@pytest.mark.parametrize("a2a", A2A_PAIRS[:2], ids=pair_name, indirect=True)
async def test_a2a_1_0_lists_tasks_and_deletes_push_configurations(a2a: Pair) -> None:
    client = await a2a.at("ask")
    task = (await client.call("send", text="go", context_id="listed"))["task"]
    listed = await client.call("list_tasks", contextId="listed")
    assert [one["id"] for one in listed["tasks"]] == [task["id"]]
    await client.call("push_set", taskId=task["id"], id="one", url="http://127.0.0.1:9/hook")
    assert len((await client.call("push_list", task_id=task["id"]))["configs"]) == 1
    await client.call("push_delete", task_id=task["id"], id="one")
    assert (await client.call("push_list", task_id=task["id"])).get("configs", []) == []
