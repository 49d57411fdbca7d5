"""Babelgate extension on ACP: only a caller that requests it receives the records."""

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from babelgate.adapters.acp.client import Client
from babelgate.adapters.kit.extension import HEADER, MAX_SLICE, START_HEADER, URI, RecordReader
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.event import LossNoted, PartAdded, PartDelta
from tests.adapters.acp.site import UNKNOWN_ID, Site, message
from tests.adapters.acp.test_client import PLAIN, RUN, Far, call
from tests.bridge import client as bridge
from tests.driving import all_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUESTED = {HEADER: f"https://example.com/x, {URI}"}


def body(agent: str, text: str = "Hello", **more: Any) -> str:
    return json.dumps({"agent_name": agent, "input": [message(text)], **more})


def events_of(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


def envelopes(events: Sequence[Any]) -> list[Any]:
    return [event["generic"][URI] for event in events if event["type"] == "generic" and URI in event["generic"]]


async def test_records_precede_their_events_and_the_rest_is_unchanged(site: Site) -> None:
    plain = await site.http.post("/acp/runs", content=body("tools", mode="stream"))
    extended = await site.http.post("/acp/runs", content=body("tools", mode="stream"), headers=REQUESTED)
    assert HEADER not in plain.headers
    assert URI not in plain.text
    assert extended.headers[HEADER] == URI
    events = events_of(extended.text)
    assert [event["type"] for event in events_of(plain.text)] == [
        event["type"] for event in events if event["type"] != "generic" or URI not in event["generic"]
    ]
    reader, after = RecordReader(), 0
    for each in envelopes(events):
        [record] = each["events"]
        assert each["after"] == after < record["seq"]
        after = record["seq"]
        reader.read(each)
    assert reader.stopped
    assert events[-1]["type"] == "run.completed", "clients stop reading here"


async def test_records_of_a_run_are_limited_and_can_be_continued(site: Site) -> None:
    large = (await site.http.post("/acp/runs", content=body("echo", "x" * MAX_SLICE), headers=REQUESTED)).json()
    read = (await site.get(f"/runs/{large['run_id']}", **REQUESTED)).json()
    assert read["babelgate"] == large["babelgate"]
    reader = RecordReader()
    reader.read(large["babelgate"])
    assert reader.behind
    headers = {**REQUESTED, START_HEADER: str(reader.seq), "Accept": "text/event-stream"}
    for each in envelopes(events_of((await site.get(f"/runs/{large['run_id']}/events", **headers)).text)):
        reader.read(each)
    assert reader.stopped
    plain = (await site.get(f"/runs/{large['run_id']}")).json()
    assert "babelgate" not in plain


async def test_a_request_member_activates_the_extension_and_is_not_forwarded(site: Site) -> None:
    tools = [{"name": "weather", "parameters": {"type": "object"}}]
    members = {"tools": tools, "metadata": {"a": 1}}
    answer = (await site.http.post("/acp/runs", content=body("echo", babelgate=members))).json()
    (created,) = [each["event"] for each in answer["babelgate"]["events"] if each["event"]["kind"] == "run_created"]
    assert created["config"]["tools"] == tools
    assert "babelgate" not in created["extra"].get("acp", {})
    (task,) = [each["event"] for each in answer["babelgate"]["events"] if each["event"]["kind"] == "task_created"]
    assert task["metadata"] == {"a": 1}


@pytest.mark.parametrize("members", [None, 3, [], {"messages": 1, "tools": "x", "answers": {}, "metadata": []}])
async def test_invalid_extension_members_of_a_request_are_ignored(site: Site, members: Any) -> None:
    answer = await site.http.post("/acp/runs", content=body("echo", babelgate=members))
    assert answer.json()["status"] == "completed", answer.text


async def test_another_owners_file_is_not_readable_by_its_hash(site: Site) -> None:
    parts = [{"kind": "file", "blob": "0" * 64, "size": 1}]
    members = {"messages": [{"role": "user", "parts": parts}]}
    answer = (await site.http.post("/acp/runs", content=body("echo", babelgate=members))).json()
    (created,) = [each["event"] for each in answer["babelgate"]["events"] if each["event"]["kind"] == "run_created"]
    assert [part["kind"] for part in created["messages"][0]["parts"]] == ["text"]


async def test_the_manifest_announces_the_extension(site: Site) -> None:
    manifest = (await site.get("/agents/echo")).json()
    assert manifest["metadata"]["annotations"][URI]["max_bytes"] == MAX_SLICE


async def test_an_invalid_start_number_is_refused(site: Site) -> None:
    run = await site.run("echo")
    answer = await site.get(f"/runs/{run['run_id']}/events", **REQUESTED, **{START_HEADER: "x"})
    assert answer.status_code == 422
    assert (await site.get(f"/runs/{UNKNOWN_ID}/events", **REQUESTED)).status_code == 404


# The client


def generic(envelope: Any) -> dict[str, Any]:
    return {"type": "generic", "generic": {URI: envelope}}


def record(seq: int, event: Any) -> dict[str, Any]:
    return generic({"after": seq - 1, "events": [{"seq": seq, "run_id": "r", "event": event}]})


STARTED = record(1, {"kind": "message_started", "message_id": "m1"})
DONE = record(3, {"kind": "task_changed", "state": "completed"})
MALFORMED: tuple[Any, ...] = ({"kind": "part_added", "part": 1}, 3, None, {})


@pytest.mark.parametrize("event", MALFORMED)
async def test_a_malformed_record_is_a_loss_and_the_run_continues(event: Any) -> None:
    far = Far()
    far.set("POST /runs", [PLAIN[0], STARTED, record(2, event), generic({"after": 2, "events": "x"}), DONE])
    async with bridge(cast("Any", far)) as http:
        events = await all_of(Client("http://far", "far", http=http).run(call()))
    assert len([each for each in events if isinstance(each, LossNoted)]) == 1


async def test_permanently_missing_records_end_the_run() -> None:
    far = Far()
    far.set("POST /runs", [PLAIN[0], STARTED, DONE])
    far.set(f"GET /runs/{RUN}/events", [DONE])
    async with bridge(cast("Any", far)) as http:
        with pytest.raises(FaultError) as refused:
            await all_of(Client("http://far", "far", http=http).run(call()))
    assert refused.value.fault.code is FaultCode.AGENT_INVALID


async def test_records_are_ordinary_events_when_the_extension_is_off() -> None:
    far = Far()
    far.set("POST /runs", [PLAIN[0], STARTED, *PLAIN[1:]])
    async with bridge(cast("Any", far)) as http:
        events = await all_of(Client("http://far", "far", extension="off", http=http).run(call()))
    assert HEADER.lower() not in far.requests[0][1]
    texts = [each.part.text for each in events if isinstance(each, PartAdded) and each.part.kind == "text"]
    assert texts + [each.text for each in events if isinstance(each, PartDelta)] == ["a", "b"]
