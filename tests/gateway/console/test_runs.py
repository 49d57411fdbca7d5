"""Runs in the console: lists by page and filter, what an operator sees, and the records of a run."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from babelgate.canonical import Event, ReasoningPart, TextPart
from babelgate.canonical.event import MessageEnded, MessageStarted, PartAdded, PartDelta, PartEnded
from tests.gateway.console.reading import ALICE, BOB, OPS, Shown, shown

pytestmark = pytest.mark.asyncio(loop_scope="module")
UNKNOWN = "01a22700-0000-7000-8000-000000000000"
OUTLINE = {
    "owner",
    "run_id",
    "task_id",
    "thread_id",
    "agent",
    "protocol",
    "version",
    "status",
    "reason",
    "attempt",
    "created_at",
    "started_at",
    "first_output_at",
    "ended_at",
    "node",
    "fault",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Shown]:
    async with shown(Path(tmp_path_factory.mktemp("runs"))) as console:
        await console.run("echo", "echo", "Rain  tomorrow?")
        await console.run("failed", "fail", "a secret")
        await console.run("asked", "approve", "Send it")
        await console.run("of bob", "echo", "Snow?", BOB)
        await console.run("long", "stream", " ".join(f"word{number}" for number in range(300)))
        yield console


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["long", "asked", "failed", "echo"]),
        ({"limit": 3}, ["long", "asked", "failed"]),
        ({"agent": "echo"}, ["echo"]),
        ({"agent": "none"}, []),
        ({"status": "error,timeout"}, ["failed"]),
        ({"status": "paused"}, ["asked"]),
        ({"q": "RAIN tom"}, ["echo"]),
        ({"since": "1h"}, ["long", "asked", "failed", "echo"]),
        ({"since": "2100-01-01T00:00:00Z"}, []),
    ],
)
async def test_runs_are_listed_by_filter(console: Shown, query: dict[str, Any], expected: list[str]) -> None:
    page = await console.get("runs", **query)
    assert [console.name_of(item["run_id"]) for item in page["items"]] == expected
    assert (page["next"] is None) == ("limit" not in query)
    if page["next"] is not None:
        rest = await console.get("runs", after=page["next"], **query)
        assert [console.name_of(item["run_id"]) for item in rest["items"]] == ["echo"]


async def test_a_run_shows_its_times_fault_and_questions(console: Shown) -> None:
    echo, failed, paused = [
        await console.get(f"runs/{console.runs[name]['run_id']}") for name in ("echo", "failed", "asked")
    ]
    assert (echo["agent"], echo["protocol"], echo["status"], echo["reason"]) == ("echo", "runtime", "success", "done")
    times = [echo[f"{name}_at"] for name in ("created", "started", "first_output", "ended")]
    assert times == sorted(times) and all(time.endswith("Z") and len(time) == 27 for time in times)
    assert (echo["first_words"], echo["attempt"], echo["losses"], echo["asks"]) == ("Rain tomorrow?", 1, [], [])
    assert failed["fault"]["code"] == "agent_failed" and "a secret" in failed["fault"]["message"]
    assert [(ask["kind"], ask["message"]) for ask in paused["asks"]] == [
        ("approval", "May I write the file?"),
        ("approval", "May I send the message?"),
    ]
    assert (await console.get("runs", status="paused"))["items"] == [paused]


async def test_an_operator_sees_that_runs_exist_and_not_their_texts(console: Shown) -> None:
    first = await console.get("runs", OPS, all=1, limit=2)
    rest = await console.get("runs", OPS, all=1, after=first["next"])
    items = [*first["items"], *rest["items"]]
    assert [(console.name_of(item["run_id"]), item["owner"]) for item in items] == [
        ("long", "alice"),
        ("of bob", "bob"),
        ("asked", "alice"),
        ("failed", "alice"),
        ("echo", "alice"),
    ]
    assert all(set(item) == OUTLINE for item in items)
    assert items[3]["fault"] == {"code": "agent_failed"}
    assert (await console.get("runs", OPS))["items"] == []
    assert "operators cannot search other owners' texts" in await console.refuse(400, "runs", OPS, all=1, q="rain")
    for headers in (ALICE, BOB):
        await console.refuse(403, "runs", headers, all=1)


async def test_another_owner_does_not_find_a_run(console: Shown) -> None:
    run_id = console.runs["echo"]["run_id"]
    for headers in (BOB, OPS):
        for path in (f"runs/{run_id}", f"runs/{run_id}/records"):
            unknown = await console.refuse(404, path.replace(run_id, UNKNOWN), headers)
            assert await console.refuse(404, path, headers) == unknown.replace(UNKNOWN, run_id)
    await console.refuse(404, "runs/x/records")


@pytest.mark.parametrize(
    ("path", "query", "words"),
    [
        ("runs", {"status": "done"}, "status: expected one or more of pending"),
        ("runs", {"since": "yesterday"}, "since: expected"),
        ("runs", {"limit": 101}, "limit: expected a number from 1 to 100"),
        ("runs", {"limit": "-1"}, "limit"),
        ("runs", {"limit": ["5", "7"]}, "limit: expected one value, got 2"),
        ("runs", {"since": ["24h", "1h"]}, "since: expected one value, got 2"),
        ("runs", {"all": ["0", "1"]}, "all: expected one value, got 2"),
        ("runs", {"after": ["", "x"]}, "after: expected one value, got 2"),
        ("runs", {"after": "x"}, "after: expected the `next`"),
        ("runs", {"all": "yes"}, "all: expected 0 or 1"),
        ("runs", {"q": "x" * 201}, "q: expected at most 200"),
        ("runs", {"color": "red"}, "There is no parameter 'color'; there are after, agent"),
        ("runs/{}/records", {"limit": 1001}, "limit"),
        ("runs/{}/records", {"after": "x"}, "after"),
        ("runs/{}/records", {"fold": 2}, "fold"),
        ("runs/{}/records", {"deltas": 1}, "deltas: needs fold=1"),
    ],
)
async def test_wrong_parameters_are_named(console: Shown, path: str, query: dict[str, Any], words: str) -> None:
    assert words in await console.refuse(400, path.format(console.runs["echo"]["run_id"]), **query)


def unfold(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the text deltas that the console has folded into one record, each as a separate record. Return a list with
    the record itself if nothing is folded into it."""
    if "deltas" not in record:
        return [record]
    common = {name: value for name, value in record.items() if name not in ("deltas", "n", "to", "until")}
    return [
        {
            **common,
            "event_id": group["event_id"] + index,
            "timestamp": group["timestamp"],
            "payload": {**record["payload"], "text": text},
        }
        for group in record["deltas"]
        for index, text in enumerate(group["texts"])
    ]


async def test_folded_text_equals_the_joined_deltas(console: Shown) -> None:
    path = f"runs/{console.runs['long']['run_id']}/records"
    whole = await console.get(path)
    assert (whole["next"], whole["ended"], whole["last"]) == (None, True, whole["records"][-1]["event_id"])
    frames = (await console.gateway.http.get(f"/v1/{path.replace('records', 'stream')}", headers=ALICE)).text
    assert [f"id: {record['event_id']}" for record in whole["records"]] == [
        line for line in frames.splitlines() if line.startswith("id: ")
    ]
    paged: list[Any] = []
    page = {"next": 0}
    while page["next"] is not None:
        page = await console.get(path, after=page["next"], limit=100)
        paged += page["records"]
    assert paged == whole["records"]

    listed = (await console.get(path, fold=1, deltas=1))["records"]
    assert len(listed) < 10 and [each for record in listed for each in unfold(record)] == whole["records"]

    folded = (await console.get(path, fold=1))["records"]
    deltas = [record for record in whole["records"] if record["event_type"] == "part_delta"]
    others = [record for record in whole["records"] if record["event_type"] != "part_delta"]
    (joined,) = [record for record in folded if record["event_type"] == "part_delta"]
    assert [record for record in folded if record is not joined] == others
    assert joined["payload"].pop("text") == "".join(delta["payload"].pop("text") for delta in deltas)
    assert joined == {**deltas[0], "n": 299, "to": deltas[-1]["event_id"], "until": deltas[-1]["timestamp"]}


def weave(text: str) -> Iterator[Event]:
    """Send the letters of the input, each to the part 0 if it is a capital letter, and to the part 1 if it is not."""
    yield MessageStarted(message_id="m")
    yield PartAdded(message_id="m", index=0, part=TextPart(text=""), open=True)
    yield PartAdded(message_id="m", index=1, part=ReasoningPart(text=""), open=True)
    for letter in text:
        yield PartDelta(message_id="m", index=int(letter.islower()), text=letter)
    for index in (0, 1):
        yield PartEnded(message_id="m", index=index)
    yield MessageEnded(message_id="m")


async def test_folded_deltas_of_alternating_parts_tell_their_ids(tmp_path: Path) -> None:
    async with shown(tmp_path, {"weave": weave}) as console:
        path = f"runs/{(await console.run('woven', 'weave', 'AbCCdeF'))['run_id']}/records"
        folded = [each for each in (await console.get(path, fold=1))["records"] if "n" in each]
    assert [(each["payload"]["text"], each["n"], each["stretches"]) for each in folded] == [
        ("ACCF", 4, [1, 1, 2, 2, 1]),
        ("bde", 3, [1, 2, 2]),
    ]
