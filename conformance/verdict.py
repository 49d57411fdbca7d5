"""What can be said of a requirement after its probe. A probe says it by returning, or by raising one of these."""

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
    """Not kept; or what it needs beforehand could not be had, which is a fault of the agent too."""
    WARNING = "warning"
    """A `should` or `may` that was not kept."""
    NOT_OBSERVED = "not shown"
    """The agent could not be made to show it: of a `must`, nobody can say that it is kept."""
    NOT_APPLICABLE = "not applicable"
    """The agent does not declare the capability, or the requirement cannot be tested from outside."""
    HARNESS_ERROR = "error of the check"
    """Our own fault: an exception in a probe, or a request of ours that breaks its schema."""


class Outcome(StrEnum):
    """Overall result for one revision of a protocol, from its mandatory requirements."""

    CONFORMANT = "conformant"
    """All mandatory requirements that apply were shown and are met."""
    NO_VIOLATION = "no violation found"
    """No mandatory requirement is broken, but the agent did not show all of them."""
    NOT_CONFORMANT = "not conformant"
    """A mandatory requirement is broken."""


class Failed(Exception):
    """The requirement is not kept.

    `got` is shown as JSON. Without `exchange` the last one of the probe is shown as the evidence.
    """

    def __init__(self, expected: str, got: Any = None, exchange: Exchange | None = None) -> None:
        super().__init__(expected)
        self.expected = expected
        self.got = got
        self.exchange = exchange


class Prerequisite(Failed):
    """What the requirement needs first could not be had, so it is not kept either; another one says what is wrong."""


NOBODY_SAID: Final = "nobody said how the agent is brought to do it"
"""Reason of `NotObserved` where no trigger is given for a behaviour."""


class NotObserved(Exception):
    """The agent keeps to the rules but did not do what the probe wanted to see. `trigger`: which would help."""

    def __init__(self, why: str, trigger: str = "") -> None:
        super().__init__(why)
        self.trigger = trigger


class NotShown(NotObserved):
    """A trigger was given for a behaviour, and the agent did something else.

    From outside, an agent that does not do what its trigger is for and an agent that reports it wrongly look the same.
    """

    def __init__(self, behaviour: str, did: str) -> None:
        """`did`: what the agent did, as a phrase that follows "it"."""
        super().__init__(f"given the trigger, it {did}", behaviour)
        self.did = did


class NotApplicable(Exception):
    """The requirement says nothing of this agent."""


def check(is_kept: bool, expected: str, got: Any = None, exchange: Exchange | None = None) -> None:
    """Raises Failed. `expected` says what should be so."""
    if not is_kept:
        raise Failed(expected, got, exchange)


BUSY: Final = 1.0
"""Seconds that the work of the trigger `long` has to last at least. Chosen."""


async def check_busy(since: float, is_at_work: Callable[[], Awaitable[bool]]) -> None:
    """Check that long work goes on for BUSY seconds. Raises NotShown if it has ended before.

    `since`: the time of the event loop before the work began. Without a wait if starting it took that long already.
    """
    left = BUSY - (asyncio.get_running_loop().time() - since)
    if left > 0:
        await asyncio.sleep(left)
        check_shown(await is_at_work(), "long", f"was done within {BUSY:g} s")


def check_shown(is_shown: bool, behaviour: str, did: str) -> None:
    """Raises NotShown. `did`: what the agent did instead, as a phrase that follows "it"."""
    if not is_shown:
        raise NotShown(behaviour, did)


@dataclass(frozen=True, slots=True)
class Result:
    requirement: Requirement
    verdict: Verdict
    expected: str = ""
    """Of a failure: what should have been so; of any other verdict: its reason."""
    got: Any = None
    exchange: Exchange | None = None
    """The evidence."""
    trigger: str = ""
    """Of what was not observed: the trigger that may help."""
    is_prerequisite: bool = False
    """It failed because of something that another requirement is about."""
    exchanges: Sequence[Exchange] = field(default_factory=list[Exchange])
    """Everything that was said for this requirement."""
    seconds: float = 0.0

    @property
    def is_kept(self) -> bool:
        """Nothing about it stands against conformance."""
        if self.requirement.level != "must":
            return self.verdict is not Verdict.HARNESS_ERROR
        return self.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE)
