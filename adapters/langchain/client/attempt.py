"""State of a run on an upstream server that the parts of the client share."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from babelgate.adapters.langchain.client.urls import Route, check_id
from babelgate.adapters.langchain.read.run_frames import EventReader
from babelgate.canonical import Event, Message
from babelgate.canonical.event import UpstreamBound


@dataclass(slots=True)
class UpstreamRunState:
    """State of one run on an upstream server: its route, the reader of its frames, and what the client has sent and
    reported."""

    reader: EventReader
    route: Route
    history: Sequence[Message] = ()
    """Earlier messages of the conversation that the server does not have, so that the request for the run contains
    them."""
    checkpoint: str | None = None
    forks: bool = False
    """True if the run gets a new thread that begins with the state of another thread."""
    creates_thread: bool = False
    """True if the request for the run also creates the thread."""
    is_sent: bool = False
    """True if the run may exist at the server: its request is being sent, or it is joined. It can then be cancelled."""
    is_over: bool = False
    """True if the run has ended."""
    is_bound: bool = False
    """True if the `UpstreamBound` event with the server's ids of the run has been returned."""
    notes: list[Event] = field(default_factory=list[Event])
    """Losses to report to the hub right after the `UpstreamBound` event."""

    def bind(self) -> Sequence[Event]:
        """Return an `UpstreamBound` event with the server's ids of the run and thread, followed by the `notes`. Return
        nothing while the id of the run is unknown, and nothing on later calls. Raises agent_invalid for an unsafe
        id."""
        if self.route.run_id is None and self.reader.run_id is not None:
            self.route.run_id = check_id(self.reader.run_id)
        if self.is_bound or self.route.run_id is None:
            return ()
        self.is_bound = True
        ids = {"run": self.route.run_id}
        if self.route.thread_id is not None:
            # The task keeps its own copy of the id, because another task of the conversation may continue in a copy of
            # the thread.
            ids |= {"thread": self.route.thread_id, "task": self.route.thread_id}
        notes, self.notes = self.notes, []
        return [UpstreamBound(protocol="langgraph", ids=ids), *notes]
