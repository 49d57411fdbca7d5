"""Verdicts on a requirement. A probe returns if the requirement is met, and otherwise raises an exception of this
module."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from babelgate.conformance.requirement import Requirement
from babelgate.conformance.wire.exchange import Exchange


class Verdict(StrEnum):
    PASS = "met"
    FAIL = "fail"
    """The requirement is broken, or its precondition could not be met, which is a fault of the agent too."""
    WARNING = "warning"
    """A `should` or `may` requirement is broken."""
    NOT_OBSERVED = "not shown"
    """The agent could not be made to show the behaviour, so it is unknown whether a `must` is met."""
    NOT_APPLICABLE = "not applicable"
    """The agent does not declare the capability, or the requirement cannot be tested from outside."""
    HARNESS_ERROR = "error of the check"
    """The check itself failed: an exception in a probe, or a request of the check that breaks its schema."""


class Outcome(StrEnum):
    """Overall result for one revision of a protocol, from its mandatory requirements."""

    CONFORMANT = "conformant"
    """All applicable mandatory requirements were shown and are met."""
    NO_VIOLATION = "no violation found"
    """No mandatory requirement is broken, but the agent did not show all of them."""
    NOT_CONFORMANT = "not conformant"
    """A mandatory requirement is broken."""


class Failed(Exception):
    """Failure of a requirement.

    `actual` is shown as JSON. Without an `exchange`, the report shows the last one of the probe as evidence.
    """

    def __init__(self, expected: str, actual: Any = None, exchange: Exchange | None = None) -> None:
        super().__init__(expected)
        self.expected = expected
        self.actual = actual
        self.exchange = exchange


class Prerequisite(Failed):
    """Failure of a precondition. The requirement fails too, and another requirement covers the cause."""


NO_TRIGGER: Final = "needs an input that makes the agent do it"
"""Reason of `NotObserved` if the user gave no trigger for a behaviour."""


class NotObserved(Exception):
    """Signal that the agent broke no rule but did not show what the probe tests. `trigger`: the behaviour whose trigger
    would help."""

    def __init__(self, why: str, trigger: str = "") -> None:
        super().__init__(why)
        self.trigger = trigger


class NotShown(NotObserved):
    """Signal that the agent did something else than its trigger is meant to cause.

    From outside, an agent that does not do what its trigger is for and an agent that reports it wrongly look the same.
    """

    def __init__(self, behaviour: str, did: str) -> None:
        """Create the exception. `did`: what the agent did, as a phrase that follows "the agent"."""
        super().__init__(f"with the trigger, the agent {did}", behaviour)
        self.did = did


class NotApplicable(Exception):
    """Signal that the requirement does not apply to this agent."""


def check(is_kept: bool, expected: str, actual: Any = None, exchange: Exchange | None = None) -> None:
    """Raise Failed unless the requirement is met (`is_kept`). `expected` describes what should be true, `actual` what
    was observed instead, and `exchange` shows it."""
    if not is_kept:
        raise Failed(expected, actual, exchange)


BUSY: Final = 1.0
"""Minimum duration of the work that the trigger `long` starts, in seconds. Chosen."""


async def check_busy(since: float, is_running: Callable[[], Awaitable[bool]]) -> None:
    """Check that long work runs for BUSY seconds. Raises NotShown if it has ended before.

    `since`: time of the event loop before the work began. There is no wait if starting it took longer than BUSY.
    """
    left = BUSY - (asyncio.get_running_loop().time() - since)
    if left > 0:
        await asyncio.sleep(left)
        check_shown(await is_running(), "long", f"was done within {BUSY:g} s")


def check_shown(is_shown: bool, behaviour: str, did: str) -> None:
    """Raise NotShown unless the behaviour was shown. `did`: the agent's action, as a phrase after "the agent"."""
    if not is_shown:
        raise NotShown(behaviour, did)


@dataclass(frozen=True, slots=True)
class Result:
    requirement: Requirement
    verdict: Verdict
    expected: str = ""
    """Property that should hold, for a failure; the reason, for any other verdict."""
    actual: Any = None
    """Value that was observed, for a failure."""
    exchange: Exchange | None = None
    """Exchange that is the evidence."""
    trigger: str = ""
    """Behaviour whose trigger may help, if the requirement was not shown."""
    is_prerequisite: bool = False
    """True if it failed because of something that another requirement covers."""
    exchanges: Sequence[Exchange] = field(default_factory=list[Exchange])
    """All exchanges of its probe and the scenes that the probe used."""
    seconds: float = 0.0

    @property
    def is_kept(self) -> bool:
        """True if the result does not prevent conformance."""
        if self.requirement.level != "must":
            return self.verdict is not Verdict.HARNESS_ERROR
        return self.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE)
