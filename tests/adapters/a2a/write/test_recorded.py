"""Finished tasks whose metadata contains their records, as the Babelgate extension requires."""

from babelgate.adapters.a2a.write.recorded import RecordedWriter
from babelgate.adapters.a2a.write.task_events import EventWriter
from babelgate.adapters.kit.extension import URI
from babelgate.canonical.event import Custom
from tests.adapters.log import Log, task_of


def test_snapshot_adds_the_records() -> None:
    records = Log().start().add(Custom(name="x", value=1)).done().records
    task = task_of(records)
    plain, recorded = EventWriter(task, "c"), RecordedWriter(task, "c")
    for record in records:
        assert recorded.write(record) == plain.write(record)
    metadata = recorded.snapshot().metadata
    envelope = metadata.pop(URI)
    assert metadata == plain.snapshot().metadata
    assert [each["event"]["kind"] for each in envelope["events"]][-3:] == ["custom", "run_ended", "task_changed"]
