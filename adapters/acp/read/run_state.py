"""State of one run that the readers of its messages, parts and other events share."""

from typing import Final

from pydantic_core import to_json

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.carries import VERSION
from babelgate.adapters.acp.codec.messages import OF_RUN
from babelgate.canonical import Event, Feature
from babelgate.canonical.event import LossNoted, Native
from babelgate.canonical.value import JsonObject

_TOO_LARGE: Final = f"members of a run that ACP {VERSION} does not have, too large to keep"
_MOST_BYTES: Final = 64_000
"""Maximum size of the members of a run that ACP does not define, as JSON, in bytes. Chosen, because every event of a
run repeats them."""


class RunState:
    """Events for the wire event that is being read, and facts about the run so far."""

    __slots__ = ("_losses", "_members", "agent", "events", "has_output")

    def __init__(self, agent: str) -> None:
        self.agent = agent
        """The server's name of the agent."""
        self.events: list[Event] = []
        """Canonical events for the current wire event. Readers append to them."""
        self.has_output = False
        """True if the run has sent a part of a message."""
        self._losses: set[tuple[Feature, str]] = set()
        self._members: JsonObject = {}
        """Members of the run that ACP does not define, as they were last read."""

    def lose(self, feature: Feature, how: str) -> None:
        """Add the event of a loss, unless this run has already reported the same loss."""
        if (feature, how) not in self._losses:
            self._losses.add((feature, how))
            self.events.append(LossNoted(feature=feature, how=how))

    def read_members(self, run: w.Run) -> None:
        """Add an event with the members of the run that ACP does not define, if they have changed."""
        members = {name: value for name, value in (run.model_extra or {}).items() if name != w.OWN}
        if members == self._members:
            return
        self._members = members
        if len(to_json(members)) > _MOST_BYTES:
            self.lose(Feature.CUSTOM, _TOO_LARGE)
        else:
            self.events.append(Native(protocol="acp", event=OF_RUN, extra={"acp": members}))
