"""Attempt of one agent at one task, from the creation of the task on its server to the verdicts of the checks."""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from babelgate.conformance.bench.check import CheckVerdict, Evidence, judge
from babelgate.conformance.bench.price import Prices
from babelgate.conformance.bench.result import Attempt, Outcome, VerdictRecord
from babelgate.conformance.bench.sandbox import Matcher
from babelgate.conformance.bench.server import AgentClient, ListedArtifact, ServerError, StepResult
from babelgate.conformance.bench.suite import LoadedTask
from babelgate.usage import add_usages, normal

_MAX_OUTPUT: Final = 4000
"""Maximum length of a step's output in the record of an attempt, in characters. Chosen."""
_TRANSFER_TIMEOUT: Final = 300.0
"""Timeout in seconds for the uploads before the steps, and for the downloads after them. They do not count towards the
timeout of the task."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Agent that takes part in a benchmark: its name in the reports, and the client for its server."""

    name: str
    server: AgentClient


def seed_of(seed: int, task: str, repetition: int) -> int:
    """Return the seed of one attempt, derived from the seed of the benchmark, the task and the repetition. All agents
    get the same."""
    digest = hashlib.sha256(f"{seed}/{task}/{repetition}".encode()).digest()
    return int.from_bytes(digest[:4])


@dataclass(slots=True)
class _State:
    """Progress of an attempt: what the agent has returned so far. An attempt that is cut off is recorded from it."""

    task_id: str = ""
    steps: list[StepResult] = field(default_factory=list[StepResult])
    seconds: list[float] = field(default_factory=list[float])
    first_output: float | None = None
    uploads: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Content of the files uploaded for the agent, by artifact id."""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Content of the files that the agent created or changed, by path."""

    @property
    def error(self) -> str | None:
        return next((step.error for step in reversed(self.steps) if step.error is not None), None)

    @property
    def usage(self) -> dict[str, float]:
        return add_usages(normal(step.usage) for step in self.steps)


class _NoVerdict(Exception):
    """Exception that ends an attempt before its checks, with the outcome to record, such as `timeout`."""

    def __init__(self, outcome: Outcome, why: str) -> None:
        super().__init__(why)
        self.outcome: Outcome = outcome
        self.why = why


async def attempt(
    contender: Contender, loaded: LoadedTask, repetition: int, seed: int, matcher: Matcher, prices: Prices
) -> Attempt:
    """Let an agent attempt a task once, judge its result, and return the record. `repetition` is the index of the
    attempt from 0. `seed` is that of the benchmark, from which `seed_of` derives that of the attempt. Errors of the
    agent or its server are part of the record, and are not raised."""
    task, state = loaded.task, _State()
    attempt_seed = seed_of(seed, task.name, repetition)
    started = datetime.now(UTC)
    verdicts: Sequence[CheckVerdict] = ()
    try:
        await _perform(contender.server, loaded, attempt_seed, state)
        verdicts = await _judge_attempt(loaded, state, attempt_seed, matcher)
        outcome, why = _outcome(loaded, verdicts, state.error)
    except _NoVerdict as over:
        outcome, why = over.outcome, over.why
    usage = state.usage
    return Attempt(
        agent=contender.name,
        task=task.name,
        repetition=repetition,
        seed=attempt_seed,
        outcome=outcome,
        why=why[:1000],
        checks=tuple(VerdictRecord(check=each.check, passed=each.passed, why=each.why[:1000]) for each in verdicts),
        started_at=started.isoformat(timespec="milliseconds"),
        seconds=round(sum(state.seconds), 6),
        first_output=None if state.first_output is None else round(state.first_output, 6),
        step_seconds=tuple(round(each, 6) for each in state.seconds),
        artifacts=tuple(sorted(state.files)),
        usage=usage,
        cost=prices.cost(contender.name, usage),
        outputs=tuple(step.output[:_MAX_OUTPUT] for step in state.steps),
        task_id=state.task_id,
    )


async def _perform(server: AgentClient, loaded: LoadedTask, seed: int, state: _State) -> None:
    task = loaded.task
    more = {**task.additional_input, **({"seed": seed} if task.seed else {})}
    bound = _TRANSFER_TIMEOUT
    try:
        async with asyncio.timeout(bound):
            state.task_id = await server.create(task.input, more)
            for upload in loaded.uploads:
                state.uploads[await server.upload(state.task_id, upload)] = upload.data
        bound = task.timeout
        async with asyncio.timeout(bound):
            await _steps(server, loaded, state)
        bound = _TRANSFER_TIMEOUT
        async with asyncio.timeout(bound):
            await _files(server, state)
    except TimeoutError:
        raise _NoVerdict("timeout", f"it did not end within {bound:g} seconds") from None
    except ServerError as error:
        raise _NoVerdict("unreachable", str(error)) from None


async def _steps(server: AgentClient, loaded: LoadedTask, state: _State) -> None:
    task, begun = loaded.task, time.monotonic()
    replies = iter(task.replies)
    while len(state.steps) < task.steps:
        asks = bool(state.steps) and state.steps[-1].asks is not False
        reply = next(replies, None) if asks else None
        at = time.monotonic()
        try:
            if reply is None:
                step = await server.step(state.task_id, None, {})
            else:
                step = await server.step(state.task_id, reply.input, reply.additional_input)
        finally:
            state.seconds.append(time.monotonic() - at)
        state.steps.append(step)
        if state.first_output is None and (step.output or step.artifacts):
            state.first_output = time.monotonic() - begun
        if step.is_last:
            return
    raise _NoVerdict("limit", f"it was not done after {task.steps} steps")


async def _files(server: AgentClient, state: _State) -> None:
    """Download the files that the agent created or changed, into `state.files`.

    A file with the id and the content of an upload is skipped. The content is compared, because some servers keep the
    id of an upload after the agent has replaced its content.
    """
    listed: Sequence[ListedArtifact] = await server.artifacts(state.task_id)
    for artifact in listed:
        data = await server.download(state.task_id, artifact.artifact_id)
        if state.uploads.get(artifact.artifact_id) != data:
            state.files[artifact.path] = data


async def _judge_attempt(loaded: LoadedTask, state: _State, seed: int, matcher: Matcher) -> Sequence[CheckVerdict]:
    evidence = Evidence(
        task=loaded.task.name,
        input=loaded.task.input,
        outputs=[step.output for step in state.steps],
        steps=[step.raw for step in state.steps],
        error=state.error,
        artifacts=state.files,
        uploads={upload.path: upload.data for upload in loaded.uploads},
        seed=seed,
    )
    return [await judge(check, evidence, loaded.resources, matcher) for check in loaded.task.checks]


def _outcome(loaded: LoadedTask, verdicts: Sequence[CheckVerdict], error: str | None) -> tuple[Outcome, str]:
    broken = next((each for each in verdicts if each.broken), None)
    if broken is not None:
        return "broken", f"{broken.check}: {broken.why}"
    if error is not None and not any(check.subject == "error" for check in loaded.task.checks):
        return "error", error
    failed = next((each for each in verdicts if not each.passed), None)
    if failed is not None:
        return "failed", f"{failed.check}: {failed.why}"
    return "passed", ""
