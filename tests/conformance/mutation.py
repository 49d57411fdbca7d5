"""Judges the judge: every violation of a scripted server is to be caught by the requirement that it breaks, and by no
other than those that cannot but fail with it.

A violation is shown to the requirements that can see it, which one run against the right server finds out: those for
which the server came to a place where it asks whether to do it. What all can see, because the judge meets it before it
asks anything (a card), is shown to those of its groups. `pytest --whole-sets` shows every violation to all.
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
from tests.serving import serving
from tests.violations import PROPERTY

_AT_ONCE: Final = 3
"""Violations that are shown side by side: some make the judge wait. With more, a busy machine answers late."""
_BROKEN: Final = (Verdict.FAIL, Verdict.WARNING)
_EVERYTHING: Final = "*"


async def judged(
    server: Server,
    app: ScriptedServer,
    selected: Callable[[Requirement], bool] = lambda _: True,
    options: ProbeOptions | None = None,
) -> SetReport:
    async with serving(app) as url:
        chosen = load_set(server.set)
        return await judge(chosen, url + server.path, options or server.options, is_requested=True, selected=selected)


def concerns(violation: Violation) -> Callable[[Requirement], bool]:
    """The groups of what a violation breaks. What is on the form of messages needs those of the whole run."""
    groups = _groups(violation)
    return lambda requirement: bool(groups & {requirement.group, "form", "*"})


def groups_of(server: Server) -> Sequence[str]:
    """Of the requirements that violations break, in the order in which they stand."""
    return list(dict.fromkeys(_group(violation) for violation in server.violations))


async def assert_caught(server: Server, group: str, request: pytest.FixtureRequest) -> None:
    """Every violation of a group is caught, by what names it and by nothing else. The score is in the summary."""
    sight = None if request.config.getoption("--whole-sets") else await _sight_of(server)
    slots = asyncio.Semaphore(_AT_ONCE)

    async def show(violation: Violation) -> _Complaints:
        async with slots:
            found = await _complaints(server, violation, sight, alone=True)
            if sight is not None and list(found):
                found = await _complaints(server, violation, sight)
            if found.missing and sight is not None:
                # It may show only in what requirements that cannot see it leave behind: one more task in a list.
                found = await _complaints(server, violation, None)
            return found

    violations = [each for each in server.violations if _group(each) == group]
    found = await asyncio.gather(*(show(violation) for violation in violations))
    caught = sum(1 for each in found if each.is_caught)
    request.node.user_properties.append((PROPERTY, [server.set, caught, len(violations)]))
    told = [f"{violation.name}: {text}" for violation, each in zip(violations, found, strict=True) for text in each]
    assert not told, "\n".join(told)


def violation_test(server: Server) -> Callable[..., Awaitable[None]]:
    """The test of a module that shows each group of a server's violations to the judge."""

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    @pytest.mark.parametrize("group", groups_of(server))
    async def test(group: str, request: pytest.FixtureRequest) -> None:
        await assert_caught(server, group, request)

    return test


@dataclass(frozen=True, slots=True)
class _Complaints:
    """What is not as a violation says."""

    is_caught: bool
    missing: Sequence[str]
    """What should have been seen and was not."""
    strays: Sequence[str]
    """What failed though nothing says that it must."""

    def __iter__(self) -> Iterator[str]:
        return iter((*self.missing, *self.strays))


@dataclass(frozen=True, slots=True)
class _Sight:
    """What each requirement can see of the right server: the violations that the server asks itself about."""

    of: Mapping[str, frozenset[str]]
    """By the name of the requirement; `*` stands for all violations."""
    known: frozenset[str]
    """The violations of which that can be said; any other can be seen by all."""

    def selects(self, violation: Violation, requirement: Requirement, *, alone: bool) -> bool:
        """What is on the form of messages looks at those of all requirements that are selected; those of one group may
        need what the others have left behind, the tasks of a list for instance: unless they are to stand `alone`."""
        if requirement.schemas or _is_named(violation, requirement):
            return True
        if violation.name not in self.known:
            return requirement.group in _groups(violation)
        if not alone and requirement.group in _groups(violation):
            return True
        return not {violation.name, _EVERYTHING}.isdisjoint(self.of[requirement.name])


_SIGHTS: Final[dict[str, _Sight]] = {}


async def _sight_of(server: Server) -> _Sight:
    """Of one run against the right server, and one of no requirement at all: what the server asks itself while the
    judge finds out what it is, or for nobody's request, everybody can see."""
    if server.set not in _SIGHTS:
        finding = server.make("")
        await judged(server, finding, lambda _: False)
        app = server.make("")
        report = await judged(server, app)
        of = {
            result.requirement.name: frozenset[str]().union(*(_asked(app, each) for each in result.exchanges))
            for result in report.results
        }
        known = frozenset[str]().union(*of.values()) - finding.asked
        # On a machine so busy that the right server was found wanting, probes were not through: nothing can be said.
        is_whole = all(each.verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE) for each in report.results)
        _SIGHTS[server.set] = _Sight(of, known if is_whole else frozenset())
    return _SIGHTS[server.set]


def _asked(app: ScriptedServer, exchange: Exchange) -> set[str]:
    key: RequestKey = (exchange.method, unquote(urlsplit(exchange.url).path), exchange.body)
    # A request that never came to the application, or not in these words, may have met anything.
    return app.asked_by.get(key, {_EVERYTHING})


async def _complaints(
    server: Server, violation: Violation, sight: _Sight | None, *, alone: bool = False
) -> _Complaints:
    """Without a sight, all requirements are shown the violation. `alone` = without those of its group that cannot see
    it; what is found wanting then may lack only what these leave behind, and says nothing."""
    app = server.make(violation.name)
    concerned = concerns(violation)

    def is_shown(requirement: Requirement) -> bool:
        if server.is_large and not concerned(requirement):
            return False
        return sight is None or sight.selects(violation, requirement, alone=alone)

    report = await judged(server, app, is_shown)
    broken = [
        each
        for each in report.results
        if (each.verdict in _BROKEN or not each.is_kept) and (sight is None or not _is_unasked(violation, each))
    ]
    caught = (Verdict.NOT_OBSERVED,) if violation.is_hidden else _BROKEN
    is_caught = any(
        each.requirement.name == violation.breaks and each.verdict in caught and not each.is_prerequisite
        for each in report.results
    )
    missing: list[str] = []
    if violation.name not in app.asked:
        missing.append("nothing in the server looks at it")
    if not is_caught:
        missing.append(f"{violation.breaks} does not catch it")
    names = [each.requirement.name for each in broken]
    for pattern in violation.also:
        if not pattern.startswith("~") and not any(fnmatchcase(name, pattern) for name in names):
            missing.append(f"{pattern} does not fail with it")
    # But for what lacks a prerequisite, of which the report says so.
    strays = [
        f"{each.requirement.name} fails too: {each.verdict}: {each.expected}"
        for each in broken
        if not each.is_prerequisite and not _is_named(violation, each.requirement)
    ]
    return _Complaints(is_caught, missing, strays)


def _is_unasked(violation: Violation, result: Result) -> bool:
    """A message did not come, perhaps because no probe that asks for it was selected."""
    requirement = result.requirement
    is_form = bool(requirement.schemas) and result.verdict is Verdict.NOT_OBSERVED
    return is_form and not _is_named(violation, requirement)


def _is_named(violation: Violation, requirement: Requirement) -> bool:
    """The violation breaks it, or says that it may fail with it."""
    patterns = (violation.breaks, *violation.also)
    return any(fnmatchcase(requirement.name, pattern.lstrip("~")) for pattern in patterns)


def _group(violation: Violation) -> str:
    return violation.breaks.partition(".")[0]


def _groups(violation: Violation) -> set[str]:
    return {name.lstrip("~").partition(".")[0] for name in (violation.breaks, *violation.also)}
