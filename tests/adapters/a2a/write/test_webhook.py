import json
from typing import Any, cast

import pytest

from babelgate.adapters.a2a import adapter
from babelgate.adapters.kit.server.encoding import LargeJson, as_bytes
from babelgate.canonical import Message, Record, TaskState, TextPart, Webhook
from tests.adapters.a2a.schema import check
from tests.adapters.log import CONTEXT, Log, streamed, task_of

HELLO = Message(message_id="in", role="user", parts=(TextPart(text="Hello"),))
LOG = Log(HELLO).start().add(*streamed("m", "one", " two")).done().records


def hook(dialect: str, **config: Any) -> Webhook:
    return Webhook(webhook_id="w", task_id="t", dialect=dialect, url="https://x", config=config)


def posted(dialect: str, records: list[Record], **config: Any) -> list[Any]:
    writer = adapter.webhooks[dialect](hook(dialect, **config), task_of(records), CONTEXT)
    return [json.loads(cast("bytes", body)) for record in records for body in writer.write(record)]


def test_0_3_receiver_gets_the_whole_task_after_every_change() -> None:
    bodies = [check("task", "0.3", body) for body in posted("a2a-0.3", LOG)]
    assert [body["status"]["state"] for body in bodies] == ["submitted", *["working"] * 4, "completed"]
    assert [body["artifacts"][0]["parts"][0]["text"] for body in bodies[2:]] == ["one", *["one two"] * 3]


def test_1_0_receiver_gets_one_stream_response_per_event() -> None:
    bodies = [check("event", "1.0", body) for body in posted("a2a-1.0", LOG)]
    assert [next(iter(body)) for body in bodies] == [
        "task",
        "statusUpdate",
        "artifactUpdate",
        "artifactUpdate",
        "artifactUpdate",
        "statusUpdate",
    ]


@pytest.mark.parametrize("dialect", ["a2a-0.3", "a2a-1.0"])
async def test_large_task_is_encoded_in_pieces(dialect: str) -> None:
    large = Message(message_id="in", role="user", parts=(TextPart(text="x" * 2**20),))
    records = Log(large).start().add(*streamed("m", "one")).done().records
    writer = adapter.webhooks[dialect](hook(dialect), task_of(records), CONTEXT)
    first, *_ = [body for record in records for body in writer.write(record)]
    assert isinstance(first, LargeJson)
    task = json.loads(await as_bytes(first))
    assert (task["task"] if dialect == "a2a-1.0" else task)["history"][0]["parts"][0]["text"] == "x" * 2**20


def test_token_and_credentials_are_headers_of_every_post() -> None:
    for dialect, media in (("a2a-0.3", "application/json"), ("a2a-1.0", "application/a2a+json")):
        webhook = hook(dialect, token="t0k", schemes=["Bearer", "Basic"], credentials="s3cret")
        assert dict(adapter.webhooks[dialect](webhook, task_of(LOG), CONTEXT).headers()) == {
            "Content-Type": media,
            "X-A2A-Notification-Token": "t0k",
            "Authorization": "Bearer s3cret",
        }
        plain = adapter.webhooks[dialect](hook(dialect), task_of(LOG), CONTEXT).headers()
        assert dict(plain) == {"Content-Type": media}


def test_a_question_is_posted_like_any_other_change() -> None:
    log = Log(HELLO).start().paused().records
    assert posted("a2a-1.0", log)[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert posted("a2a-0.3", log)[-1]["status"]["state"] == TaskState.INPUT_REQUIRED.replace("_", "-")
