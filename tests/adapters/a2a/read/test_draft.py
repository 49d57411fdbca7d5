"""Messages that arrive as changes to a draft are read as they grow, and not again at their end."""

from typing import Any

import pytest

from babelgate.adapters.a2a.read.draft import Draft
from babelgate.adapters.a2a.wire.task import DRAFT
from babelgate.canonical import ReasoningPart, TextPart
from babelgate.canonical.event import (
    InterruptRaised,
    LossNoted,
    MessageStarted,
    PartAdded,
    PartDelta,
    RunEnded,
    StepEnded,
    StepStarted,
    ToolStarted,
)
from tests.adapters.a2a.codec.test_marks import CITED, citations, read, texts_with_phases, thoughts, tools
from tests.adapters.a2a.recorded import recorded
from tests.adapters.a2a.replies import resumed, transcript_of

STREAMING = "https://a2a-extensions.adk.kagenti.dev/ui/streaming/v1"
TRAJECTORY = "https://a2a-extensions.adk.kagenti.dev/ui/trajectory/v1"
KAGENTI = recorded("kagenti_streaming")


def change(op: str, path: str, value: Any = None, **more: Any) -> dict[str, Any]:
    return {"op": op, "path": path, "value": value, **more}


def whole(*texts: str, metadata: Any = None) -> dict[str, Any]:
    parts = [{"text": text} for text in texts]
    return change("replace", "", {"parts": parts, "metadata": metadata or {}, "message_id": "m"})


def update(*changes: Any) -> dict[str, Any]:
    metadata = {STREAMING: {"message_id": "m", "message_update": list(changes)}}
    return {"statusUpdate": {"taskId": "t", "status": {"state": "TASK_STATE_WORKING"}, "metadata": metadata}}


def end(*texts: str, state: str = "COMPLETED", message_id: str = "m") -> dict[str, Any]:
    message = {"messageId": message_id, "role": "ROLE_AGENT", "parts": [{"text": text} for text in texts]}
    return {"statusUpdate": {"taskId": "t", "status": {"state": f"TASK_STATE_{state}", "message": message}}}


def test_kagenti_answer_is_read_as_it_grows() -> None:
    *before, _ = KAGENTI
    events = read(*before)
    parts = [event.part for event in events if isinstance(event, PartAdded)]
    assert parts == [ReasoningPart(text="I should look."), TextPart(text="It is "), CITED, TextPart(text="Bye.")]
    assert [event.text for event in events if isinstance(event, PartDelta)] == ["sunny."]
    assert tools(events) == [("weather", "in", {"city": "Rome"})]


@pytest.mark.parametrize("cut", range(len(KAGENTI)))
def test_kagenti_answer_is_resumed_after_a_break(cut: int) -> None:
    first = read(*KAGENTI[:cut])
    events = [*first, *read(*KAGENTI[cut:], reader=resumed(first))]
    transcript = transcript_of(events)
    assert "".join(text for text, _ in texts_with_phases(transcript)) == "It is sunny.Bye."
    assert thoughts(transcript) == ["I should look."]
    assert tools(events) == [("weather", "in", {"city": "Rome"})]
    assert citations(transcript) == [CITED]


def test_every_event_of_a_draft_is_marked() -> None:
    *before, _ = KAGENTI
    events = [
        event for event in read(*before) if isinstance(event, MessageStarted | PartAdded | PartDelta | ToolStarted)
    ]
    assert {event.extra[DRAFT]["messageId"] for event in events} == {"f8b26af5-f8dd-467a-8b82-2ccabfb1d3a0"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ([whole("ab")], "ab"),
        ([whole(), change("add", "/parts/-", {"text": "a"}), change("add", "/parts/0", {"text": "b"})], "ba"),
        ([whole("ab", "c"), change("remove", "/parts/0")], "c"),
        ([whole("ab"), change("replace", "/parts/0/text", "abc")], "abc"),
        ([whole("ac"), change("str_ins", "/parts/0/text", "b", pos=1.0)], "abc"),
        (
            [whole("a", metadata={"x~y": 1}), change("add", "/metadata/x~0y", 2), change("add", "/metadata/a~1b", 3)],
            "a",
        ),
    ],
)
def test_changes_are_json_patch_and_insertions(changes: list[Any], text: str) -> None:
    draft = Draft()
    message = draft.read({STREAMING: {"message_update": changes}})
    assert message is not None and draft.is_of(message)
    assert "".join(part.text or "" for part in message.parts or ()) == text


@pytest.mark.parametrize(
    "wrong",
    [
        change("add", "/parts/7", {"text": "x"}) | {"path": "/gone/7"},
        change("replace", "/parts/1", {"text": "x"}),
        change("replace", "/gone", 1),
        change("remove", ""),
        change("remove", "/parts/x"),
        change("str_ins", "/parts/0/text", 7, pos=0),
        change("str_ins", "/parts/0/text", "x", pos="y"),
        change("move", "/parts/0"),
        change("replace", "", "no message"),
        change("replace", "", {"parts": "none", "message_id": "m"}),
        {"op": "add", "path": 7},
        "no change",
    ],
)
def test_invalid_change_leaves_the_rest_to_the_final_message(wrong: Any) -> None:
    events = read(
        update(whole("It is ")), update(wrong), update(change("add", "/parts/-", {"text": "x"})), end("It is so.")
    )
    assert texts_with_phases(transcript_of(events)) == [("It is so.", "answer")]
    assert not [event for event in events if isinstance(event, LossNoted)]


def test_changed_beginning_repeats_the_message_with_a_loss() -> None:
    events = read(update(whole("It rains.")), update(whole("It is ")), end("It is so."))
    assert texts_with_phases(transcript_of(events)) == [("It rains.", "answer"), ("It is so.", "answer")]
    assert [event.feature for event in events if isinstance(event, LossNoted)] == ["text"]


def test_trajectories_of_a_draft_are_read_once() -> None:
    plan = {"title": "Plan", "content": "Look", "group_id": "g"}
    path = f"/metadata/{TRAJECTORY.replace('/', '~1')}"
    call = {"title": "f (request)", "content": "{}", "group_id": None}
    events = read(
        update(whole("A", metadata={TRAJECTORY: [plan]})),
        update(change("add", f"{path}/1", call)),
        update(change("add", f"{path}/2", {**plan, "content": "again"})),
        end("A"),
    )
    assert texts_with_phases(transcript_of(events)) == [
        ("Plan: Look", "progress"),
        ("A", "answer"),
        ("Plan: again", "progress"),
    ]
    assert tools(events) == [("f", "in", {})]
    assert [event.name for event in events if isinstance(event, StepStarted)] == ["Plan"]


def test_next_message_follows_a_complete_one() -> None:
    first = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "One."}, {"text": "Two."}]}
    status = {"state": "TASK_STATE_WORKING", "message": first}
    again = change("replace", "", {"parts": [{"text": "Thr"}], "message_id": "n"})
    replies = [
        update(whole("One.")),
        {"statusUpdate": {"taskId": "t", "status": status}},
        update(again),
        update(change("str_ins", "/parts/0/text", "ee.", pos=3)),
        end("Three.", message_id="n"),
    ]
    for cut in range(len(replies)):
        before = read(*replies[:cut])
        texts = texts_with_phases(transcript_of([*before, *read(*replies[cut:], reader=resumed(before))]))
        assert ["".join(text for text, _ in texts), {phase for _, phase in texts}] == ["One.Two.Three.", {"answer"}]
    assert texts_with_phases(transcript_of(read(*replies))) == [("One.Two.", "answer"), ("Three.", "answer")]
    assert not [event for event in read(*replies) if isinstance(event, LossNoted)]


def test_question_has_only_the_unread_parts_of_a_draft() -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Hello."}, {"text": "Who?"}]}
    status = {"state": "TASK_STATE_INPUT_REQUIRED", "message": message}
    events = read(update(whole("Hello.")), {"statusUpdate": {"taskId": "t", "status": status}})
    [question] = [event for event in events if isinstance(event, InterruptRaised)]
    assert (texts_with_phases(transcript_of(events)), question.message.text) == ([("Hello.", "answer")], "Who?")


@pytest.mark.parametrize("state", ["FAILED", "REJECTED"])
@pytest.mark.parametrize("texts", [("No quota.",), ("It is ", "No quota.")])
def test_failure_message_is_not_part_of_the_draft(state: str, texts: tuple[str, ...]) -> None:
    [*events, ended] = read(update(whole("It is ")), end(*texts, state=state))
    assert isinstance(ended, RunEnded) and ended.fault is not None
    assert ended.fault.message == "No quota."
    assert texts_with_phases(transcript_of(events)) == [("It is ", "answer")]


def test_too_large_draft_is_not_followed() -> None:
    # The changed member is never shown.
    large = [update(change("add", "/metadata/x", "x" * 2**20)) for _ in range(6)]
    events = read(update(whole("It is ")), *large, update(change("add", "/parts/1", {"text": "lost"})))
    assert texts_with_phases(transcript_of(events)) == [("It is ", "answer")]
    again = read(update(whole("It is ")), *large, update(whole("It is ", "sunny.")), end("It is ", "sunny."))
    assert [text for text, _ in texts_with_phases(transcript_of(again))] == ["It is sunny."]


@pytest.mark.parametrize("name", ["a2a", DRAFT])
@pytest.mark.parametrize("value", [{"branch": {}}, {"group": []}, {"x": 1}, {"messageId": {}, "told": "x"}])
@pytest.mark.parametrize("kind", [StepStarted, StepEnded])
def test_step_may_have_any_extra_of_another_gateway(name: str, value: Any, kind: Any) -> None:
    reader = resumed([kind(step_id="s", name="n", extra={name: value})])
    assert texts_with_phases(transcript_of(read(update(whole("Hi")), end("Hi"), reader=reader))) == [("Hi", "answer")]


def test_extra_of_a_step_from_a_server_is_dropped() -> None:
    step = {"kind": "step_started", "step_id": "s", "name": "n", "extra": {"a2a": {"branch": "b"}}}
    reply = update()
    reply["statusUpdate"]["metadata"] = {"babelgate": {"event": step}}
    assert [event.extra for event in read(reply) if isinstance(event, StepStarted)] == [{}]
