"""Reader of records in envelopes of the Babelgate extension, which another Babelgate sends, as events of this
gateway."""

from collections.abc import Sequence

from babelgate.adapters.kit.extension import RecordReader, named_question
from babelgate.adapters.openai.codec.call_id import encode_call_id
from babelgate.adapters.openai.codec.names import RESPONSE, encode_id
from babelgate.adapters.openai.codec.questions import ASK
from babelgate.canonical import Event
from babelgate.canonical.event import InterruptRaised, RunEnded, UpstreamBound
from babelgate.canonical.value import Json, is_uuid


class RecordsReader:
    """Reader of the records of one run on another Babelgate. `binds`: the run is shown as a response, whose id is
    stored to resume, cancel or continue it."""

    def __init__(self, *, binds: bool) -> None:
        self.reader = RecordReader(of_run=True)
        self._binds = binds
        self._bound = False
        self._asks = False

    @property
    def active(self) -> bool:
        """True once a record has arrived. The client then ignores the server's ordinary events."""
        return self.reader.active

    @property
    def has_stopped(self) -> bool:
        return self.reader.stopped

    @property
    def response_id(self) -> str | None:
        run_id = self.reader.run_id
        return encode_id(RESPONSE, run_id) if self._binds and run_id is not None and is_uuid(run_id) else None

    def read(self, envelope: Json) -> Sequence[Event]:
        """Return the events of the records in an envelope that were not read before."""
        new_events = self.reader.read(envelope)
        events: list[Event] = []
        if not self._bound and self.response_id is not None:
            self._bound = True
            events.append(UpstreamBound(protocol="openai", ids={"run": self.response_id}))
        for event in new_events:
            if isinstance(event, InterruptRaised):
                self._asks = True
                events.append(self._answerable(event))
                continue
            if isinstance(event, RunEnded) and self.response_id is not None and not self._asks:
                # A later run continues from this response, unless a question waits for its answer.
                ids = {"run": self.response_id, "context": self.response_id}
                events.append(UpstreamBound(protocol="openai", ids=ids))
            events.append(event)
        return events

    def _answerable(self, event: InterruptRaised) -> InterruptRaised:
        """Return the question with the id of the tool call to which the other gateway accepts the answer."""
        task_id = self.reader.task_id
        event = named_question(event)
        if task_id is None or not is_uuid(task_id):
            return event
        call_id = encode_call_id(task_id, event.interrupt_id or "")
        return event.replace(extra={**event.extra, "openai": {"call_id": call_id, "name": ASK}})
