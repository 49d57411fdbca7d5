"""Results of a comparison with the official servers: as a file, and as tables."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from bench.server import LoadFigures, median

GATEWAY: Final = "gateway"
BARE: Final = "bare Litestar"
RAW: Final = "raw ASGI"
"""Server that sends a prepared stream event by event, without a framework."""
BARE_WORK: Final = "POST echo"
"""Work of the bare server, which belongs to no protocol."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Results of one kind of job (`work`) on one server, one for each round."""

    table: str
    work: str
    server: str
    jobs: int
    """Number of jobs in each round."""
    rounds: list[LoadFigures] = field(default_factory=list[LoadFigures])


@dataclass(frozen=True, slots=True)
class ServerComparison:
    date: str
    """Time of the measurement, in UTC and ISO 8601."""
    machine: Mapping[str, str | int]
    versions: dict[str, str]
    """Versions of the measured software, by the name of the server."""
    connections: int
    measured: list[Measured] = field(default_factory=list[Measured])
    """Results; those of the gateway and of the reference for one work are adjacent."""
    missing: dict[str, str] = field(default_factory=dict[str, str])
    """Reasons why servers were left out, by the name of the server."""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """Medians over the rounds. Ratios are computed for each round."""

    table: str
    work: str
    server: str
    figures: LoadFigures
    drift: tuple[float, float]
    """Milliseconds of CPU per job in the first and in the last round: some servers get slower as they store more."""
    bare: float | None
    """CPU per job, in multiples of the bare server's."""
    rate_ratio: float | None
    """Jobs per second of the gateway, in multiples of this server's; None if there is no comparison."""
    cpu_ratio: float | None
    """CPU per job of the gateway, in multiples of this server's."""


def load(path: Path) -> ServerComparison:
    return msgspec.json.decode(path.read_bytes(), type=ServerComparison)


def save(comparison: ServerComparison, path: Path) -> None:
    """Save every round, and the rows that are computed from them."""
    content = msgspec.to_builtins(comparison) | {"rows": msgspec.to_builtins(rows(comparison))}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")


def rows(comparison: ServerComparison) -> list[ComparisonRow]:
    bare = next((each.rounds for each in comparison.measured if each.server == BARE), None)
    gateway = {each.work: each.rounds for each in comparison.measured if each.server == GATEWAY}
    found: list[ComparisonRow] = []
    for each in comparison.measured:
        gateway_rounds = None if each.server in (GATEWAY, BARE) else gateway.get(each.work)
        found.append(
            ComparisonRow(
                each.table,
                each.work,
                each.server,
                median(each.rounds),
                (each.rounds[0].cpu, each.rounds[-1].cpu),
                _ratio(each.rounds, bare, _cpu),
                _ratio(gateway_rounds, each.rounds, _rate),
                _ratio(gateway_rounds, each.rounds, _cpu),
            )
        )
    return found


def tables(rows: Sequence[ComparisonRow]) -> dict[str, list[ComparisonRow]]:
    """Return the rows by the name of their table, in the order of the rows."""
    found: dict[str, list[ComparisonRow]] = {}
    for row in rows:
        found.setdefault(row.table, []).append(row)
    return found


def report(comparison: ServerComparison) -> str:
    return "\n".join(_lines(comparison))


def _lines(comparison: ServerComparison) -> Iterator[str]:
    machine = ", ".join(f"{name} {value}" for name, value in comparison.machine.items())
    yield f"{comparison.date}; {machine}"
    yield "; ".join(f"{server}: {version}" for server, version in comparison.versions.items())
    count = max((len(each.rounds) for each in comparison.measured), default=0)
    yield f"{comparison.connections} connections, medians of {count} rounds"
    for server, reason in comparison.missing.items():
        yield f"left out: {server}, {reason}"
    for name, each in tables(rows(comparison)).items():
        yield ""
        yield f"{'':43}{'':8}{'CPU':>9}{'first - last':>15}{'CPU':>8}{'median':>9}{'gateway / reference':>22}"
        units = f"{'jobs/s':>8}{'ms/job':>9}{'round':>15}{'x bare':>8}{'ms':>9}"
        yield f"{name:25}{'server':18}{units}{'jobs/s':>12}{'CPU':>10}"
        work = ""
        for row in each:
            yield (
                f"{row.work if row.work != work else '':25}{row.server:18}{row.figures.rate:>8.0f}"
                f"{row.figures.cpu:>9.3f}{f'{row.drift[0]:.2f} - {row.drift[1]:.2f}':>15}"
                f"{_factor(row.bare):>8}{row.figures.latency:>9.1f}"
                f"{_factor(row.rate_ratio):>12}{_factor(row.cpu_ratio):>10}"
            ).rstrip()
            work = row.work


def _factor(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _ratio(
    first: Sequence[LoadFigures] | None, second: Sequence[LoadFigures] | None, of: Callable[[LoadFigures], float]
) -> float | None:
    """Return the median ratio. None if one of them was not measured, or took less CPU time than the system's clock can
    measure."""
    pairs = [(of(one), of(other)) for one, other in zip(first or (), second or (), strict=bool(first and second))]
    return statistics.median(one / other for one, other in pairs) if pairs and all(b for _, b in pairs) else None


def _rate(figures: LoadFigures) -> float:
    return figures.rate


def _cpu(figures: LoadFigures) -> float:
    return figures.cpu
