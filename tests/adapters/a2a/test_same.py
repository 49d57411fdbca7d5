"""A2A in front of A2A: callers receive the upstream task unchanged, except for the differences that this file lists."""

from typing import Any

import pytest

from babelgate.canonical import Scope
from babelgate.canonical.event import Native
from tests.adapters.a2a.schema import check
from tests.adapters.a2a.site import OWNER
from tests.adapters.a2a.through import CONTEXT, WAYS, Through, Way, every_way
from tests.difference import differences

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT = "2026-01-02T03:04:05.000Z"


def unknown(level: str) -> dict[str, Any]:
    """Return a member that no version of the protocol defines, for an object of the kind `level`, such as `part`."""
    return {f"x-{level}": {"k": [1, "ü", None]}}


def part(**content: Any) -> dict[str, Any]:
    return {**content, "metadata": {"p": 1}, **unknown("part")}


def agent_message(name: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {
        "messageId": name,
        "contextId": "c",
        "taskId": "t",
        "role": "ROLE_AGENT",
        "parts": list(parts) or [part(text=name, mediaType="text/markdown", filename="a.md"), part(data={"n": 1})],
        "metadata": {"m": 1},
        "extensions": ["https://example.com/x"],
        "referenceTaskIds": ["other"],
        **unknown("message"),
    }


def status(state: str, message: dict[str, Any] | None = None) -> dict[str, Any]:
    content = {"state": f"TASK_STATE_{state}", "timestamp": AT, **unknown("status")}
    return content if message is None else {**content, "message": message}


def update(state: str, message: dict[str, Any] | None = None) -> dict[str, Any]:
    more = {"metadata": {f"s-{state}": 1}, **unknown("update")}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": status(state, message), **more}}


def artifact(name: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "artifactId": f"their-{name}",
        "name": name,
        "description": "Of it",
        "parts": [content],
        "metadata": {"a": 1},
        "extensions": ["https://example.com/x"],
        **unknown("artifact"),
    }


def piece(content: dict[str, Any]) -> dict[str, Any]:
    more = {"append": False, "lastChunk": True, "metadata": {"u": 1}, **unknown("update")}
    return {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": content, **more}}


WORDS = artifact("Answer", part(text="one", mediaType="text/markdown"))
FILE = artifact("File", part(raw="AAE=", filename="n.bin", mediaType="application/x-n"))
BEGUN = {"task": {"id": "t", "contextId": "c", "status": status("WORKING"), "metadata": {"t": 1}, **unknown("task")}}
ENDS = ["COMPLETED", "FAILED", "REJECTED", "CANCELED", "INPUT_REQUIRED", "AUTH_REQUIRED"]


def stream_to(end: str) -> list[dict[str, Any]]:
    return [BEGUN, update("WORKING", agent_message("m1")), piece(WORDS), piece(FILE), update(end, agent_message("m2"))]


def task_at(end: str) -> dict[str, Any]:
    """Return the task in the state `end` as a2a-sdk 1.3.0 stores it: the metadata of all updates are merged, and the
    messages of earlier statuses are in the history."""
    input_message = {
        "messageId": "m",
        "contextId": CONTEXT,
        "taskId": "t",
        "role": "ROLE_USER",
        "parts": [{"text": "Hi"}],
    }
    return {
        **BEGUN["task"],
        "status": status(end, agent_message("m2")),
        "artifacts": [WORDS, FILE],
        "history": [input_message, agent_message("m1")],
        "metadata": {"t": 1, "s-WORKING": 1, f"s-{end}": 1},
    }


DIFFERENCES = {
    "id": "the gateway's: the same in all protocols",
    "taskId": "the gateway's: the same in all protocols",
    "contextId": "the caller's, or the gateway's",
    "timestamp": "the gateway's clock: times of a thread are in order",
    "referenceTaskIds": "ids of tasks of the agent's server, which lead nowhere here",
    "metadata.babelgate": "the gateway's own ids, and why a task failed",
}
"""Reasons for differences, by the end of the path of the value that differs."""


def unexplained(expected: Any, actual: Any) -> list[str]:
    return [
        difference
        for difference in differences(expected, actual)
        if not any(difference[1:] == name or difference.endswith(f".{name}") for name in DIFFERENCES)
    ]


@pytest.mark.parametrize("end", ENDS)
async def test_task_matches_the_upstream_task(both: Through, end: str) -> None:
    sent = await both.send(*stream_to(end))
    assert unexplained(task_at(end), sent) == []
    assert unexplained(task_at(end), await both.site.result("far", "GetTask", {"id": sent["id"]})) == []


@pytest.mark.parametrize("end", ENDS)
async def test_stream_matches_the_upstream_stream(both: Through, end: str) -> None:
    accepted, working, *events = await both.stream(*stream_to(end))
    # The first two events are the gateway's: its task is older than the server's.
    assert accepted["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert working["statusUpdate"]["status"].keys() == {"state", "timestamp"}
    # The metadata of the server's first event, the task, arrive with the next status.
    expected = stream_to(end)[1:]
    expected[0]["statusUpdate"]["metadata"] |= {"t": 1}
    assert unexplained(expected, events) == []


@every_way
@pytest.mark.parametrize("end", ENDS)
async def test_message_of_the_status_is_in_every_version(both: Through, way: Way, end: str) -> None:
    task = await both.send(*stream_to(end), way=way)
    message = task["status"].get("message") or task["status"]["update"]
    assert message["messageId"] == "m2"
    if way.form == "0.3-rest":  # the official client of 0.3 refuses unknown members in REST
        check("task", way.form, task)


async def test_history_continues_after_an_answer(both: Through) -> None:
    waiting = await both.send(*stream_to("INPUT_REQUIRED"))
    both.far.set("SendStreamingMessage", [update("COMPLETED", agent_message("m3"))])
    body = WAYS[0].body("Yes")
    body["message"]["taskId"] = waiting["id"]
    done = (await WAYS[0].send(both.site, "far", body))["task"]
    assert [each["messageId"] for each in done["history"]] == ["m", "m1", "m2", "m"]
    assert unexplained(status("COMPLETED", agent_message("m3")), done["status"]) == []


def with_metadata(reply: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    reply["statusUpdate"]["metadata"] |= metadata
    return reply


DIALECTS: dict[str, list[dict[str, Any]]] = {
    # Of google-adk 2.13.0 and agentstack-sdk 0.7.1. Other protocols receive an answer.
    "an answer in messages of the status": [
        update("WORKING", agent_message("m1", {"text": "Hm", "metadata": {"adk_thought": True}})),
        update(
            "WORKING",
            agent_message("m2", {"data": {"id": "f1", "name": "f"}, "metadata": {"adk_type": "function_call"}}),
        ),
        update("WORKING", agent_message("m3", {"text": "Well"})),
        update("COMPLETED"),
    ],
    "a change of state": [
        with_metadata(update("WORKING", agent_message("m1", {"text": "Well"})), **{"ag2.context_update": {"n": 1}}),
        update("INPUT_REQUIRED", {**agent_message("m2"), "metadata": {"ag2.context_update": {"n": 2}}}),
    ],
    # Of fasta2a 2.1.1. Other protocols receive the content of `result`.
    "a typed result": [
        piece(artifact("result", {"data": {"result": {"n": 1}}, "metadata": {"json_schema": {"type": "object"}}})),
        update("COMPLETED"),
    ],
}


@pytest.mark.parametrize("replies", DIALECTS.values(), ids=DIALECTS)
async def test_dialects_of_frameworks_pass_unchanged(both: Through, replies: list[Any]) -> None:
    _, _, *events = await both.stream(*replies)
    assert unexplained(replies, events) == []
    assert "loss" not in events[-1]["statusUpdate"]["metadata"]["babelgate"]


async def test_empty_status_is_not_relayed(both: Through) -> None:
    empty = {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}
    _, _, *events = await both.stream(empty, update("WORKING"), update("COMPLETED"))
    assert unexplained([update("WORKING"), update("COMPLETED")], events) == []


async def test_too_large_metadata_are_a_loss(both: Through) -> None:
    task = await both.send(with_metadata(update("COMPLETED"), large="x" * 300_000))
    assert task["metadata"].keys() == {"babelgate"}
    assert "too large" in task["metadata"]["babelgate"]["loss"]["custom"]


async def test_passed_through_members_are_native_events(both: Through) -> None:
    sent = await both.send(*stream_to("COMPLETED"))
    task = await both.site.hub.reads.task(OWNER, sent["id"])
    records = await both.site.hub.reads.records(OWNER, Scope.task(task))
    natives = [record.event.event for record in records if isinstance(record.event, Native)]
    assert natives == ["task", "status", "status"]
