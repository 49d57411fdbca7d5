"""Run the probes of a requirement set against an agent, concurrently, and collect the results."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import Any, Final

from babelgate.conformance.probe import Context, Opened, ProbeOptions, ProbeSuite
from babelgate.conformance.report.model import SetReport
from babelgate.conformance.requirement import Requirement, RequirementSet
from babelgate.conformance.verdict import Failed, NotApplicable, NotObserved, Prerequisite, Result, Verdict
from babelgate.conformance.wire.exchange import Exchange
from babelgate.conformance.wire.http import EXCHANGES, Unanswered, Wire
from babelgate.conformance.wire.schema import Violation, load_schemas

_TIMEOUT_FACTOR: Final = 12
"""Maximum duration of one probe, as a multiple of the timeout for one answer. Chosen."""


def suite_of(chosen: RequirementSet) -> ProbeSuite[Any]:
    return import_module(chosen.module).SUITE


async def judge(
    chosen: RequirementSet,
    url: str,
    options: ProbeOptions,
    *,
    is_requested: bool = False,
    selected: Callable[[Requirement], bool] = lambda _: True,
    on_start: Callable[[Opened[Any], int], None] = lambda _, __: None,
    on_result: Callable[[Result], None] = lambda _: None,
) -> SetReport:
    """Judge an agent by one requirement set and return the report. `selected` chooses the requirements. `on_start` is
    called with the opened agent and their number, and `on_result` with each result.

    If `is_requested`, the user named this protocol version, so it is judged even if the agent does not seem to speak
    it. Otherwise raises NotSpoken if the agent does not speak it. Raises Unanswered if no server answers.
    """
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
        opened = await suite.open(wire, url, options, is_requested)
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
        evidence=opened.because,
        capabilities=opened.capabilities,
        results=results,
        seconds=time.monotonic() - started,
        withheld=sorted(wire.withheld),
        messages=sum(len(exchange.messages) for exchange in wire.exchanges),
    )


class _Runner:
    def __init__(self, chosen: RequirementSet, suite: ProbeSuite[Any], context: Context[Any]) -> None:
        self._set = chosen
        self._suite = suite
        self._context = context
        self._slots = asyncio.Semaphore(context.options.concurrency)
        self._responsible: dict[tuple[str, ...], str] = {}
        """Cache of `responsible`: id of the requirement that a violation breaks, by `Violation.definitions`."""

    async def run(self, requirements: Sequence[Requirement], on_result: Callable[[Result], None]) -> list[Result]:
        """Return the result of each requirement, in order, and call `on_result` with each as it is found. Requirements
        on the form of messages are judged last, when all messages have been exchanged."""
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
        if (unjudged := self._unjudged(requirement)) is not None:
            return unjudged
        exchanges: list[Exchange] = []
        token = EXCHANGES.set(exchanges)
        started = time.monotonic()
        details: Mapping[str, Any] = {}
        try:
            async with asyncio.timeout(self._context.options.timeout * _TIMEOUT_FACTOR):
                await self._suite.probes[requirement.probe](self._context)
        except (Failed, Unanswered, NotObserved, NotApplicable, TimeoutError) as error:
            verdict, details = _verdict(requirement, error)
        except Exception as error:
            verdict, details = _verdict_on_error(requirement, exchanges, f"{type(error).__name__}: {error}")
        else:
            verdict = Verdict.PASS
        finally:
            EXCHANGES.reset(token)
        if invalid_requests := list(_invalid_requests(exchanges)):
            earlier = [each for each in exchanges if each.number < invalid_requests[0][0].number]
            verdict, details = _verdict_on_error(requirement, earlier, "; ".join(text for _, text in invalid_requests))
        if verdict is not Verdict.PASS and exchanges:
            details = {"exchange": exchanges[-1], **{key: value for key, value in details.items() if value is not None}}
        return Result(requirement, verdict, exchanges=exchanges, seconds=time.monotonic() - started, **details)

    def _judge_messages(self, requirement: Requirement) -> Result:
        """Return the result of a requirement on the form of messages, from all messages of the run."""
        if (unjudged := self._unjudged(requirement)) is not None:
            return unjudged
        described = frozenset(name for name in load_schemas(self._set.name).names if is_about(requirement, name))
        evidence: list[Exchange] = []
        broken: list[tuple[Exchange, Violation]] = []
        for exchange in self._context.wire.exchanges:
            for message in exchange.messages:
                if message.is_from_check:
                    continue
                if not described.isdisjoint(message.definitions):
                    evidence.append(exchange)
                broken += [
                    (exchange, violation)
                    for violation in message.violations
                    if self._id_of(violation) == requirement.id
                ]
        if broken:
            exchange, violation = broken[0]
            verdict = Verdict.FAIL if requirement.level == "must" else Verdict.WARNING
            more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
            expected = f"{violation.definitions[0]} as specified; {violation.path}: {violation.text}{more}"
            broken_exchanges = list(dict.fromkeys(each for each, _ in broken))[:5]
            return Result(requirement, verdict, expected, exchange=exchange, exchanges=broken_exchanges)
        if not evidence and requirement.is_optional:
            return Result(requirement, Verdict.NOT_APPLICABLE, "no message contained one")
        if not evidence:
            return Result(requirement, Verdict.NOT_OBSERVED, "no probe received such a message")
        return Result(requirement, Verdict.PASS, exchanges=evidence[:1])

    def _unjudged(self, requirement: Requirement) -> Result | None:
        """Return the result of a requirement that does not apply to this agent, or that this installation cannot test.
        Return None for all others."""
        if why := _inapplicable(requirement, self._context.capabilities):
            return Result(requirement, Verdict.NOT_APPLICABLE, why)
        for capability, why in self._context.untestable.items():
            if capability in map(str.strip, requirement.capability.split(",")):
                return Result(requirement, Verdict.NOT_OBSERVED, why)
        return None

    def _id_of(self, violation: Violation) -> str:
        """Return the id of the requirement that a violation breaks (`responsible`), from the cache if possible."""
        if violation.definitions not in self._responsible:
            self._responsible[violation.definitions] = responsible(self._set.requirements, violation)
        return self._responsible[violation.definitions]


@cache
def is_about(requirement: Requirement, definition: str) -> bool:
    """Return True if the requirement covers the form of messages that the schema definition `definition` describes."""
    return any(fnmatchcase(definition, pattern) for pattern in requirement.schemas)


def responsible(requirements: Sequence[Requirement], violation: Violation) -> str:
    """Return the id of the requirement that a violation breaks, or an empty string if no requirement covers it.

    It is the requirement that covers the innermost definition in which the violation lies.
    """
    for definition in violation.definitions:
        for requirement in requirements:
            if is_about(requirement, definition):
                return requirement.id
    return ""


def _inapplicable(requirement: Requirement, capabilities: frozenset[str]) -> str:
    """Return why the requirement does not apply to this agent, or an empty string if it does."""
    for each in filter(None, requirement.capability.split(",")):
        negated, capability = each.strip().startswith("not "), each.strip().removeprefix("not ")
        if negated and capability in capabilities:
            return f"the agent declares {capability}"
        if not negated and capability not in capabilities:
            return f"the agent does not declare {capability}"
    return ""


def _invalid_requests(exchanges: Sequence[Exchange]) -> Iterator[tuple[Exchange, str]]:
    for exchange in exchanges:
        for message in exchange.messages:
            if message.is_from_check:
                for each in message.violations:
                    text = f"request #{exchange.number} of the check breaks {message.schema}: {each.path}: {each.text}"
                    yield exchange, text


def _verdict_on_error(
    requirement: Requirement, exchanges: Sequence[Exchange], faults: str
) -> tuple[Verdict, Mapping[str, Any]]:
    """Return the verdict for an exception in a probe, or for an invalid request that the check sent, and the details
    for its Result. `faults` describes the error.

    The agent is at fault if it refused an earlier request or sent a message that violates its schema, because the probe
    then had nothing valid to read. Otherwise the check is at fault.
    """
    wrong = (message.violations for exchange in exchanges for message in exchange.messages if not message.is_from_check)
    if any(wrong) or any((exchange.status or 0) >= 400 for exchange in exchanges):
        return _verdict(requirement, Prerequisite(f"a readable answer: {faults}"))
    return Verdict.HARNESS_ERROR, {"expected": faults}


def _verdict(requirement: Requirement, error: Exception) -> tuple[Verdict, Mapping[str, Any]]:
    broken = Verdict.FAIL if requirement.level == "must" else Verdict.WARNING
    match error:
        case Failed():
            is_prerequisite = isinstance(error, Prerequisite)
            details = {"expected": error.expected, "actual": error.actual, "exchange": error.exchange}
            return broken, {**details, "is_prerequisite": is_prerequisite}
        case Unanswered():
            return broken, {"expected": f"an answer: {error}", "exchange": error.exchange}
        case TimeoutError():
            return broken, {"expected": "an end within the time limit of the probe"}
        case NotObserved():
            return Verdict.NOT_OBSERVED, {"expected": str(error), "trigger": error.trigger}
        case NotApplicable():
            return Verdict.NOT_APPLICABLE, {"expected": str(error)}
        case _:
            raise error
