"""A finished task with its records."""

from babelgate.adapters._extension import URI
from babelgate.adapters.a2a.write.recorded import RecordedWriter
from babelgate.adapters.a2a.write.task_events import EventWriter
from babelgate.canonical import Record, Task, TaskState
from babelgate.canonical.event import Custom, TaskChanged


def test_a_task_has_its_records_beside_what_it_is_shown_as() -> None:
    task = Task(
        task_id="t",
        thread_id="th",
        agent="a",
        state=TaskState.SUBMITTED,
        created_at=1,
        changed_at=1,
        first_seq=1,
        last_seq=2,
    )
    plain, recorded = EventWriter(task, "c"), RecordedWriter(task, "c")
    for seq, event in enumerate((Custom(name="x", value=1), TaskChanged(state=TaskState.COMPLETED)), 1):
        record = Record(seq=seq, at=seq, task_id="t", run_id="r", attempt=1, event=event)
        assert recorded.write(record) == plain.write(record)
    shown = recorded.snapshot().metadata
    told = shown.pop(URI)
    assert shown == plain.snapshot().metadata
    assert [each["event"]["kind"] for each in told["events"]] == ["custom", "task_changed"]
