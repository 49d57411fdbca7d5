"""Babelgate extension on AIEF: only a caller that requests it receives the records with a step."""

from typing import Any

import pytest

from babelgate.adapters.aief.client import Client
from babelgate.adapters.kit.extension import HEADER, MAX_SLICE, START_HEADER, URI, RecordReader
from babelgate.canonical import FaultCode, FaultError, Invocation, Message
from babelgate.canonical.event import LossNoted, MessageStarted
from tests import loopback
from tests.adapters.aief.far import Far, step
from tests.adapters.aief.site import Site
from tests.submissions import make

REQUESTED = {HEADER: URI}


async def post(site: Site, agent: str, text: str, headers: dict[str, str] = REQUESTED, **more: Any) -> tuple[str, Any]:
    """Execute the first step of a new task. Return the step's path and the response."""
    path = f"{site.at(agent)}/{await site.create(agent, text)}/steps"
    answer = await site.http.post(path, json=more, headers=headers)
    assert answer.status_code == 200, answer.text
    return f"{path}/{answer.json()['step_id']}", answer


async def test_a_step_has_its_records_and_is_otherwise_unchanged(site: Site) -> None:
    _, plain = await post(site, "tools", "two words", {})
    path, extended = await post(site, "tools", "two words")
    assert URI not in plain.text
    assert HEADER not in plain.headers
    assert extended.headers[HEADER] == URI
    output = extended.json()["additional_output"]
    assert output.keys() - plain.json()["additional_output"].keys() == {URI}
    assert extended.json()["output"] == plain.json()["output"]
    reader = RecordReader(of_run=True)
    assert reader.read(output[URI])
    assert reader.stopped
    assert URI not in (await site.http.get(path)).text


async def test_records_of_a_step_are_limited_and_can_be_continued(site: Site) -> None:
    path, extended = await post(site, "echo", "x" * MAX_SLICE)
    reader = RecordReader(of_run=True)
    reader.read(extended.json()["additional_output"][URI])
    assert reader.behind
    for _ in range(9):  # the input and the answer are each larger than one response
        rest = await site.http.get(path, headers={**REQUESTED, START_HEADER: str(reader.seq)})
        reader.read(rest.json()["additional_output"][URI])
        if not reader.behind:
            break
    assert reader.stopped
    wrong = await site.http.get(path, headers={**REQUESTED, START_HEADER: "x"})
    assert wrong.status_code == 422


async def test_a_request_member_activates_the_extension_and_is_not_forwarded(site: Site) -> None:
    additional_input = {URI: {"tools": [{"name": "weather"}], "metadata": {"a": 1}}, "b": 2}
    _, answer = await post(site, "echo", "Hi", {}, additional_input=additional_input)
    assert answer.json()["additional_input"] == {"b": 2}
    events = [each["event"] for each in answer.json()["additional_output"][URI]["events"]]
    (created,) = [event for event in events if event["kind"] == "run_created"]
    assert (created["config"]["tools"], created["data"]) == ([{"name": "weather"}], {"b": 2})


async def test_an_extended_answer_belongs_to_the_next_run(site: Site) -> None:
    """Answer a question of the second step, before a request for that step was made."""
    path, _ = await post(site, "interview", "go")
    steps = path.rpartition("/")[0]
    question: Any = None
    for _ in range(50):  # the first step is over before the run is
        records = (await site.http.get(path, headers=REQUESTED)).json()["additional_output"][URI]["events"]
        question = next((each["event"] for each in records if each["event"]["kind"] == "interrupt_raised"), None)
        if records[-1]["event"]["kind"] == "run_ended":
            break
    members = {"answers": [{"interrupt_id": question["interrupt_id"], "value": "Ada"}]}
    answer = await site.http.post(
        steps, json={"input": "See the answers.", "additional_input": {URI: members}}, headers=REQUESTED
    )
    events = [each["event"] for each in answer.json()["additional_output"][URI]["events"]]
    [answered] = [event for event in events if event["kind"] == "interrupt_answered"]
    assert answered["value"] == "Ada"
    [created] = [event for event in events if event["kind"] == "run_created"]
    assert [part["text"] for message in created["messages"] for part in message["parts"]] == ["Ada"]


# The client


async def run_events(far: Far, **options: Any) -> list[Any]:
    async with loopback.client() as http:
        messages = (Message.of("Hi", "user"),)
        call = make(Invocation, agent="near", thread_id="t", task_id="k", run_id="x", messages=messages)
        return [event async for event in Client(far.url, http=http, **options).run(call)]


def record(seq: int, event: Any) -> Any:
    return {"seq": seq, "run_id": "r", "event": event}


ENDED = record(9, {"kind": "run_ended", "status": "success"})


@pytest.mark.parametrize("event", [{"kind": "part_added", "part": 1}, 3, None])
async def test_a_malformed_record_is_a_loss_and_the_run_continues(far: Far, event: Any) -> None:
    started = record(1, {"kind": "message_started", "message_id": "m1"})
    far.steps = [step("Hi", additional_output={URI: {"after": 0, "events": [started, record(2, event), ENDED]}})]
    events = await run_events(far)
    assert [type(each) for each in events if isinstance(each, MessageStarted | LossNoted)] == [
        MessageStarted,
        LossNoted,
    ]


@pytest.mark.parametrize("envelope", [{"after": 0, "events": []}, {}, {"after": 0, "events": [], "next": 5}])
async def test_permanently_missing_records_end_the_run(far: Far, envelope: Any) -> None:
    far.steps = [step("Hi", additional_output={URI: envelope})]
    far.answers["GET /ap/v1/agent/tasks/task-1/steps/s"] = 200, far.steps[0]
    with pytest.raises(FaultError) as refused:
        await run_events(far)
    assert refused.value.fault.code is FaultCode.AGENT_INVALID


async def test_no_records_are_requested_when_the_extension_is_off(far: Far) -> None:
    assert await run_events(far, extension="off")
    assert all(HEADER.lower() not in headers for _, headers, _ in far.requests)
