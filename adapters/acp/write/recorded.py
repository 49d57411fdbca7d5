"""Records → what callers see who have the Babelgate extension activated: every record, and what ACP shows of it."""

from adapters._extension import URI, Slice, envelope
from adapters.acp import wire as w
from adapters.acp.codec.parts import View
from adapters.acp.write.run_events import EventWriter
from canonical import Record


class RecordedWriter(EventWriter):
    """An event that has a record comes before what ACP shows of it: clients leave at the event that ends a run."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._slice = Slice()
        self._seq = 0

    def write(self, record: Record) -> list[w.Event]:
        self._slice.add(record)
        told, self._seq = envelope(self._seq, (record,)), record.seq
        return [w.GenericEvent(generic={URI: told}), *super().write(record)]

    def answer(self) -> w.Run:
        return self.run().model_copy(update={w.EXTENSION: self._slice.envelope()})
