"""docs/conformance/<set>.md: every requirement with its source, its probe, and its verdicts in real runs.

The verdicts are in `docs/conformance/runs.json`. The tests that judge the gateway and the official servers check
against them, and `pytest --accept` rewrites them.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from babelgate.conformance.requirement import Requirement, RequirementSet, load_set, set_names

FOLDER: Final = Path(__file__).parent / "conformance"
RUNS: Final = FOLDER / "runs.json"
_MARKS: Final = {
    "met": "✓",
    "fail": "✗",
    "warning": "!",
    "not shown": "?",
    "not applicable": "–",
    "error of the check": "⚠",
}

Runs = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Verdicts by set, judged server and requirement."""


def recorded() -> Runs:
    return json.loads(RUNS.read_text(encoding="utf-8")) if RUNS.exists() else {}


def pages() -> dict[Path, str]:
    runs = recorded()
    chosen = [load_set(name) for name in set_names()]
    set_pages = {FOLDER / f"{each.name}.md": _page(each, runs.get(each.name, {})) for each in chosen}
    return {FOLDER / "README.md": _index(chosen, runs), **set_pages}


def _index(chosen: list[RequirementSet], runs: Runs) -> str:
    rows: list[str] = []
    for each in chosen:
        levels = [sum(1 for one in each.requirements if one.level == level) for level in ("must", "should", "may")]
        who = ", ".join(sorted(runs.get(each.name, {}))) or "–"
        counts = " | ".join(map(str, (len(each.requirements), *levels)))
        rows.append(f"| [{each.title}]({each.name}.md) | {counts} | {who} |")
    text = """# Requirements

This page lists the requirements that `babelgate check` tests. Each revision of a protocol has its own set. To test an
agent, follow the [tutorial](../check.md).

`make docs` generates these pages from `conformance/requirements`. The verdicts come from real runs, which tests repeat.

- [Across protocols](across.md) compares the behavior of the gateway's protocols with each other.
- [Other kits](kits.md) shows the results of other conformance kits.

| set | requirements | must | should | may | judged here |
|---|---|---|---|---|---|
"""
    return text + "\n".join(rows) + "\n"


def _page(chosen: RequirementSet, runs: Mapping[str, Mapping[str, str]]) -> str:
    who = sorted(runs)
    marks = ", ".join(f"{mark} {verdict}" for verdict, mark in _MARKS.items())
    head = f"| requirement | level | source | {' | '.join([*who, 'probe'])} |"
    rule = f"|---|---|---|{'|'.join(':-:' for _ in who)}{'|' if who else ''}---|"
    lines = [f"# {chosen.title}", "", f"{len(chosen.requirements)} requirements. {marks}.", ""]
    for group, requirements in _groups(chosen):
        lines += [f"## {group}", "", head, rule]
        lines += [_row(each, [runs[name].get(each.name, "") for name in who]) for each in requirements]
        lines.append("")
    return "\n".join(lines)


def _groups(chosen: RequirementSet) -> Iterator[tuple[str, list[Requirement]]]:
    groups = dict.fromkeys(each.group for each in chosen.requirements)
    for group in groups:
        yield group, [each for each in chosen.requirements if each.group == group]


def _row(requirement: Requirement, verdicts: list[str]) -> str:
    if requirement.probe:
        how = f"`{requirement.probe}`"
    elif requirement.schemas:
        how = "the schemas of all messages"
    else:
        how = f"none: {requirement.reason}"
    text = requirement.text.replace("|", "\\|")
    capability = f" *({requirement.capability})*" if requirement.capability else ""
    cells = [
        f"**{requirement.name}** {text}{capability}",
        requirement.level,
        f"[{requirement.section}]({requirement.source})",
        *(_MARKS.get(verdict, "") for verdict in verdicts),
        how,
    ]
    return f"| {' | '.join(cells)} |"
