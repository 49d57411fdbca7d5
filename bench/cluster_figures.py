"""What several gateways on one PostgreSQL were measured to do: as a file, and as a table."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

DISPATCH: Final = "a run: sent to a node, its first event is read"
FAN_OUT: Final = "a word: said on a node, it is read on another"
SAME_NODE: Final = "a word: said on a node, it is read on the same"


@dataclass(frozen=True, slots=True)
class Waits:
    """Milliseconds that something took, each time."""

    name: str
    times: list[float]
    aim: float | None = None
    """Of the median."""
    cpu: float | None = None
    """Milliseconds of the nodes' CPU time each, on which neighbours have less of an influence."""

    @property
    def p50(self) -> float:
        return statistics.median(self.times)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.times, n=100, method="inclusive")[-1] if len(self.times) > 1 else self.times[0]


@dataclass(frozen=True, slots=True)
class Rate:
    """Of one round."""

    per_second: float
    median: float
    """Milliseconds a job."""
    cpu: float
    """Milliseconds of CPU time a job, of all nodes together."""
    busy: float
    """Of all cores of the machine, the share that was at work, whoever it worked for."""


@dataclass(frozen=True, slots=True)
class Load:
    """The same work on so many nodes."""

    name: str
    nodes: int
    rounds: list[Rate] = field(default_factory=list[Rate])
    aim: float | None = None
    """A second."""


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    date: str
    """UTC, ISO 8601."""
    machine: Mapping[str, str | int]
    versions: Mapping[str, str]
    nodes: int
    connections: int
    events: int
    """That are replayed."""
    load_before: float
    """The machine's load average before all this: what else was at work."""
    waits: list[Waits] = field(default_factory=list[Waits])
    loads: list[Load] = field(default_factory=list[Load])


def load(path: Path) -> ClusterFigures:
    return msgspec.json.decode(path.read_bytes(), type=ClusterFigures)


def save(figures: ClusterFigures, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")


def report(figures: ClusterFigures) -> str:
    return "\n".join(_lines(figures))


def _lines(figures: ClusterFigures) -> Iterator[str]:
    machine = ", ".join(f"{name} {value}" for name, value in figures.machine.items())
    yield f"{figures.date}; {machine}; load before: {figures.load_before:.1f}"
    yield "; ".join(f"{name}: {version}" for name, version in figures.versions.items())
    yield f"{figures.nodes} nodes; rates at {figures.connections} connections, medians of all rounds"
    yield ""
    yield f"{'':52}{'times':>7}{'p50 ms':>9}{'p99 ms':>9}{'aim p50':>9}{'CPU ms':>9}"
    for each in figures.waits:
        line = (
            f"{each.name:52}{len(each.times):>7}{each.p50:>9.1f}{each.p99:>9.1f}{_aim(each.aim):>9}{_cpu(each.cpu):>9}"
        )
        yield line.rstrip()
    yield ""
    yield f"{'':36}{'nodes':>6}{'a second':>10}{'aim':>8}{'median ms':>11}{'CPU ms/job':>12}{'busy':>7}{'x 1 node':>10}"
    name = ""
    for each in figures.loads:
        yield _row(each, figures.loads, "" if each.name == name else each.name)
        name = each.name


def _row(each: Load, loads: Sequence[Load], name: str) -> str:
    found = _median(each)
    alone = next((other for other in loads if other.name == each.name and other.nodes == 1), None)
    factor = "" if alone is None or alone is each else f"{found.per_second / _median(alone).per_second:.2f}"
    return (
        f"{name:36}{each.nodes:>6}{found.per_second:>10.0f}{_aim(each.aim):>8}{found.median:>11.1f}{found.cpu:>12.2f}"
        f"{found.busy:>7.0%}{factor:>10}"
    ).rstrip()


def _median(load: Load) -> Rate:
    return Rate(
        statistics.median(each.per_second for each in load.rounds),
        statistics.median(each.median for each in load.rounds),
        statistics.median(each.cpu for each in load.rounds),
        statistics.median(each.busy for each in load.rounds),
    )


def _cpu(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _aim(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
