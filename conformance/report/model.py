"""What a run has found."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from babelgate.conformance.requirement import RequirementSet
from babelgate.conformance.verdict import Result, Verdict


@dataclass(frozen=True, slots=True)
class SetReport:
    """One revision."""

    set: RequirementSet
    endpoint: str
    because: str
    """How it shows that the agent speaks it."""
    capabilities: frozenset[str]
    results: Sequence[Result]
    """In the order of the set."""
    seconds: float
    messages: int = 0
    """How many were held against their schemas."""
    expected: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the baseline: id and reason of what is known not to be kept."""
    stale: Sequence[str] = ()
    """Entries of the baseline that are kept now, or are no requirements."""

    def counts(self) -> Mapping[Verdict, int]:
        found = Counter(result.verdict for result in self.results)
        return {verdict: found[verdict] for verdict in Verdict}

    def against(self) -> Iterator[Result]:
        """What stands against conformance and is not expected to."""
        for result in self.results:
            if not result.is_kept and result.requirement.id not in self.expected:
                yield result

    @property
    def passes(self) -> int:
        """Requirements of level must that are kept."""
        return sum(1 for each in self.results if each.requirement.level == "must" and each.verdict is Verdict.PASS)

    @property
    def applicable(self) -> int:
        """Requirements of level must that say something of this agent."""
        return sum(
            1
            for each in self.results
            if each.requirement.level == "must" and each.verdict is not Verdict.NOT_APPLICABLE
        )

    @property
    def is_conformant(self) -> bool:
        """Nothing unexpected stands against it, every expectation still holds, and something was seen to be kept."""
        return not any(self.against()) and not self.stale and self.passes > 0


@dataclass(frozen=True, slots=True)
class Report:
    url: str
    sets: Sequence[SetReport]
    seconds: float
    version: str
    """Of the judge."""
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """The sets whose revision the agent does not speak, and how that shows."""
    secrets: Sequence[str] = ()
    """What no form of the report may show."""

    @property
    def is_conformant(self) -> bool:
        return bool(self.sets) and all(each.is_conformant for each in self.sets)
