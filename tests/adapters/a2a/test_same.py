"""From A2A to A2A: the official client cannot tell the gateway from the agent but by what the tables here name."""

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
    """A member that no version of the protocol has."""
    return {f"x-{level}": {"k": [1, "ü", None]}}


def part(**content: Any) -> dict[str, Any]:
    return {**content, "metadata": {"p": 1}, **unknown("part")}


def said(name: str, *parts: dict[str, Any]) -> dict[str, Any]:
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
    found = {"state": f"TASK_STATE_{state}", "timestamp": AT, **unknown("status")}
    return found if message is None else {**found, "message": message}


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


def piece(of: dict[str, Any]) -> dict[str, Any]:
    more = {"append": False, "lastChunk": True, "metadata": {"u": 1}, **unknown("update")}
    return {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": of, **more}}


WORDS = artifact("Answer", part(text="one", mediaType="text/markdown"))
FILE = artifact("File", part(raw="AAE=", filename="n.bin", mediaType="application/x-n"))
BEGUN = {"task": {"id": "t", "contextId": "c", "status": status("WORKING"), "metadata": {"t": 1}, **unknown("task")}}
ENDS = ["COMPLETED", "FAILED", "REJECTED", "CANCELED", "INPUT_REQUIRED", "AUTH_REQUIRED"]


def stream_to(end: str) -> list[dict[str, Any]]:
    return [BEGUN, update("WORKING", said("m1")), piece(WORDS), piece(FILE), update(end, said("m2"))]


def task_at(end: str) -> dict[str, Any]:
    """As the server of a2a-sdk 1.3.0 has it in its store by then: metadata merged, messages of a status moved."""
    asked = {"messageId": "m", "contextId": CONTEXT, "taskId": "t", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
    return {
        **BEGUN["task"],
        "status": status(end, said("m2")),
        "artifacts": [WORDS, FILE],
        "history": [asked, said("m1")],
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
"""By the end of the path of what differs, why."""


def unexplained(theirs: Any, ours: Any) -> list[str]:
    return [
        found
        for found in differences(theirs, ours)
        if not any(found[1:] == name or found.endswith(f".{name}") for name in DIFFERENCES)
    ]


@pytest.mark.parametrize("end", ENDS)
async def test_a_task_is_shown_as_its_server_shows_it(both: Through, end: str) -> None:
    sent = await both.send(*stream_to(end))
    assert unexplained(task_at(end), sent) == []
    assert unexplained(task_at(end), await both.site.result("far", "GetTask", {"id": sent["id"]})) == []


@pytest.mark.parametrize("end", ENDS)
async def test_a_stream_is_shown_as_its_server_shows_it(both: Through, end: str) -> None:
    accepted, working, *events = await both.stream(*stream_to(end))
    # The gateway's own, from before the server's first word: its task is older than the server's.
    assert accepted["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert working["statusUpdate"]["status"].keys() == {"state", "timestamp"}
    # What the server's own first event says of the task comes with the next status.
    expected = stream_to(end)[1:]
    expected[0]["statusUpdate"]["metadata"] |= {"t": 1}
    assert unexplained(expected, events) == []


@every_way
@pytest.mark.parametrize("end", ENDS)
async def test_every_form_shows_it(both: Through, way: Way, end: str) -> None:
    shown = await both.send(*stream_to(end), way=way)
    message = shown["status"].get("message") or shown["status"]["update"]
    assert message["messageId"] == "m2"
    if way.form == "0.3-rest":  # the official client of 0.3 refuses unknown members in REST
        check("task", way.form, shown)


async def test_an_answer_to_a_question_is_followed_by_what_the_server_says_then(both: Through) -> None:
    asked = await both.send(*stream_to("INPUT_REQUIRED"))
    both.far.set("SendStreamingMessage", [update("COMPLETED", said("m3"))])
    body = WAYS[0].body("Yes")
    body["message"]["taskId"] = asked["id"]
    done = (await WAYS[0].send(both.site, "far", body))["task"]
    assert [each["messageId"] for each in done["history"]] == ["m", "m1", "m2", "m"]
    assert unexplained(status("COMPLETED", said("m3")), done["status"]) == []


def with_metadata(of: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    of["statusUpdate"]["metadata"] |= metadata
    return of


SHOWN: dict[str, list[dict[str, Any]]] = {
    # As those of google-adk 2.13.0 and agentstack-sdk 0.7.1: other protocols are told what is the answer.
    "an answer in messages of the status": [
        update("WORKING", said("m1", {"text": "Hm", "metadata": {"adk_thought": True}})),
        update("WORKING", said("m2", {"data": {"id": "f1", "name": "f"}, "metadata": {"adk_type": "function_call"}})),
        update("WORKING", said("m3", {"text": "Well"})),
        update("COMPLETED"),
    ],
    "a change of state": [
        with_metadata(update("WORKING", said("m1", {"text": "Well"})), **{"ag2.context_update": {"n": 1}}),
        update("INPUT_REQUIRED", {**said("m2"), "metadata": {"ag2.context_update": {"n": 2}}}),
    ],
    # As that of fasta2a 2.1.1: other protocols are told what is in it.
    "a typed result": [
        piece(artifact("result", {"data": {"result": {"n": 1}}, "metadata": {"json_schema": {"type": "object"}}})),
        update("COMPLETED"),
    ],
}


@pytest.mark.parametrize("told", SHOWN.values(), ids=SHOWN)
async def test_what_others_are_told_in_other_words_is_shown_as_it_came(both: Through, told: list[Any]) -> None:
    _, _, *events = await both.stream(*told)
    assert unexplained(told, events) == []
    assert "loss" not in events[-1]["statusUpdate"]["metadata"]["babelgate"]


async def test_a_status_that_says_nothing_is_not_shown(both: Through) -> None:
    bare = {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}
    _, _, *events = await both.stream(bare, update("WORKING"), update("COMPLETED"))
    assert unexplained([update("WORKING"), update("COMPLETED")], events) == []


async def test_what_is_too_large_to_keep_is_noted(both: Through) -> None:
    task = await both.send(with_metadata(update("COMPLETED"), large="x" * 300_000))
    assert task["metadata"].keys() == {"babelgate"}
    assert "too large" in task["metadata"]["babelgate"]["loss"]["custom"]


async def test_other_protocols_see_nothing_of_it(both: Through) -> None:
    sent = await both.send(*stream_to("COMPLETED"))
    task = await both.site.hub.reads.task(OWNER, sent["id"])
    records = await both.site.hub.reads.records(OWNER, Scope.task(task))
    natives = [record.event.event for record in records if isinstance(record.event, Native)]
    assert natives == ["task", "status", "status"]
