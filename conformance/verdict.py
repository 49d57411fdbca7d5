"""Verdicts on a requirement, and the exceptions by which a probe reports them. A probe that returns means that the
requirement is met."""

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
    """A `must` requirement is broken, or its precondition could not be met, which is also a failure of the agent."""
    WARNING = "warning"
    """A `should` or `may` requirement is broken."""
    NOT_OBSERVED = "not shown"
    """The agent could not be made to show the behaviour, so it is unknown whether the requirement is met."""
    NOT_APPLICABLE = "not applicable"
    """The agent does not declare the capability that the requirement needs, or the requirement cannot be tested from
    outside."""
    HARNESS_ERROR = "error of the check"
    """The check itself failed: a probe raised an unexpected exception, or the check sent a request that violates its
    schema."""


class Outcome(StrEnum):
    """Overall result for one protocol version, from its mandatory requirements."""

    CONFORMANT = "conformant"
    """All applicable mandatory requirements were shown and are met."""
    NO_VIOLATION = "no violation found"
    """No mandatory requirement is broken, but the agent did not show all of them."""
    NOT_CONFORMANT = "not conformant"
    """A mandatory requirement is broken."""


class Failed(Exception):
    """Exception by which a probe reports that a requirement is broken.

    `actual` is shown as JSON. Without an `exchange`, the report shows the last exchange of the probe as evidence.
    """

    def __init__(self, expected: str, actual: Any = None, exchange: Exchange | None = None) -> None:
        super().__init__(expected)
        self.expected = expected
        self.actual = actual
        self.exchange = exchange


class Prerequisite(Failed):
    """Exception by which a probe reports that a precondition of its test failed. Its requirement fails, too, and
    another requirement covers the cause."""


NO_TRIGGER: Final = "needs an input that makes the agent do it"
"""Reason of `NotObserved` if the user gave no trigger for a behaviour."""


class NotObserved(Exception):
    """Exception by which a probe reports that the agent did not show what the probe tests, and broke no rule. `trigger`
    is the behaviour whose trigger would help."""

    def __init__(self, why: str, trigger: str = "") -> None:
        super().__init__(why)
        self.trigger = trigger


class NotShown(NotObserved):
    """Exception by which a probe reports that the agent did not show the behaviour that its trigger is meant to cause.

    This is no failure: from outside, an agent that does something else looks like one that reports the behaviour
    wrongly.
    """

    def __init__(self, behaviour: str, did: str) -> None:
        """Create the exception. `did` is what the agent did instead, as a phrase that follows "the agent"."""
        super().__init__(f"with the trigger, the agent {did}", behaviour)
        self.did = did


class NotApplicable(Exception):
    """Exception by which a probe reports that its requirement does not apply to this agent."""


def check(is_kept: bool, expected: str, actual: Any = None, exchange: Exchange | None = None) -> None:
    """Raise Failed if `is_kept` is false, which means that the requirement is not met. `expected` describes what should
    be true, `actual` is what was observed instead, and `exchange` is the evidence."""
    if not is_kept:
        raise Failed(expected, actual, exchange)


BUSY: Final = 1.0
"""Minimum duration of the work that the trigger `long` starts, in seconds. Chosen."""


async def check_busy(since: float, is_running: Callable[[], Awaitable[bool]]) -> None:
    """Check that work of the behaviour `long` runs for at least BUSY seconds. Raises NotShown if it has ended before.

    `since` is the time of the event loop before the work began. There is no check if starting the work took longer than
    BUSY.
    """
    left = BUSY - (asyncio.get_running_loop().time() - since)
    if left > 0:
        await asyncio.sleep(left)
        check_shown(await is_running(), "long", f"was done within {BUSY:g} s")


def check_shown(is_shown: bool, behaviour: str, did: str) -> None:
    """Raise NotShown if `is_shown` is false, which means that the agent did not show the behaviour. `did` is what the
    agent did instead, as a phrase that follows "the agent"."""
    if not is_shown:
        raise NotShown(behaviour, did)


@dataclass(frozen=True, slots=True)
class Result:
    requirement: Requirement
    verdict: Verdict
    expected: str = ""
    """Description of what should be true, if the requirement failed; the reason of any other verdict."""
    actual: Any = None
    """Observed value that makes the requirement fail; None if there is none to show."""
    exchange: Exchange | None = None
    """Exchange that is shown as evidence; None if there is none."""
    trigger: str = ""
    """Behaviour whose trigger the user could give, if the agent did not show what is tested; otherwise empty."""
    is_prerequisite: bool = False
    """True if the requirement failed because of a precondition that another requirement covers (`Prerequisite`)."""
    exchanges: Sequence[Exchange] = field(default_factory=list[Exchange])
    """All exchanges of the probe, including those of the scenes that it used."""
    seconds: float = 0.0

    @property
    def is_kept(self) -> bool:
        """True if the result does not prevent conformance: a `must` requirement is met or does not apply, or a `should`
        or `may` requirement has any verdict but an error of the check."""
        if self.requirement.level != "must":
            return self.verdict is not Verdict.HARNESS_ERROR
        return self.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE)
