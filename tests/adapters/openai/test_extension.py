"""The Babelgate extension on OpenAI's API: a stream holds the records of its run for callers that activate the
extension."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from babelgate.adapters.kit.client.sse import Frames
from babelgate.adapters.kit.extension import HEADER, URI, RecordReader
from babelgate.adapters.openai.codec.names import RECORDS
from babelgate.canonical import Event
from babelgate.canonical.event import ToolEnded
from babelgate.gateway import demo
from tests.adapters.openai.server.agents import ASK_TOOL
from tests.running import Running, running

ASKED = {HEADER: f"https://example.com/x, {URI}"}
PATHS = ("/v1/responses", "/v1/chat/completions")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Running]:
    async with running(tmp_path, {name: getattr(demo, name) for name in ("echo", "tools", "ask")}) as gateway:
        yield gateway


def body(path: str, agent: str, text: str = "one two", **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": agent, "stream": True, "input" if path == PATHS[0] else "messages": messages, **more}


def frames(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(each.data) for each in Frames().all([content]) if each.data != b"[DONE]"]


def told(content: bytes) -> list[Any]:
    return [each[URI] for each in frames(content) if URI in each]


def shape(content: bytes) -> list[Any]:
    """Return the native frames without ids and times."""
    return [
        (each.get("type"), each.get("sequence_number"), each.get("delta"), each.get("choices"))
        for each in frames(content)
        if URI not in each
    ]


@pytest.mark.parametrize("path", PATHS)
async def test_each_record_follows_the_previous_one(site: Running, path: str) -> None:
    answer = await site.http.post(path, json=body(path, "tools"), headers=ASKED)
    assert answer.headers[HEADER] == URI
    reader, after, read = RecordReader(of_run=True), 0, list[Event]()
    for envelope in told(answer.content):
        [record] = envelope["events"]
        assert envelope["after"] == after < record["seq"]
        after = record["seq"]
        read += reader.read(envelope)
    assert reader.stopped
    assert [event.output for event in read if isinstance(event, ToolEnded)] == [2]


@pytest.mark.parametrize("path", PATHS)
async def test_extension_does_not_change_native_events(site: Running, path: str) -> None:
    extended = await site.http.post(path, json=body(path, "echo"), headers=ASKED)
    plain = await site.http.post(path, json=body(path, "echo"), headers={HEADER: f"{URI}2"})
    assert HEADER not in plain.headers
    assert URI not in plain.text and RECORDS not in plain.text
    assert shape(extended.content) == shape(plain.content)


async def test_replayed_response_has_the_same_records(site: Running) -> None:
    created = await site.http.post(PATHS[0], json=body(PATHS[0], "tools"), headers=ASKED)
    response_id = next(each["response"]["id"] for each in frames(created.content) if "response" in each)
    again = await site.http.get(f"/v1/responses/{response_id}?stream=true", headers=ASKED)
    assert again.headers[HEADER] == URI
    assert told(again.content) == told(created.content)
    assert URI not in (await site.http.get(f"/v1/responses/{response_id}?stream=true")).text


@pytest.mark.parametrize("path", PATHS)
async def test_tools_and_metadata_of_the_extension_reach_the_run(site: Running, path: str) -> None:
    says = {"tools": [{"name": "weather"}], "metadata": {"label": {"n": 1}}}
    answer = await site.http.post(path, json=body(path, "echo", babelgate=says))
    assert answer.headers[HEADER] == URI
    records = [each["event"] for envelope in told(answer.content) for each in envelope["events"]]
    (run_created,) = [each for each in records if each["kind"] == "run_created"]
    assert (run_created["config"]["tools"], run_created["metadata"]) == (says["tools"], says["metadata"])
    assert "babelgate" not in run_created["config"]


@pytest.mark.parametrize("path", PATHS)
async def test_whole_answer_has_the_records_of_its_run(site: Running, path: str) -> None:
    answer = await site.http.post(path, json=body(path, "tools") | {"stream": False}, headers=ASKED)
    assert answer.headers[HEADER] == URI
    streamed = told((await site.http.post(path, json=body(path, "tools"), headers=ASKED)).content)
    found = answer.json()[URI]
    assert found["after"] == 0 and "next" not in found
    kinds = [each["event"]["kind"] for each in found["events"]]
    assert kinds == [each["event"]["kind"] for envelope in streamed for each in envelope["events"]]
    plain = await site.http.post(path, json=body(path, "tools") | {"stream": False})
    assert URI not in plain.json() and HEADER not in plain.headers


@pytest.mark.parametrize("path", PATHS)
async def test_records_of_a_whole_answer_are_limited(site: Running, path: str) -> None:
    request = body(path, "echo", "word " * 20_000) | {"stream": False}
    found = (await site.http.post(path, json=request, headers=ASKED)).json()[URI]
    assert found["next"] > found["events"][-1]["seq"]


async def test_stored_response_has_the_records_of_its_run(site: Running) -> None:
    created = await site.http.post(PATHS[0], json=body(PATHS[0], "tools") | {"stream": False}, headers=ASKED)
    again = await site.http.get(f"/v1/responses/{created.json()['id']}", headers=ASKED)
    assert again.headers[HEADER] == URI
    assert again.json() == created.json()


async def test_question_can_be_declined(site: Running) -> None:
    answer_with_question = await site.http.post(PATHS[0], json=body(PATHS[0], "ask", tools=[ASK_TOOL]), headers=ASKED)
    records = [each["event"] for envelope in told(answer_with_question.content) for each in envelope["events"]]
    (question,) = [each for each in records if each["kind"] == "interrupt_raised"]
    last = (
        frames(answer_with_question.content)[-1]
        if "response" in frames(answer_with_question.content)[-1]
        else frames(answer_with_question.content)[-2]
    )
    [call] = [each for each in last["response"]["output"] if each["type"] == "function_call"]
    declined = {"answers": [{"interrupt_id": question["interrupt_id"], "action": "decline"}]}
    outputs = [{"type": "function_call_output", "call_id": call["call_id"], "output": "no"}]
    answer = await site.http.post(
        PATHS[0], json={"model": "ask", "stream": True, "input": outputs, "babelgate": declined}
    )
    kinds = [each["event"] for envelope in told(answer.content) for each in envelope["events"]]
    assert [each["status"] for each in kinds if each["kind"] == "run_ended"] == ["error"]


UNREADABLE: list[Any] = [3, [], {"tools": 1, "answers": [1, {}], "messages": "x", "metadata": []}]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("extension", UNREADABLE)
async def test_invalid_extension_request_is_ignored(site: Running, path: str, extension: Any) -> None:
    answer = await site.http.post(path, json=body(path, "echo", babelgate=extension))
    assert answer.status_code == 200
    assert told(answer.content)


async def test_server_confirms_the_extension_on_request(site: Running) -> None:
    assert (await site.http.get("/v1/models/echo", headers=ASKED)).headers[HEADER] == URI
    assert HEADER not in (await site.http.get("/v1/models/echo")).headers
    assert (await site.http.get(f"/v1/models/echo/files/{'0' * 64}")).status_code == 404
