"""Threads in the console: lists by page and filter, and the state, questions and files of one."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.gateway.console.reading import ALICE, BOB, OPS, Shown, shown
from tests.gateway.console.test_runs import UNKNOWN

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Shown]:
    async with shown(Path(tmp_path_factory.mktemp("threads"))) as console:
        rain = await console.run("rain", "echo", "Rain tomorrow?")
        await console.run("again", "echo", "And then?", thread_id=rain["thread_id"])
        await console.run("asked", "approve", "Send it")
        parts = [{"kind": "text", "text": "Read"}, {"kind": "file", "name": "a.txt", "inline": "YWJj"}]
        await console.run("files", "files", [{"role": "user", "parts": parts}])
        await console.run("of bob", "echo", "Rain?", BOB)
        metadata = {"title": "Weather", "user": 7}
        body = {"assistant_id": "echo", "input": "x", "metadata": metadata}
        http = console.gateway.http
        thread = (await http.post("/v1/threads", json={"metadata": metadata}, headers=ALICE)).json()
        await console.run("titled", "echo", body["input"], thread_id=thread["thread_id"])
        yield console


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["titled", "files", "asked", "rain"]),
        ({"limit": 3}, ["titled", "files", "asked"]),
        ({"agent": "approve"}, ["asked"]),
        ({"status": "interrupted"}, ["asked"]),
        ({"q": "rain"}, ["rain"]),
        ({"q": "weather"}, ["titled"]),
        ({"meta": "user:7"}, ["titled"]),
        ({"meta": ["user:7", "title:Snow"]}, []),
    ],
)
async def test_threads_are_listed_by_filter(console: Shown, query: dict[str, Any], expected: list[str]) -> None:
    names = {console.runs[name]["thread_id"]: name for name in ("rain", "asked", "files", "of bob", "titled")}
    page = await console.get("threads", **query)
    assert [names[item["thread_id"]] for item in page["items"]] == expected
    if page["next"] is not None:
        rest = await console.get("threads", after=page["next"], **query)
        assert [names[item["thread_id"]] for item in rest["items"]] == ["rain"]


async def test_a_thread_shows_its_runs_state_and_revisions(console: Shown) -> None:
    thread_id = console.runs["rain"]["thread_id"]
    thread = await console.get(f"threads/{thread_id}")
    assert (thread["title"], thread["agents"], thread["runs"]) == ("Rain tomorrow?", ["echo"], 2)
    assert (thread["status"], thread["metadata"], thread["open"], thread["files"]) == ("idle", {}, [], [])
    assert thread["run_ids"] == [console.runs[name]["run_id"] for name in ("rain", "again")]
    texts = [message["parts"][0]["text"] for message in thread["values"]["messages"]]
    assert texts == ["Rain tomorrow?", "Rain tomorrow?", "And then?", "And then?"]
    path = f"threads/{thread_id}/revisions"
    revisions = (await console.get(path))["items"]
    assert revisions[0]["checkpoint_id"] == thread["checkpoint_id"]
    assert [each["source"] for each in revisions] == ["loop", "input", "loop", "input"]
    assert [each["parent"] for each in revisions] == [*(each["checkpoint_id"] for each in revisions[1:]), None]
    assert revisions[0]["run_id"] == console.runs["again"]["run_id"] and revisions[1]["next"] == ["echo"]
    first = await console.get(path, limit=3)
    rest = await console.get(path, limit=3, after=first["next"])
    assert [*first["items"], *rest["items"]] == revisions and rest["next"] is None


async def test_a_thread_shows_its_open_questions(console: Shown) -> None:
    paused = console.runs["asked"]
    thread = await console.get(f"threads/{paused['thread_id']}")
    assert [(each["message"], each["value"]["action"]) for each in thread["open"]] == [
        ("May I write the file?", "write"),
        ("May I send the message?", "send"),
    ]
    question = thread["open"][0]
    assert (question["run_id"], question["task_id"], question["kind"]) == (
        paused["run_id"],
        paused["task_id"],
        "approval",
    )
    assert question["schema"]["required"] == ["approved"]
    assert [each["interrupt_id"] for each in thread["asks"]] == [each["interrupt_id"] for each in thread["open"]]


async def test_a_thread_shows_its_files_once(console: Shown) -> None:
    run = console.runs["files"]
    files = (await console.get(f"threads/{run['thread_id']}"))["files"]
    assert [(each["name"], each["size"], each["run_id"]) for each in files] == [
        ("a.txt", 3, run["run_id"]),
        ("report.txt", 4, run["run_id"]),
    ]
    assert all(len(each["blob"]) == 64 for each in files)


async def test_a_thread_that_is_too_large_says_so(tmp_path: Path) -> None:
    async with shown(tmp_path, limits={"thread": 1000}) as console:
        run = await console.run("long", "echo", "x" * 5000)
        thread = await console.get(f"threads/{run['thread_id']}")
        assert (thread["values"], thread["run_ids"]) == (None, [run["run_id"]])
        assert "1000" in thread["why_no_values"].replace(",", "")
        await console.refuse(413, f"threads/{run['thread_id']}/revisions")


async def test_another_owner_does_not_find_a_thread(console: Shown) -> None:
    thread_id = console.runs["rain"]["thread_id"]
    for headers in (BOB, OPS):
        for path in (f"threads/{thread_id}", f"threads/{thread_id}/revisions"):
            unknown = await console.refuse(404, path.replace(thread_id, UNKNOWN), headers)
            assert await console.refuse(404, path, headers) == unknown.replace(UNKNOWN, thread_id)
    assert len((await console.get("threads", BOB))["items"]) == 1
    for query, words in (
        ({"status": "done"}, "status"),
        ({"meta": "x"}, "meta: expected key:value"),
        ({"meta": ["user:7", "user:8"]}, "meta: expected each key once, got 'user' twice"),
        ({"status": ["idle", "busy"]}, "status: expected one value, got 2"),
        ({"all": 1}, "all"),
    ):
        assert words in await console.refuse(400, "threads", **query)
