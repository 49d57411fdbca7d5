"""Mutation test of the judge.

The requirement that a violation of a scripted server breaks must catch it. Other requirements must pass, except those
that the violation lists in `also`.

To save time, a violation is tested only with the requirements that can notice it. One run against the conforming
server finds them: those whose requests made the server check the violation. If the judge triggers the check before any
probe runs (such as by reading the card), the requirements of the violation's groups are tested. `pytest --whole-sets`
tests every violation with all requirements.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest

from babelgate.conformance.judge import judge
from babelgate.conformance.probe import ProbeOptions
from babelgate.conformance.report.model import SetReport
from babelgate.conformance.requirement import Requirement, load_set
from babelgate.conformance.verdict import Result, Verdict
from babelgate.conformance.wire.exchange import Exchange
from tests.conformance.servers.kit import RequestKey, ScriptedServer, Server, Violation
from tests.sample import is_in_share
from tests.serving import serving
from tests.violations import PROPERTY

_CONCURRENCY: Final = 3
"""Number of violations that are tested concurrently, because some make the judge wait. Chosen: with more, a busy
machine misses timeouts."""
_BROKEN: Final = (Verdict.FAIL, Verdict.WARNING)
_EVERYTHING: Final = "*"


async def judged(
    server: Server,
    app: ScriptedServer,
    selected: Callable[[Requirement], bool] = lambda _: True,
    options: ProbeOptions | None = None,
) -> SetReport:
    async with app.listening(), serving(app) as url:
        chosen = load_set(server.set)
        return await judge(chosen, url + server.path, options or server.options, is_requested=True, selected=selected)


def concerns(violation: Violation) -> Callable[[Requirement], bool]:
    """Return a filter for the requirements in the groups that a violation names, and those on the form of messages."""
    groups = _groups(violation)
    return lambda requirement: bool(groups & {requirement.group, "form", "*"})


def groups_of(server: Server) -> Sequence[str]:
    """Return the groups of the broken requirements, in the order of the violations."""
    return list(dict.fromkeys(_group(violation) for violation in server.violations))


async def assert_caught(server: Server, group: str, request: pytest.FixtureRequest) -> None:
    """Assert that each violation of a group is caught by the requirements that it names and by no others."""
    coverage = None if request.config.getoption("--whole-sets") else await _coverage_of(server)
    slots = asyncio.Semaphore(_CONCURRENCY)

    async def examine(violation: Violation) -> _Complaints:
        async with slots:
            complaints = await _complaints(server, violation, coverage, alone=True)
            if coverage is not None and list(complaints):
                complaints = await _complaints(server, violation, coverage)
            if complaints.missing and coverage is not None:
                # The violation may need tasks that the requests of other requirements create, such as a longer list.
                complaints = await _complaints(server, violation, None)
            return complaints

    violations = [each for each in server.violations if _group(each) == group]
    if (share := request.config.getoption("--thin")) is not None:
        violations = [each for each in violations if is_in_share(f"{server.set} {each.name}", share)]
    results = await asyncio.gather(*(examine(violation) for violation in violations))
    caught = sum(1 for each in results if each.is_caught)
    request.node.user_properties.append((PROPERTY, [server.set, caught, len(violations)]))
    lines = [f"{violation.name}: {text}" for violation, each in zip(violations, results, strict=True) for text in each]
    assert not lines, "\n".join(lines)


def violation_test(server: Server) -> Callable[..., Awaitable[None]]:
    """Return a test with one case per group of the server's violations."""

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    @pytest.mark.parametrize("group", groups_of(server))
    async def test(group: str, request: pytest.FixtureRequest) -> None:
        await assert_caught(server, group, request)

    return test


@dataclass(frozen=True, slots=True)
class _Complaints:
    """Differences between the declared and the actual effect of a violation."""

    is_caught: bool
    missing: Sequence[str]
    """Declared effects that did not occur."""
    strays: Sequence[str]
    """Requirements that failed but are not declared."""

    def __iter__(self) -> Iterator[str]:
        return iter((*self.missing, *self.strays))


@dataclass(frozen=True, slots=True)
class _Coverage:
    """Violations that the conforming server checks for the requests of each requirement."""

    by_requirement: Mapping[str, frozenset[str]]
    """Violations by the name of the requirement; `*` represents all violations."""
    attributed: frozenset[str]
    """Violations whose checks are attributed to requirements. All requirements can notice any other violation."""

    def selects(self, violation: Violation, requirement: Requirement, *, alone: bool) -> bool:
        """Return True if the violation must be tested with the requirement.

        Requirements on the form of messages are always selected. Requirements of one group are selected together,
        because one may need what another creates, such as the tasks of a list. `alone` turns that off.
        """
        if requirement.schemas or _is_named(violation, requirement):
            return True
        if violation.name not in self.attributed:
            return requirement.group in _groups(violation)
        if not alone and requirement.group in _groups(violation):
            return True
        return not {violation.name, _EVERYTHING}.isdisjoint(self.by_requirement[requirement.name])


_COVERAGES: Final[dict[Callable[[str], ScriptedServer], _Coverage]] = {}
"""Coverage by the factory of the server."""


async def _coverage_of(server: Server) -> _Coverage:
    """Measure the coverage of a server once.

    One run tests all requirements. Another tests none: what the server checks there is no effect of a requirement, so
    that all requirements can notice it.
    """
    if server.make not in _COVERAGES:
        opening = server.make("")
        await judged(server, opening, lambda _: False)
        app = server.make("")
        report = await judged(server, app)
        by_requirement = {
            result.requirement.name: frozenset[str]().union(*(_checked_for(app, each) for each in result.exchanges))
            for result in report.results
        }
        attributed = frozenset[str]().union(*by_requirement.values()) - opening.checked
        # If a busy machine made the conforming server fail, probes stopped early: their coverage is unknown.
        is_complete = all(each.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE) for each in report.results)
        _COVERAGES[server.make] = _Coverage(by_requirement, attributed if is_complete else frozenset())
    return _COVERAGES[server.make]


def _checked_for(app: ScriptedServer, exchange: Exchange) -> set[str]:
    key: RequestKey = (exchange.method, unquote(urlsplit(exchange.url).path), exchange.body)
    # A request that did not reach the application in this form may have triggered any check.
    return app.checked_by.get(key, {_EVERYTHING})


async def _complaints(
    server: Server, violation: Violation, coverage: _Coverage | None, *, alone: bool = False
) -> _Complaints:
    """Test one violation with the requirements that can notice it, or with all if there is no coverage.

    With `alone`, requirements of the same group that cannot notice it are left out. Then a complaint may mean only that
    they did not create something that the selected requirements need.
    """
    app = server.make(violation.name)
    concerned = concerns(violation)

    def is_selected(requirement: Requirement) -> bool:
        if server.is_large and not concerned(requirement):
            return False
        return coverage is None or coverage.selects(violation, requirement, alone=alone)

    report = await judged(server, app, is_selected)
    broken = [
        each
        for each in report.results
        if (each.verdict in _BROKEN or not each.is_kept) and (coverage is None or not _is_unrequested(violation, each))
    ]
    caught = (Verdict.NOT_OBSERVED,) if violation.is_hidden else _BROKEN
    is_caught = any(
        each.requirement.name == violation.breaks and each.verdict in caught and not each.is_prerequisite
        for each in report.results
    )
    missing: list[str] = []
    if violation.name not in app.checked:
        missing.append("the server never checks it")
    if not is_caught:
        missing.append(f"{violation.breaks} does not catch it")
    names = [each.requirement.name for each in broken]
    for pattern in violation.also:
        if not pattern.startswith("~") and not any(fnmatchcase(name, pattern) for name in names):
            missing.append(f"{pattern} does not fail with it")
    # A requirement that lacks a prerequisite is no stray: another requirement reports the cause.
    strays = [
        f"{each.requirement.name} fails too: {each.verdict}: {each.expected}"
        for each in broken
        if not each.is_prerequisite and not _is_named(violation, each.requirement)
    ]
    return _Complaints(is_caught, missing, strays)


def _is_unrequested(violation: Violation, result: Result) -> bool:
    """Return True if a message was not observed, perhaps because no selected probe requests it."""
    requirement = result.requirement
    is_form = bool(requirement.schemas) and result.verdict is Verdict.NOT_OBSERVED
    return is_form and not _is_named(violation, requirement)


def _is_named(violation: Violation, requirement: Requirement) -> bool:
    """Return True if the violation declares that the requirement fails or may fail."""
    patterns = (violation.breaks, *violation.also)
    return any(fnmatchcase(requirement.name, pattern.lstrip("~")) for pattern in patterns)


def _group(violation: Violation) -> str:
    return violation.breaks.partition(".")[0]


def _groups(violation: Violation) -> set[str]:
    return {name.lstrip("~").partition(".")[0] for name in (violation.breaks, *violation.also)}
