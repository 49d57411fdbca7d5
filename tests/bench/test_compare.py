"""Report of a comparison. The servers are measured by hand, and the figures are not asserted."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Final

import msgspec
import pytest

from bench.chart import draw
from bench.compare import MARK, choose_jobs, main
from bench.comparison import BARE, BARE_WORK, GATEWAY, Measured, ServerComparison, load, report, rows, save
from bench.server import LoadFigures

SVG: Final = "{http://www.w3.org/2000/svg}"

COMPARISON: Final = ServerComparison(
    date="2026-01-02T03:04:05+00:00",
    machine={"cores": 2, "Python": "3.11.7"},
    versions={GATEWAY: "0.1.0", "acp-sdk": "acp-sdk 1.0.3"},
    connections=16,
    measured=[
        Measured("Calls", BARE_WORK, BARE, 4000, [LoadFigures(2000, 0.25, 4), LoadFigures(4000, 0.25, 2)]),
        Measured("Calls", "ACP run", GATEWAY, 400, [LoadFigures(200, 1, 50), LoadFigures(600, 2, 30)]),
        Measured("Calls", "ACP run", "acp-sdk", 200, [LoadFigures(100, 4, 90), LoadFigures(200, 4, 70)]),
        Measured("Streams", "A <stream>", GATEWAY, 16, [LoadFigures(50, 8, 300), LoadFigures(50, 8, 300)]),
    ],
    missing={"langgraph dev": "no environment .peers/langgraph"},
)


def test_ratios_are_calculated_round_by_round() -> None:
    bare, gateway, acp, stream = rows(COMPARISON)
    assert (bare.bare, bare.rate_ratio, bare.cpu_ratio) == (1, None, None)
    assert (gateway.figures, gateway.bare) == (LoadFigures(400, 1.5, 40), 6)
    assert gateway.drift == (1, 2)
    assert (gateway.rate_ratio, gateway.cpu_ratio) == (None, None)
    assert (acp.rate_ratio, acp.cpu_ratio) == (2.5, 0.375)
    assert (stream.bare, stream.rate_ratio) == (32, None)


def test_a_file_of_figures_is_read_as_it_was_written(tmp_path: Path) -> None:
    save(COMPARISON, tmp_path / "compare.json")
    assert load(tmp_path / "compare.json") == COMPARISON
    content = msgspec.json.decode((tmp_path / "compare.json").read_bytes())
    assert [row["server"] for row in content["rows"]] == [BARE, GATEWAY, "acp-sdk", GATEWAY]


def test_the_report_has_all_tables_and_the_omissions() -> None:
    assert report(COMPARISON) == (Path(__file__).parent / "report.txt").read_text(encoding="utf-8")


def test_a_cpu_time_of_zero_has_no_ratio() -> None:
    measured = [
        Measured("T", "w", GATEWAY, 1, [LoadFigures(1, 1, 1)]),
        Measured("T", "w", "other", 1, [LoadFigures(1, 0, 1)]),
    ]
    assert rows(ServerComparison("", {}, {}, 1, measured))[1].cpu_ratio is None


def test_a_chart_has_a_bar_for_each_row() -> None:
    drawn = [row for row in rows(COMPARISON) if row.server != BARE]
    svg = ElementTree.fromstring(draw('Calls & "streams"', "a < b", drawn))
    bars = [(each.get("class"), float(each.get("width", ""))) for each in svg.iter(f"{SVG}rect")]
    assert [colour for colour, _ in bars] == ["gateway", "reference", "gateway"]
    assert [width / bars[0][1] for _, width in bars] == pytest.approx([1, 150 / 400, 50 / 400], abs=0.001)
    texts = [each.text for each in svg.iter(f"{SVG}text")]
    assert texts[:2] == ['Calls & "streams"', "a < b"]
    assert "A <stream>" in texts and "400/s, 1.50 ms CPU" in texts
    bottom = max(float(each.get("y", "")) + float(each.get("height", "")) for each in svg.iter(f"{SVG}rect"))
    assert bottom < float(svg.get("height", ""))


def test_stored_figures_are_printed_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(COMPARISON, tmp_path / "compare.json")
    main(["--read", str(tmp_path / "compare.json"), "--svg", str(tmp_path / "charts")])
    assert capsys.readouterr().out == f"{report(COMPARISON)}\n"
    assert {each.name for each in (tmp_path / "charts").iterdir()} == {"calls.svg", "streams.svg"}
    assert BARE not in (tmp_path / "charts" / "calls.svg").read_text(encoding="utf-8")


def test_the_tables_of_a_page_are_replaced(tmp_path: Path) -> None:
    save(COMPARISON, tmp_path / "compare.json")
    page = tmp_path / "page.md"
    page.write_text(f"Before\n\n{MARK}\n```\nold\n\nolder\n```\n\nAfter\n\n```\nother\n```\n", encoding="utf-8")
    for _ in range(2):
        main(["--read", str(tmp_path / "compare.json"), "--page", str(page)])
        assert page.read_text(encoding="utf-8") == (
            f"Before\n\n{MARK}\n```\n{report(COMPARISON)}\n```\n\nAfter\n\n```\nother\n```\n"
        )
    page.write_text("Nothing\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="no block of code"):
        main(["--read", str(tmp_path / "compare.json"), "--page", str(page)])


@pytest.mark.parametrize(("rate", "seconds", "jobs"), [(0.1, 1, 16), (100, 2, 192), (1000, 2, 2000)])
def test_each_connection_has_the_same_number_of_jobs(rate: float, seconds: float, jobs: int) -> None:
    assert choose_jobs(rate, seconds, 16) == jobs
