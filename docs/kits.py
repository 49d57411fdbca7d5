"""docs/conformance/kits.md: tests of other conformance kits, the corresponding requirements of `babelgate check`, and
whether the verdicts agree.

The results of the kits are in `docs/conformance/kits.yaml`, and those of `babelgate check` are in `runs.json` next to
it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from docs.traceability import FOLDER, Runs

KITS: Final = FOLDER / "kits.yaml"
_WORST_FIRST: Final = ("fail", "warning", "met", "not shown", "not applicable")

_HEAD: Final = """# Other conformance kits

This page compares the verdicts of other conformance kits with those of `babelgate check`. Tests and requirements with
the same meaning should agree. A row says "agreed" only if the kit and `babelgate check` ran against the same server.

`make docs` generates this page from `kits.yaml` and `runs.json`.
"""


def recorded() -> Sequence[Mapping[str, Any]]:
    return yaml.safe_load(KITS.read_text(encoding="utf-8"))


def worst(requirements: Sequence[str], verdicts: Mapping[str, str]) -> str:
    """Return the worst verdict of several requirements, or an empty text without requirements."""
    found = {verdicts[each] for each in requirements}
    return next((verdict for verdict in _WORST_FIRST if verdict in found), "")


def outcome(kit_verdict: str, requirements: Sequence[str], verdicts: Mapping[str, str]) -> str:
    if kit_verdict == "not run":
        return "not run"
    if not requirements:
        return "no counterpart"
    return "agreed" if (kit_verdict == "fail") == (worst(requirements, verdicts) == "fail") else "differs"


def pages(runs: Runs) -> dict[Path, str]:
    kits = recorded()
    return {FOLDER / "kits.md": _HEAD + "".join(_section(kit, runs[kit["set"]]) for kit in kits)}


def _section(kit: Mapping[str, Any], runs: Mapping[str, Mapping[str, str]]) -> str:
    lines = ["", f"## {kit['kit']}", "", f"Source: {kit['from']}. Compared with [{kit['set']}]({kit['set']}.md)."]
    if kit["command"]:
        lines += ["", f"    {kit['command']}"]
    ran = kit.get("ran", {})
    for server, found in ran.items():
        lines += ["", *_compared(kit, server, found, runs[server])]
    if "held" in kit:
        lines += ["", " ".join(kit["held"].split())]
    elif not ran:
        lines += ["", "Not run.", *_not_run(kit)]
    if kit["others"]:
        lines += ["", " ".join(kit["others"].split())]
    if "scripted" in kit:
        lines += ["", *_scripted(kit)]
    return "\n".join(lines) + "\n"


def _compared(
    kit: Mapping[str, Any], server: str, run: Mapping[str, Any], verdicts: Mapping[str, str]
) -> Iterator[str]:
    note = f" ({run['note']})" if run["note"] else ""
    yield f"Verdicts on {server}{note}:"
    yield from _head("test of the kit", "requirements", "kit", "`babelgate check`", "comparison")
    for test, kit_verdict in run["found"].items():
        requirements = kit["tests"][test]
        judged = outcome(kit_verdict, requirements, verdicts)
        why = f"differs: {run['why'][test]}" if judged == "differs" else judged
        yield f"| {test} | {_named(kit, requirements)} | {kit_verdict} | {worst(requirements, verdicts)} | {why} |"


def _not_run(kit: Mapping[str, Any]) -> Iterator[str]:
    if kit["tests"]:
        yield from _head("test of the kit", "requirements")
        for test, requirements in kit["tests"].items():
            yield f"| {test} | {_named(kit, requirements) or 'no counterpart'} |"


def _scripted(kit: Mapping[str, Any]) -> Iterator[str]:
    scripted = kit["scripted"]
    detected = scripted["violations"]
    yield (
        f"A scripted server commits {scripted['tried']} violations, one per run. `babelgate check` detects each one "
        f"by its requirement, and a test verifies that. The kit detects {len(detected)}:"
    )
    yield from _head("violation", "failing tests of the kit")
    for violation, tests in detected.items():
        yield f"| {violation} | {', '.join(tests)} |"
    if scripted["right"]:
        yield ""
        yield "These tests also fail against the server without a violation, so they could not show what they detect:"
        yield ""
        for test, reason in scripted["right"].items():
            yield f"- {test}: {reason}"


def _head(*columns: str) -> Iterator[str]:
    """Yield the head of a table."""
    yield ""
    yield "".join(f"| {column} " if column else "| " for column in columns) + "|"
    yield "|" + "---|" * len(columns)


def _named(kit: Mapping[str, Any], requirements: Sequence[str]) -> str:
    return ", ".join(f"`{kit['set']}/{each}`" for each in requirements)
