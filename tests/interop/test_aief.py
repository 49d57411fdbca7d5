"""Every call of the official Python client of the AIEF Agent Protocol, over real sockets.

The requests of the JavaScript client of the same specification are sent by hand.
"""

import base64
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.gateway import demo
from tests.interop.driver import ClientError, OfficialClient, start_client
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNKNOWN_ID: Final = "00000000-0000-4000-8000-000000000000"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    agents = {name: getattr(demo, name) for name in demo.__all__}
    async with running(tmp_path_factory.mktemp("aief"), agents, default_agent="echo") as gateway:
        yield gateway


class Client:
    """The official client. A host is one agent, so each call selects the agent first."""

    def __init__(self, official: OfficialClient, url: str) -> None:
        self._official, self._url = official, url

    async def call(self, agent: str, name: str, /, **args: Any) -> Any:
        await self._official.call("use", base_url=f"{self._url}/agent/{agent}")
        return await self._official.call(name, **args)

    async def create(self, agent: str, input: str | None = None) -> str:
        body = {} if input is None else {"task_request_body": {"input": input}}
        return (await self.call(agent, "create_agent_task", **body))["task_id"]

    async def step(self, agent: str, task_id: str, input: str | None = None) -> Any:
        body = {} if input is None else {"step_request_body": {"input": input}}
        return await self.call(agent, "execute_agent_task_step", task_id=task_id, **body)

    async def steps(self, agent: str, task_id: str) -> list[Any]:
        return (await self.call(agent, "list_agent_task_steps", task_id=task_id))["steps"]

    async def content(self, agent: str, task_id: str, artifact: Any) -> bytes:
        found = await self.call(
            agent, "download_agent_task_artifact", task_id=task_id, artifact_id=artifact["artifact_id"]
        )
        return base64.b64decode(found)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(gateway: Running) -> AsyncGenerator[Client]:
    async with start_client("aief", base_url=gateway.url) as official:
        yield Client(official, gateway.url)


def names(artifacts: list[Any]) -> list[str]:
    return sorted(artifact["file_name"] for artifact in artifacts)


async def test_the_default_agent_is_at_the_root(gateway: Running) -> None:
    async with start_client("aief", base_url=gateway.url) as root:
        task = await root.call("create_agent_task", task_request_body={"input": "Hello"})
        step = await root.call("execute_agent_task_step", task_id=task["task_id"])
    assert (step["output"], step["is_last"]) == ("Hello", True)


async def test_a_task_is_created_with_the_input_of_its_caller(client: Client) -> None:
    body = {"input": "Hello", "additional_input": {"a": [1, None], "b": "ü"}}
    task = await client.call("echo", "create_agent_task", task_request_body=body)
    assert (task["input"], task["additional_input"], task["artifacts"]) == ("Hello", body["additional_input"], [])
    assert await client.call("echo", "get_agent_task", task_id=task["task_id"]) == task


async def test_the_first_step_supplies_a_missing_input(client: Client) -> None:
    bodies: list[dict[str, Any]] = [{}, {"task_request_body": {}}]
    for body in bodies:
        task = await client.call("echo", "create_agent_task", **body)
        assert (task["input"], task["additional_input"]) == (None, {})
        step = await client.step("echo", task["task_id"], "Late")
        assert (step["input"], step["output"], step["is_last"]) == ("Late", "Late", True)


async def test_a_new_task_has_one_created_step_with_its_id(client: Client) -> None:
    task_id = await client.create("echo", "Hello")
    [waiting] = await client.steps("echo", task_id)
    assert (waiting["status"], waiting["output"], waiting["task_id"]) == ("created", None, task_id)
    done = await client.step("echo", task_id)
    assert done["step_id"] == waiting["step_id"]
    assert (done["status"], done["output"], done["is_last"], done["artifacts"]) == ("completed", "Hello", True, [])
    assert await client.steps("echo", task_id) == [done]
    read = await client.call("echo", "get_agent_task_step", task_id=task_id, step_id=done["step_id"])
    assert read == done


async def test_a_step_after_the_last_one_is_the_next_turn(client: Client) -> None:
    task_id = await client.create("echo", "One")
    first = await client.step("echo", task_id)
    second = await client.step("echo", task_id, "Two")
    assert (second["output"], second["is_last"]) == ("Two", True)
    assert await client.steps("echo", task_id) == [first, second]


async def test_a_question_is_a_step_and_its_answer_the_next(client: Client) -> None:
    task_id = await client.create("ask", "Hello")
    question = await client.step("ask", task_id)
    assert (question["status"], question["output"], question["is_last"]) == ("completed", "What is your name?", False)
    before, waiting = await client.steps("ask", task_id)
    assert (before, waiting["status"]) == (question, "created")
    answered = await client.step("ask", task_id, "Ada")
    assert answered["step_id"] == waiting["step_id"]
    assert (answered["input"], answered["output"], answered["is_last"]) == ("Ada", "Hello, Ada.", True)


async def test_two_questions_at_once_take_one_step_each(client: Client) -> None:
    task_id = await client.create("approve", "Hello")
    assert not (await client.step("approve", task_id))["is_last"]
    assert not (await client.step("approve", task_id, '{"approved": true}'))["is_last"]
    assert (await client.step("approve", task_id, '{"approved": false}'))["is_last"]


async def test_the_steps_of_an_agent_are_revealed_one_by_one(client: Client) -> None:
    task_id = await client.create("steps", "Hello")
    done = [await client.step("steps", task_id)]
    while not done[-1]["is_last"]:
        listed = await client.steps("steps", task_id)
        waiting = listed[len(done) :]
        assert listed[: len(done)] == done
        assert {(step["status"], step["output"]) for step in waiting} == {("created", None)}
        done.append(await client.step("steps", task_id))
        assert done[-1]["step_id"] == waiting[0]["step_id"]
    assert [(step["name"], (step["output"] or "").strip()) for step in done] == [
        ("plan", "Planned."),
        ("work", "Worked."),
        ("review", "Reviewed."),
    ]
    assert len({step["step_id"] for step in done}) == 3
    assert await client.steps("steps", task_id) == done


async def test_pages_of_tasks_have_only_those_of_the_agent(client: Client) -> None:
    task_ids = [await client.create("json", f"Task {number}") for number in range(5)]
    await client.create("tools", "Another agent's")
    found: list[str] = []
    for page in (1, 2, 3):
        listed = await client.call("json", "list_agent_tasks", current_page=page, page_size=2)
        assert listed["pagination"] == {"total_items": 5, "total_pages": 3, "current_page": page, "page_size": 2}
        found += [task["task_id"] for task in listed["tasks"]]
    assert sorted(found) == sorted(task_ids)
    beyond = await client.call("json", "list_agent_tasks", current_page=4, page_size=2)
    assert (beyond["tasks"], beyond["pagination"]["total_items"]) == ([], 5)
    assert len((await client.call("json", "list_agent_tasks"))["tasks"]) == 5


async def test_steps_and_artifacts_come_in_pages(client: Client) -> None:
    task_id = await client.create("files", "One")
    for text in ("One", "Two", "Three"):
        await client.step("files", task_id, text)
    for call, noun in (("list_agent_task_steps", "steps"), ("list_agent_task_artifacts", "artifacts")):
        pages = [await client.call("files", call, task_id=task_id, current_page=page, page_size=2) for page in (1, 2)]
        assert [len(page[noun]) for page in pages] == [2, 1]
        assert pages[0]["pagination"] == {"total_items": 3, "total_pages": 2, "current_page": 1, "page_size": 2}


async def test_files_are_uploaded_and_downloaded(client: Client, tmp_path: Path) -> None:
    task_id = await client.create("files", "A report")
    (tmp_path / "in.bin").write_bytes(b"\x00\x01\xff")
    up = await client.call(
        "files",
        "upload_agent_task_artifacts",
        task_id=task_id,
        file=str(tmp_path / "in.bin"),
        relative_path="python/code/",
    )
    assert (up["file_name"], up["agent_created"], up["relative_path"]) == ("in.bin", False, "python/code/")
    assert await client.content("files", task_id, up) == b"\x00\x01\xff"
    step = await client.step("files", task_id)
    assert names(step["artifacts"]) == ["in.bin", "report.txt"]
    assert all(artifact["agent_created"] for artifact in step["artifacts"])
    contents = {each["file_name"]: await client.content("files", task_id, each) for each in step["artifacts"]}
    assert contents == {"in.bin": b"\x00\x01\xff", "report.txt": b"A report"}
    listed = (await client.call("files", "list_agent_task_artifacts", task_id=task_id))["artifacts"]
    assert names(listed) == ["in.bin", "in.bin", "report.txt"]
    task = await client.call("files", "get_agent_task", task_id=task_id)
    assert names(task["artifacts"]) == names(listed)


async def test_continuing_with_y_completes_the_original_request(client: Client) -> None:
    """Send "y" with every step, then read the files, as the protocol's Postman collection does."""
    task_id = await client.create("files", "A report")
    while not (await client.step("files", task_id, "y"))["is_last"]:
        pass
    [artifact] = (await client.call("files", "list_agent_task_artifacts", task_id=task_id))["artifacts"]
    assert (artifact["file_name"], await client.content("files", task_id, artifact)) == ("report.txt", b"A report")


async def test_a_failed_run_is_a_last_step_with_the_error(client: Client) -> None:
    task_id = await client.create("fail", "Boom")
    step = await client.step("fail", task_id)
    assert (step["status"], step["is_last"]) == ("completed", True)
    assert "Boom" in step["additional_output"]["error"]["message"]


UNKNOWN: Final[Sequence[tuple[str, str, dict[str, str]]]] = (
    ("echo", "get_agent_task", {"task_id": UNKNOWN_ID}),
    ("tools", "get_agent_task", {}),
    ("nope", "create_agent_task", {}),
    ("echo", "execute_agent_task_step", {"task_id": UNKNOWN_ID}),
    ("echo", "list_agent_task_steps", {"task_id": "nope"}),
    ("echo", "list_agent_task_artifacts", {"task_id": UNKNOWN_ID}),
    ("echo", "get_agent_task_step", {"step_id": UNKNOWN_ID}),
    ("echo", "get_agent_task_step", {"step_id": "nope"}),
    ("echo", "download_agent_task_artifact", {"artifact_id": UNKNOWN_ID}),
    ("echo", "download_agent_task_artifact", {"artifact_id": "../../etc/passwd"}),
)
"""Agent, call, and arguments in addition to the id of a task of `echo`."""


async def test_unknown_things_are_a_404_with_a_message(client: Client) -> None:
    task_id = await client.create("echo", "Hello")
    await client.step("echo", task_id)
    for agent, name, arguments in UNKNOWN:
        request = arguments if name == "create_agent_task" else {"task_id": task_id, **arguments}
        with pytest.raises(ClientError) as caught:
            await client.call(agent, name, **request)
        assert (caught.value.type, caught.value.data["status"]) == ("ApiException", 404), name
        assert '"message":' in caught.value.data["body"]


async def test_requests_of_the_javascript_client_are_accepted(gateway: Running) -> None:
    """Send requests as the client does with fetch.

    It sends a Content-Type without a body, omits undefined members, and names a file `blob`.
    """
    base, headers = "/agent/files/ap/v1/agent/tasks", {"Content-Type": "application/json", "Accept": "*/*"}
    http = gateway.http
    bare = await http.post(base, headers=headers)
    assert (bare.status_code, bare.json()["additional_input"]) == (200, {})
    created = await http.post(base, headers=headers, content='{"input":"A report","additional_input":{}}')
    task = created.json()
    assert (created.status_code, task["input"]) == (200, "A report")
    at = f"{base}/{task['task_id']}"
    up = await http.post(
        f"{at}/artifacts",
        files={"file": ("blob", b"in", "application/octet-stream")},
        data={"relative_path": "code"},
    )
    assert (up.status_code, up.json()["file_name"], up.json()["relative_path"]) == (200, "blob", "code")
    step = await http.post(f"{at}/steps", headers=headers)
    assert (step.status_code, step.json()["is_last"]) == (200, True)
    for path, noun in ((base, "tasks"), (f"{at}/steps", "steps"), (f"{at}/artifacts", "artifacts")):
        page = await http.get(path, params={"current_page": 1, "page_size": 10})
        assert page.status_code == 200
        assert page.json()[noun] and page.json()["pagination"]["total_pages"] == 1
    for artifact in step.json()["artifacts"]:
        response = await http.get(f"{at}/artifacts/{artifact['artifact_id']}")
        assert (response.status_code, response.headers["content-type"]) == (200, "application/octet-stream")
        assert response.headers["content-disposition"].startswith("attachment")
    assert (await http.get(f"{at}/steps/{step.json()['step_id']}")).json() == step.json()
    assert (await http.get(at)).json()["task_id"] == task["task_id"]
