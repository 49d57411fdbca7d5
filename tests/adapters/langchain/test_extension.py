"""The Babelgate extension on LangGraph Platform and the Agent Protocol: who has it activated is sent the records."""

from typing import Any

import pytest

from babelgate.adapters.kit.extension import HEADER, URI, RecordReader
from babelgate.adapters.langchain.codec.stream_modes import RECORDS
from babelgate.canonical import Event
from babelgate.canonical.event import ToolEnded
from tests.adapters.langchain.site import SHARED, Site, events, said

pytestmark = SHARED

ASKED = {HEADER: f"https://example.com/x, {URI}"}
PATHS = (("", "assistant_id"), ("/agent-protocol", "agent_id"))


def told(content: bytes) -> list[Any]:
    return [data[URI] for event, data in events(content) if event == RECORDS]


def body(named: str, agent: str, **more: Any) -> dict[str, Any]:
    return {named: agent, "input": said("one two"), "stream_mode": ["messages", "custom"], **more}


@pytest.mark.parametrize(("path", "named"), PATHS)
async def test_each_record_of_the_run_comes_after_the_one_before(site: Site, path: str, named: str) -> None:
    thread = await site.thread()
    answer = await site.post(f"{path}/threads/{thread}/runs/stream", body(named, "tools"), **ASKED)
    assert answer.headers[HEADER] == URI
    reader, after, read = RecordReader(of_run=True), 0, list[Event]()
    for envelope in told(answer.content):
        [record] = envelope["events"]
        assert envelope["after"] == after < record["seq"]
        after = record["seq"]
        read += reader.read(envelope)
    assert reader.stopped
    assert [event.output for event in read if isinstance(event, ToolEnded)] == [2]


@pytest.mark.parametrize(("path", "named"), PATHS)
async def test_the_native_frames_are_the_same_and_who_does_not_ask_sees_no_other(
    site: Site, path: str, named: str
) -> None:
    thread = await site.thread()
    asked = await site.post(f"{path}/threads/{thread}/runs/stream", body(named, "tools"), **ASKED)
    run = f"{path}/threads/{thread}/runs/{asked.headers['Babelgate-Run']}/stream"
    plain = await site.get(run, **{"Last-Event-ID": "-1", HEADER: f"{URI}2"})
    assert HEADER not in plain.headers
    assert URI not in plain.text
    assert [each for each in events(asked.content) if each[0] != RECORDS] == events(plain.content)


async def test_a_stream_that_breaks_goes_on_after_any_of_its_frames(site: Site) -> None:
    thread = await site.thread()
    whole = await site.post(f"/threads/{thread}/runs/stream", body("assistant_id", "tools"), **ASKED)
    ids = [line[4:] for line in whole.text.splitlines() if line.startswith("id: ")]
    path = f"/threads/{thread}/runs/{whole.headers['Babelgate-Run']}/stream"
    for number in (0, len(ids) // 2, len(ids) - 2):
        rest = await site.get(path, **{"Last-Event-ID": ids[number]}, **ASKED)
        assert events(rest.content) == events(whole.content)[number + 1 :]


@pytest.mark.parametrize(("path", "named"), PATHS)
async def test_who_waits_is_told_the_records_beside_the_result(site: Site, path: str, named: str) -> None:
    thread = await site.thread()
    asked = {named: "tools", "input": said("one two")}
    waited = await site.post(f"{path}/threads/{thread}/runs/wait", asked, **ASKED)
    assert waited.headers[HEADER] == URI
    told_beside = waited.json().pop(URI)
    run = f"{path}/threads/{thread}/runs/{waited.headers['Babelgate-Run']}"
    streamed = told((await site.get(f"{run}/stream", **ASKED)).content)
    assert told_beside == {"after": 0, "events": [each for envelope in streamed for each in envelope["events"]]}
    below = "wait" if path else "join"
    joined = await site.get(f"{run}/{below}", **ASKED)
    assert (joined.headers[HEADER], joined.json()) == (URI, waited.json())
    plain = await site.get(f"{run}/{below}")
    assert URI not in plain.json() and HEADER not in plain.headers


async def test_who_waits_is_not_told_more_than_fits(site: Site) -> None:
    thread = await site.thread()
    asked = {"assistant_id": "echo", "input": said("word " * 20_000)}
    found = (await site.post(f"/threads/{thread}/runs/wait", asked, **ASKED)).json()[URI]
    assert found["next"] > found["events"][-1]["seq"]


async def test_a_question_is_declined_by_a_request_that_activates_it_by_itself(site: Site) -> None:
    thread = await site.thread()
    asked = await site.wait(thread, "ask")
    [question] = asked["__interrupt__"]
    answers = [{"interrupt_id": question["id"], "action": "decline"}]
    request = {"assistant_id": "ask", "input": None, "metadata": {URI: {"answers": answers}, "a": 1}}
    answer = await site.post(f"/threads/{thread}/runs/stream", request)
    assert answer.headers[HEADER] == URI
    run = await site.look(f"/threads/{thread}/runs/{answer.headers['Babelgate-Run']}")
    assert run["status"] == "error"
    assert (run["metadata"]["a"], URI in run["metadata"]) == (1, False)
    unknown = {"answers": [{"interrupt_id": "nobody", "value": 1}]}
    refused = await site.post(f"/threads/{thread}/runs/stream", {**request, "metadata": {URI: unknown}})
    assert refused.status_code == 409


async def test_what_a_caller_says_by_it_is_the_runs(site: Site) -> None:
    tools = [{"name": "weather", "parameters": {"type": "object"}}]
    says = {"tools": tools, "metadata": {"label": "x"}}
    request = body("assistant_id", "echo", metadata={URI: says, "gateway_run": "r1"})
    thread = await site.thread()
    answer = await site.post(f"/threads/{thread}/runs/stream", request)
    (made,) = [each["event"] for e in told(answer.content) for each in e["events"] if each["event"]["kind"] == CREATED]
    assert (made["config"]["tools"], made["metadata"]) == (tools, {"label": "x"})
    [run] = await site.look(f"/threads/{thread}/runs")
    assert (run["metadata"]["label"], run["metadata"]["gateway_run"]) == ("x", "r1")


CREATED = "run_created"


UNREADABLE: list[Any] = [None, 3, [], {"tools": 1, "answers": [1, {}], "messages": "x", "metadata": []}]


@pytest.mark.parametrize("given", UNREADABLE)
async def test_what_cannot_be_read_of_a_request_is_left_out(site: Site, given: Any) -> None:
    thread = await site.thread()
    answer = await site.post(f"/threads/{thread}/runs/stream", body("assistant_id", "echo", metadata={URI: given}))
    assert answer.status_code == 200
    assert told(answer.content)


@pytest.mark.parametrize("path", ["/assistants/echo/schemas", "/agents/echo", "/agent-protocol/agents/echo"])
async def test_a_server_says_that_it_has_it_to_whoever_asks(site: Site, path: str) -> None:
    assert (await site.get(path, **ASKED)).headers[HEADER] == URI
    assert HEADER not in (await site.get(path)).headers


@pytest.mark.parametrize("prefix", ["", "/agent-protocol"])
async def test_files_are_had_by_their_hash(site: Site, prefix: str) -> None:
    assert (await site.get(f"{prefix}/agents/echo/files/{'0' * 64}")).status_code == 404
    assert (await site.get(f"{prefix}/agents/nobody/files/{'0' * 64}")).status_code == 404
