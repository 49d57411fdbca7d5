"""The Babelgate extension on A2A: only callers that activate it receive the records."""

from typing import Any

import pytest

from babelgate.adapters.kit.extension import MAX_SLICE, URI, RecordReader
from babelgate.canonical.event import Custom, MessageEnded, PartDelta
from tests.adapters.a2a.site import Site, events_of, message, message_0_3

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEADERS = ("A2A-Extensions", "X-A2A-Extensions")
STREAMS = (("SendStreamingMessage", message), ("message/stream", message_0_3))


def envelopes(events: list[Any]) -> list[Any]:
    slices: list[Any] = []
    for event in events:
        result = event["result"]
        update = next((result[name] for name in ("task", "statusUpdate", "artifactUpdate") if name in result), result)
        slices.append(update.get("metadata", {}).get(URI))
    return slices


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize(("method", "make"), STREAMS)
async def test_each_event_has_the_next_record(site: Site, method: str, make: Any, header: str) -> None:
    response = await site.rpc("rich", method, make("Hello"), headers={header: f"https://example.com/x, {URI}"})
    assert response.headers[header] == URI
    first, *others = envelopes(events_of(response))
    assert first["events"] == []
    after = first["after"]
    for batch in others:
        if batch is None:  # several events may show one record: the last has it
            continue
        [record] = batch["events"]
        assert batch["after"] == after < record["seq"]
        after = record["seq"]
    reader = RecordReader()
    events = [event for batch in (first, *others) if batch is not None for event in reader.read(batch)]
    assert reader.stopped
    assert "".join(event.text for event in events if isinstance(event, PartDelta)) == "let me thinkHello, world"
    assert [(event.name, event.value) for event in events if isinstance(event, Custom)] == [("mood", "good")]
    assert {"input_tokens": 3} in [event.usage for event in events if isinstance(event, MessageEnded)]


@pytest.mark.parametrize("header", [None, "https://example.com/other", f"{URI}2"])
@pytest.mark.parametrize(("method", "make"), STREAMS)
async def test_records_are_not_sent_without_the_extension(
    site: Site, method: str, make: Any, header: str | None
) -> None:
    headers = {} if header is None else dict.fromkeys(HEADERS, header)
    response = await site.rpc("rich", method, make("Hello"), headers=headers)
    assert not any(name in response.headers for name in HEADERS)
    assert URI not in response.text


async def test_extension_does_not_change_the_artifacts(site: Site) -> None:
    def parts_of(events: list[Any]) -> list[str]:
        artifacts = [event["result"]["artifactUpdate"] for event in events if "artifactUpdate" in event["result"]]
        return [str(each["artifact"]["parts"]) for each in artifacts]

    plain = events_of(await site.rpc("rich", "SendStreamingMessage", message("Hello")))
    extended = events_of(await site.rpc("rich", "SendStreamingMessage", message("Hello"), headers={HEADERS[0]: URI}))
    assert parts_of(extended) == parts_of(plain)


async def test_finished_task_has_its_first_records_up_to_a_limit(site: Site) -> None:
    answer = await site.rpc("echo", "SendMessage", message("Hello"), headers={HEADERS[0]: URI})
    assert answer.headers[HEADERS[0]] == URI
    batch = answer.json()["result"]["task"]["metadata"][URI]
    assert batch["after"] == 0
    assert "next" not in batch
    assert batch["events"][-1]["event"] == {"kind": "task_changed", "state": "completed"}
    large = await site.rpc("echo", "SendMessage", message("x" * MAX_SLICE), headers={HEADERS[0]: URI})
    first_slice = large.json()["result"]["task"]["metadata"][URI]
    assert first_slice["next"] == first_slice["events"][-1]["seq"] + 1
    missed = await site.rpc(
        "echo",
        "SubscribeToTask",
        {"id": large.json()["result"]["task"]["id"]},
        headers={HEADERS[0]: URI, "Babelgate-From": str(first_slice["events"][-1]["seq"])},
    )
    reader = RecordReader()
    reader.read(first_slice)
    assert reader.behind
    for batch in envelopes(events_of(missed)):
        if batch is not None:
            reader.read(batch)
    assert reader.stopped


async def test_metadata_of_a_request_can_decline_a_question(site: Site) -> None:
    waiting = await site.result("ask", "SendMessage", message("x"))
    interrupt_id = waiting["task"]["status"]["message"]["metadata"]["babelgate"]["question"]
    extension = {"answers": [{"interrupt_id": interrupt_id, "action": "decline"}]}
    params = message("no", taskId=waiting["task"]["id"])
    answer = await site.rpc("ask", "SendMessage", {**params, "metadata": {URI: extension}})
    task = answer.json()["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    answered = [each["event"] for each in task["metadata"][URI]["events"]]
    assert [each.get("action") for each in answered if each["kind"] == "interrupt_answered"] == ["decline"]


@pytest.mark.parametrize("version", ["", "0.3", "1.0"])
async def test_every_card_declares_the_extension_as_optional(site: Site, version: str) -> None:
    headers = {"A2A-Version": version} if version else {}
    card = (await site.client.get("/a2a/echo/.well-known/agent-card.json", headers=headers)).json()
    [entry] = card["capabilities"]["extensions"]
    assert (entry["uri"], entry["required"]) == (URI, False)
