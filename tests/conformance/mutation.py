"""Judges the judge: every violation of a scripted server is to be caught by the requirement that it breaks, and by no
other than those that cannot but fail with it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from conformance.judge import judge
from conformance.report.model import SetReport
from conformance.requirement import Requirement, load_set
from conformance.verdict import Result, Verdict
from tests.conformance.servers.kit import ScriptedServer, Server, Violation
from tests.serving import serving

_AT_ONCE = 6
"""Violations that are shown side by side: some make the judge wait."""
_BROKEN = (Verdict.FAIL, Verdict.WARNING)


async def judged(
    server: Server, app: ScriptedServer, selected: Callable[[Requirement], bool] = lambda _: True
) -> SetReport:
    async with serving(app) as url:
        chosen = load_set(server.set)
        return await judge(chosen, url + server.path, server.options, is_told=True, selected=selected)


def concerns(violation: Violation) -> Callable[[Requirement], bool]:
    """The groups of what a violation breaks. What is on the form of messages needs those of the whole run."""
    groups = {name.lstrip("~").partition(".")[0] for name in (violation.breaks, *violation.also)}
    return lambda requirement: bool(groups & {requirement.group, "form", "*"})


@dataclass(frozen=True, slots=True)
class Score:
    caught: int
    of: int
    missed: list[str]
    strays: list[str]
    """Requirements that failed though the violation does not break them."""

    def __str__(self) -> str:
        return f"{self.caught} of {self.of} violations caught ({self.caught / self.of:.0%})"


async def score(server: Server) -> Score:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(violation: Violation) -> list[Result]:
        async with slots:
            return await _broken(server, violation)

    found = await asyncio.gather(*(one(violation) for violation in server.violations))
    missed: list[str] = []
    strays: list[str] = []
    for violation, broken in zip(server.violations, found, strict=True):
        if not any(each.requirement.name == violation.breaks and not each.is_prerequisite for each in broken):
            missed.append(f"{violation.name}: {violation.breaks} does not catch it")
        strays += _strays(violation, broken)
    return Score(len(server.violations) - len(missed), len(server.violations), missed, strays)


async def assert_caught(server: Server) -> None:
    """At least 95 % of the violations, and nothing else; the score is printed."""
    found = await score(server)
    print(f"{server.set}: {found}", *found.missed, sep="\n")
    assert not found.strays, "\n".join(found.strays)
    assert found.caught / found.of >= 0.95, "\n".join(found.missed)


async def _broken(server: Server, violation: Violation) -> list[Result]:
    """What is not kept."""
    app = server.make(violation.name)
    report = await (judged(server, app, concerns(violation)) if server.is_large else judged(server, app))
    assert violation.name in app.asked, f"{violation.name}: nothing in the server looks at it"
    return [each for each in report.results if each.verdict in _BROKEN or not each.is_kept]


def _strays(violation: Violation, broken: list[Result]) -> list[str]:
    """What failed though nothing says that it must; but for what lacks a prerequisite, of which the report says so."""
    names = [each.requirement.name for each in broken]
    allowed = (violation.breaks, *violation.also)
    found = [
        f"{violation.name}: {each.requirement.name} fails too: {each.verdict}: {each.expected}"
        for each in broken
        if not each.is_prerequisite
        and not any(fnmatchcase(each.requirement.name, pattern.lstrip("~")) for pattern in allowed)
    ]
    for pattern in violation.also:
        if not pattern.startswith("~") and not any(fnmatchcase(name, pattern) for name in names):
            found.append(f"{violation.name}: {pattern} does not fail with it")
    return found
