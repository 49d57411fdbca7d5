"""Simulation: the load of several databases, if each owner's threads are in one of them.

    .venv/bin/python -m bench.spread [--owners 100000] [--databases 4 8 16 32] [--exponents 0.6 0.8 1.0 1.2]

The owners have very different loads: the load of the owner with rank r is 1 / r ** s (Zipf's law). A router chooses the
database of an owner by rendezvous hashing: the one whose hash with the owner's id is highest. A table of exceptions in
the router can place the owners with the highest loads, each on the database that has the lowest load at that time.

The figures are the load of the busiest database divided by the mean: the median of all seeds, and the highest. 1.00 is
even. Databases with this figure carry their capacity divided by it. `bound` is the lowest possible figure: no database
has less than the largest owner.
"""

import argparse
import heapq
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Result of all seeds for one number of databases."""

    exponent: float
    databases: int
    placed: int
    """Number of owners in the router's table of exceptions."""
    largest: float
    """Share of the whole load that the largest owner has."""
    busiest: Sequence[float]
    """Load of the busiest database divided by the mean, for each seed."""


def loads_of(owners: int, exponent: float) -> list[float]:
    """Return the share of each owner in the whole load, the largest first."""
    loads = [rank**-exponent for rank in range(1, owners + 1)]
    total = sum(loads)
    return [each / total for each in loads]


def busiest(loads: Sequence[float], databases: int, placed: int, seed: int) -> float:
    """Return the load of the busiest database divided by the mean. `loads` begins with the largest owner.

    The hash of an owner's id is evenly distributed, so a random number represents the choice by hash.
    """
    choice = random.Random(seed)
    filled = [0.0] * databases
    for load in loads[placed:]:
        filled[choice.randrange(databases)] += load
    heapq.heapify(filled)
    for load in loads[:placed]:
        heapq.heapreplace(filled, filled[0] + load)
    return max(filled) * databases / sum(loads)


def simulate(options: argparse.Namespace) -> Iterator[Spread]:
    for exponent in options.exponents:
        loads = loads_of(options.owners, exponent)
        for databases in options.databases:
            for placed in options.placed:
                found = [busiest(loads, databases, placed, seed) for seed in range(options.seeds)]
                yield Spread(exponent, databases, placed, loads[0], found)


def report(options: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the table: a row for each exponent and number of databases."""
    yield f"{options.owners} owners, {options.seeds} seeds; busiest database / mean: median (highest)"
    yield ""
    heads = "".join(f"{f'{each} placed' if each else 'by hash alone':>18}" for each in options.placed)
    yield f"{'exponent':>8}{'largest owner':>15}{'databases':>11}{'bound':>7}{heads}"
    spreads = list(simulate(options))
    width = len(options.placed)
    for first in range(0, len(spreads), width):
        row = spreads[first : first + width]
        cells = "".join(f"{f'{statistics.median(each.busiest):.2f} ({max(each.busiest):.2f})':>18}" for each in row)
        each = row[0]
        bound = max(1, each.largest * each.databases)
        yield f"{each.exponent:>8g}{each.largest:>15.1%}{each.databases:>11}{bound:>7.2f}{cells}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spread", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--owners", type=int, default=100_000, help="number of owners (100000)")
    parser.add_argument("--databases", type=int, nargs="+", default=[4, 8, 16, 32], help="numbers of databases")
    parser.add_argument("--exponents", type=float, nargs="+", default=[0.6, 0.8, 1.0, 1.2], help="exponents of Zipf")
    parser.add_argument(
        "--placed", type=int, nargs="+", default=[0, 10, 100, 1000], help="numbers of owners that the router places"
    )
    parser.add_argument("--seeds", type=int, default=20, help="number of repetitions with other hashes (20)")
    for line in report(parser.parse_args(arguments)):
        print(line)


if __name__ == "__main__":
    main()
