"""Transcripts for stateless models: calls and results are at their places, and in pairs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from babelgate.adapters.kit.client.transcript import transcript
from babelgate.adapters.openai.codec.model import Losses
from babelgate.adapters.openai.request.chat import encode_messages
from babelgate.canonical import Event, FilePart, Invocation, Message, Record, TextPart, ToolCallPart, ToolResultPart
from babelgate.canonical.event import (
    InterruptAnswered,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartAdded,
    RunCreated,
    RunRemoved,
)
from tests.submissions import make

RUNS = ("r1", "r2", "r3")


def user(text: str, message_id: str | None = None) -> Message:
    return Message(role="user", message_id=message_id, parts=(TextPart(text=text),))


def said(run: str, text: str, *, attempt: int = 1) -> list[tuple[str, int, Event]]:
    message_id = f"{run}-{attempt}-{text}"
    events = (
        MessageStarted(message_id=message_id),
        PartAdded(message_id=message_id, part=TextPart(text=text)),
        MessageEnded(message_id=message_id),
    )
    return [(run, attempt, event) for event in events]


def called(run: str, call_id: str) -> tuple[str, int, Event]:
    part = ToolCallPart(call_id=call_id, name="f", arguments="{}", side="caller")
    return run, 1, InterruptRaised(interrupt_id=f"i-{call_id}", message=Message(message_id=call_id, parts=(part,)))


def answered(run: str, call_id: str, value: str) -> tuple[str, int, Event]:
    return run, 0, InterruptAnswered(interrupt_id=f"i-{call_id}", value=value)


def created(run: str, text: str, cause: Any = "input") -> tuple[str, int, Event]:
    return run, 0, RunCreated(run_id=run, cause=cause, messages=(user(text, f"{run}-in"),))


def records(*transcript_of: tuple[str, int, Event]) -> list[Record]:
    return [
        Record(seq, seq, "k", run, attempt, event) for seq, (run, attempt, event) in enumerate(transcript_of, start=1)
    ]


def call(run: str = "r1", **fields: Any) -> Invocation:
    return make(Invocation, agent="near", thread_id="t", task_id="k", run_id=run, **fields)


def transcript_of(call: Invocation, past: Sequence[Record] = ()) -> list[Any]:
    """Return the transcript as chat completions receive it: roles, with contents or ids."""
    entries: list[Any] = []
    for message in encode_messages(transcript(call, past, "openai"), Losses()):
        calls = tuple(each["id"] for each in message.get("tool_calls", ()))
        entries.append((message["role"], message.get("content"), *calls))
        if message["role"] == "tool":
            entries[-1] = (*entries[-1], message["tool_call_id"])
    return entries


def test_history_precedes_the_input() -> None:
    history = (Message.of("be kind", "system"), user("a"), Message.of("b", "agent"))
    assert transcript_of(call(history=history, messages=(user("c"),))) == [
        ("system", "be kind"),
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
    ]


def test_data_without_a_message_is_sent_as_text() -> None:
    assert transcript_of(call(data={"prompt": "x"})) == [("user", "x")]
    assert transcript_of(call(data={"a": 1, "b": 2})) == [("user", '{"a": 1, "b": 2}')]
    assert transcript_of(call()) == [("user", "")]


def test_calls_are_in_the_last_message_and_results_follow() -> None:
    past = records(
        created("r1", "go"), *said("r1", "x"), *said("r1", "y"), called("r1", "a"), called("r1", "b"),
        created("r2", "ignored", "answer"), answered("r2", "a", "1"), answered("r2", "b", "2"),
    )  # fmt: skip
    now = call("r2", cause="answer", answers=(InterruptAnswered(interrupt_id="i-a", value="1"),
               InterruptAnswered(interrupt_id="i-b", value="2")))  # fmt: skip
    history = (user("before", "other"), user("go", "r1-in"), Message(message_id="r1-1-x"), Message(message_id="r1-1-y"))
    assert transcript_of(replace(now, history=history), past) == [
        ("user", "before"),
        ("user", "go"),
        ("assistant", "x"),
        ("assistant", "y", "a", "b"),
        ("tool", "1", "a"),
        ("tool", "2", "b"),
    ]


def test_answers_of_several_runs_are_sent_once_together() -> None:
    past = records(
        created("r1", "go"), called("r1", "a"), called("r1", "b"),
        created("r2", "1", "answer"), answered("r2", "a", "1"),
        created("r3", "2", "answer"), answered("r3", "b", "2"),
    )  # fmt: skip
    answers = tuple(InterruptAnswered(interrupt_id=f"i-{c}", value=v) for c, v in (("a", "1"), ("b", "2")))
    assert transcript_of(call("r3", cause="answer", answers=answers), past) == [
        ("user", "go"),
        ("assistant", None, "a", "b"),
        ("tool", "1", "a"),
        ("tool", "2", "b"),
    ]


def test_later_input_includes_calls_of_earlier_runs() -> None:
    past = records(
        created("r1", "go"), called("r1", "a"),
        created("r2", "1", "answer"), answered("r2", "a", "1"), *said("r2", "done"),
        created("r3", "more", "follow_up"),
    )  # fmt: skip
    assert transcript_of(call("r3", cause="follow_up", messages=(user("more", "r3-in"),)), past) == [
        ("user", "go"),
        ("assistant", None, "a"),
        ("tool", "1", "a"),
        ("assistant", "done"),
        ("user", "more"),
    ]


def test_unanswered_call_is_left_out() -> None:
    past = records(created("r1", "go"), *said("r1", "x"), called("r1", "a"), created("r3", "other", "follow_up"))
    assert transcript_of(call("r3", cause="follow_up", messages=(user("other", "r3-in"),)), past) == [
        ("user", "go"),
        ("assistant", "x"),
        ("user", "other"),
    ]


def test_messages_of_a_removed_run_are_left_out() -> None:
    past = records(
        created("r1", "gone"), *said("r1", "gone"), ("r1", 0, RunRemoved(run_id="r1", why="rollback")),
        created("r2", "go"), *said("r2", "whole"),
        created("r3", "more", "follow_up"),
    )  # fmt: skip
    assert transcript_of(call("r3", cause="follow_up", messages=(user("more", "r3-in"),)), past) == [
        ("user", "go"),
        ("assistant", "whole"),
        ("user", "more"),
    ]


# Conversations that callers bring


def agent(*parts: Any) -> Message:
    return Message(role="agent", parts=parts)


def tool(call_id: str) -> ToolCallPart:
    return ToolCallPart(call_id=call_id, name="f", arguments="{}")


def result(call_id: str, output: Any = "out", role: Any = "tool") -> Message:
    return Message(role=role, parts=(ToolResultPart(call_id=call_id, output=output),))


def test_results_in_separate_messages_belong_to_one_turn() -> None:
    history = (agent(tool("a"), tool("b")), result("a"), result("b"))
    assert transcript_of(call(history=history, messages=(user("c"),))) == [
        ("assistant", None, "a", "b"),
        ("tool", "out", "a"),
        ("tool", "out", "b"),
        ("user", "c"),
    ]


def test_results_in_the_input_answer_calls_of_the_history() -> None:
    now = call(history=(user("x"), agent(tool("a"))), messages=(result("a", {"n": 1}),))
    assert transcript_of(now) == [("user", "x"), ("assistant", None, "a"), ("tool", '{"n": 1}', "a")]


def test_unpaired_calls_are_dropped_and_unpaired_results_become_text() -> None:
    history = (agent(TextPart(text="x"), tool("a"), tool("b")), result("a"), agent(tool("c")), result("z", "stray"))
    assert transcript_of(call(history=history, messages=(user("c"),))) == [
        ("assistant", "x", "a"),
        ("tool", "out", "a"),
        ("user", "stray"),
        ("user", "c"),
    ]


def test_message_with_calls_and_results_is_split_in_order() -> None:
    mixed = agent(TextPart(text="x"), tool("a"), ToolResultPart(call_id="a", output="1"), TextPart(text="y"))
    assert transcript_of(call(history=(mixed,), messages=(user("c"),))) == [
        ("assistant", "x", "a"),
        ("tool", "1", "a"),
        ("assistant", "y"),
        ("user", "c"),
    ]


def test_file_of_an_earlier_turn_is_named_and_noted_lost() -> None:
    losses = Losses()
    file = FilePart(name="a.png", media_type="image/png", blob="0" * 64)
    now = call(history=(Message(role="user", parts=(file,)),), messages=(user("c"),))
    first, _ = encode_messages(transcript(now, (), "openai"), losses)
    assert first["content"] == "[file: a.png]"
    assert [loss.feature for loss in losses] == ["file-bytes"]


def test_call_without_arguments_is_sent_with_an_empty_object() -> None:
    bare = agent(ToolCallPart(call_id="a", name="f"))
    now = call(history=(bare, result("a")), messages=(user("c"),))
    [first, *_] = encode_messages(transcript(now, (), "openai"), Losses())
    assert first["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
