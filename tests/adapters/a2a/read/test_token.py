"""Pieces of an answer that differ from the previous one only in their text."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.a2a.read.task_events import EventReader
from babelgate.adapters.a2a.read.token import TokenReader
from babelgate.canonical import Event
from babelgate.canonical.event import PartDelta
from babelgate.canonical.value import Json

RUN = "01a217c3-6e41-7327-a262-c35c66819b1e"
IDS = {"taskId": "t", "contextId": "c"}


def update(text: str, *, old: bool = False, artifact: dict[str, Any] | None = None, **more: Any) -> Any:
    part = {"kind": "text", "text": text} if old else {"text": text}
    content = {**IDS, "artifact": {"artifactId": "said", "parts": [part], **(artifact or {})}, "append": True, **more}
    return {"kind": "artifact-update", **content} if old else {"artifactUpdate": content}


class FullReader(EventReader):
    """A reader that reads every reply in full."""

    def read(self, value: Json) -> list[Event]:
        self._tokens = TokenReader()
        return super().read(value)


def replies(*, old: bool) -> st.SearchStrategy[Any]:
    texts = st.sampled_from(["", "a", "aa", "aaa", "b ", "\u2028", "{}"])
    artifacts = st.sampled_from(
        [
            {},
            {},
            {},
            {"name": "answer"},
            {"artifactId": "other"},
            {"metadata": {"adk_event_id": "1"}},
            {"metadata": {"usage": {"input_tokens": 1}}},
            {"parts": [{"data": {"a": 1}}]},
            {"parts": [{"text": "x", "metadata": {"thought": True}}]},
            {"parts": [{"text": "x"}, {"text": "y"}]},
        ]
    )
    more = st.sampled_from(
        [
            *({}, {}, {}, {"append": False}, {"append": False}, {"lastChunk": True}, {"lastChunk": False}),
            *({"metadata": {"k": 1}}, {"new": 1}),
        ]
    )

    def piece(text: str, artifact: dict[str, Any], rest: dict[str, Any]) -> Any:
        return update(text, old=old, artifact=artifact, **rest)

    pieces = st.builds(piece, texts, artifacts, more)
    status: dict[str, Any] = {**IDS, "status": {"state": "working"}}
    status_with_message = {
        **IDS,
        "status": {"state": "working", "message": {"messageId": "m", "role": "agent", "parts": [{"text": "hm"}]}},
    }
    artifacts_so_far: list[Any] = [{"artifactId": "said", "parts": [{"text": "aaa"}]}]
    task: dict[str, Any] = {"id": "t", "contextId": "c", "status": {"state": "working"}, "artifacts": artifacts_so_far}
    others: list[Any] = (
        [
            {"kind": "status-update", **status},
            {"kind": "status-update", **status_with_message},
            {"kind": "task", **task},
        ]
        if old
        else [{"statusUpdate": status}, {"statusUpdate": status_with_message}, {"task": task}]
    )
    return st.one_of(pieces, pieces, pieces, st.sampled_from(others))


@pytest.mark.parametrize("old", [False, True], ids=["1.0", "0.3"])
@given(data=st.data())
def test_token_reader_gives_the_same_events(data: st.DataObject, old: bool) -> None:
    sequence = data.draw(st.lists(replies(old=old), max_size=12))
    quick, full = EventReader(RUN), FullReader(RUN)
    for reply in sequence:
        assert quick.read(reply) == full.read(reply)
    assert quick.close() == full.close()
    again: Any = {"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": []}}
    assert quick.read(again) == full.read(again)


@pytest.mark.parametrize("old", [False, True], ids=["1.0", "0.3"])
def test_piece_with_only_new_text_is_read_as_token(old: bool) -> None:
    reader = EventReader(RUN)
    for text in ("a", "b"):
        reader.read(update(text, old=old))
    tokens = reader._tokens  # pyright: ignore[reportPrivateUsage]
    piece = update("c", old=old)
    assert tokens.read(piece) == PartDelta(message_id=_message_of(reader.read(update("d", old=old))), text="c")
    assert piece == update("c", old=old), "the reply is not changed"


def _message_of(events: Sequence[Event]) -> str | None:
    [event] = events
    assert isinstance(event, PartDelta)
    return event.message_id


@pytest.mark.parametrize(
    "other",
    [
        update("c", lastChunk=True),
        update("c", append=False),
        update("c", metadata={"k": 1}),
        update("c", artifact={"name": "other"}),
        update("c", artifact={"artifactId": "other"}),
        update("c", artifact={"metadata": {"k": 1}}),
        update("c", artifact={"parts": [{"text": "c", "metadata": {"thought": True}}]}),
        update("c", artifact={"parts": [{"text": ""}]}),
        update("c", artifact={"parts": []}),
        {"statusUpdate": {**IDS, "status": {"state": "TASK_STATE_WORKING"}}},
        None,
    ],
    ids=str,
)
def test_other_replies_reset_the_token_reader(other: Json) -> None:
    reader = EventReader(RUN)
    for text in ("a", "b"):
        reader.read(update(text))
    tokens = reader._tokens  # pyright: ignore[reportPrivateUsage]
    assert tokens.read(other) is None
    assert tokens.read(update("d")) is None
