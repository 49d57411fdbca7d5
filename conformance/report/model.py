"""Results of a check: a `SetReport` for each judged requirement set, and a `CheckReport` for all of them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from babelgate.conformance.requirement import RequirementSet
from babelgate.conformance.verdict import Outcome, Result, Verdict


@dataclass(frozen=True, slots=True)
class SetReport:
    """Results of judging an agent by one requirement set."""

    set: RequirementSet
    endpoint: str
    evidence: str
    """Evidence that the agent speaks the protocol version."""
    capabilities: frozenset[str]
    results: Sequence[Result]
    """Results of the requirements, in the order of the set."""
    seconds: float
    messages: int = 0
    """Number of messages that were validated against a schema."""
    expected: Mapping[str, str] = field(default_factory=dict[str, str])
    """Reasons of the known failures that the baseline lists and that still occur, by requirement id."""
    withheld: Sequence[str] = ()
    """Origins that were called because the agent's card names them, and that did not receive the user's headers, such
    as API keys."""
    stale: Sequence[str] = ()
    """Ids of baseline entries whose requirement is met now, or does not exist."""

    def counts(self) -> Mapping[Verdict, int]:
        found = Counter(result.verdict for result in self.results)
        return {verdict: found[verdict] for verdict in Verdict}

    def against(self) -> Iterator[Result]:
        """Yield the results that prevent conformance and that the baseline does not list."""
        for result in self.results:
            if not result.is_kept and result.requirement.id not in self.expected:
                yield result

    @property
    def passes(self) -> int:
        """Number of mandatory requirements that are met."""
        return sum(1 for each in self.results if each.requirement.level == "must" and each.verdict is Verdict.PASS)

    @property
    def applicable(self) -> int:
        """Number of mandatory requirements that apply to this agent."""
        return sum(
            1
            for each in self.results
            if each.requirement.level == "must" and each.verdict is not Verdict.NOT_APPLICABLE
        )

    def broken(self) -> Sequence[Result]:
        """Return the results of the mandatory requirements that are broken and not in the baseline.

        A failed precondition (`Result.is_prerequisite`) is left out if there are other failures: its cause is counted
        once, at the requirement that covers it. If only preconditions have failed, all of them are returned.
        """
        failed = [each for each in self.against() if each.verdict is Verdict.FAIL]
        return [each for each in failed if not each.is_prerequisite] or failed

    def consequences(self) -> Sequence[Result]:
        """Return the failed preconditions that `broken` does not count: requirements that could not be tested because
        another one failed."""
        broken = {each.requirement.id for each in self.broken()}
        failed = (each for each in self.results if each.verdict is Verdict.FAIL and each.is_prerequisite)
        return [each for each in failed if each.requirement.id not in broken]

    def not_shown(self) -> Sequence[Result]:
        """Return the results of the mandatory requirements without a verdict: the agent did not show the behaviour, or
        the check itself failed."""
        left = (Verdict.NOT_OBSERVED, Verdict.HARNESS_ERROR)
        return [each for each in self.against() if each.verdict in left and each.requirement.level == "must"]

    @property
    def outcome(self) -> Outcome:
        if self.broken() or self.stale:
            return Outcome.NOT_CONFORMANT
        return Outcome.NO_VIOLATION if self.not_shown() or not self.passes else Outcome.CONFORMANT

    @property
    def is_conformant(self) -> bool:
        return self.outcome is Outcome.CONFORMANT

    @property
    def tally(self) -> str:
        """Counts of the mandatory requirements, as text: `3 of 4 mandatory requirements met, 1 not shown`."""
        counted = {
            "broken": len([each for each in self.broken() if each.requirement.level == "must"]),
            "not tested because of them": len(self.consequences()),
            "not shown": len(self.not_shown()),
        }
        parts = [
            f"{self.passes} of {self.applicable} mandatory requirements met",
            *(f"{n} {what}" for what, n in counted.items() if n),
        ]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class CheckReport:
    url: str
    sets: Sequence[SetReport]
    seconds: float
    version: str
    """Version of Babelgate that judged the agent."""
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Evidence that the agent does not speak a protocol version, by the name of its requirement set. These sets were
    not judged."""
    secrets: Sequence[str] = ()
    """Secrets that no format of the report may show."""

    @property
    def outcome(self) -> Outcome:
        """Outcome of all requirement sets together: not conformant if one is, conformant if all are, and otherwise no
        violation found."""
        outcomes = {each.outcome for each in self.sets}
        if Outcome.NOT_CONFORMANT in outcomes:
            return Outcome.NOT_CONFORMANT
        return Outcome.CONFORMANT if outcomes == {Outcome.CONFORMANT} else Outcome.NO_VIOLATION

    @property
    def is_conformant(self) -> bool:
        return self.outcome is Outcome.CONFORMANT
