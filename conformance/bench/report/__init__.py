"""Formats of a benchmark's report: JSON, CSV, Markdown, HTML and terminal."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from babelgate.conformance.bench.journal import write_file
from babelgate.conformance.bench.report.html import html
from babelgate.conformance.bench.report.markdown import markdown
from babelgate.conformance.bench.result import Report

__all__ = ("csv_text", "write_reports")

_COLUMNS: Sequence[str] = (
    "suite", "agent", "task", "repetition", "category", "difficulty", "outcome", "passed", "seconds", "first_output",
    "steps", "artifacts", "input_tokens", "output_tokens", "total_tokens", "cost", "seed", "started_at", "why",
)  # fmt: skip


def write_reports(folder: Path, report: Report) -> None:
    """Write the report to a folder as `result.json`, `result.csv`, `report.md` and `report.html`."""
    write_file(folder / "result.json", report.model_dump_json(indent=1) + "\n")
    write_file(folder / "result.csv", csv_text(report))
    write_file(folder / "report.md", markdown(report))
    write_file(folder / "report.html", html(report))


def csv_text(report: Report) -> str:
    """Return the attempts as CSV (RFC 4180): a header line, and one row for each attempt."""
    about = {each.name: each for each in report.header.tasks}
    output = io.StringIO()
    rows = csv.DictWriter(output, _COLUMNS, restval="")
    rows.writeheader()
    for each in report.attempts:
        rows.writerow(
            {
                "suite": report.header.suite,
                "agent": _cell(each.agent),
                "task": each.task,
                "repetition": each.repetition,
                "category": " ".join(about[each.task].category),
                "difficulty": about[each.task].difficulty,
                "outcome": each.outcome,
                "passed": int(each.has_passed),
                "seconds": each.seconds,
                "first_output": "" if each.first_output is None else each.first_output,
                "steps": len(each.step_seconds),
                "artifacts": len(each.artifacts),
                **{name: f"{number:g}" for name, number in each.usage.items() if name != "cost"},
                "cost": "" if each.cost is None else each.cost,
                "seed": each.seed,
                "started_at": each.started_at,
                "why": _cell(each.why),
            }
        )
    return output.getvalue()


def _cell(text: str) -> str:
    """Return the text, quoted if a spreadsheet would treat it as a formula (OWASP, CSV injection)."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
