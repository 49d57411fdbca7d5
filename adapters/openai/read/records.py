"""Records of the Babelgate extension, of a run on another gateway → canonical events."""

from collections.abc import Sequence

from babelgate.adapters.kit.extension import RecordReader, named_question
from babelgate.adapters.openai.codec.call_id import encode_call_id
from babelgate.adapters.openai.codec.names import RESPONSE, encode_id
from babelgate.adapters.openai.codec.questions import ASK
from babelgate.canonical import Event
from babelgate.canonical.event import InterruptRaised, RunEnded, UpstreamBound
from babelgate.canonical.value import Json, is_uuid


class RecordsReader:
    """Of one run. `binds` = it can be come back to, as a response."""

    def __init__(self, *, binds: bool) -> None:
        self.reader = RecordReader(of_run=True)
        self._binds = binds
        self._bound = False
        self._asks = False

    @property
    def active(self) -> bool:
        """From then on native events are not looked at."""
        return self.reader.active

    @property
    def has_stopped(self) -> bool:
        return self.reader.stopped

    @property
    def response_id(self) -> str | None:
        run_id = self.reader.run_id
        return encode_id(RESPONSE, run_id) if self._binds and run_id is not None and is_uuid(run_id) else None

    def read(self, envelope: Json) -> Sequence[Event]:
        """What is new in it."""
        told = self.reader.read(envelope)
        events: list[Event] = []
        if not self._bound and self.response_id is not None:
            self._bound = True
            events.append(UpstreamBound(protocol="openai", ids={"run": self.response_id}))
        for event in told:
            if isinstance(event, InterruptRaised):
                self._asks = True
                events.append(self._answerable(event))
                continue
            if isinstance(event, RunEnded) and self.response_id is not None and not self._asks:
                # A later turn goes on from here, unless a question waits for its answer.
                ids = {"run": self.response_id, "context": self.response_id}
                events.append(UpstreamBound(protocol="openai", ids=ids))
            events.append(event)
        return events

    def _answerable(self, event: InterruptRaised) -> InterruptRaised:
        """With the id of the call by which it is answered there."""
        task_id = self.reader.task_id
        event = named_question(event)
        if task_id is None or not is_uuid(task_id):
            return event
        call_id = encode_call_id(task_id, event.interrupt_id or "")
        return event.replace(extra={**event.extra, "openai": {"call_id": call_id, "name": ASK}})
