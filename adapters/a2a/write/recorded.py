"""Writer of finished tasks that also contain their records, for callers that have activated the Babelgate extension."""

from collections.abc import Sequence

from msgspec.structs import replace

from babelgate.adapters.a2a.wire.task import TaskSnapshot, Update
from babelgate.adapters.a2a.write.task_events import EventWriter
from babelgate.adapters.kit.extension import URI, Slice
from babelgate.canonical import Record, Task


class RecordedWriter(EventWriter):
    def __init__(self, task: Task, context_id: str) -> None:
        super().__init__(task, context_id)
        self._slice = Slice()

    def write(self, record: Record) -> Sequence[Update]:
        self._slice.add(record)
        return super().write(record)

    def snapshot(self) -> TaskSnapshot:
        task = super().snapshot()
        return replace(task, metadata={**task.metadata, URI: self._slice.envelope()})
