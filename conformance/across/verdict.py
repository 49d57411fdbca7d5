"""Verdict on a record: where protocols agree, and which losses are declared or undeclared."""

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
    """Shot that most protocols agree with. For a run that is read through another protocol: the shot of the
    protocol that made it."""
    there: Shot
    """Shot that differs."""
    difference: Difference
    is_shared: bool
    """True if both shots are of one run, read through two protocols; False if each protocol made its own."""
    reason: str = ""
    """Reason from the baseline, if the difference is expected."""

    @property
    def id(self) -> str:
        who = f"{self.here.protocol}>{self.there.protocol}" if self.is_shared else self.there.protocol
        return f"{_PREFIX}{self.scenario}.{self.difference.aspect}:{who}"

    @property
    def is_against(self) -> bool:
        return not self.difference.declared and not self.reason


@dataclass(frozen=True, slots=True)
class Cell:
    """Numbers of compared moments, and of differences, between one protocol and another."""

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
    """Comparisons of each protocol's own runs with those of each other protocol."""
    shared: Mapping[tuple[str, str], Cell]
    """Comparisons of runs made through the first protocol and read through the second."""
    stale: Sequence[str] = ()
    """Baseline entries without a difference."""
    played: int = field(default=0)

    @property
    def against(self) -> Sequence[Finding]:
        return [each for each in self.findings if each.is_against]

    @property
    def is_same(self) -> bool:
        return self.played > 0 and not self.against and not self.stale

    def mark(self, scenario: PlayedScenario, protocol: str) -> str:
        """Return the mark of a scenario in a protocol, for a table."""
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
    """Compare each protocol's own runs with the protocol that most others agree with."""
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
    """Yield a finding for each result that could not be read, even if all protocols failed."""
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
    """Yield the findings of one aspect of the scenario, at one moment.

    `shots` are what each protocol showed, and `found` the differences by pair of protocols, in both orders. The
    protocol that differs from the fewest others is the reference.
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
