"""Baseline of known failures (`--baseline FILE`): requirements that an agent is known to break, each with a reason.

    a2a-1.0/list.bad-token: the SDK takes any text for a token, a2a-python#1234

An entry whose requirement is met by now is stale, and fails the run as a new failure does. Entries of sets that are not
judged are ignored.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import yaml

from babelgate.conformance.report.model import SetReport


class BaselineError(ValueError):
    """Error for an unreadable or invalid baseline file; the message has the reason."""


def read_baseline(path: Path) -> Mapping[str, str]:
    """Return the reasons by requirement id. Raises BaselineError if the file cannot be read or is not a baseline."""
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BaselineError(f"{path}: {' '.join(str(error).split())}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise BaselineError(f"{path}: a baseline is a mapping of requirements to reasons")
    entries = cast("dict[Any, Any]", content)
    for id, reason in entries.items():
        if not isinstance(reason, str) or not reason.strip():
            raise BaselineError(f"{path}: {id}: no reason; say why the requirement is not met")
    return {str(id): " ".join(reason.split()) for id, reason in entries.items()}


def apply(baseline: Mapping[str, str], report: SetReport) -> SetReport:
    """Return the report with the entries of the baseline for its set: those whose requirement still fails in
    `expected`, and those whose requirement is met or unknown in `stale`."""
    entries = {id: reason for id, reason in baseline.items() if id.partition("/")[0] == report.set.name}
    ids = {each.id for each in report.set.requirements}
    kept_ids = {each.requirement.id for each in report.results if each.is_kept}
    return replace(
        report,
        expected={id: reason for id, reason in entries.items() if id in ids and id not in kept_ids},
        stale=tuple(id for id in entries if id in kept_ids or id not in ids),
    )
