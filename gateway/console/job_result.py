"""Results of jobs: collects the files that a command has written, and reads the figures for lists of jobs."""

import shutil
from pathlib import Path

import msgspec

from babelgate.canonical.value import JsonObject
from babelgate.gateway.console.job_command import OUT
from babelgate.gateway.console.job_record import JobKind
from babelgate.gateway.console.job_store import FILES, HTML, RECORD, REPORT


class _CheckedSet(msgspec.Struct, frozen=True):
    """Result of a check for one version of a protocol."""

    title: str
    outcome: str
    passed: int
    applicable: int
    counts: dict[str, int]
    broken: list[object]


class _Check(msgspec.Struct, frozen=True):
    """Report of a check, without its evidence."""

    outcome: str
    sets: list[_CheckedSet]


class _Across(msgspec.Struct, frozen=True):
    """Report that compares protocols, without its evidence."""

    same: bool
    protocols: dict[str, str]
    scenarios: dict[str, msgspec.Raw]
    findings: list[msgspec.Raw]


class _Totals(msgspec.Struct, frozen=True):
    attempts: int
    passed: int


class _BenchedAgent(msgspec.Struct, frozen=True):
    """Figures of one agent in the result of a benchmark."""

    agent: str
    all: _Totals
    score: float | None = None


class _Bench(msgspec.Struct, frozen=True):
    """Result of a benchmark, without its attempts."""

    complete: bool
    agents: list[_BenchedAgent]


def collect_files(kind: JobKind, folder: Path) -> None:
    """Move the result files of a command to their places in the job's folder, and remove all other files there. Raises
    OSError if a file cannot be moved or removed."""
    if kind == "bench" and (folder / OUT).is_dir():
        for name, target in (("result.json", REPORT), ("report.html", HTML)):
            if (folder / OUT / name).is_file():
                (folder / OUT / name).replace(folder / target)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in (*FILES, RECORD):  # such as a report that a killed command has written in part
            path.unlink()


def read_summary(kind: JobKind, folder: Path) -> JsonObject:
    """Return the most important figures of a job's report. Raises OSError, and msgspec.MsgspecError for an incomplete
    report."""
    text = (folder / REPORT).read_bytes()
    match kind:
        case "check":
            check = msgspec.json.decode(text, type=_Check)
            return {
                "outcome": check.outcome,
                "passed": sum(each.passed for each in check.sets),
                "failed": sum(len(each.broken) for each in check.sets),
                "total": sum(each.applicable for each in check.sets),
                "sets": [
                    {
                        "title": each.title,
                        "outcome": each.outcome,
                        "passed": each.passed,
                        "failed": len(each.broken),
                        "total": each.applicable,
                        "warnings": each.counts.get("warning", 0),
                    }
                    for each in check.sets
                ],
            }
        case "across":
            across = msgspec.json.decode(text, type=_Across)
            return {
                "same": across.same,
                "protocols": len(across.protocols),
                "scenarios": len(across.scenarios),
                "findings": len(across.findings),
            }
        case "bench":
            bench = msgspec.json.decode(text, type=_Bench)
            return {
                "complete": bench.complete,
                "agents": [
                    {"agent": each.agent, "score": each.score, "attempts": each.all.attempts, "passed": each.all.passed}
                    for each in bench.agents
                ],
            }
