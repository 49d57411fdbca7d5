"""Streams and histories of a run whose agent was started again."""

from typing import Any

import pytest

from babelgate.adapters.vercel_ui.server.chat_log import ChatLog
from babelgate.adapters.vercel_ui.write.reply import ReplyWriter
from babelgate.adapters.vercel_ui.write.view import ReplyView
from babelgate.canonical import Message, Record, TextPart
from babelgate.canonical.event import Event, RunCreated, RunEnded, RunStarted, TaskCreated, whole_message

TASK, RUN = "22222222-2222-4222-8222-222222222222", "33333333-3333-4333-8333-333333333333"


def said(message_id: str, text: str) -> list[Event]:
    return whole_message(Message(message_id=message_id, parts=(TextPart(text=text),)))


def log_of(void: tuple[str, ...] | None) -> list[Record]:
    """Return the log of a run that says two words, starts again, and says another one."""
    events: list[Event] = [
        TaskCreated(task_id=TASK, agent="echo"),
        RunCreated(run_id=RUN, messages=(Message.of("hi", "user"),)),
        RunStarted(),
        *said("m1", "one"),
        *said("m2", "two"),
        RunStarted(attempt=2, void=void),
        *said("m3", "three"),
        RunEnded(),
    ]
    return [
        Record(seq=seq, at=0, task_id=TASK, run_id=None if seq == 1 else RUN, attempt=1, event=event)
        for seq, event in enumerate(events, 1)
    ]


def view(**members: Any) -> ReplyView:
    return ReplyView(message_id=TASK, agent="echo", base_url="", thread_id="t", task_id=TASK, **members)


def written(log: list[Record], view: ReplyView) -> tuple[list[str], list[str]]:
    """Return the types of the chunks, and the texts."""
    writer = ReplyWriter(view)
    chunks = [chunk for record in log for chunk in writer.write(record)]
    return [chunk["type"] for chunk in chunks], [chunk["delta"] for chunk in chunks if "delta" in chunk]


@pytest.mark.parametrize("void", [None, ("m2",)])
@pytest.mark.parametrize("sdk", [5, 6, 7])
def test_a_live_stream_takes_void_content_back_or_fails(sdk: int, void: tuple[str, ...] | None) -> None:
    kinds, texts = written(log_of(void), view(sdk=sdk))
    if sdk == 7 and void is None:
        assert "reset-step" in kinds and kinds[-1] == "finish"
        assert texts == ["one", "two", "three"]
    else:
        assert kinds[-2:] == ["message-metadata", "error"]
        assert texts == ["one", "two"]


@pytest.mark.parametrize(
    ("void", "expected"), [(None, ["three"]), (("m2",), ["one", "three"]), ((), ["one", "two", "three"])]
)
@pytest.mark.parametrize("sdk", [5, 6, 7])
def test_a_later_reader_gets_no_void_content(sdk: int, void: Any, expected: list[str]) -> None:
    log = log_of(void)
    index = ChatLog()
    for record in log:
        index.apply(record)
    kinds, texts = written(log, view(sdk=sdk, restarts=index.restarts))
    assert texts == expected
    assert kinds[-1] == "finish" and "reset-step" not in kinds
