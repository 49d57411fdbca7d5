"""Writer for callers that have activated the Babelgate extension: it sends every record in addition to the run's ACP
events."""

from collections.abc import Sequence

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.codec.parts import EncodingContext, own_of
from babelgate.adapters.acp.write.run_events import EventWriter
from babelgate.adapters.kit.extension import URI, Slice, envelope
from babelgate.canonical import Record


class RecordedWriter(EventWriter):
    """Writer that sends each record before its ACP events, because clients stop reading at the event that ends a
    run."""

    def __init__(self, view: EncodingContext) -> None:
        super().__init__(view)
        self._slice = Slice()
        self._seq = 0

    def write(self, record: Record) -> list[w.Event]:
        self._slice.add(record)
        record_envelope, self._seq = envelope(self._seq, (record,)), record.seq
        return [w.GenericEvent(generic={URI: record_envelope}), *super().write(record)]

    def apply(self, record: Record) -> None:
        self._slice.add(record)
        self._seq = record.seq
        super().apply(record)

    def add_texts(self, record: Record, texts: Sequence[str]) -> None:
        """Return None, because each record must be written separately."""

    def answer(self) -> w.Run:
        run = self.run()
        return run.model_copy(update={w.OWN: {**own_of(run), **self._slice.envelope()}})
