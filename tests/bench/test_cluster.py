"""Report of figures of several gateways. The figures themselves are measured by hand and not asserted."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from bench.cluster import MARK, main
from bench.cluster_figures import ClusterFigures, Load, Rate, Waits, load, report, save

FIGURES: Final = ClusterFigures(
    date="2026-01-02T03:04:05+00:00",
    machine={"cores": 2, "Python": "3.11.7"},
    versions={"gateway": "0.1.0", "PostgreSQL": "15.3, synchronous_commit on"},
    nodes=2,
    connections=24,
    events=10_000,
    load_before=0.25,
    waits=[
        Waits("a run", [1.0, 2.0, 9.0], aim=8, cpu=1.25),
        Waits("a log: first", [120.0]),
        Waits("a word", [2.0, 3.0]),
    ],
    loads=[
        Load("events", 2, [Rate(10_000, 40, 20, 0.9), Rate(30_000, 60, 30, 1)], aim=20_000),
        Load("runs", 1, [Rate(500, 30, 0.7, 0.8, 0.254, 12)], slow=[Rate(400, 40, 0.7, 0.8)]),
        Load("runs", 2, [Rate(750, 20, 0.75, 0.995), Rate(650, 20, 0.75, 0.995)], slow=[Rate(300, 55.25, 0.7, 0.8)]),
    ],
    flush=3,
)


def test_the_report_has_a_line_for_each_figure() -> None:
    assert report(FIGURES) == (Path(__file__).parent / "cluster.txt").read_text(encoding="utf-8")


def test_the_report_says_that_slow_flushes_need_a_compiler() -> None:
    loads = [replace(each, slow=[]) for each in FIGURES.loads]
    lines = report(replace(FIGURES, loads=loads, without_flush="needs a C compiler (cc)")).splitlines()
    assert lines[-1] == "flush 3 ms: not measured: needs a C compiler (cc)"
    assert lines[-3].endswith("1.40")


def test_figures_without_slow_flushes_have_no_flush_column() -> None:
    assert "flush" not in report(replace(FIGURES, loads=[Load("runs", 1, [Rate(1, 1, 1, 1)])], flush=0))


def test_the_99th_percentile_needs_no_hundred_values() -> None:
    assert Waits("w", [4.0]).p99 == 4
    waits = Waits("w", [float(each) for each in range(1, 1001)])
    assert (waits.p50, round(waits.p99)) == (500.5, 990)


def test_stored_figures_are_printed_and_put_into_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored, page = tmp_path / "cluster.json", tmp_path / "page.md"
    save(FIGURES, stored)
    assert load(stored) == FIGURES
    page.write_text(f"Before\n\n{MARK}\n```\nold\n```\n\nAfter\n", encoding="utf-8")
    main(["--read", str(stored), "--page", str(page)])
    assert capsys.readouterr().out == f"{report(FIGURES)}\n"
    assert page.read_text(encoding="utf-8") == f"Before\n\n{MARK}\n```\n{report(FIGURES)}\n```\n\nAfter\n"


def test_a_database_or_a_file_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "give the URL of a PostgreSQL" in capsys.readouterr().err
