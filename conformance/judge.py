"""Runs the probes of a set against an agent, side by side, and says what was found."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import Any, Final

from babelgate.conformance.probe import Context, Opened, Options, Suite
from babelgate.conformance.report.model import SetReport
from babelgate.conformance.requirement import Requirement, RequirementSet
from babelgate.conformance.verdict import Failed, NotApplicable, NotObserved, Prerequisite, Result, Verdict
from babelgate.conformance.wire.exchange import Exchange
from babelgate.conformance.wire.http import EXCHANGES, Unanswered, Wire
from babelgate.conformance.wire.schema import Violation, load_schemas

_LONGEST: Final = 12
"""A probe may take this many times the time of one answer."""


def suite_of(chosen: RequirementSet) -> Suite[Any]:
    return import_module(chosen.module).SUITE


async def judge(
    chosen: RequirementSet,
    url: str,
    options: Options,
    *,
    is_told: bool = False,
    selected: Callable[[Requirement], bool] = lambda _: True,
    on_start: Callable[[Opened[Any], int], None] = lambda _, __: None,
    on_result: Callable[[Result], None] = lambda _: None,
) -> SetReport:
    """Raises NotSpoken if the agent does not speak this revision, Unanswered if nobody answers at all."""
    started = time.monotonic()
    suite = suite_of(chosen)
    requirements = [each for each in chosen.requirements if selected(each)]
    async with Wire(
        headers=options.headers,
        credentials=options.credentials,
        other_headers=options.other_headers,
        urls=[url],
        timeout=options.timeout,
        schemas=load_schemas(chosen.name),
    ) as wire:
        opened = await suite.open(wire, url, options, is_told)
        on_start(opened, len(requirements))
        context = Context(wire, opened, options)
        runner = _Runner(chosen, suite, context)
        try:
            results = await runner.run(requirements, on_result)
        finally:
            await context.aclose()
    return SetReport(
        set=chosen,
        endpoint=opened.endpoint,
        because=opened.because,
        capabilities=opened.capabilities,
        results=results,
        seconds=time.monotonic() - started,
        withheld=sorted(wire.withheld),
        messages=sum(len(exchange.messages) for exchange in wire.exchanges),
    )


class _Runner:
    def __init__(self, chosen: RequirementSet, suite: Suite[Any], context: Context[Any]) -> None:
        self._set = chosen
        self._suite = suite
        self._context = context
        self._slots = asyncio.Semaphore(context.options.concurrency)
        self._responsible: dict[tuple[str, ...], str] = {}
        """What was found out, by the definitions of a violation: many messages of a run break the same one."""

    async def run(self, requirements: Sequence[Requirement], on_result: Callable[[Result], None]) -> list[Result]:
        """Schemas come last, when everything has been said."""
        found: dict[str, Result] = {}

        async def one(requirement: Requirement) -> None:
            async with self._slots:
                found[requirement.id] = result = await self._run_probe(requirement)
            on_result(result)

        async with asyncio.TaskGroup() as group:
            for requirement in requirements:
                if not requirement.schemas:
                    group.create_task(one(requirement), name=requirement.id)
        for requirement in requirements:
            if requirement.schemas:
                found[requirement.id] = result = self._judge_messages(requirement)
                on_result(result)
        return [found[requirement.id] for requirement in requirements]

    async def _run_probe(self, requirement: Requirement) -> Result:
        if requirement.reason:
            return Result(requirement, Verdict.NOT_APPLICABLE, f"not tested: {requirement.reason}")
        if why := _inapplicable(requirement, self._context.capabilities):
            return Result(requirement, Verdict.NOT_APPLICABLE, why)
        exchanges: list[Exchange] = []
        token = EXCHANGES.set(exchanges)
        started = time.monotonic()
        told: Mapping[str, Any] = {}
        try:
            async with asyncio.timeout(self._context.options.timeout * _LONGEST):
                await self._suite.probes[requirement.probe](self._context)
        except (Failed, Unanswered, NotObserved, NotApplicable, TimeoutError) as error:
            verdict, told = _verdict(requirement, error)
        except Exception as error:
            verdict, told = _verdict_on_error(requirement, exchanges, f"{type(error).__name__}: {error}")
        else:
            verdict = Verdict.PASS
        finally:
            EXCHANGES.reset(token)
        if ours := list(_our_faults(exchanges)):
            earlier = [each for each in exchanges if each.number < ours[0][0].number]
            verdict, told = _verdict_on_error(requirement, earlier, "; ".join(text for _, text in ours))
        if verdict is not Verdict.PASS and exchanges:
            told = {"exchange": exchanges[-1], **{key: value for key, value in told.items() if value is not None}}
        return Result(requirement, verdict, exchanges=exchanges, seconds=time.monotonic() - started, **told)

    def _judge_messages(self, requirement: Requirement) -> Result:
        """A requirement on the form of messages, over all messages of the run."""
        if why := _inapplicable(requirement, self._context.capabilities):
            return Result(requirement, Verdict.NOT_APPLICABLE, why)
        described = frozenset(name for name in load_schemas(self._set.name).names if is_about(requirement, name))
        seen: list[Exchange] = []
        broken: list[tuple[Exchange, Violation]] = []
        for exchange in self._context.wire.exchanges:
            for message in exchange.messages:
                if message.is_ours:
                    continue
                if not described.isdisjoint(message.seen):
                    seen.append(exchange)
                broken += [
                    (exchange, violation)
                    for violation in message.violations
                    if self._id_of(violation) == requirement.id
                ]
        if broken:
            exchange, violation = broken[0]
            verdict = Verdict.FAIL if requirement.level == "must" else Verdict.WARNING
            more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
            told = f"{violation.definitions[0]} as specified; {violation.path}: {violation.text}{more}"
            shown = list(dict.fromkeys(each for each, _ in broken))[:5]
            return Result(requirement, verdict, told, exchange=exchange, exchanges=shown)
        if not seen and requirement.is_optional:
            return Result(requirement, Verdict.NOT_APPLICABLE, "no message held one")
        if not seen:
            return Result(requirement, Verdict.NOT_OBSERVED, "no such message came in any probe")
        return Result(requirement, Verdict.PASS, exchanges=seen[:1])

    def _id_of(self, violation: Violation) -> str:
        """Of the requirement that it breaks."""
        if violation.definitions not in self._responsible:
            self._responsible[violation.definitions] = responsible(self._set.requirements, violation)
        return self._responsible[violation.definitions]


@cache
def is_about(requirement: Requirement, definition: str) -> bool:
    """The requirement is on the form of what the definition describes."""
    return any(fnmatchcase(definition, pattern) for pattern in requirement.schemas)


def responsible(requirements: Sequence[Requirement], violation: Violation) -> str:
    """The id of the requirement that a violation breaks: of the innermost definition that one names."""
    for definition in violation.definitions:
        for requirement in requirements:
            if is_about(requirement, definition):
                return requirement.id
    return ""


def _inapplicable(requirement: Requirement, capabilities: frozenset[str]) -> str:
    """Why it says nothing of this agent, or nothing."""
    for each in filter(None, requirement.capability.split(",")):
        negated, capability = each.strip().startswith("not "), each.strip().removeprefix("not ")
        if negated and capability in capabilities:
            return f"the agent declares {capability}"
        if not negated and capability not in capabilities:
            return f"the agent does not declare {capability}"
    return ""


def _our_faults(exchanges: Sequence[Exchange]) -> Iterator[tuple[Exchange, str]]:
    for exchange in exchanges:
        for message in exchange.messages:
            if message.is_ours:
                for each in message.violations:
                    told = f"our own request #{exchange.number} breaks {message.schema}: {each.path}: {each.text}"
                    yield exchange, told


def _verdict_on_error(
    requirement: Requirement, exchanges: Sequence[Exchange], faults: str
) -> tuple[Verdict, Mapping[str, Any]]:
    """Decide whose fault an exception or an invalid request of ours is. It is the agent's if the agent refused a
    request before, or sent a message that breaks its schema: then a probe had nothing right to read. Else it is the
    check's."""
    wrong = (message.violations for exchange in exchanges for message in exchange.messages if not message.is_ours)
    if any(wrong) or any((exchange.status or 0) >= 400 for exchange in exchanges):
        return _verdict(requirement, Prerequisite(f"an answer that can be read: {faults}"))
    return Verdict.HARNESS_ERROR, {"expected": faults}


def _verdict(requirement: Requirement, error: Exception) -> tuple[Verdict, Mapping[str, Any]]:
    broken = Verdict.FAIL if requirement.level == "must" else Verdict.WARNING
    match error:
        case Failed():
            is_prerequisite = isinstance(error, Prerequisite)
            told = {"expected": error.expected, "got": error.got, "exchange": error.exchange}
            return broken, {**told, "is_prerequisite": is_prerequisite}
        case Unanswered():
            return broken, {"expected": f"an answer: {error}", "exchange": error.exchange}
        case TimeoutError():
            return broken, {"expected": "an end: the probe was not through with it in time"}
        case NotObserved():
            return Verdict.NOT_OBSERVED, {"expected": str(error), "trigger": error.trigger}
        case NotApplicable():
            return Verdict.NOT_APPLICABLE, {"expected": str(error)}
        case _:
            raise error
