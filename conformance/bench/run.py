"""Run of a benchmark: each agent attempts each task the requested number of times, a few attempts concurrently.

The run ends when all attempts are done or a budget is used up. The journal records each attempt when it ends.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from babelgate.conformance.bench.attempt import Contender, attempt, seed_of
from babelgate.conformance.bench.price import Prices
from babelgate.conformance.bench.result import Attempt, Settings
from babelgate.conformance.bench.sandbox import Matcher
from babelgate.conformance.bench.suite import LoadedTask, Suite

Place = tuple[str, str, int]
"""Identity of an attempt in a benchmark: agent, task, and repetition from 0."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a benchmark, after which no further attempt begins: seconds, tokens, and cost."""

    seconds: float | None = None
    tokens: float | None = None
    cost: float | None = None

    def reached_bound(self, seconds: float, attempts: Iterable[Attempt]) -> str | None:
        """Return a description of the limit that is reached, such as `the budget of 60 seconds is used up`, or None.
        `seconds` is the elapsed time, and `attempts` are those that have ended."""
        if self.seconds is not None and seconds >= self.seconds:
            return f"the budget of {self.seconds:g} seconds is used up"
        if self.tokens is not None and sum(each.usage.get("total_tokens", 0) for each in attempts) >= self.tokens:
            return f"the budget of {self.tokens:g} tokens is used up"
        if self.cost is not None and sum(each.cost or 0 for each in attempts) >= self.cost:
            return f"the budget of {self.cost:g} is used up"
        return None


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """Progress of the run, reported when an attempt begins or ends."""

    total: int
    done: int
    running: int
    left: float | None
    """Estimated number of seconds until the end. None before the first attempt has ended."""
    latest: Attempt | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """Planned attempt: one repetition of one task by one agent."""

    contender: Contender
    loaded: LoadedTask
    repetition: int

    @property
    def place(self) -> Place:
        return self.contender.name, self.loaded.task.name, self.repetition


def schedule(suite: Suite, contenders: Sequence[Contender], settings: Settings) -> list[Unit]:
    """Return all attempts of a benchmark, in a random order that follows from the seed.

    The attempts of all agents at one task and repetition follow each other, so that a change of load or quota affects
    the agents alike.
    """
    turns = [(loaded, repetition) for repetition in range(settings.repetitions) for loaded in suite.tasks]
    random.Random(settings.seed).shuffle(turns)
    return [Unit(contender, loaded, repetition) for loaded, repetition in turns for contender in contenders]


async def run(
    suite: Suite,
    contenders: Sequence[Contender],
    settings: Settings,
    prices: Prices,
    *,
    matcher: Matcher,
    budget: Budget,
    keep: Callable[[Attempt], None],
    tell: Callable[[BenchProgress], None],
    done: Sequence[Attempt] = (),
) -> str:
    """Make all attempts that are not in `done`. Return why some were not made, or an empty string.

    `keep` is called with the record of each attempt that ends or is skipped, and `tell` with the progress. If the run
    is cancelled, unfinished attempts are not recorded.
    """
    running = _Run(suite, settings, prices, matcher, budget, keep, tell)
    return await running.go(schedule(suite, contenders, settings), done)


@dataclass(slots=True)
class _Run:
    suite: Suite
    settings: Settings
    prices: Prices
    matcher: Matcher
    budget: Budget
    keep: Callable[[Attempt], None]
    tell: Callable[[BenchProgress], None]
    over: dict[Place, Attempt] = field(default_factory=dict[Place, Attempt])
    waiting: deque[Unit] = field(default_factory=deque[Unit])
    active: int = 0
    begun: float = 0.0
    total: int = 0
    stopped: str = ""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def go(self, units: Iterable[Unit], done: Iterable[Attempt]) -> str:
        self.over = {(each.agent, each.task, each.repetition): each for each in done}
        ordered = list(units)
        self.total = len(ordered)
        self.waiting = deque(unit for unit in ordered if unit.place not in self.over)
        self.begun = time.monotonic()
        self._say()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.settings.concurrency, len(self.waiting))):
                group.create_task(self._work())
        return self.stopped

    async def _work(self) -> None:
        while (unit := await self._next()) is not None:
            record = await self._make_attempt(unit)
            async with self.changed:
                self.active -= 1
                self._add(record)
                self.changed.notify_all()

    async def _next(self) -> Unit | None:
        """Return the next attempt that can begin, and wait for one if none can begin yet.

        Return None if no attempt is left, or a budget is used up.
        """
        async with self.changed:
            while self.waiting:
                spent = self.budget.reached_bound(time.monotonic() - self.begun, self.over.values())
                if spent is not None:
                    self.stopped = f"{spent}: {len(self.waiting)} attempts were not made"
                    self.changed.notify_all()  # Other workers may wait for attempts that will not be made.
                    return None
                unit = self._ready()
                if unit is not None:
                    self.active += 1
                    return unit
                if self.waiting:  # Otherwise the last attempts were skipped, and no worker is left to notify this one.
                    await self.changed.wait()
            self.changed.notify_all()
            return None

    def _ready(self) -> Unit | None:
        """Remove an attempt from the queue whose dependencies have all passed, and return it. Return None if there is
        no such attempt. Attempts with a failed dependency are recorded as skipped."""
        skipped = True
        while skipped:
            skipped = False
            for unit in list(self.waiting):
                states = [self.over.get(place) for place in self._needs(unit)]
                failed = next((each for each in states if each is not None and not each.has_passed), None)
                if failed is not None:
                    self.waiting.remove(unit)
                    self._add(self._skip(unit, failed))
                    skipped = True
                elif None not in states:
                    self.waiting.remove(unit)
                    return unit
        return None

    def _needs(self, unit: Unit) -> Sequence[Place]:
        if self.settings.ignore_dependencies:
            return ()
        return [(unit.contender.name, name, unit.repetition) for name in unit.loaded.task.depends_on]

    def _skip(self, unit: Unit, failed: Attempt) -> Attempt:
        agent, task, repetition = unit.place
        seed = seed_of(self.settings.seed, task, repetition)
        why = f"it depends on {failed.task}, which was not passed"
        return Attempt(agent=agent, task=task, repetition=repetition, seed=seed, outcome="skipped", why=why)

    async def _make_attempt(self, unit: Unit) -> Attempt:
        return await attempt(
            unit.contender, unit.loaded, unit.repetition, self.settings.seed, self.matcher, self.prices
        )

    def _add(self, record: Attempt) -> None:
        self.keep(record)
        self.over[record.agent, record.task, record.repetition] = record
        self._say(record)

    def _say(self, latest: Attempt | None = None) -> None:
        self.tell(BenchProgress(self.total, len(self.over), self.active, self._remaining_seconds(), latest))

    def _remaining_seconds(self) -> float | None:
        """Return the estimated seconds until the end, or None before the first attempt has ended.

        The estimate is the mean time of the same tasks so far, or of all tasks if a task is new.
        """
        seconds: dict[str, list[float]] = {}
        for each in self.over.values():
            if each.step_seconds:
                seconds.setdefault(each.task, []).append(each.seconds)
        if not seconds:
            return None
        means: Mapping[str, float] = {task: sum(each) / len(each) for task, each in seconds.items()}
        usual = sum(means.values()) / len(means)
        work = sum(means.get(unit.loaded.task.name, usual) for unit in self.waiting) + usual * self.active / 2
        return work / max(1, min(self.settings.concurrency, len(self.waiting) + self.active))
