"""State of one run that all its readers share."""

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
"""Maximum size of unknown members of a run, in bytes. Every event of a run repeats them."""


class RunState:
    """Events of the wire event that is being read, and what was reported of the run before."""

    __slots__ = ("_losses", "_members", "agent", "events", "has_output")

    def __init__(self, agent: str) -> None:
        self.agent = agent
        """The server's name of the agent."""
        self.events: list[Event] = []
        """Events of the current wire event. Readers append to them."""
        self.has_output = False
        """True if the run has sent parts of messages."""
        self._losses: set[tuple[Feature, str]] = set()
        self._members: JsonObject = {}
        """Unknown members of the run that were added."""

    def lose(self, feature: Feature, how: str) -> None:
        """Add a loss to the events, once a run."""
        if (feature, how) not in self._losses:
            self._losses.add((feature, how))
            self.events.append(LossNoted(feature=feature, how=how))

    def read_members(self, run: w.Run) -> None:
        """Add the unknown members of the run if they have changed."""
        members = {name: value for name, value in (run.model_extra or {}).items() if name != w.OWN}
        if members == self._members:
            return
        self._members = members
        if len(to_json(members)) > _MOST_BYTES:
            self.lose(Feature.CUSTOM, _TOO_LARGE)
        else:
            self.events.append(Native(protocol="acp", event=OF_RUN, extra={"acp": members}))
