"""From A2A to A2A: what another server says, as callers of this one get it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from babelgate.adapters.a2a.agents.interface import Interface
from babelgate.adapters.a2a.client import Client
from babelgate.canonical import AgentInfo, Event, Invocation, Message, Scope, TaskState, TextPart
from babelgate.canonical.fold import Fold
from babelgate.canonical.hub import TaskFilter
from tests.adapters.a2a.far import Far, far_server
from tests.adapters.a2a.schema import check
from tests.adapters.a2a.site import BOUND, OWNER, Site, answer_of, events_of, message, message_0_3, opened

CONTEXT = "a-context"
SAID: dict[str, Any] = {
    "messageId": "theirs",
    "role": "ROLE_AGENT",
    "contextId": "far-context",
    "parts": [{"text": "Hello, "}, {"data": {"n": 1}}, {"text": "you.", "metadata": {"k": "v"}}],
    "metadata": {"tone": "calm"},
}


@dataclass(frozen=True)
class Behind:
    """An agent of another server, as the gateway knows it by its card."""

    client: Client
    info: AgentInfo

    def run(self, call: Invocation) -> AsyncIterator[Event]:
        return self.client.run(call)


class Teller:
    """An agent in process that answers with a message alone, once its gate is open."""

    info = AgentInfo(name="teller", replies=True)

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def __call__(self, text: str) -> AsyncGenerator[Message | str]:
        await self.gate.wait()
        yield Message(parts=(TextPart(text=text),), extra={"a2a.reply": {}})
        if text == "more":
            yield "And more."


@asynccontextmanager
async def through(folder: Path, *, streams: bool = True) -> AsyncGenerator[tuple[Far, Site]]:
    async with far_server() as far:
        client = Client(far.url, interface=Interface(far.url, streams=streams))
        behind = Behind(client, AgentInfo(name="far", remembers=True, replies=True))
        try:
            async with opened(folder, {"far": behind}) as site:
                yield far, site
        finally:
            await client.aclose()


class Way:
    """One generation over one binding."""

    def __init__(self, version: str, *, rest: bool) -> None:
        self.form: Any = f"{version}{'-rest' if rest and version == '0.3' else ''}"
        self.version, self.rest = version, rest

    def body(self, text: str, **configuration: Any) -> dict[str, Any]:
        context = {"contextId": CONTEXT}
        if self.form == "0.3-rest":
            said = {"messageId": "m", "role": "ROLE_USER", "content": [{"text": text}], **context}
            return {"request": said, **configuration}
        return {**(message_0_3 if self.version == "0.3" else message)(text, **context), **configuration}

    def at_once(self, text: str) -> dict[str, Any]:
        not_waiting = {"returnImmediately": True} if self.version == "1.0" else {"blocking": False}
        return self.body(text, configuration=not_waiting)

    async def send(self, site: Site, agent: str, body: dict[str, Any]) -> Any:
        response = await self._post(site, agent, body, "send")
        assert response.status_code == 200, response.text
        answer = response.json()
        return answer if self.rest else answer["result"]

    async def stream(self, site: Site, agent: str, body: dict[str, Any]) -> list[Any]:
        events = events_of(await self._post(site, agent, body, "stream"))
        return [event if self.rest else event["result"] for event in events]

    async def _post(self, site: Site, agent: str, body: dict[str, Any], verb: str) -> Any:
        headers = {"A2A-Version": "1.0"} if self.version == "1.0" else {}
        if self.rest:
            path = f"/a2a/{agent}{'' if self.version == '1.0' else '/v1'}/message:{verb}"
            return await site.client.post(path, json=body, headers=headers)
        names = {"send": "SendMessage", "stream": "SendStreamingMessage"}
        method = names[verb] if self.version == "1.0" else f"message/{verb}"
        return await site.client.post(
            f"/a2a/{agent}", json={"jsonrpc": "2.0", "id": 1, "method": method, "params": body}, headers=headers
        )

    def said(self, answer: Any) -> Any:
        """The message in an answer that is one."""
        check("reply", self.form, answer)
        return answer if self.form == "0.3" else answer["message"]

    def is_task(self, answer: Any) -> bool:
        return answer["kind"] == "task" if self.form == "0.3" else list(answer) == ["task"]


WAYS = [Way("1.0", rest=False), Way("1.0", rest=True), Way("0.3", rest=False), Way("0.3", rest=True)]
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way.version}-{'rest' if way.rest else 'jsonrpc'}")


# A message and no task


@every_way
async def test_a_message_that_is_the_answer_reaches_the_caller_as_one(tmp_path: Path, way: Way) -> None:
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", [{"message": SAID}])
        for answer in (
            await way.send(site, "far", way.body("Hi")),
            *await way.stream(site, "far", way.body("Hi")),
            await way.send(site, "far", way.at_once("Hi")),
        ):
            said = way.said(answer)
            assert (said["messageId"], said["contextId"], said["metadata"]) == ("theirs", CONTEXT, SAID["metadata"])
            assert "taskId" not in said
            parts = said["content" if way.form == "0.3-rest" else "parts"]
            assert [part.get("text") for part in parts] == ["Hello, ", None, "you."]
            assert parts[2]["metadata"] == {"k": "v"}


async def test_a_1_0_message_has_its_parts_as_they_were_sent_and_the_conversation_goes_on(tmp_path: Path) -> None:
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", [{"message": SAID}])
        said = (await site.result("far", "SendMessage", message("Hi")))["message"]
        assert {**said, "contextId": "far-context"} == SAID
        again = await site.result("far", "SendMessage", message("And?", contextId=said["contextId"]))
        assert again["message"]["contextId"] == said["contextId"]
        assert far.body("SendStreamingMessage")["message"]["contextId"] == "far-context"


async def test_a_server_that_does_not_stream_answers_with_a_message_too(tmp_path: Path) -> None:
    async with through(tmp_path, streams=False) as (far, site):
        far.set("SendMessage", {"message": SAID})
        [event] = await WAYS[0].stream(site, "far", WAYS[0].body("Hi"))
        assert event["message"]["messageId"] == "theirs"


async def test_the_run_is_in_the_log_as_any_other(tmp_path: Path) -> None:
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", [{"message": SAID}])
        response = await site.rpc("far", "SendMessage", message("Hi"))
        page = await site.hub.reads.tasks(OWNER, TaskFilter(agent="far"), limit=10)
        [task] = [task async for task in page.tasks]
        assert (task.task_id, task.state) == (response.headers["Babelgate-Task"], TaskState.COMPLETED)
        shown = await site.result("far", "GetTask", {"id": task.task_id})
        assert answer_of(shown) == "Hello, you."


@every_way
async def test_a_task_is_still_a_task(tmp_path: Path, way: Way) -> None:
    done = [
        {"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}},
        {
            "artifactUpdate": {
                "taskId": "t",
                "contextId": "c",
                "artifact": {"artifactId": "a", "parts": [{"text": "x"}]},
            }
        },
        {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}},
    ]
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", done)
        assert way.is_task(await way.send(site, "far", way.body("Hi")))
        assert way.is_task(await way.send(site, "far", way.at_once("Hi")))
        first, *others = await way.stream(site, "far", way.body("Hi"))
        assert way.is_task(first)
        assert not any(way.is_task(each) for each in others)


async def test_a_server_that_fails_before_its_first_word_makes_a_failed_task(tmp_path: Path) -> None:
    async with through(tmp_path) as (far, site):
        far.fail("SendStreamingMessage", -32603, "Out of order.")
        first, *_, last = await WAYS[0].stream(site, "far", WAYS[0].body("Hi"))
        assert first["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
        assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_FAILED"
        sent = await WAYS[0].send(site, "far", WAYS[0].at_once("Hi"))
        assert sent["task"]["status"]["state"] == "TASK_STATE_FAILED"


async def test_an_agent_in_process_can_answer_with_a_message_too(tmp_path: Path) -> None:
    teller = Teller()
    teller.gate.set()
    async with opened(tmp_path, {"teller": teller}) as site:
        said = (await site.result("teller", "SendMessage", message("Hi")))["message"]
        assert said["parts"] == [{"text": "Hi"}]
        [event] = await WAYS[0].stream(site, "teller", WAYS[0].body("Hi"))
        assert event["message"]["parts"] == [{"text": "Hi"}]


async def test_one_that_says_more_has_made_a_task_of_it(tmp_path: Path) -> None:
    teller = Teller()
    teller.gate.set()
    async with opened(tmp_path, {"teller": teller}) as site:
        task = (await site.result("teller", "SendMessage", message("more")))["task"]
        assert answer_of(task) == "moreAnd more."
        first, *_, last = await WAYS[0].stream(site, "teller", WAYS[0].body("more"))
        assert "task" in first
        assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_behind_another_run_of_the_context_nobody_waits_for_the_first_word(tmp_path: Path) -> None:
    """A send that is to return at once would else wait for the whole run before."""
    teller = Teller()
    way = WAYS[0]
    async with opened(tmp_path, {"teller": teller}) as site, asyncio.timeout(BOUND):
        first = asyncio.ensure_future(way.send(site, "teller", way.body("one")))
        page = await site.hub.reads.tasks(OWNER, TaskFilter(agent="teller"), limit=1)
        while not page.total:
            await asyncio.sleep(0)
            page = await site.hub.reads.tasks(OWNER, TaskFilter(agent="teller"), limit=1)
        second = await way.send(site, "teller", way.at_once("two"))
        assert second["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
        teller.gate.set()
        assert (await first)["message"]["parts"] == [{"text": "one"}]


# Pieces of artifacts


def piece(*parts: dict[str, Any], append: bool = False, last: bool = False, artifact_id: str = "a") -> Any:
    more = {name: True for name, said in (("append", append), ("lastChunk", last)) if said}
    return {
        "artifactUpdate": {
            "taskId": "t",
            "contextId": "c",
            "artifact": {"artifactId": artifact_id, "name": "Result", "description": "Of it", "parts": list(parts)},
            **more,
        }
    }


def text(words: str) -> dict[str, Any]:
    return {"text": words}


NOTE = {"raw": "AAE=", "filename": "note.bin", "mediaType": "application/octet-stream"}
STATUS = {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
BEGUN = {"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}

STREAMS = {
    "the last one says so": [
        piece(text("one")),
        piece(text(" two"), append=True),
        piece(text(" 3"), append=True, last=True),
    ],
    "none says so": [piece(text("one")), piece(text(" two"), append=True)],
    "all of it says so": [piece(text("one")), piece(text(" two"), append=True), piece(text("one two"), last=True)],
    "only one": [piece(text("one"), last=True)],
    "only one that does not say so": [piece(text("one"))],
    "several parts in one": [piece(text("a"), text("b"), {"data": {"n": 1}}), piece(text("c"), text("d"), append=True)],
    "data that is not the last": [piece({"data": {"n": 1}}), piece({"data": {"n": 2}}, append=True, last=True)],
    "the first one is empty": [piece(text("")), piece(text("one"), append=True, last=True)],
    "empty and the last": [piece(text(""), last=True)],
    "two at a time": [
        piece(text("1")),
        piece(text("2"), artifact_id="b"),
        piece(text("3"), append=True, last=True),
        piece(text("4"), append=True, artifact_id="b"),
    ],
    "a file": [piece(NOTE)],
    "a file that is the last": [piece(NOTE, last=True)],
    "files in pieces": [piece(NOTE, NOTE), piece(NOTE, text("x"), append=True, last=True)],
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
async def test_pieces_of_an_artifact_leave_as_they_came(tmp_path: Path, sent: list[Any]) -> None:
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", [BEGUN, *sent, {"statusUpdate": STATUS}])
        events = await WAYS[0].stream(site, "far", WAYS[0].body("Hi"))
        assert pieces(events) == pieces(sent)
        shown = await site.result("far", "GetTask", {"id": events[0]["task"]["id"]})
        assert folded(events) == [artifact["parts"] for artifact in shown["artifacts"]]


async def test_the_first_piece_of_an_artifact_is_not_appended_whatever_its_server_says(tmp_path: Path) -> None:
    """The client of a2a-sdk 1.3.0 refuses one that is, and fasta2a 2.1.1 sends it."""
    first, last = piece(text("one")), piece(text(" two"), append=True, last=True)
    async with through(tmp_path) as (far, site):
        appended = piece(text("one"), append=True)
        far.set("SendStreamingMessage", [BEGUN, appended, last, {"statusUpdate": STATUS}])
        events = await WAYS[0].stream(site, "far", WAYS[0].body("Hi"))
        assert pieces(events) == pieces([first, last])


@every_way
@pytest.mark.parametrize("part", [text("one"), NOTE], ids=["answer", "file"])
async def test_what_is_said_of_an_artifact_stays_with_it(tmp_path: Path, way: Way, part: dict[str, Any]) -> None:
    sent = piece(part, last=True)
    about = {"metadata": {"m": 1}, "extensions": ["https://example.com/x"]}
    sent["artifactUpdate"]["artifact"] |= {**about, "color": "blue"}
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", [BEGUN, sent, {"statusUpdate": STATUS}])
        events = await way.stream(site, "far", way.body("Hi"))
        [artifact] = [
            found["artifact"] for found in (each.get("artifactUpdate", each) for each in events) if "artifact" in found
        ]
        answered = await way.send(site, "far", way.body("Hi"))
        for shown in (artifact, answered.get("task", answered)["artifacts"][0]):
            assert (shown["name"], shown["description"]) == ("Result", "Of it")
            assert {name: shown[name] for name in about} == about
            # The official client of 0.3 refuses unknown members in REST.
            assert shown.get("color") == (None if way.form == "0.3-rest" else "blue")


def folded(events: list[Any]) -> list[list[Any]]:
    """The parts of the artifacts that a stream leaves behind, with texts joined as the gateway joins them."""
    artifacts: dict[str, list[Any]] = {}
    for event in events:
        if "artifactUpdate" in event:
            artifact = event["artifactUpdate"]["artifact"]
            known = artifacts.setdefault(artifact["artifactId"], [])
            if not event["artifactUpdate"]["append"]:
                known.clear()
            for part in artifact["parts"]:
                if known and set(known[-1]) == set(part) == {"text"}:
                    known[-1] = text(known[-1]["text"] + part["text"])
                else:
                    known.append(part)
    return list(artifacts.values())


async def test_what_is_new_in_an_artifact_that_is_sent_again_is_appended(tmp_path: Path) -> None:
    again = [piece(text("one")), piece(text("one two")), piece(text("one two three"), last=True)]
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", [BEGUN, *again, {"statusUpdate": STATUS}])
        events = await WAYS[0].stream(site, "far", WAYS[0].body("Hi"))
        told = [(artifact["parts"], append, last) for _, artifact, append, last in pieces(events)]
        assert told == [([text("one")], False, False), ([text(" two")], True, False), ([text(" three")], True, True)]
        assert folded(events) == [[text("one two three")]]


async def test_other_protocols_do_not_see_how_an_answer_was_cut(tmp_path: Path) -> None:
    async with through(tmp_path) as (far, site):
        far.set("SendStreamingMessage", [BEGUN, *STREAMS["several parts in one"], {"statusUpdate": STATUS}])
        task = (await site.result("far", "SendMessage", message("Hi")))["task"]
        found = await site.hub.reads.task(OWNER, task["id"])
        records = await site.hub.reads.records(OWNER, Scope.task(found))
        [said] = [each for each in Fold(found.thread_id, records=records).messages() if each.role == "agent"]
        assert [part.kind for part in said.parts] == ["text", "data", "text"]
        assert said.text == "abcd"
