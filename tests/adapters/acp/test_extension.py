"""The Babelgate extension on ACP: who asks for it is sent the records, and nobody else is."""

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from babelgate.adapters.acp.client import Client
from babelgate.adapters.kit.extension import HEADER, MAX_SLICE, START_HEADER, URI, RecordReader
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.event import LossNoted, PartAdded, PartDelta
from tests.adapters.acp.site import NOBODY, Site, message
from tests.adapters.acp.test_client import PLAIN, RUN, Far, call
from tests.bridge import client as bridge
from tests.driving import all_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED = {HEADER: f"https://example.com/x, {URI}"}


def body(agent: str, text: str = "Hello", **more: Any) -> str:
    return json.dumps({"agent_name": agent, "input": [message(text)], **more})


def events_of(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


def envelopes(events: Sequence[Any]) -> list[Any]:
    return [event["generic"][URI] for event in events if event["type"] == "generic" and URI in event["generic"]]


async def test_each_record_comes_before_what_is_shown_of_it_and_the_rest_is_as_without(site: Site) -> None:
    plain = await site.http.post("/acp/runs", content=body("tools", mode="stream"))
    told = await site.http.post("/acp/runs", content=body("tools", mode="stream"), headers=ASKED)
    assert HEADER not in plain.headers
    assert URI not in plain.text
    assert told.headers[HEADER] == URI
    events = events_of(told.text)
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
    assert events[-1]["type"] == "run.completed", "clients leave here"


async def test_a_run_has_its_records_up_to_a_bound_and_the_rest_is_told_from_there_on(site: Site) -> None:
    large = (await site.http.post("/acp/runs", content=body("echo", "x" * MAX_SLICE), headers=ASKED)).json()
    looked = (await site.get(f"/runs/{large['run_id']}", **ASKED)).json()
    assert looked["babelgate"] == large["babelgate"]
    reader = RecordReader()
    reader.read(large["babelgate"])
    assert reader.behind
    headers = {**ASKED, START_HEADER: str(reader.seq), "Accept": "text/event-stream"}
    for each in envelopes(events_of((await site.get(f"/runs/{large['run_id']}/events", **headers)).text)):
        reader.read(each)
    assert reader.stopped
    plain = (await site.get(f"/runs/{large['run_id']}")).json()
    assert "babelgate" not in plain


async def test_a_request_that_says_something_by_it_activates_it_and_no_agent_is_sent_that(site: Site) -> None:
    tools = [{"name": "weather", "parameters": {"type": "object"}}]
    told = {"tools": tools, "metadata": {"a": 1}}
    answer = (await site.http.post("/acp/runs", content=body("echo", babelgate=told))).json()
    (made,) = [each["event"] for each in answer["babelgate"]["events"] if each["event"]["kind"] == "run_created"]
    assert made["config"]["tools"] == tools
    assert "babelgate" not in made["extra"].get("acp", {})
    (task,) = [each["event"] for each in answer["babelgate"]["events"] if each["event"]["kind"] == "task_created"]
    assert task["metadata"] == {"a": 1}


@pytest.mark.parametrize("told", [None, 3, [], {"messages": 1, "tools": "x", "answers": {}, "metadata": []}])
async def test_a_request_that_says_nothing_of_use_is_one_without(site: Site, told: Any) -> None:
    answer = await site.http.post("/acp/runs", content=body("echo", babelgate=told))
    assert answer.json()["status"] == "completed", answer.text


async def test_a_file_of_somebody_else_is_not_had_by_its_hash(site: Site) -> None:
    parts = [{"kind": "file", "blob": "0" * 64, "size": 1}]
    told = {"messages": [{"role": "user", "parts": parts}]}
    answer = (await site.http.post("/acp/runs", content=body("echo", babelgate=told))).json()
    (made,) = [each["event"] for each in answer["babelgate"]["events"] if each["event"]["kind"] == "run_created"]
    assert [part["kind"] for part in made["messages"][0]["parts"]] == ["text"]


async def test_the_manifest_announces_it(site: Site) -> None:
    manifest = (await site.get("/agents/echo")).json()
    assert manifest["metadata"]["annotations"][URI]["max_bytes"] == MAX_SLICE


async def test_the_number_to_go_on_from_must_be_one(site: Site) -> None:
    run = await site.run("echo")
    answer = await site.get(f"/runs/{run['run_id']}/events", **ASKED, **{START_HEADER: "x"})
    assert answer.status_code == 422
    assert (await site.get(f"/runs/{NOBODY}/events", **ASKED)).status_code == 404


# The client


def generic(envelope: Any) -> dict[str, Any]:
    return {"type": "generic", "generic": {URI: envelope}}


def record(seq: int, event: Any) -> dict[str, Any]:
    return generic({"after": seq - 1, "events": [{"seq": seq, "run_id": "r", "event": event}]})


STARTED = record(1, {"kind": "message_started", "message_id": "m1"})
DONE = record(3, {"kind": "task_changed", "state": "completed"})
MALFORMED: tuple[Any, ...] = ({"kind": "part_added", "part": 1}, 3, None, {})


@pytest.mark.parametrize("event", MALFORMED)
async def test_a_record_that_is_none_is_a_loss_and_the_run_goes_on(event: Any) -> None:
    far = Far()
    far.set("POST /runs", [PLAIN[0], STARTED, record(2, event), generic({"after": 2, "events": "x"}), DONE])
    async with bridge(cast("Any", far)) as http:
        events = await all_of(Client("http://far", "far", http=http).run(call()))
    assert len([each for each in events if isinstance(each, LossNoted)]) == 1


async def test_records_that_a_server_leaves_out_for_good_end_the_run() -> None:
    far = Far()
    far.set("POST /runs", [PLAIN[0], STARTED, DONE])
    far.set(f"GET /runs/{RUN}/events", [DONE])
    async with bridge(cast("Any", far)) as http:
        with pytest.raises(FaultError) as refused:
            await all_of(Client("http://far", "far", http=http).run(call()))
    assert refused.value.fault.code is FaultCode.AGENT_INVALID


async def test_what_nobody_asked_for_is_an_event_like_any_other_where_it_is_off() -> None:
    far = Far()
    far.set("POST /runs", [PLAIN[0], STARTED, *PLAIN[1:]])
    async with bridge(cast("Any", far)) as http:
        events = await all_of(Client("http://far", "far", extension="off", http=http).run(call()))
    assert HEADER.lower() not in far.asked[0][1]
    said = [each.part.text for each in events if isinstance(each, PartAdded) and each.part.kind == "text"]
    assert said + [each.text for each in events if isinstance(each, PartDelta)] == ["a", "b"]
