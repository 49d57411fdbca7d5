"""The run of a bench: every agent at every task as often as was asked, a few at a time, until all is done or a budget
is used up. What is over is in the journal at once."""

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
"""Of an attempt in a bench: agent, task, repetition."""


@dataclass(frozen=True, slots=True)
class Budget:
    """When it is used up, no further attempt begins."""

    seconds: float | None = None
    tokens: float | None = None
    cost: float | None = None

    def reached_bound(self, seconds: float, attempts: Iterable[Attempt]) -> str | None:
        """Which of the bounds has been reached, in words."""
        if self.seconds is not None and seconds >= self.seconds:
            return f"the budget of {self.seconds:g} seconds is used up"
        if self.tokens is not None and sum(each.usage.get("total_tokens", 0) for each in attempts) >= self.tokens:
            return f"the budget of {self.tokens:g} tokens is used up"
        if self.cost is not None and sum(each.cost or 0 for each in attempts) >= self.cost:
            return f"the budget of {self.cost:g} is used up"
        return None


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known when something has begun or ended."""

    total: int
    done: int
    running: int
    left: float | None
    """Seconds that the rest is likely to take; None before anything is known."""
    latest: Attempt | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """An attempt that is to be made."""

    contender: Contender
    asked: LoadedTask
    repetition: int

    @property
    def place(self) -> Place:
        return self.contender.name, self.asked.task.name, self.repetition


def schedule(suite: Suite, contenders: Sequence[Contender], settings: Settings) -> list[Unit]:
    """Task by task in an order that follows from the seed, with all agents at a task next to each other: what changes
    while the bench runs (the load, a quota) meets all of them alike."""
    turns = [(asked, repetition) for repetition in range(settings.repetitions) for asked in suite.tasks]
    random.Random(settings.seed).shuffle(turns)
    return [Unit(contender, asked, repetition) for asked, repetition in turns for contender in contenders]


async def run(
    suite: Suite,
    contenders: Sequence[Contender],
    settings: Settings,
    prices: Prices,
    *,
    matcher: Matcher,
    budget: Budget,
    keep: Callable[[Attempt], None],
    tell: Callable[[Progress], None],
    done: Sequence[Attempt] = (),
) -> str:
    """Make the attempts that are not `done`; why some were not made, or nothing. A cancellation leaves those that are
    under way unmade."""
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
    tell: Callable[[Progress], None]
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
            made = await self._make_attempt(unit)
            async with self.changed:
                self.active -= 1
                self._add(made)
                self.changed.notify_all()

    async def _next(self) -> Unit | None:
        """The next attempt whose dependencies are decided; None when there is nothing more to do."""
        async with self.changed:
            while self.waiting:
                spent = self.budget.reached_bound(time.monotonic() - self.begun, self.over.values())
                if spent is not None:
                    self.stopped = f"{spent}: {len(self.waiting)} attempts were not made"
                    self.changed.notify_all()  # others may wait for what is not going to be
                    return None
                unit = self._ready()
                if unit is not None:
                    self.active += 1
                    return unit
                if self.waiting:  # else the last of them were skipped, and nobody is left to say so
                    await self.changed.wait()
            self.changed.notify_all()
            return None

    def _ready(self) -> Unit | None:
        """Those that are to be skipped are done with on the way."""
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
        return [(unit.contender.name, name, unit.repetition) for name in unit.asked.task.depends_on]

    def _skip(self, unit: Unit, failed: Attempt) -> Attempt:
        agent, task, repetition = unit.place
        seed = seed_of(self.settings.seed, task, repetition)
        why = f"it depends on {failed.task}, which was not passed"
        return Attempt(agent=agent, task=task, repetition=repetition, seed=seed, outcome="skipped", why=why)

    async def _make_attempt(self, unit: Unit) -> Attempt:
        return await attempt(unit.contender, unit.asked, unit.repetition, self.settings.seed, self.matcher, self.prices)

    def _add(self, made: Attempt) -> None:
        self.keep(made)
        self.over[made.agent, made.task, made.repetition] = made
        self._say(made)

    def _say(self, latest: Attempt | None = None) -> None:
        self.tell(Progress(self.total, len(self.over), self.active, self._remaining_seconds(), latest))

    def _remaining_seconds(self) -> float | None:
        """By how long the same tasks took so far, or all of them where one is new."""
        seconds: dict[str, list[float]] = {}
        for each in self.over.values():
            if each.step_seconds:
                seconds.setdefault(each.task, []).append(each.seconds)
        if not seconds:
            return None
        means: Mapping[str, float] = {task: sum(each) / len(each) for task, each in seconds.items()}
        usual = sum(means.values()) / len(means)
        work = sum(means.get(unit.asked.task.name, usual) for unit in self.waiting) + usual * self.active / 2
        return work / max(1, min(self.settings.concurrency, len(self.waiting) + self.active))
