"""The Babelgate extension on A2A: who has it activated is sent the records, and nobody else is."""

from typing import Any

import pytest

from babelgate.adapters.kit.extension import MAX_SLICE, URI, RecordReader
from babelgate.canonical.event import Custom, MessageEnded, PartDelta
from tests.adapters.a2a.site import Site, events_of, message, message_0_3

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEADERS = ("A2A-Extensions", "X-A2A-Extensions")
STREAMS = (("SendStreamingMessage", message), ("message/stream", message_0_3))


def envelopes(events: list[Any]) -> list[Any]:
    found: list[Any] = []
    for event in events:
        result = event["result"]
        update = next((result[name] for name in ("task", "statusUpdate", "artifactUpdate") if name in result), result)
        found.append(update.get("metadata", {}).get(URI))
    return found


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize(("method", "make"), STREAMS)
async def test_each_event_has_one_record_after_the_one_before(site: Site, method: str, make: Any, header: str) -> None:
    response = await site.rpc("rich", method, make("Hello"), headers={header: f"https://example.com/x, {URI}"})
    assert response.headers[header] == URI
    first, *others = envelopes(events_of(response))
    assert first["events"] == []
    after = first["after"]
    for told in others:
        if told is None:  # a record may be shown by several events: the last has it
            continue
        [record] = told["events"]
        assert told["after"] == after < record["seq"]
        after = record["seq"]
    reader = RecordReader()
    read = [event for told in (first, *others) if told is not None for event in reader.read(told)]
    assert reader.stopped
    assert "".join(event.text for event in read if isinstance(event, PartDelta)) == "let me thinkHello, world"
    assert [(event.name, event.value) for event in read if isinstance(event, Custom)] == [("mood", "good")]
    assert {"input_tokens": 3} in [event.usage for event in read if isinstance(event, MessageEnded)]


@pytest.mark.parametrize("header", [None, "https://example.com/other", f"{URI}2"])
@pytest.mark.parametrize(("method", "make"), STREAMS)
async def test_who_asks_for_none_of_it_sees_nothing(site: Site, method: str, make: Any, header: str | None) -> None:
    headers = {} if header is None else dict.fromkeys(HEADERS, header)
    response = await site.rpc("rich", method, make("Hello"), headers=headers)
    assert not any(name in response.headers for name in HEADERS)
    assert URI not in response.text


async def test_the_native_events_are_the_same_with_it_and_without(site: Site) -> None:
    def shown(events: list[Any]) -> list[str]:
        artifacts = [event["result"]["artifactUpdate"] for event in events if "artifactUpdate" in event["result"]]
        return [str(each["artifact"]["parts"]) for each in artifacts]

    plain = events_of(await site.rpc("rich", "SendStreamingMessage", message("Hello")))
    told = events_of(await site.rpc("rich", "SendStreamingMessage", message("Hello"), headers={HEADERS[0]: URI}))
    assert shown(told) == shown(plain)


async def test_a_finished_task_has_its_records_from_the_first_on_up_to_a_bound(site: Site) -> None:
    answer = await site.rpc("echo", "SendMessage", message("Hello"), headers={HEADERS[0]: URI})
    assert answer.headers[HEADERS[0]] == URI
    told = answer.json()["result"]["task"]["metadata"][URI]
    assert told["after"] == 0
    assert "next" not in told
    assert told["events"][-1]["event"] == {"kind": "task_changed", "state": "completed"}
    large = await site.rpc("echo", "SendMessage", message("x" * MAX_SLICE), headers={HEADERS[0]: URI})
    cut = large.json()["result"]["task"]["metadata"][URI]
    assert cut["next"] == cut["events"][-1]["seq"] + 1
    missed = await site.rpc(
        "echo",
        "SubscribeToTask",
        {"id": large.json()["result"]["task"]["id"]},
        headers={HEADERS[0]: URI, "Babelgate-From": str(cut["events"][-1]["seq"])},
    )
    reader = RecordReader()
    reader.read(cut)
    assert reader.behind
    for told in envelopes(events_of(missed)):
        if told is not None:
            reader.read(told)
    assert reader.stopped


async def test_a_question_is_declined_by_a_request_that_activates_it_by_itself(site: Site) -> None:
    asked = await site.result("ask", "SendMessage", message("x"))
    interrupt_id = asked["task"]["status"]["message"]["metadata"]["babelgate"]["question"]
    extension = {"answers": [{"interrupt_id": interrupt_id, "action": "decline"}]}
    params = message("no", taskId=asked["task"]["id"])
    answer = await site.rpc("ask", "SendMessage", {**params, "metadata": {URI: extension}})
    task = answer.json()["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    answered = [each["event"] for each in task["metadata"][URI]["events"]]
    assert [each.get("action") for each in answered if each["kind"] == "interrupt_answered"] == ["decline"]


@pytest.mark.parametrize("version", ["", "0.3", "1.0"])
async def test_every_card_declares_it_and_requires_nothing(site: Site, version: str) -> None:
    headers = {"A2A-Version": version} if version else {}
    card = (await site.client.get("/a2a/echo/.well-known/agent-card.json", headers=headers)).json()
    [entry] = card["capabilities"]["extensions"]
    assert (entry["uri"], entry["required"]) == (URI, False)
