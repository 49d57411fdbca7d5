"""Records → what callers see who have the Babelgate extension activated: every record, and what ACP shows of it."""

from collections.abc import Sequence

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.parts import View, own_of
from babelgate.adapters.acp.write.run_events import EventWriter
from babelgate.adapters.kit.extension import URI, Slice, envelope
from babelgate.canonical import Record


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

    def apply(self, record: Record) -> None:
        self._slice.add(record)
        self._seq = record.seq
        super().apply(record)

    def add_texts(self, record: Record, texts: Sequence[str]) -> None:
        """Each has a record."""

    def answer(self) -> w.Run:
        made = self.run()
        return made.model_copy(update={w.OWN: {**own_of(made), **self._slice.envelope()}})
