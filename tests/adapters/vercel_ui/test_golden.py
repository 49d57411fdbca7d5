"""Golden files of UI message streams: a difference is a change of the wire format.

For each case, `canonical.json` is the log. `vercel-ui.json` has the chunks of each message of the assistant for the
SDKs 5, 6 and 7, and the message as a history shows it; `pytest --accept` writes it.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from babelgate.adapters.vercel_ui import wire as w
from babelgate.adapters.vercel_ui.codec import is_new_reply
from babelgate.adapters.vercel_ui.write.reply import ReplyWriter
from babelgate.adapters.vercel_ui.write.ui_message import UiMessageBuilder
from babelgate.adapters.vercel_ui.write.view import ReplyView
from babelgate.canonical import Record
from babelgate.canonical.event import PartDelta, RunCreated
from tests.goldens import CASES, GOLDEN, compare, log_of

THREAD = "11111111-1111-4111-8111-111111111111"


def views(log: Sequence[Record]) -> list[ReplyView]:
    """Return the view of each message of the assistant."""
    created = [record for record in log if isinstance(record.event, RunCreated)]
    found: dict[str, str] = {}
    for record in created:
        event, task_id = record.event, record.task_id or ""
        assert isinstance(event, RunCreated)
        if task_id not in found.values():
            found[task_id] = task_id
        elif is_new_reply(event):
            found[event.run_id] = task_id
    return [
        ReplyView(
            message_id=message_id,
            agent="echo",
            base_url="http://127.0.0.1:8000",
            thread_id=THREAD,
            task_id=task_id,
            steps=True,
        )
        for message_id, task_id in found.items()
    ]


def chunks_of(log: Sequence[Record], view: ReplyView) -> list[w.Chunk]:
    writer = ReplyWriter(view)
    chunks = [chunk for record in log if record.task_id == view.task_id for chunk in writer.write(record)]
    return [writer.start(writer.run_ids[0]), *chunks]


def written(log: Sequence[Record]) -> list[Any]:
    replies: list[Any] = []
    for view in views(log):
        streams = {sdk: chunks_of(log, msgspec.structs.replace(view, sdk=sdk)) for sdk in w.SDKS}
        builder = UiMessageBuilder()
        builder.add(streams[6])
        reply: dict[str, Any] = {f"sdk {sdk}": chunks for sdk, chunks in streams.items()}
        for sdk in (5, 7):
            if streams[sdk] == streams[6]:
                reply[f"sdk {sdk}"] = "as sdk 6"
        replies.append({**reply, "message": builder.message})
    return replies


@pytest.mark.parametrize("case", CASES)
def test_the_chunks_of_a_log_match_the_golden_file(case: str, accept: bool) -> None:
    text = json.dumps(written(log_of(case)), indent=2, ensure_ascii=False) + "\n"
    compare(GOLDEN / case / "vercel-ui.json", text, accept)


@pytest.mark.parametrize("case", CASES)
def test_passages_have_the_chunks_of_their_records(case: str) -> None:
    log = log_of(case)
    for view in views(log):
        one, other = ReplyWriter(view), ReplyWriter(view)
        for record in (each for each in log if each.task_id == view.task_id):
            event = record.event
            kind = other.find_text(record) if isinstance(event, PartDelta) and event.text else None
            expected = one.write(record)
            if kind is None:
                assert other.write(record) == expected
            else:
                assert isinstance(event, PartDelta)
                assert expected == [{"type": kind[0], "id": kind[1], "delta": event.text}]
