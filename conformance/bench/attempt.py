"""One attempt: an agent at a task, from the creation of the task to the verdict of its checks."""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from babelgate.conformance.bench.check import Evidence, Verdict, judge
from babelgate.conformance.bench.price import Prices, add_usages, normal
from babelgate.conformance.bench.result import Attempt, Outcome, VerdictRecord
from babelgate.conformance.bench.sandbox import Matcher
from babelgate.conformance.bench.server import Artifact, Server, ServerError, Step
from babelgate.conformance.bench.suite import LoadedTask

_KEPT: Final = 4000
"""Characters of an output that go into the record."""
_TRANSFER: Final = 300.0
"""Seconds for what stands outside of a task's own timeout: uploads before its steps, downloads after them."""


@dataclass(frozen=True, slots=True)
class Contender:
    """An agent under its name in the bench."""

    name: str
    server: Server


def seed_of(seed: int, task: str, repetition: int) -> int:
    """Of an attempt: the same for every agent, so that they are compared on equal terms."""
    made = hashlib.sha256(f"{seed}/{task}/{repetition}".encode()).digest()
    return int.from_bytes(made[:4])


@dataclass(slots=True)
class _Seen:
    """What is known so far; an attempt that is cut off has this much."""

    task_id: str = ""
    steps: list[Step] = field(default_factory=list[Step])
    seconds: list[float] = field(default_factory=list[float])
    first_output: float | None = None
    uploads: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """By the id that the server gave them."""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """The agent's, by path."""

    @property
    def error(self) -> str | None:
        return next((step.error for step in reversed(self.steps) if step.error is not None), None)

    @property
    def usage(self) -> dict[str, float]:
        return add_usages(normal(step.usage) for step in self.steps)


class _Over(Exception):
    """There is no verdict to come."""

    def __init__(self, outcome: Outcome, why: str) -> None:
        super().__init__(why)
        self.outcome: Outcome = outcome
        self.why = why


async def attempt(
    contender: Contender, asked: LoadedTask, repetition: int, seed: int, matcher: Matcher, prices: Prices
) -> Attempt:
    """Never raises for what an agent or its server does."""
    task, seen = asked.task, _Seen()
    own = seed_of(seed, task.name, repetition)
    started = datetime.now(UTC)
    verdicts: Sequence[Verdict] = ()
    try:
        await _perform(contender.server, asked, own, seen)
        verdicts = await _judge_attempt(asked, seen, own, matcher)
        outcome, why = _outcome(asked, verdicts, seen.error)
    except _Over as over:
        outcome, why = over.outcome, over.why
    usage = seen.usage
    return Attempt(
        agent=contender.name,
        task=task.name,
        repetition=repetition,
        seed=own,
        outcome=outcome,
        why=why[:1000],
        checks=tuple(VerdictRecord(check=each.check, passed=each.passed, why=each.why[:1000]) for each in verdicts),
        started_at=started.isoformat(timespec="milliseconds"),
        seconds=round(sum(seen.seconds), 6),
        first_output=None if seen.first_output is None else round(seen.first_output, 6),
        step_seconds=tuple(round(each, 6) for each in seen.seconds),
        artifacts=tuple(sorted(seen.files)),
        usage=usage,
        cost=prices.cost(contender.name, usage),
        outputs=tuple(step.output[:_KEPT] for step in seen.steps),
        task_id=seen.task_id,
    )


async def _perform(server: Server, asked: LoadedTask, seed: int, seen: _Seen) -> None:
    task = asked.task
    more = {**task.additional_input, **({"seed": seed} if task.seed else {})}
    try:
        async with asyncio.timeout(_TRANSFER):
            seen.task_id = await server.create(task.input, more)
            for upload in asked.uploads:
                seen.uploads[await server.upload(seen.task_id, upload)] = upload.data
        async with asyncio.timeout(task.timeout):
            await _steps(server, asked, seen)
        async with asyncio.timeout(_TRANSFER):
            await _files(server, seen)
    except TimeoutError:
        bound = task.timeout if seen.task_id else _TRANSFER
        raise _Over("timeout", f"it did not end within {bound:g} seconds") from None
    except ServerError as error:
        raise _Over("unreachable", str(error)) from None


async def _steps(server: Server, asked: LoadedTask, seen: _Seen) -> None:
    task, begun = asked.task, time.monotonic()
    replies = iter(task.replies)
    while len(seen.steps) < task.steps:
        asks = bool(seen.steps) and seen.steps[-1].asks is not False
        reply = next(replies, None) if asks else None
        at = time.monotonic()
        try:
            if reply is None:
                step = await server.step(seen.task_id, None, {})
            else:
                step = await server.step(seen.task_id, reply.input, reply.additional_input)
        finally:
            seen.seconds.append(time.monotonic() - at)
        seen.steps.append(step)
        if seen.first_output is None and (step.output or step.artifacts):
            seen.first_output = time.monotonic() - begun
        if step.is_last:
            return
    raise _Over("limit", f"it was not done after {task.steps} steps")


async def _files(server: Server, seen: _Seen) -> None:
    """Those that the agent made, and those of ours that it changed. Servers that keep files by their name list an
    upload under its own id with what the agent put in its place."""
    listed: Sequence[Artifact] = await server.artifacts(seen.task_id)
    for artifact in listed:
        data = await server.download(seen.task_id, artifact.artifact_id)
        if seen.uploads.get(artifact.artifact_id) != data:
            seen.files[artifact.path] = data


async def _judge_attempt(asked: LoadedTask, seen: _Seen, seed: int, matcher: Matcher) -> Sequence[Verdict]:
    evidence = Evidence(
        task=asked.task.name,
        input=asked.task.input,
        outputs=[step.output for step in seen.steps],
        steps=[step.raw for step in seen.steps],
        error=seen.error,
        artifacts=seen.files,
        uploads={upload.path: upload.data for upload in asked.uploads},
        seed=seed,
    )
    return [await judge(check, evidence, asked.resources, matcher) for check in asked.task.checks]


def _outcome(asked: LoadedTask, verdicts: Sequence[Verdict], error: str | None) -> tuple[Outcome, str]:
    broken = next((each for each in verdicts if each.broken), None)
    if broken is not None:
        return "broken", f"{broken.check}: {broken.why}"
    if error is not None and not any(check.subject == "error" for check in asked.task.checks):
        return "error", error
    failed = next((each for each in verdicts if not each.passed), None)
    if failed is not None:
        return "failed", f"{failed.check}: {failed.why}"
    return "passed", ""
