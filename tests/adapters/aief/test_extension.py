"""The Babelgate extension on AIEF: who asks for it is sent the records with a step, and nobody else is."""

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

ASKED = {HEADER: URI}


async def post(site: Site, agent: str, text: str, headers: dict[str, str] = ASKED, **more: Any) -> tuple[str, Any]:
    """The path of a new task's first step, and the answer to it."""
    path = f"{site.at(agent)}/{await site.create(agent, text)}/steps"
    answer = await site.http.post(path, json=more, headers=headers)
    assert answer.status_code == 200, answer.text
    return f"{path}/{answer.json()['step_id']}", answer


async def test_a_step_has_the_records_of_its_run_and_is_otherwise_what_it_was(site: Site) -> None:
    _, plain = await post(site, "tools", "two words", {})
    path, told = await post(site, "tools", "two words")
    assert URI not in plain.text
    assert HEADER not in plain.headers
    assert told.headers[HEADER] == URI
    beside = told.json()["additional_output"]
    assert beside.keys() - plain.json()["additional_output"].keys() == {URI}
    assert told.json()["output"] == plain.json()["output"]
    reader = RecordReader(of_run=True)
    assert reader.read(beside[URI])
    assert reader.stopped
    assert URI not in (await site.http.get(path)).text


async def test_what_a_step_has_no_room_for_is_told_from_there_on(site: Site) -> None:
    path, told = await post(site, "echo", "x" * MAX_SLICE)
    reader = RecordReader(of_run=True)
    reader.read(told.json()["additional_output"][URI])
    assert reader.behind
    for _ in range(9):  # the input and the answer are more than a slice each
        rest = await site.http.get(path, headers={**ASKED, START_HEADER: str(reader.seq)})
        reader.read(rest.json()["additional_output"][URI])
        if not reader.behind:
            break
    assert reader.stopped
    wrong = await site.http.get(path, headers={**ASKED, START_HEADER: "x"})
    assert wrong.status_code == 422


async def test_a_request_that_says_something_by_it_activates_it_and_no_agent_is_given_that(site: Site) -> None:
    told = {URI: {"tools": [{"name": "weather"}], "metadata": {"a": 1}}, "b": 2}
    _, answer = await post(site, "echo", "Hi", {}, additional_input=told)
    assert answer.json()["additional_input"] == {"b": 2}
    events = [each["event"] for each in answer.json()["additional_output"][URI]["events"]]
    (made,) = [event for event in events if event["kind"] == "run_created"]
    assert (made["config"]["tools"], made["data"]) == ([{"name": "weather"}], {"b": 2})


async def test_what_is_said_by_it_is_of_the_next_run_where_the_records_told_the_last_one_whole(site: Site) -> None:
    """The agent asks in its second step, which nobody asked for by a request of its own."""
    path, _ = await post(site, "interview", "go")
    steps = path.rpartition("/")[0]
    question: Any = None
    for _ in range(50):  # the first step is over before the run is
        told = (await site.http.get(path, headers=ASKED)).json()["additional_output"][URI]["events"]
        question = next((each["event"] for each in told if each["event"]["kind"] == "interrupt_raised"), None)
        if told[-1]["event"]["kind"] == "run_ended":
            break
    said = {"answers": [{"interrupt_id": question["interrupt_id"], "value": "Ada"}]}
    answer = await site.http.post(steps, json={"input": "See beside.", "additional_input": {URI: said}}, headers=ASKED)
    events = [each["event"] for each in answer.json()["additional_output"][URI]["events"]]
    [answered] = [event for event in events if event["kind"] == "interrupt_answered"]
    assert answered["value"] == "Ada"
    [made] = [event for event in events if event["kind"] == "run_created"]
    assert [part["text"] for message in made["messages"] for part in message["parts"]] == ["Ada"]


# The client


async def heard(far: Far, **options: Any) -> list[Any]:
    async with loopback.client() as http:
        messages = (Message.of("Hi", "user"),)
        call = make(Invocation, agent="near", thread_id="t", task_id="k", run_id="x", messages=messages)
        return [event async for event in Client(far.url, http=http, **options).run(call)]


def record(seq: int, event: Any) -> Any:
    return {"seq": seq, "run_id": "r", "event": event}


ENDED = record(9, {"kind": "run_ended", "status": "success"})


@pytest.mark.parametrize("event", [{"kind": "part_added", "part": 1}, 3, None])
async def test_a_record_that_is_none_is_a_loss_and_the_run_goes_on(far: Far, event: Any) -> None:
    said = record(1, {"kind": "message_started", "message_id": "m1"})
    far.steps = [step("Hi", additional_output={URI: {"after": 0, "events": [said, record(2, event), ENDED]}})]
    events = await heard(far)
    assert [type(each) for each in events if isinstance(each, MessageStarted | LossNoted)] == [
        MessageStarted,
        LossNoted,
    ]


@pytest.mark.parametrize("told", [{"after": 0, "events": []}, {}, {"after": 0, "events": [], "next": 5}])
async def test_records_that_a_server_leaves_out_for_good_end_the_run(far: Far, told: Any) -> None:
    far.steps = [step("Hi", additional_output={URI: told})]
    far.answers["GET /ap/v1/agent/tasks/task-1/steps/s"] = 200, far.steps[0]
    with pytest.raises(FaultError) as refused:
        await heard(far)
    assert refused.value.fault.code is FaultCode.AGENT_INVALID


async def test_nothing_is_asked_for_where_it_is_off(far: Far) -> None:
    assert await heard(far, extension="off")
    assert all(HEADER.lower() not in headers for _, headers, _ in far.asked)
