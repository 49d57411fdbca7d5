"""From A2A to A2A: what another server says, as callers of this one get it."""

import asyncio
from typing import Any

import pytest

from babelgate.canonical import Scope, TaskState
from babelgate.canonical.fold import Fold
from tests.adapters.a2a.replies import DONE, artifact, task, text
from tests.adapters.a2a.site import BOUND, OWNER, answer_of, message
from tests.adapters.a2a.through import CONTEXT, WAYS, Through, Way, every_way

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAID: dict[str, Any] = {
    "messageId": "theirs",
    "role": "ROLE_AGENT",
    "contextId": "far-context",
    "parts": [{"text": "Hello, "}, {"data": {"n": 1}}, {"text": "you.", "metadata": {"k": "v"}}],
    "metadata": {"tone": "calm"},
}


# A message and no task


@every_way
async def test_a_message_that_is_the_answer_reaches_the_caller_as_one(both: Through, way: Way) -> None:
    events = await both.stream({"message": SAID}, way=way)
    for answer in (
        *events,
        await way.send(both.site, "far", way.body("Hi")),
        await way.send(both.site, "far", way.at_once("Hi")),
    ):
        said = way.said(answer)
        assert (said["messageId"], said["contextId"], said["metadata"]) == ("theirs", CONTEXT, SAID["metadata"])
        assert "taskId" not in said
        parts = said["content" if way.form == "0.3-rest" else "parts"]
        assert [part.get("text") for part in parts] == ["Hello, ", None, "you."]
        assert parts[2]["metadata"] == {"k": "v"}


async def test_a_1_0_message_keeps_its_parts_and_its_conversation_goes_on(both: Through) -> None:
    both.far.set("SendStreamingMessage", [{"message": SAID}])
    said = (await both.site.result("far", "SendMessage", message("Hi")))["message"]
    assert {**said, "contextId": "far-context"} == SAID
    again = await both.site.result("far", "SendMessage", message("And?", contextId=said["contextId"]))
    assert again["message"]["contextId"] == said["contextId"]
    assert both.far.body("SendStreamingMessage")["message"]["contextId"] == "far-context"


async def test_a_server_that_does_not_stream_answers_with_a_message_too(both: Through) -> None:
    both.far.set("SendMessage", {"message": SAID})
    [event] = await WAYS[0].stream(both.site, "unary", WAYS[0].body("Hi"))
    assert event["message"]["messageId"] == "theirs"


async def test_a_run_that_is_answered_with_a_message_is_in_the_log(both: Through) -> None:
    both.far.set("SendStreamingMessage", [{"message": SAID}])
    response = await both.site.rpc("far", "SendMessage", message("Hi"))
    task = await both.site.hub.reads.task(OWNER, response.headers["Babelgate-Task"])
    assert task.state is TaskState.COMPLETED
    assert answer_of(await both.site.result("far", "GetTask", {"id": task.task_id})) == "Hello, you."


@every_way
async def test_a_task_is_still_a_task(both: Through, way: Way) -> None:
    first, *others = await both.stream(BEGUN, piece(text("x")), DONE, way=way)
    assert way.is_task(first)
    assert not any(way.is_task(each) for each in others)
    assert way.is_task(await way.send(both.site, "far", way.body("Hi")))
    assert way.is_task(await way.send(both.site, "far", way.at_once("Hi")))


async def test_a_server_that_fails_before_its_first_word_makes_a_failed_task(both: Through) -> None:
    both.far.fail("SendStreamingMessage", -32603, "Out of order.")
    first, *_, last = await WAYS[0].stream(both.site, "far", WAYS[0].body("Hi"))
    assert first["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_FAILED"
    sent = await WAYS[0].send(both.site, "far", WAYS[0].at_once("Hi"))
    assert sent["task"]["status"]["state"] == "TASK_STATE_FAILED"


async def test_an_agent_in_process_answers_with_a_message_or_with_a_task_if_it_says_more(both: Through) -> None:
    both.teller.gate.set()
    said = (await both.site.result("teller", "SendMessage", message("Hi")))["message"]
    assert said["parts"] == [{"text": "Hi"}]
    [event] = await WAYS[0].stream(both.site, "teller", WAYS[0].body("Hi"))
    assert event["message"]["parts"] == [{"text": "Hi"}]
    task = (await both.site.result("teller", "SendMessage", message("more")))["task"]
    assert answer_of(task) == "moreAnd more."
    first, *_, last = await WAYS[0].stream(both.site, "teller", WAYS[0].body("more"))
    assert "task" in first
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_nobody_waits_for_the_first_word_behind_another_run_of_the_context(both: Through) -> None:
    """A send that is to return at once would else wait for the whole run before."""
    both.teller.gate.clear()
    both.teller.begun.clear()
    way = WAYS[0]
    async with asyncio.timeout(BOUND):
        first = asyncio.ensure_future(way.send(both.site, "teller", way.body("one")))
        await both.teller.begun.wait()
        second = await way.send(both.site, "teller", way.at_once("two"))
        assert second["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
        both.teller.gate.set()
        assert (await first)["message"]["parts"] == [{"text": "one"}]


# Pieces of artifacts


def piece(*parts: dict[str, Any], **more: Any) -> Any:
    return artifact(*parts, name="Result", description="Of it", **more)


NOTE = {"raw": "AAE=", "filename": "note.bin", "mediaType": "application/octet-stream"}
BEGUN = task()

STREAMS = {
    "the last one says so": [
        piece(text("one")),
        piece(text(" two"), append=True),
        piece(text(" 3"), append=True, lastChunk=True),
    ],
    "none says so": [piece(text("one")), piece(text(" two"), append=True)],
    "all of it says so": [piece(text("one")), piece(text(" two"), append=True), piece(text("one two"), lastChunk=True)],
    "only one": [piece(text("one"), lastChunk=True)],
    "only one that does not say so": [piece(text("one"))],
    "several parts in one": [piece(text("a"), text("b"), {"data": {"n": 1}}), piece(text("c"), text("d"), append=True)],
    "data that is not the last": [piece({"data": {"n": 1}}), piece({"data": {"n": 2}}, append=True, lastChunk=True)],
    "the first one is empty": [piece(text("")), piece(text("one"), append=True, lastChunk=True)],
    "empty and the last": [piece(text(""), lastChunk=True)],
    "two at a time": [
        piece(text("1")),
        piece(text("2"), artifact_id="b"),
        piece(text("3"), append=True, lastChunk=True),
        piece(text("4"), append=True, artifact_id="b"),
    ],
    "a file": [piece(NOTE)],
    "a file that is the last": [piece(NOTE, lastChunk=True)],
    "files in pieces": [piece(NOTE, NOTE), piece(NOTE, text("x"), append=True, lastChunk=True)],
}


def pieces(events: list[Any]) -> list[Any]:
    """Without the artifacts' ids, which are the gateway's own, but with which belong together."""
    updates = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    ids = list(dict.fromkeys(update["artifact"]["artifactId"] for update in updates))
    return [
        (
            ids.index(update["artifact"]["artifactId"]),
            {name: value for name, value in update["artifact"].items() if name != "artifactId"},
            update.get("append", False),
            update.get("lastChunk", False),
        )
        for update in updates
    ]


@pytest.mark.parametrize("sent", STREAMS.values(), ids=STREAMS)
async def test_pieces_of_an_artifact_leave_as_they_came(both: Through, sent: list[Any]) -> None:
    events = await both.stream(BEGUN, *sent, DONE)
    assert pieces(events) == pieces(sent)
    shown = await both.site.result("far", "GetTask", {"id": events[0]["task"]["id"]})
    assert folded(events) == [artifact["parts"] for artifact in shown["artifacts"]]


async def test_the_first_piece_of_an_artifact_is_never_appended(both: Through) -> None:
    """The client of a2a-sdk 1.3.0 refuses one that is, and fasta2a 2.1.1 sends it."""
    first, last = piece(text("one")), piece(text(" two"), append=True, lastChunk=True)
    events = await both.stream(BEGUN, piece(text("one"), append=True), last, DONE)
    assert pieces(events) == pieces([first, last])


@every_way
@pytest.mark.parametrize("part", [text("one"), NOTE], ids=["answer", "file"])
async def test_what_is_said_of_an_artifact_stays_with_it(both: Through, way: Way, part: dict[str, Any]) -> None:
    sent = piece(part, lastChunk=True)
    about = {"metadata": {"m": 1}, "extensions": ["https://example.com/x"]}
    sent["artifactUpdate"]["artifact"] |= {**about, "color": "blue"}
    said = (BEGUN, sent, DONE)
    updates = [each.get("artifactUpdate", each) for each in await both.stream(*said, way=way)]
    [streamed] = [update["artifact"] for update in updates if "artifact" in update]
    for shown in (streamed, (await both.send(*said, way=way))["artifacts"][0]):
        assert (shown["name"], shown["description"]) == ("Result", "Of it")
        assert {name: shown[name] for name in about} == about
        # The official client of 0.3 refuses unknown members in REST.
        assert shown.get("color") == (None if way.form == "0.3-rest" else "blue")


def folded(events: list[Any]) -> list[list[Any]]:
    """The parts of the artifacts that a stream leaves behind, with texts joined as the gateway joins them."""
    artifacts: dict[str, list[Any]] = {}
    for event in events:
        if "artifactUpdate" in event:
            shown = event["artifactUpdate"]["artifact"]
            known = artifacts.setdefault(shown["artifactId"], [])
            if not event["artifactUpdate"]["append"]:
                known.clear()
            for part in shown["parts"]:
                if known and set(known[-1]) == set(part) == {"text"}:
                    known[-1] = text(known[-1]["text"] + part["text"])
                else:
                    known.append(part)
    return list(artifacts.values())


async def test_what_is_new_in_an_artifact_that_is_sent_again_is_appended(both: Through) -> None:
    again = [piece(text("one")), piece(text("one two")), piece(text("one two three"), lastChunk=True)]
    events = await both.stream(BEGUN, *again, DONE)
    told = [(artifact["parts"], append, last) for _, artifact, append, last in pieces(events)]
    assert told == [([text("one")], False, False), ([text(" two")], True, False), ([text(" three")], True, True)]
    assert folded(events) == [[text("one two three")]]


async def test_other_protocols_do_not_see_how_an_answer_was_cut(both: Through) -> None:
    task = await both.send(BEGUN, *STREAMS["several parts in one"], DONE)
    found = await both.site.hub.reads.task(OWNER, task["id"])
    records = await both.site.hub.reads.records(OWNER, Scope.task(found))
    [said] = [each for each in Fold(found.thread_id, records=records).messages() if each.role == "agent"]
    assert [part.kind for part in said.parts] == ["text", "data", "text"]
    assert said.text == "abcd"
