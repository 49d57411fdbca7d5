"""State of a thread: for agents without a state, it follows from the messages and values in the log."""

import json
from itertools import pairwise
from typing import Any

import pytest

from babelgate.canonical import Message, RunStatus, StateHistory
from babelgate.canonical.difference import StateChange
from babelgate.canonical.event import (
    Event,
    InterruptAnswered,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartAdded,
    Record,
    RunCreated,
    RunEnded,
    RunRemoved,
    RunStarted,
    StateSaved,
    StatesPruned,
    TaskChanged,
    TaskCreated,
)
from babelgate.canonical.message import TextPart
from babelgate.canonical.state import RunReason, TaskState
from babelgate.canonical.thread import next_run_id


class Log:
    """Records of one thread, appended one by one."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.history = StateHistory("thread")

    def say(self, event: Event, run: str | None = None, task: str | None = None, attempt: int = 1) -> Any:
        seq = len(self.records) + 1
        record = Record(seq, seq * 10, task or run, run, attempt if run else 0, event)
        self.records.append(record)
        checkpoint_id = self.history.apply(record)
        return None if checkpoint_id is None else self.history.get(checkpoint_id)

    def ask(self, run: str, text: str, *, data: Any = None, task: str | None = None, **created: Any) -> Any:
        """Add the records that start a run, and create its task if necessary. Return the revision that the last record
        has created, or None."""
        task = task or run
        if not any(isinstance(r.event, TaskCreated) and r.event.task_id == task for r in self.records):
            self.say(TaskCreated(task_id=task, agent="a"), task=task)
        messages = (Message(message_id=f"{run}-in", role="user", parts=(TextPart(text=text),)),) if text else ()
        self.say(RunCreated(run_id=run, messages=messages, data=data, **created), run, task)
        return self.say(RunStarted(node="a"), run, task)

    def message(
        self, message_id: str, text: str, run: str | None = None, task: str | None = None, **fields: Any
    ) -> None:
        self.say(MessageStarted(message_id=message_id, **fields), run, task)
        self.say(PartAdded(message_id=message_id, index=0, part=TextPart(text=text)), run, task)
        self.say(MessageEnded(message_id=message_id), run, task)

    def turn(self, run: str, text: str, answer: str, *, data: Any = None, output: Any = None, **created: Any) -> Any:
        self.ask(run, text, data=data, **created)
        self.message(f"{run}-out", answer, run)
        return self.say(RunEnded(output=output), run)

    def update(self, **saved: Any) -> Any:
        return self.say(StateSaved(source="update", **saved))


def texts(revision: Any) -> list[str]:
    return [message.text for message in revision.messages]


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_thread_without_input_has_no_state(log: Log):
    assert log.history.head is None
    assert log.history.all() == []


def test_an_input_and_a_stop_each_create_a_revision(log: Log):
    first = log.ask("r", "hi", data={"lang": "de"})
    assert (first.source, first.step, first.next, first.parent_id) == ("input", -1, ("a",), None)
    assert (first.values, texts(first)) == ({"lang": "de"}, ["hi"])
    log.message("m", "hello", "r")
    last = log.say(RunEnded(output={"n": 1}), "r")
    assert (last.source, last.step, last.next, last.parent_id) == ("loop", 0, (), first.checkpoint_id)
    assert (last.values, texts(last)) == ({"lang": "de", "n": 1}, ["hi", "hello"])
    assert log.history.head == last
    assert log.history.all() == [last, first]


def test_reading_the_log_again_gives_the_same_revisions(log: Log):
    log.turn("r", "hi", "hello")
    log.turn("s", "more", "sure")
    assert StateHistory("thread", records=log.records).all() == log.history.all()


def test_a_second_turn_adds_to_the_first(log: Log):
    log.turn("r", "hi", "hello", data={"a": 1, "b": {"x": 1}})
    last = log.turn("s", "more", "sure", data={"b": {"y": 2}})
    assert last.values == {"a": 1, "b": {"y": 2}}
    assert texts(last) == ["hi", "hello", "more", "sure"]


def test_a_plain_input_or_output_has_a_separate_member(log: Log):
    last = log.turn("r", "", "hello", data=[1, 2], output="done")
    assert last.values == {"input": [1, 2], "output": "done"}


def test_progress_messages_are_not_in_the_state(log: Log):
    log.ask("r", "hi")
    log.message("p", "thinking", "r", phase="progress")
    log.message("m", "hello", "r")
    assert texts(log.say(RunEnded(), "r")) == ["hi", "hello"]


def test_a_stop_at_a_question_has_its_node_and_question(log: Log):
    log.ask("r", "hi")
    log.say(InterruptRaised(interrupt_id="q", message=Message.of("Who?")), "r")
    stop = log.say(RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT), "r")
    assert stop.next == ("a",)
    assert [question.interrupt_id for question in stop.questions] == ["q"]
    log.say(TaskChanged(state=TaskState.INPUT_REQUIRED), task="r")
    answer = next_run_id("r")
    log.say(RunCreated(run_id=answer, cause="answer", messages=(Message.of("Ann", "user"),)), answer, "r")
    log.say(InterruptAnswered(interrupt_id="q", value="Ann"), answer, "r")
    assert log.say(RunStarted(node="a"), answer, "r") is None
    log.message("m", "Hello, Ann.", answer, "r")
    last = log.say(RunEnded(), answer, "r")
    assert (last.parent_id, last.next, last.questions) == (stop.checkpoint_id, (), ())
    assert texts(last) == ["hi", "Hello, Ann."]


def test_a_superseded_question_is_not_in_the_state(log: Log):
    log.ask("r", "hi")
    log.say(InterruptRaised(interrupt_id="q", message=Message.of("Who?")), "r")
    log.say(RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT), "r")
    log.say(InterruptAnswered(interrupt_id="q", action="superseded"), task="r")
    head = log.history.head
    assert head is not None
    assert (head.questions, head.next) == ((), ())


def test_a_failed_run_keeps_its_messages_and_next_node(log: Log):
    log.ask("r", "hi")
    log.message("m", "hel", "r")
    last = log.say(RunEnded(status=RunStatus.ERROR), "r")
    assert (texts(last), last.next) == (["hi", "hel"], ("a",))


def test_a_run_that_never_started_has_no_revision(log: Log):
    log.turn("r", "hi", "hello")
    log.say(TaskCreated(task_id="s", agent="a"), task="s")
    log.say(RunCreated(run_id="s", messages=(Message(message_id="x", role="user"),)), "s")
    assert log.say(RunEnded(status=RunStatus.CANCELLED), "s") is None
    assert texts(log.history.head) == ["hi", "hello"]


def test_a_second_attempt_replaces_the_first(log: Log):
    log.ask("r", "hi")
    log.message("m", "hel", "r")
    assert log.say(RunStarted(node="a", attempt=2), "r", attempt=2) is None
    log.message("n", "hello", "r")
    assert texts(log.say(RunEnded(), "r")) == ["hi", "hello"]


def test_a_rollback_restores_the_state(log: Log):
    before = log.turn("r", "hi", "hello", data={"a": 1})
    log.turn("s", "bad", "worse", data={"a": 2})
    log.say(RunRemoved(run_id="s", why="rollback"), task="s")
    assert log.history.head == before
    last = log.turn("t", "good", "better")
    assert (last.values, texts(last)) == ({"a": 1}, ["hi", "hello", "good", "better"])


def test_deleting_a_run_removes_its_messages_and_values(log: Log):
    first = log.turn("r", "hi", "hello")
    log.turn("s", "bad", "worse", data={"a": 2})
    log.turn("t", "good", "better")
    log.say(RunRemoved(run_id="s", why="deleted"), task="s")
    head = log.history.head
    assert head is not None
    assert (head.values, texts(head)) == ({}, ["hi", "hello", "good", "better"])
    middle = log.history.get(head.parent_id or "")
    assert middle is not None
    assert middle.parent_id == first.checkpoint_id


def test_a_run_from_an_older_revision_starts_a_branch(log: Log):
    root = log.turn("r", "hi", "hello", data={"n": 1})
    log.turn("s", "left", "L", data={"n": 2})
    last = log.turn("t", "right", "R", checkpoint=root.checkpoint_id)
    assert (last.values, texts(last)) == ({"n": 1}, ["hi", "hello", "right", "R"])
    assert log.history.head == last


def test_a_caller_changes_values_and_messages(log: Log):
    log.turn("r", "hi", "hello", data={"n": {"a": 1}, "m": 1})
    log.message("x", "by the way", role="user")
    update = log.update(delta={"n": {"b": 2}, "m": None}, removed_ids=("r-out",))
    assert (update.values, texts(update), update.source) == ({"n": {"b": 2}, "m": None}, ["hi", "by the way"], "update")
    assert texts(log.turn("s", "more", "sure")) == ["hi", "by the way", "more", "sure"]


def test_a_message_replaces_an_earlier_one_of_its_id(log: Log):
    log.turn("r", "hi", "hello")
    log.message("r-out", "hello there", role="agent")
    assert texts(log.update(delta={})) == ["hi", "hello there"]


def test_an_answer_continues_from_the_callers_revision(log: Log):
    log.ask("r", "hi")
    log.say(InterruptRaised(interrupt_id="q", message=Message.of("Who?")), "r")
    log.say(RunEnded(status=RunStatus.PAUSED, reason=RunReason.INPUT), "r")
    update = log.update(delta={"n": 1})
    assert (update.next, [question.interrupt_id for question in update.questions]) == (("a",), ["q"])
    answer = next_run_id("r")
    log.say(RunCreated(run_id=answer, cause="answer"), answer, "r")
    log.say(InterruptAnswered(interrupt_id="q", value="Ann"), answer, "r")
    log.say(RunStarted(node="a"), answer, "r")
    last = log.say(RunEnded(), answer, "r")
    assert (last.values, last.parent_id) == ({"n": 1}, update.checkpoint_id)


def test_a_resumed_attempt_keeps_earlier_messages(log: Log):
    log.ask("r", "hi")
    log.message("m", "hel", "r")
    log.say(RunStarted(node="a", attempt=2, resumed=True), "r", attempt=2)
    log.message("n", "lo", "r")
    assert texts(log.say(RunEnded(), "r")) == ["hi", "hel", "lo"]


def test_messages_from_elsewhere_precede_the_input(log: Log):
    log.message("x", "long ago", role="user")
    assert texts(log.ask("r", "hi")) == ["long ago", "hi"]


def test_a_stateful_agent_creates_all_its_revisions(log: Log):
    log.say(TaskCreated(task_id="r", agent="a", stateful=True), task="r")
    assert log.ask("r", "hi", data={"n": 1}) is None
    saved = log.say(StateSaved(checkpoint_id="c", values={"messages": ["mine"]}, source="input", step=-1), "r")
    assert (saved.checkpoint_id, saved.values, saved.messages) == ("c", {"messages": ["mine"]}, ())
    log.message("m", "hello", "r")
    after = log.say(StateSaved(checkpoint_id="d", parent_id="c", delta={"n": 2}, step=0), "r")
    assert after.values == {"messages": ["mine"], "n": 2}
    assert log.say(RunEnded(), "r") is None
    assert [revision.checkpoint_id for revision in log.history.all()] == ["d", "c"]


def test_values_of_a_subgraph_are_not_the_threads(log: Log):
    log.say(TaskCreated(task_id="r", agent="a", stateful=True), task="r")
    log.ask("r", "hi")
    outer = log.say(StateSaved(checkpoint_id="c", values={"n": 1}), "r")
    log.say(StateSaved(checkpoint_id="d", values={"inner": 1}, ns=("sub",)), "r")
    assert log.history.head == outer
    assert [revision.checkpoint_id for revision in log.history.all(("sub",))] == ["d"]


def test_the_state_of_a_long_thread_is_read_without_recursion(log: Log):
    for number in range(300):
        log.turn(f"r{number}", "hi", "hello", data={"n": number})
    head = StateHistory("thread", records=log.records).head
    assert head is not None
    assert (len(head.messages), head.values) == (600, {"n": 299})


def test_a_copy_builds_the_next_state_from_the_last(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the revisions that each turn reads: all of them only after a removal."""
    ends: list[int] = []
    for number in range(50):
        if number == 40:
            log.say(RunRemoved(run_id="r3", why="deleted"))
        log.turn(f"r{number}", "hi", "hello")
        ends.append(len(log.records))
    applied = 0
    apply_node = StateHistory._apply_node  # pyright: ignore[reportPrivateUsage]

    def apply(node: Any, before: Any) -> Any:
        nonlocal applied
        applied += 1
        return apply_node(node, before)

    monkeypatch.setattr(StateHistory, "_apply_node", staticmethod(apply))
    cached, counts = StateHistory("thread"), list[int]()
    for start, end in pairwise([0, *ends]):
        applied = 0
        for record in log.records[start:end]:
            cached.apply(record)
        cached = cached.copy()
        head = cached.head
        counts.append(applied)
        assert head == StateHistory("thread", records=log.records[:end]).head
    assert counts[20] == counts[49] < counts[40]


def test_a_state_distinguishes_booleans_from_numbers(log: Log):
    log.say(TaskCreated(task_id="r", agent="a", stateful=True), task="r")
    log.ask("r", "hi")
    states = ({"n": 1, "l": [0, {"a": 1}]}, {"n": True, "l": [False, {"a": 1.0}, "x"]}, {"n": None, "l": [False]})
    for number, values in enumerate(states):
        parent = str(number - 1) if number else None
        saved = log.say(StateSaved(checkpoint_id=str(number), parent_id=parent, values=values), "r")
        assert json.dumps(saved.values) == json.dumps(values)
    assert [json.dumps(revision.values) for revision in log.history.all()] == [
        json.dumps(each) for each in states[::-1]
    ]


def test_states_share_unchanged_values(log: Log):
    log.say(TaskCreated(task_id="r", agent="a", stateful=True), task="r")
    log.ask("r", "hi")
    messages: list[Any] = []
    sizes: list[int] = []
    for number in range(20):
        messages.append({"content": "x" * 1000, "number": number})
        parent = str(number - 1) if number else None
        values: Any = {"messages": json.loads(json.dumps(messages))}
        log.say(StateSaved(checkpoint_id=str(number), parent_id=parent, values=values), "r")
        sizes.append(log.history.size)
    first, last = log.history.get("0"), log.history.get("19")
    assert first is not None
    assert last is not None
    assert first.values["messages"][0] is last.values["messages"][0]
    grown = [after - before for before, after in pairwise(sizes)]
    assert max(grown) < grown[0] + 1000


def test_a_long_chain_of_state_changes_is_resolved(log: Log) -> None:
    log.say(TaskCreated(task_id="r", agent="a", stateful=True), task="r")
    log.say(RunCreated(run_id="r"), "r")
    log.say(StateSaved(checkpoint_id="c0", values={"messages": ["0"]}), "r")
    for number in range(1, 100):
        new = {"in": {"messages": {"keep": number, "add": [str(number)]}}}
        change = StateChange(since=f"c{number - 1}", new=new)
        log.say(StateSaved(checkpoint_id=f"c{number}", parent_id=f"c{number - 1}", change=change), "r")
    again = StateHistory("thread", records=log.records)
    lengths = [len(revision.values["messages"]) for revision in again.newest()]
    assert lengths == list(range(100, 0, -1))
    assert again.resolve(StateChange(since="c9", new={"set": {"a": 1}}, member="state"), {"call": 2}) == {
        "call": 2,
        "state": {"messages": [str(number) for number in range(10)], "a": 1},
    }
    assert again.difference("c98", {"messages": [*map(str, range(100))]}) == StateChange(
        since="c98", new={"in": {"messages": {"keep": 99, "add": ["99"]}}}
    )
    assert again.difference("unknown", {}) is None


def test_a_state_keeps_values_of_a_removed_run(log: Log) -> None:
    for run, saved in (
        ("one", StateSaved(checkpoint_id="c1", values={"a": 1, "b": 2})),
        ("two", StateSaved(checkpoint_id="c2", parent_id="c1", change=StateChange(since="c1", new={"set": {"b": 3}}))),
    ):
        log.say(TaskCreated(task_id=run, agent="a", stateful=True), task=run)
        log.say(RunCreated(run_id=run), run)
        log.say(saved, run)
        log.say(RunEnded(), run)
    log.say(RunRemoved(run_id="one", why="deleted"))
    for history in (log.history, StateHistory("thread", records=log.records)):
        assert history.get("c1") is None
        found = history.get("c2")
        assert found is not None
        assert (found.values, found.parent_id) == ({"a": 1, "b": 3}, None)
        assert [each.checkpoint_id for each in history.all()] == ["c2"]


def test_circular_state_changes_are_resolved(log: Log) -> None:
    log.say(TaskCreated(task_id="r", agent="a", stateful=True), task="r")
    log.say(RunCreated(run_id="r"), "r")
    for name, other in (("c1", "c2"), ("c2", "c1")):
        log.say(StateSaved(checkpoint_id=name, change=StateChange(since=other, new={"set": {name: 1}})), "r")
    found = log.history.get("c2")
    assert found is not None
    assert found.values == {"c1": 1, "c2": 1}


def test_pruning_keeps_only_the_newest_revision(log: Log):
    first = log.turn("r", "hi", "hello", data={"a": 1})
    log.update(checkpoint_id="u", delta={"b": 2})
    last = log.turn("s", "more", "sure")
    assert log.history.find_needed() is not None
    log.say(StatesPruned(checkpoint_id=last.checkpoint_id))
    head = log.history.head
    assert head is not None
    assert (head.values, texts(head), head.parent_id) == (last.values, texts(last), None)
    assert [each.checkpoint_id for each in log.history.all()] == [last.checkpoint_id]
    assert (log.history.get("u"), log.history.get(first.checkpoint_id), log.history.of_run("r")) == (None, None, None)
    assert log.history.find_needed() is None
    assert log.turn("t", "again", "yes").parent_id is not None
    assert log.history.copy().all() == log.history.all() == StateHistory("thread", records=log.records).all()
    for run in ("t", "s"):
        log.say(RunRemoved(run_id=run, why="deleted"))
    assert log.history.head is None, "what it came of is gone"


def test_a_state_needs_the_records_since_a_full_one(log: Log):
    task = TaskCreated(task_id="t", agent="g", stateful=True)
    log.say(task, task="t")
    log.say(RunCreated(run_id="r"), "r", "t")
    log.say(RunStarted(node="g"), "r", "t")
    for number, since in enumerate((None, "0", "1")):
        new = {"set": {"n": number}}
        change = None if since is None else StateChange(since=since, new=new)
        values = {"n": 0, "m": 7} if since is None else None
        log.say(StateSaved(checkpoint_id=str(number), parent_id=since, values=values, change=change), "r", "t")
    log.say(RunEnded(), "r", "t")
    log.say(TaskChanged(state=TaskState.COMPLETED), task="t")
    seq = log.history.revision_seq("2")
    assert log.history.find_needed() == ("2", {seq: {"n": 2, "m": 7}})
    log.update(checkpoint_id="u", delta={"x": 1})
    assert log.history.find_needed() == ("u", {log.history.revision_seq("u"): None, seq: {"n": 2, "m": 7}})
