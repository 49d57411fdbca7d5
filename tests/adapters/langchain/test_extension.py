"""The Babelgate extension in both dialects: callers that activate it receive the records."""

from typing import Any

import pytest

from babelgate.adapters.kit.extension import HEADER, URI, RecordReader
from babelgate.adapters.langchain.codec.stream_modes import RECORDS
from babelgate.canonical import Event
from babelgate.canonical.event import ToolEnded
from tests.adapters.langchain.site import SHARED, Site, events, user_input

pytestmark = SHARED

ACTIVATED = {HEADER: f"https://example.com/x, {URI}"}
PATHS = (("", "assistant_id"), ("/agent-protocol", "agent_id"))


def envelopes_of(content: bytes) -> list[Any]:
    return [data[URI] for event, data in events(content) if event == RECORDS]


def body(agent_member: str, agent: str, **more: Any) -> dict[str, Any]:
    return {agent_member: agent, "input": user_input("one two"), "stream_mode": ["messages", "custom"], **more}


@pytest.mark.parametrize(("path", "agent_member"), PATHS)
async def test_each_frame_has_the_next_record_of_the_run(site: Site, path: str, agent_member: str) -> None:
    thread = await site.thread()
    answer = await site.post(f"{path}/threads/{thread}/runs/stream", body(agent_member, "tools"), **ACTIVATED)
    assert answer.headers[HEADER] == URI
    reader, after, read = RecordReader(of_run=True), 0, list[Event]()
    for envelope in envelopes_of(answer.content):
        [record] = envelope["events"]
        assert envelope["after"] == after < record["seq"]
        after = record["seq"]
        read += reader.read(envelope)
    assert reader.stopped
    assert [event.output for event in read if isinstance(event, ToolEnded)] == [2]


@pytest.mark.parametrize(("path", "agent_member"), PATHS)
async def test_native_frames_are_the_same_with_and_without_it(site: Site, path: str, agent_member: str) -> None:
    thread = await site.thread()
    extended = await site.post(f"{path}/threads/{thread}/runs/stream", body(agent_member, "tools"), **ACTIVATED)
    run = f"{path}/threads/{thread}/runs/{extended.headers['Babelgate-Run']}/stream"
    plain = await site.get(run, **{"Last-Event-ID": "-1", HEADER: f"{URI}2"})
    assert HEADER not in plain.headers
    assert URI not in plain.text
    assert [each for each in events(extended.content) if each[0] != RECORDS] == events(plain.content)


async def test_a_stream_is_resumed_after_any_frame(site: Site) -> None:
    thread = await site.thread()
    whole = await site.post(f"/threads/{thread}/runs/stream", body("assistant_id", "tools"), **ACTIVATED)
    ids = [line[4:] for line in whole.text.splitlines() if line.startswith("id: ")]
    path = f"/threads/{thread}/runs/{whole.headers['Babelgate-Run']}/stream"
    for number in (0, len(ids) // 2, len(ids) - 2):
        rest = await site.get(path, **{"Last-Event-ID": ids[number]}, **ACTIVATED)
        assert events(rest.content) == events(whole.content)[number + 1 :]


@pytest.mark.parametrize(("path", "agent_member"), PATHS)
async def test_a_wait_returns_the_records_with_the_result(site: Site, path: str, agent_member: str) -> None:
    thread = await site.thread()
    request = {agent_member: "tools", "input": user_input("one two")}
    waited = await site.post(f"{path}/threads/{thread}/runs/wait", request, **ACTIVATED)
    assert waited.headers[HEADER] == URI
    records = waited.json().pop(URI)
    run = f"{path}/threads/{thread}/runs/{waited.headers['Babelgate-Run']}"
    streamed = envelopes_of((await site.get(f"{run}/stream", **ACTIVATED)).content)
    assert records == {"after": 0, "events": [each for envelope in streamed for each in envelope["events"]]}
    below = "wait" if path else "join"
    joined = await site.get(f"{run}/{below}", **ACTIVATED)
    assert (joined.headers[HEADER], joined.json()) == (URI, waited.json())
    plain = await site.get(f"{run}/{below}")
    assert URI not in plain.json() and HEADER not in plain.headers


async def test_a_wait_returns_at_most_one_slice_of_records(site: Site) -> None:
    thread = await site.thread()
    request = {"assistant_id": "echo", "input": user_input("word " * 20_000)}
    envelope = (await site.post(f"/threads/{thread}/runs/wait", request, **ACTIVATED)).json()[URI]
    assert envelope["next"] > envelope["events"][-1]["seq"]


async def test_a_question_is_declined_by_the_metadata_of_a_request(site: Site) -> None:
    thread = await site.thread()
    paused = await site.wait(thread, "ask")
    [question] = paused["__interrupt__"]
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


async def test_tools_and_metadata_of_the_extension_belong_to_the_run(site: Site) -> None:
    tools = [{"name": "weather", "parameters": {"type": "object"}}]
    extension = {"tools": tools, "metadata": {"label": "x"}}
    request = body("assistant_id", "echo", metadata={URI: extension, "gateway_run": "r1"})
    thread = await site.thread()
    answer = await site.post(f"/threads/{thread}/runs/stream", request)
    (created,) = [
        each["event"] for e in envelopes_of(answer.content) for each in e["events"] if each["event"]["kind"] == CREATED
    ]
    assert (created["config"]["tools"], created["metadata"]) == (tools, {"label": "x"})
    [run] = await site.look(f"/threads/{thread}/runs")
    assert (run["metadata"]["label"], run["metadata"]["gateway_run"]) == ("x", "r1")


CREATED = "run_created"


UNREADABLE: list[Any] = [None, 3, [], {"tools": 1, "answers": [1, {}], "messages": "x", "metadata": []}]


@pytest.mark.parametrize("value", UNREADABLE)
async def test_invalid_members_of_the_extension_are_ignored(site: Site, value: Any) -> None:
    thread = await site.thread()
    answer = await site.post(f"/threads/{thread}/runs/stream", body("assistant_id", "echo", metadata={URI: value}))
    assert answer.status_code == 200
    assert envelopes_of(answer.content)


@pytest.mark.parametrize("path", ["/assistants/echo/schemas", "/agents/echo", "/agent-protocol/agents/echo"])
async def test_the_response_confirms_the_extension_if_requested(site: Site, path: str) -> None:
    assert (await site.get(path, **ACTIVATED)).headers[HEADER] == URI
    assert HEADER not in (await site.get(path)).headers


@pytest.mark.parametrize("prefix", ["", "/agent-protocol"])
async def test_an_unknown_file_hash_is_not_found(site: Site, prefix: str) -> None:
    assert (await site.get(f"{prefix}/agents/echo/files/{'0' * 64}")).status_code == 404
    assert (await site.get(f"{prefix}/agents/nobody/files/{'0' * 64}")).status_code == 404
