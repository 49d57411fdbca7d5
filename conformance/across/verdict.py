"""Verdict on the results of all scenarios: where the protocols agree, which differences are explained by declared
losses, and which are not."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product

from babelgate.conformance.across.compare import ASPECTS, Difference, differences
from babelgate.conformance.across.model import Shot
from babelgate.conformance.across.play import PlayedScenario, PlayRecord

_PREFIX = "across/"


@dataclass(frozen=True, slots=True)
class Finding:
    """Difference between two protocols, as found in one scenario."""

    scenario: str
    moment: str
    here: Shot
    """Result to which `there` is compared: that of the protocol with which most others agree. For a run that is read
    through another protocol, the result in the protocol that created it."""
    there: Shot
    """Result that differs from `here`."""
    difference: Difference
    is_shared: bool
    """True if both results are of one run, read through two protocols; False if each protocol created its own run."""
    reason: str = ""
    """Reason that the baseline gives for the difference; empty if the baseline does not list it."""

    @property
    def id(self) -> str:
        who = f"{self.here.protocol}>{self.there.protocol}" if self.is_shared else self.there.protocol
        return f"{_PREFIX}{self.scenario}.{self.difference.aspect}:{who}"

    @property
    def is_against(self) -> bool:
        return not self.difference.declared and not self.reason


@dataclass(frozen=True, slots=True)
class Cell:
    """Cell of a table of protocol pairs: the number of moments compared, and of differences with and without a declared
    loss."""

    compared: int = 0
    declared: int = 0
    undeclared: int = 0

    def __add__(self, other: "Cell") -> "Cell":
        return Cell(self.compared + other.compared, self.declared + other.declared, self.undeclared + other.undeclared)


@dataclass(frozen=True, slots=True)
class AcrossVerdict:
    record: PlayRecord
    findings: Sequence[Finding]
    pairs: Mapping[tuple[str, str], Cell]
    """Comparison of the results of two protocols, each with its own runs. Each pair of protocols is stored twice: as
    (a, b) and as (b, a)."""
    shared: Mapping[tuple[str, str], Cell]
    """Number of differences in runs that were created through the first protocol of the key and read through the
    second."""
    stale: Sequence[str] = ()
    """Ids of baseline entries whose difference was not found any more."""
    played: int = field(default=0)

    @property
    def against(self) -> Sequence[Finding]:
        return [each for each in self.findings if each.is_against]

    @property
    def is_same(self) -> bool:
        return self.played > 0 and not self.against and not self.stale

    def mark(self, scenario: PlayedScenario, protocol: str) -> str:
        """Return one character for a protocol's result in a scenario: `✓` same as the others, `◐` differences that are
        declared or known, `✗` other differences, `–` not in the protocol, `?` not played."""
        if scenario.skipped:
            return "?"
        if protocol in scenario.lacks:
            return "–"
        mine = [
            each
            for each in self.findings
            if not each.is_shared and each.scenario == scenario.scenario.name and each.there.protocol == protocol
        ]
        return "✗" if any(each.is_against for each in mine) else "◐" if mine else "✓"


def judge(record: PlayRecord, baseline: Mapping[str, str] | None = None) -> AcrossVerdict:
    entries = {id: why for id, why in (baseline or {}).items() if id.startswith(_PREFIX)}
    findings = [
        replace(each, reason=entries.get(each.id, ""))
        for played in record.played
        for each in (*_compare_alone(played, record.protocols), *_compare_shared(played))
    ]
    pairs: dict[tuple[str, str], Cell] = {}
    shared: dict[tuple[str, str], Cell] = {}
    for played in record.played:
        for one, other in combinations(record.protocols, 2):
            cell = _cell(played.shots.get(one, {}), played.shots.get(other, {}))
            pairs[one, other] = pairs[other, one] = pairs.get((one, other), Cell()) + cell
        for (maker, reader), shots in played.cross_shots.items():
            shared[maker, reader] = shared.get((maker, reader), Cell()) + _cell(played.shots[maker], shots)
    there = {each.id for each in findings}
    played_names = {each.scenario.name for each in record.played}
    stale = [id for id in entries if id not in there and _scenario_of(id) in played_names]
    return AcrossVerdict(record, findings, pairs, shared, stale, sum(1 for each in record.played if each.shots))


def _scenario_of(id: str) -> str:
    return id.removeprefix(_PREFIX).partition(".")[0]


def _cell(here: Mapping[str, Shot], there: Mapping[str, Shot]) -> Cell:
    both = [moment for moment in here if moment in there]
    found = [each for moment in both for each in differences(here[moment], there[moment])]
    faults = sum(1 for shots in (here, there) for moment, shot in shots.items() if shot.fault and moment not in both)
    declared = sum(1 for each in found if each.declared)
    return Cell(len(both), declared, len(found) - declared + faults)


def _compare_alone(played: PlayedScenario, protocols: Sequence[str]) -> Iterator[Finding]:
    """Yield the differences between the protocols' own runs, each compared with the protocol that agrees with most
    others."""
    moments = dict.fromkeys(moment for shots in played.shots.values() for moment in shots)
    for moment in moments:
        shots = [played.shots[name][moment] for name in protocols if moment in played.shots.get(name, {})]
        yield from _faults(played, moment, shots)
        readable = [shot for shot in shots if not shot.fault]
        found: dict[str, dict[tuple[str, str], Difference]] = {aspect: {} for aspect in ASPECTS}
        for one, other in product(readable, repeat=2):
            for difference in differences(one, other):
                found[difference.aspect][one.protocol, other.protocol] = difference
        for each in found.values():
            yield from _of_aspect(played, moment, readable, each)


def _faults(played: PlayedScenario, moment: str, shots: Sequence[Shot]) -> Iterator[Finding]:
    """Yield a finding for each of the results `shots` that could not be read, even if no protocol has a readable one to
    compare it with. `moment` is the name of the moment in the scenario."""
    for shot in shots:
        if shot.fault:
            well = (each for each in played.shots.values() if not any(one.fault for one in each.values()))
            here = next((list(each.values())[-1] for each in well), shot)
            why = "the server declares that it does not support this" if shot.is_declined else ""
            difference = Difference("answer", "played", shot.fault, why)
            yield Finding(played.scenario.name, moment, here, shot, difference, is_shared=False)


def _of_aspect(
    played: PlayedScenario, moment: str, shots: Sequence[Shot], found: Mapping[tuple[str, str], Difference]
) -> Iterator[Finding]:
    """Yield the findings of one aspect of a scenario at one moment.

    `shots` are the results of the protocols, and `found` has the differences by pair of protocols, in both orders. Of
    the protocols that differ, the one with the fewest differences is the reference.
    """
    if not found:
        return
    name = played.scenario.name
    differing = [shot for shot in shots if any(one == shot.protocol for one, _ in found)]
    here = min(differing, key=lambda shot: (sum(1 for one, _ in found if one == shot.protocol), bool(shot.losses)))
    named: set[str] = set()
    for there in shots:
        difference = found.get((here.protocol, there.protocol))
        if difference is not None:
            named |= set() if difference.declared else {there.protocol}
            yield Finding(name, moment, here, there, difference, is_shared=False)
    # Two protocols can differ from each other without a declared loss even if the reference declared one.
    for one, other in combinations(shots, 2):
        difference = found.get((one.protocol, other.protocol))
        if difference is not None and not difference.declared and not named & {one.protocol, other.protocol}:
            yield Finding(name, moment, one, other, difference, is_shared=False)


def _compare_shared(played: PlayedScenario) -> Iterator[Finding]:
    for (maker, _), shots in played.cross_shots.items():
        for moment, there in shots.items():
            here = played.shots[maker][moment]
            for difference in differences(here, there):
                yield Finding(played.scenario.name, moment, here, there, difference, is_shared=True)
