"""A2A in front of A2A: replies of another server, as callers of the gateway receive them."""

import asyncio
from typing import Any

import pytest

from babelgate.canonical import Scope, TaskState
from babelgate.canonical.fold import Fold
from tests.adapters.a2a.replies import DONE, artifact, task, text
from tests.adapters.a2a.site import BOUND, OWNER, answer_of, message
from tests.adapters.a2a.through import CONTEXT, WAYS, Through, Way, every_way

pytestmark = pytest.mark.asyncio(loop_scope="module")

REPLY: dict[str, Any] = {
    "messageId": "theirs",
    "role": "ROLE_AGENT",
    "contextId": "far-context",
    "parts": [{"text": "Hello, "}, {"data": {"n": 1}}, {"text": "you.", "metadata": {"k": "v"}}],
    "metadata": {"tone": "calm"},
}


# Messages without a task


@every_way
async def test_answer_without_a_task_reaches_the_caller_as_message(both: Through, way: Way) -> None:
    events = await both.stream({"message": REPLY}, way=way)
    for answer in (
        *events,
        await way.send(both.site, "far", way.body("Hi")),
        await way.send(both.site, "far", way.at_once("Hi")),
    ):
        reply = way.message_in(answer)
        assert (reply["messageId"], reply["contextId"], reply["metadata"]) == ("theirs", CONTEXT, REPLY["metadata"])
        assert "taskId" not in reply
        parts = reply["content" if way.form == "0.3-rest" else "parts"]
        assert [part.get("text") for part in parts] == ["Hello, ", None, "you."]
        assert parts[2]["metadata"] == {"k": "v"}


async def test_message_of_1_0_is_unchanged_and_its_context_continues(both: Through) -> None:
    both.far.set("SendStreamingMessage", [{"message": REPLY}])
    reply = (await both.site.result("far", "SendMessage", message("Hi")))["message"]
    assert {**reply, "contextId": "far-context"} == REPLY
    again = await both.site.result("far", "SendMessage", message("And?", contextId=reply["contextId"]))
    assert again["message"]["contextId"] == reply["contextId"]
    assert both.far.body("SendStreamingMessage")["message"]["contextId"] == "far-context"


async def test_server_without_streams_can_answer_with_a_message(both: Through) -> None:
    both.far.set("SendMessage", {"message": REPLY})
    [event] = await WAYS[0].stream(both.site, "unary", WAYS[0].body("Hi"))
    assert event["message"]["messageId"] == "theirs"


async def test_run_answered_with_a_message_is_in_the_log(both: Through) -> None:
    both.far.set("SendStreamingMessage", [{"message": REPLY}])
    response = await both.site.rpc("far", "SendMessage", message("Hi"))
    task = await both.site.hub.reads.task(OWNER, response.headers["Babelgate-Task"])
    assert task.state is TaskState.COMPLETED
    assert answer_of(await both.site.result("far", "GetTask", {"id": task.task_id})) == "Hello, you."


@every_way
async def test_task_of_the_server_remains_a_task(both: Through, way: Way) -> None:
    first, *others = await both.stream(BEGUN, piece(text("x")), DONE, way=way)
    assert way.is_task(first)
    assert not any(way.is_task(each) for each in others)
    assert way.is_task(await way.send(both.site, "far", way.body("Hi")))
    assert way.is_task(await way.send(both.site, "far", way.at_once("Hi")))


async def test_error_before_the_first_event_is_a_failed_task(both: Through) -> None:
    both.far.fail("SendStreamingMessage", -32603, "Out of order.")
    first, *_, last = await WAYS[0].stream(both.site, "far", WAYS[0].body("Hi"))
    assert first["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_FAILED"
    sent = await WAYS[0].send(both.site, "far", WAYS[0].at_once("Hi"))
    assert sent["task"]["status"]["state"] == "TASK_STATE_FAILED"


async def test_agent_in_process_answers_with_message_or_task(both: Through) -> None:
    both.replier.gate.set()
    reply = (await both.site.result("replier", "SendMessage", message("Hi")))["message"]
    assert reply["parts"] == [{"text": "Hi"}]
    [event] = await WAYS[0].stream(both.site, "replier", WAYS[0].body("Hi"))
    assert event["message"]["parts"] == [{"text": "Hi"}]
    task = (await both.site.result("replier", "SendMessage", message("more")))["task"]
    assert answer_of(task) == "moreAnd more."
    first, *_, last = await WAYS[0].stream(both.site, "replier", WAYS[0].body("more"))
    assert "task" in first
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_nonblocking_send_does_not_wait_for_an_earlier_run(both: Through) -> None:
    # Otherwise it would wait for the whole earlier run, because the answer may be a message.
    both.replier.gate.clear()
    both.replier.begun.clear()
    way = WAYS[0]
    async with asyncio.timeout(BOUND):
        first = asyncio.ensure_future(way.send(both.site, "replier", way.body("one")))
        await both.replier.begun.wait()
        second = await way.send(both.site, "replier", way.at_once("two"))
        assert second["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
        both.replier.gate.set()
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
    """Return the artifact updates with a number instead of the artifact's id, which is the gateway's."""
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
async def test_pieces_of_an_artifact_pass_unchanged(both: Through, sent: list[Any]) -> None:
    events = await both.stream(BEGUN, *sent, DONE)
    assert pieces(events) == pieces(sent)
    task = await both.site.result("far", "GetTask", {"id": events[0]["task"]["id"]})
    assert folded(events) == [artifact["parts"] for artifact in task["artifacts"]]


async def test_the_first_piece_of_an_artifact_is_never_appended(both: Through) -> None:
    # fasta2a 2.1.1 sends an appended first piece, which the client of a2a-sdk 1.3.0 rejects.
    first, last = piece(text("one")), piece(text(" two"), append=True, lastChunk=True)
    events = await both.stream(BEGUN, piece(text("one"), append=True), last, DONE)
    assert pieces(events) == pieces([first, last])


@every_way
@pytest.mark.parametrize("part", [text("one"), NOTE], ids=["answer", "file"])
async def test_members_of_an_artifact_pass_unchanged(both: Through, way: Way, part: dict[str, Any]) -> None:
    sent = piece(part, lastChunk=True)
    about = {"metadata": {"m": 1}, "extensions": ["https://example.com/x"]}
    sent["artifactUpdate"]["artifact"] |= {**about, "color": "blue"}
    replies = (BEGUN, sent, DONE)
    updates = [each.get("artifactUpdate", each) for each in await both.stream(*replies, way=way)]
    [streamed] = [update["artifact"] for update in updates if "artifact" in update]
    for relayed in (streamed, (await both.send(*replies, way=way))["artifacts"][0]):
        assert (relayed["name"], relayed["description"]) == ("Result", "Of it")
        assert {name: relayed[name] for name in about} == about
        # The official client of 0.3 refuses unknown members in REST.
        assert relayed.get("color") == (None if way.form == "0.3-rest" else "blue")


def folded(events: list[Any]) -> list[list[Any]]:
    """Return the parts of each artifact at the end of a stream, with texts joined like in the gateway."""
    artifacts: dict[str, list[Any]] = {}
    for event in events:
        if "artifactUpdate" in event:
            fragment = event["artifactUpdate"]["artifact"]
            parts = artifacts.setdefault(fragment["artifactId"], [])
            if not event["artifactUpdate"]["append"]:
                parts.clear()
            for part in fragment["parts"]:
                if parts and set(parts[-1]) == set(part) == {"text"}:
                    parts[-1] = text(parts[-1]["text"] + part["text"])
                else:
                    parts.append(part)
    return list(artifacts.values())


async def test_growing_artifact_is_sent_as_appended_pieces(both: Through) -> None:
    growing = [piece(text("one")), piece(text("one two")), piece(text("one two three"), lastChunk=True)]
    events = await both.stream(BEGUN, *growing, DONE)
    relayed = [(artifact["parts"], append, last) for _, artifact, append, last in pieces(events)]
    assert relayed == [([text("one")], False, False), ([text(" two")], True, False), ([text(" three")], True, True)]
    assert folded(events) == [[text("one two three")]]


async def test_log_joins_the_pieces_of_an_answer(both: Through) -> None:
    task = await both.send(BEGUN, *STREAMS["several parts in one"], DONE)
    stored_task = await both.site.hub.reads.task(OWNER, task["id"])
    records = await both.site.hub.reads.records(OWNER, Scope.task(stored_task))
    [answer] = [each for each in Fold(stored_task.thread_id, records=records).messages() if each.role == "agent"]
    assert [part.kind for part in answer.parts] == ["text", "data", "text"]
    assert answer.text == "abcd"
