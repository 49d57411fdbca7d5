"""Losses of a run in one of OpenAI's two APIs."""

from collections.abc import Iterable, Mapping

from babelgate.canonical import Carry, Event, Feature
from babelgate.canonical.event import ArtifactAdded, Custom, LossNoted, StepEnded, StepStarted
from babelgate.canonical.thread import Loss


class RunLosses:
    """Collector of the losses of one run. Equal losses are stored once. `carries`: table of what the API carries."""

    __slots__ = ("_carries", "_losses")

    def __init__(self, carries: Mapping[Feature, Carry]) -> None:
        self._carries = carries
        self._losses: dict[Loss, None] = {}

    def all(self) -> tuple[Loss, ...]:
        """Return the losses in the order in which they were first noted."""
        return tuple(self._losses)

    def note(self, feature: Feature) -> None:
        """Note the loss of a feature, unless the API carries it whole."""
        carry = self._carries[feature]
        if carry.is_lost():
            self._losses[Loss(feature=feature.value, how=carry.how)] = None

    def add(self, losses: Iterable[Loss]) -> None:
        """Add losses that are complete with their text."""
        self._losses |= dict.fromkeys(losses)

    def read(self, event: Event) -> None:
        """Note the loss of an event that neither API can show, such as an artifact, a step or a custom event. Also add
        a loss that the agent reported."""
        match event:
            case LossNoted():
                self.add((Loss(feature=event.feature, how=event.how),))
            case ArtifactAdded():
                if event.origin == "agent":
                    self.note(Feature.ARTIFACT)
            case Custom():
                self.note(Feature.CUSTOM)
            case StepStarted() | StepEnded():
                self.note(Feature.STEP)
            case _:
                pass
