"""Judge an agent by the requirement sets of all protocols that it speaks: `babelgate check` without the command
line."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib.metadata import version
from typing import Any, Protocol

from babelgate.conformance.baseline import apply
from babelgate.conformance.judge import judge
from babelgate.conformance.probe import NotDetectable, NotSpoken, Opened, ProbeOptions
from babelgate.conformance.report.model import CheckReport, SetReport
from babelgate.conformance.requirement import Requirement, RequirementSet, load_set, set_names
from babelgate.conformance.verdict import Result
from babelgate.conformance.wire.credentials import credentials_by_origin, hide_credentials, secrets_of
from babelgate.conformance.wire.http import Unanswered


class SelectionError(ValueError):
    """Error for a selection that matches no requirement set or no requirement; the message lists what exists."""


@dataclass(frozen=True, slots=True)
class RequirementSelection:
    """Filter for the sets and requirements to judge. The default selects everything that the agent speaks."""

    protocol: str = ""
    version: str = ""
    only: Sequence[str] = ()
    """Patterns of the requirement ids to judge: `stream.*`, `a2a-1.0/card.*`, `*/error.*`. Empty selects all."""

    def sets(self) -> Sequence[RequirementSet]:
        """Return the requirement sets of the selected protocol and version.

        Raises SelectionError if there is no such set, or if no requirement matches `only`.
        """
        every = [load_set(name) for name in set_names()]
        chosen = [
            each
            for each in every
            if self.protocol in ("", each.protocol, each.name) and self.version in ("", each.version)
        ]
        if not chosen:
            there = ", ".join(f"{each.protocol} {each.version}" for each in every)
            raise SelectionError(f"there is no {self.protocol} {self.version}".rstrip() + f"; there are {there}")
        if self.only and not any(self.is_wanted(requirement) for each in chosen for requirement in each.requirements):
            raise SelectionError(f"no requirement is called {' or '.join(self.only)}; --list shows them")
        return chosen

    def is_wanted(self, requirement: Requirement) -> bool:
        return not self.only or any(
            fnmatchcase(name, pattern) for pattern in self.only for name in (requirement.id, requirement.name)
        )


class Observer(Protocol):
    """Interface for reporting the progress of `examine`, for example with a progress bar."""

    def start_set(self, chosen: RequirementSet, opened: Opened[Any], number: int) -> None:
        """Report that a set begins: the agent speaks its protocol version as `opened` shows, and `number` of its
        requirements are judged."""

    def add_result(self, result: Result) -> None: ...


@dataclass(frozen=True, slots=True)
class _NoObserver:
    def start_set(self, chosen: RequirementSet, opened: Opened[Any], number: int) -> None:
        pass

    def add_result(self, result: Result) -> None:
        pass


@dataclass(slots=True)
class _Results:
    sets: list[SetReport] = field(default_factory=list[SetReport])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    silent: dict[str, Unanswered] = field(default_factory=dict[str, Unanswered])
    has_answer: bool = False
    """True if the server has answered a request."""


async def examine(
    url: str,
    selection: RequirementSelection,
    options: ProbeOptions,
    *,
    baseline: Mapping[str, str] | None = None,
    observer: Observer | None = None,
) -> CheckReport:
    """Judge the agent at a URL by each selected protocol version, one after the other, and return the report.

    Versions do not run at the same time, so that the requests of one cannot disturb another. User and password in the
    URL are sent as a header, to that server only, and appear in no report.

    `baseline` has the reasons of known failures, by requirement id. `observer` is notified of each result. A report
    without sets says for each protocol version why it was not judged. Raises SelectionError if the selection matches
    nothing, and Unanswered if no server answers at the URL.
    """
    started = time.monotonic()
    secrets = secrets_of([url], [options.headers, options.other_headers])
    options = replace(options, credentials=credentials_by_origin([url]))
    url = hide_credentials(url)
    watching = observer or _NoObserver()
    chosen = selection.sets()
    is_requested = bool(selection.protocol) and len(chosen) == 1
    found = _Results()
    for each in chosen:
        await _judge_one(each, url, selection, options, watching, found, is_requested=is_requested)
    if found.silent and not found.has_answer:
        raise next(iter(found.silent.values()))
    found.refused |= {name: str(error) for name, error in found.silent.items()}
    return CheckReport(
        url=url,
        sets=[apply(baseline or {}, each) for each in found.sets],
        seconds=time.monotonic() - started,
        version=version("babelgate"),
        refused=found.refused,
        secrets=secrets,
    )


async def _judge_one(
    chosen: RequirementSet,
    url: str,
    selection: RequirementSelection,
    options: ProbeOptions,
    observer: Observer,
    found: _Results,
    *,
    is_requested: bool,
) -> None:
    try:
        report = await judge(
            chosen,
            url,
            options,
            is_requested=is_requested,
            selected=selection.is_wanted,
            on_start=lambda opened, number: observer.start_set(chosen, opened, number),
            on_result=observer.add_result,
        )
    except NotSpoken as error:
        found.refused[chosen.name] = str(error)
        found.has_answer |= not isinstance(error, NotDetectable)
    except Unanswered as error:
        found.silent[chosen.name] = error
    else:
        found.sets.append(report)
        found.has_answer = True
