"""State of a run on another LangGraph server, as far as the server has told of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from babelgate.adapters.langchain.client.urls import Route, check_id
from babelgate.adapters.langchain.read.run_frames import EventReader
from babelgate.canonical import Event, Message
from babelgate.canonical.event import UpstreamBound


@dataclass(slots=True)
class Attempt:
    reader: EventReader
    route: Route
    history: Sequence[Message] = ()
    """What its server has not heard."""
    checkpoint: str | None = None
    forks: bool = False
    """The thread begins with the state of another one."""
    fresh: bool = False
    """The thread is made with the run."""
    sent: bool = False
    over: bool = False
    bound: bool = False
    notes: list[Event] = field(default_factory=list[Event])

    def bind(self) -> Sequence[Event]:
        """Tell the upstream's ids as soon as they are known."""
        if self.route.run_id is None and self.reader.run_id is not None:
            self.route.run_id = check_id(self.reader.run_id)
        if self.bound or self.route.run_id is None:
            return ()
        self.bound = True
        ids = {"run": self.route.run_id}
        if self.route.thread_id is not None:
            # The task's own, too: another task of the same conversation may go on in a copy of the thread.
            ids |= {"thread": self.route.thread_id, "task": self.route.thread_id}
        notes, self.notes = self.notes, []
        return [UpstreamBound(protocol="langgraph", ids=ids), *notes]
