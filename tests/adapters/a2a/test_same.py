"""From A2A to A2A: the official client cannot tell the gateway from the agent but by what the tables here name."""

from pathlib import Path
from typing import Any

import pytest

from babelgate.adapters.a2a.agents.card import card
from babelgate.adapters.a2a.agents.interface import describe
from babelgate.canonical import Scope
from babelgate.canonical.event import Native
from tests.adapters.a2a.far import card_1_0
from tests.adapters.a2a.schema import check
from tests.adapters.a2a.site import OWNER, Site
from tests.adapters.a2a.test_through import CONTEXT, WAYS, Way, every_way, through
from tests.difference import differences

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
async def test_a_task_is_shown_as_its_server_shows_it(tmp_path: Path, end: str) -> None:
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", stream_to(end))
        sent = (await WAYS[0].send(site, "far", WAYS[0].body("Hi")))["task"]
        assert unexplained(task_at(end), sent) == []
        assert unexplained(task_at(end), await site.result("far", "GetTask", {"id": sent["id"]})) == []


@pytest.mark.parametrize("end", ENDS)
async def test_a_stream_is_shown_as_its_server_shows_it(tmp_path: Path, end: str) -> None:
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", stream_to(end))
        accepted, working, *events = await WAYS[0].stream(site, "far", WAYS[0].body("Hi"))
        # The gateway's own, from before the server's first word: its task is older than the server's.
        assert accepted["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
        assert working["statusUpdate"]["status"].keys() == {"state", "timestamp"}
        # What the server's own first event says of the task comes with the next status.
        expected = [*stream_to(end)[1:]]
        expected[0]["statusUpdate"]["metadata"] |= {"t": 1}
        assert unexplained(expected, events) == []


@every_way
@pytest.mark.parametrize("end", ENDS)
async def test_every_form_shows_it(tmp_path: Path, way: Way, end: str) -> None:
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", stream_to(end))
        sent = await way.send(site, "far", way.body("Hi"))
        shown = sent.get("task", sent)
        message = shown["status"].get("message") or shown["status"]["update"]
        assert message["messageId"] == "m2"
        if way.form == "0.3-rest":  # the official client of 0.3 refuses unknown members in REST
            check("task", way.form, shown)


async def test_a_status_without_a_message_is_shown_where_it_says_anything(tmp_path: Path) -> None:
    async with through(tmp_path) as (far, site):
        bare = {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}
        far.set("SendStreamingMessage", [bare, update("WORKING"), update("COMPLETED")])
        _, _, *events = await WAYS[0].stream(site, "far", WAYS[0].body("Hi"))
        assert unexplained([update("WORKING"), update("COMPLETED")], events) == []


async def test_an_answer_to_a_question_is_followed_by_what_the_server_says_then(tmp_path: Path) -> None:
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", stream_to("INPUT_REQUIRED"), [update("COMPLETED", said("m3"))])
        asked = (await WAYS[0].send(site, "far", WAYS[0].body("Hi")))["task"]
        body = WAYS[0].body("Yes")
        body["message"]["taskId"] = asked["id"]
        done = (await WAYS[0].send(site, "far", body))["task"]
        assert [each["messageId"] for each in done["history"]] == ["m", "m1", "m2", "m"]
        assert unexplained(status("COMPLETED", said("m3")), done["status"]) == []


async def test_an_answer_that_is_said_in_messages_of_the_status_stays_there(tmp_path: Path) -> None:
    """As those of google-adk 2.13.0 and agentstack-sdk 0.7.1: other protocols are told what is the answer."""
    thought = said("m1", {"text": "Hm", "metadata": {"adk_thought": True}})
    call = {"data": {"id": "f1", "name": "f", "args": {"n": 1}}, "metadata": {"adk_type": "function_call"}}
    told = [update("WORKING", each) for each in (thought, said("m2", call), said("m3", {"text": "Well"}))]
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", [*told, update("COMPLETED")])
        _, _, *events = await WAYS[0].stream(site, "far", WAYS[0].body("Hi"))
        assert unexplained([*told, update("COMPLETED")], events) == []
        assert "loss" not in events[-1]["statusUpdate"]["metadata"]["babelgate"]


async def test_a_change_of_state_is_shown_as_it_came_and_not_written_again(tmp_path: Path) -> None:
    told = update("WORKING", said("m1", {"text": "Well"}))
    told["statusUpdate"]["metadata"]["ag2.context_update"] = {"n": 1}
    asked = update("INPUT_REQUIRED", said("m2"))
    asked["statusUpdate"]["status"]["message"]["metadata"] = {"ag2.context_update": {"n": 2}}
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", [told, asked])
        _, _, *events = await WAYS[0].stream(site, "far", WAYS[0].body("Hi"))
        assert unexplained([told, asked], events) == []
        assert "loss" not in events[-1]["statusUpdate"]["metadata"]["babelgate"]


async def test_a_typed_result_is_shown_with_the_object_in_which_it_came_and_once(tmp_path: Path) -> None:
    """As that of fasta2a 2.1.1: other protocols are told what is in it."""
    result = piece(artifact("result", {"data": {"result": {"n": 1}}, "metadata": {"json_schema": {"type": "object"}}}))
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", [result, update("COMPLETED")])
        _, _, *events = await WAYS[0].stream(site, "far", WAYS[0].body("Hi"))
        assert unexplained([result, update("COMPLETED")], events) == []


async def test_what_is_too_large_to_keep_is_noted(tmp_path: Path) -> None:
    async with through(tmp_path) as (far, site):
        large = update("COMPLETED")
        large["statusUpdate"]["metadata"] = {"large": "x" * 300_000}
        far.set("SendStreamingMessage", [large])
        task = (await WAYS[0].send(site, "far", WAYS[0].body("Hi")))["task"]
        assert task["metadata"].keys() == {"babelgate"}
        assert "too large" in task["metadata"]["babelgate"]["loss"]["custom"]


async def test_other_protocols_see_nothing_of_it(tmp_path: Path) -> None:
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", stream_to("COMPLETED"))
        sent = (await WAYS[0].send(site, "far", WAYS[0].body("Hi")))["task"]
        assert await _native_names(site, sent["id"]) == ["task", "status", "status"]


async def _native_names(site: Site, task_id: str) -> list[str]:
    task = await site.hub.reads.task(OWNER, task_id)
    records = await site.hub.reads.records(OWNER, Scope.task(task))
    return [record.event.event for record in records if isinstance(record.event, Native)]


# Cards

CARD: dict[str, Any] = card_1_0(
    "http://far",
    provider={"organization": "Far", "url": "http://far.example", **unknown("provider")},
    documentationUrl="http://far.example/docs",
    iconUrl="http://far.example/icon",
    skills=[
        {
            "id": "echo",
            "name": "Echo",
            "description": "Says it again.",
            "tags": ["demo"],
            "examples": ["Hi"],
            "inputModes": ["text/plain"],
            "outputModes": ["text/plain"],
            **unknown("skill"),
        }
    ],
    **unknown("card"),
)
CONNECTION = {
    "supportedInterfaces": "how the gateway is called",
    "capabilities": "what the gateway can",
    "signatures": "of another document",
    "securitySchemes": "the gateway's keys",
    "securityRequirements": "the gateway's keys",
}


def test_a_card_says_what_the_server_s_says() -> None:
    shown = card("1.0", describe(CARD), "http://gateway", keyed=False)
    found = list(differences(CARD, shown))
    assert [each for each in found if each[1:].partition(".")[0].partition("[")[0] not in CONNECTION] == []


def test_a_card_is_not_grown_without_end() -> None:
    shown = card("1.0", describe({**CARD, "x-card": "x" * 70_000}), "http://gateway", keyed=False)
    assert "x-card" not in shown


def test_an_agent_that_is_called_otherwise_here_is_not_called_as_there() -> None:
    shown = card("1.0", describe(CARD).replace(name="other"), "http://gateway", keyed=False)
    assert shown["name"] == "other"
