"""A finished task with its records."""

from babelgate.adapters.a2a.write.recorded import RecordedWriter
from babelgate.adapters.a2a.write.task_events import EventWriter
from babelgate.adapters.kit.extension import URI
from babelgate.canonical.event import Custom
from tests.adapters.a2a.log import Log, task_of


def test_a_task_has_its_records_beside_what_it_is_shown_as() -> None:
    records = Log().start().add(Custom(name="x", value=1)).done().records
    task = task_of(records)
    plain, recorded = EventWriter(task, "c"), RecordedWriter(task, "c")
    for record in records:
        assert recorded.write(record) == plain.write(record)
    shown = recorded.snapshot().metadata
    told = shown.pop(URI)
    assert shown == plain.snapshot().metadata
    assert [each["event"]["kind"] for each in told["events"]][-3:] == ["custom", "run_ended", "task_changed"]
