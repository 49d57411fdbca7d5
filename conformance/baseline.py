"""Baseline of known failures (`--baseline FILE`): what is known not to be kept, and why.

    a2a-1.0/list.bad-token: the SDK takes any text for a token, a2a-python#1234

Of each requirement that is listed the result must be as it says: one that is kept by now is a stale entry, and fails
the run as a new failure does. Requirements of other sets than the judged ones may be listed too.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import yaml

from babelgate.conformance.report.model import SetReport


class BaselineError(ValueError):
    """The file is no baseline; the message says why."""


def read_baseline(path: Path) -> Mapping[str, str]:
    """Ids and reasons. Raises BaselineError."""
    try:
        given: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BaselineError(f"{path}: {' '.join(str(error).split())}") from None
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise BaselineError(f"{path}: a baseline is a mapping of requirements to reasons")
    entries = cast("dict[Any, Any]", given)
    for id, reason in entries.items():
        if not isinstance(reason, str) or not reason.strip():
            raise BaselineError(f"{path}: {id}: why is it not kept? Every entry has a reason")
    return {str(id): " ".join(reason.split()) for id, reason in entries.items()}


def apply(baseline: Mapping[str, str], report: SetReport) -> SetReport:
    """The report with what the baseline expects of its set."""
    entries = {id: reason for id, reason in baseline.items() if id.partition("/")[0] == report.set.name}
    known = {each.id for each in report.set.requirements}
    kept = {each.requirement.id for each in report.results if each.is_kept}
    return replace(
        report,
        expected={id: reason for id, reason in entries.items() if id in known and id not in kept},
        stale=tuple(id for id in entries if id in kept or id not in known),
    )
