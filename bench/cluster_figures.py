"""Results of the measurement of several gateways on one PostgreSQL: as a file, and as a table."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

DISPATCH: Final = "a run: sent to a node, its first event is read"
FAN_OUT: Final = "word of a run, read on another node"
SAME_NODE: Final = "word of a run, read on the node of the run"


@dataclass(frozen=True, slots=True)
class Waits:
    """Repeated measurement of the duration of one operation, such as the start of a run. `times` are in
    milliseconds."""

    name: str
    times: list[float]
    aim: float | None = None
    """Target for the median, in milliseconds."""
    cpu: float | None = None
    """CPU time of all nodes per operation, in milliseconds. Other programs on the machine influence it less."""

    @property
    def p50(self) -> float:
        return statistics.median(self.times)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.times, n=100, method="inclusive")[-1] if len(self.times) > 1 else self.times[0]


@dataclass(frozen=True, slots=True)
class Rate:
    """Throughput of one round of a load, with its costs."""

    per_second: float
    median: float
    """Median duration of a job, in milliseconds."""
    cpu: float
    """CPU time of all nodes per job, in milliseconds."""
    busy: float
    """Share of the time of all cores in which they were busy, with any program."""
    database_cpu: float | None = None
    """CPU time of the database server per job, in milliseconds. None if it runs on another machine."""
    wal: float | None = None
    """KiB per job that the database server writes to its write-ahead log."""


@dataclass(frozen=True, slots=True)
class Load:
    """Measured throughput of one kind of job on a cluster of `nodes` nodes: one `Rate` for each round."""

    name: str
    nodes: int
    rounds: list[Rate] = field(default_factory=list[Rate])
    aim: float | None = None
    """Target for the number of jobs per second. None: no target."""
    slow: list[Rate] = field(default_factory=list[Rate])
    """Rounds on a database server whose flushes are slow (`bench.slow_flush`)."""


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    date: str
    """Time of the measurement, in UTC and ISO 8601."""
    machine: Mapping[str, str | int]
    versions: Mapping[str, str]
    nodes: int
    connections: int
    events: int
    """Number of events in the replayed log."""
    load_before: float
    """Load average of the machine before the measurement, caused by other programs."""
    waits: list[Waits] = field(default_factory=list[Waits])
    loads: list[Load] = field(default_factory=list[Load])
    flush: float = 0.0
    """Milliseconds added to a flush in the column of slow flushes; 0 if there is no such column."""
    without_flush: str = ""
    """Reason why the column of slow flushes is empty."""


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
        line = f"{each.name:52}{len(each.times):>7}{each.p50:>9.1f}{each.p99:>9.1f}"
        line += f"{_aim(each.aim):>9}{_known(each.cpu):>9}"
        yield line.rstrip()
    yield ""
    slow = f"{f'flush {figures.flush:g} ms':>14}" if figures.flush else ""
    heads = f"{'nodes':>6}{'a second':>10}{'aim':>7}{'median ms':>10}{'CPU ms/job':>11}"
    heads += f"{'DB CPU ms':>10}{'WAL KiB':>8}{'busy':>6}{'x 1 node':>9}"
    yield f"{'':36}{heads}{slow}"
    name = ""
    for each in figures.loads:
        yield _row(each, figures, "" if each.name == name else each.name)
        name = each.name
    if figures.without_flush:
        yield ""
        yield f"flush {figures.flush:g} ms: not measured: {figures.without_flush}"


def _row(each: Load, figures: ClusterFigures, name: str) -> str:
    median = _median(each.rounds)
    alone = next((other for other in figures.loads if other.name == each.name and other.nodes == 1), None)
    factor = "" if alone is None or alone is each else f"{median.per_second / _median(alone.rounds).per_second:.2f}"
    slow = f"{_median(each.slow).median:.1f}" if each.slow else ""
    return (
        f"{name:36}{each.nodes:>6}{median.per_second:>10.0f}{_aim(each.aim):>7}{median.median:>10.1f}"
        f"{median.cpu:>11.2f}{_known(median.database_cpu, 2):>10}{_known(median.wal):>8}"
        f"{median.busy:>6.0%}{factor:>9}{slow:>14}"
    ).rstrip()


def _median(rounds: Sequence[Rate]) -> Rate:
    return Rate(
        statistics.median(each.per_second for each in rounds),
        statistics.median(each.median for each in rounds),
        statistics.median(each.cpu for each in rounds),
        statistics.median(each.busy for each in rounds),
        _median_known(each.database_cpu for each in rounds),
        _median_known(each.wal for each in rounds),
    )


def _median_known(values: Iterable[float | None]) -> float | None:
    numbers = [each for each in values if each is not None]
    return statistics.median(numbers) if numbers else None


def _known(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _aim(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
