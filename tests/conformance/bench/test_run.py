"""Run of a bench against a scripted server of /ap/v1 in this process."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from babelgate.conformance.bench.attempt import Contender
from babelgate.conformance.bench.price import Price, Prices
from babelgate.conformance.bench.result import Attempt, Settings
from babelgate.conformance.bench.run import BenchProgress, Budget, run, schedule
from babelgate.conformance.bench.sandbox import Matcher
from babelgate.conformance.bench.server import AgentClient
from babelgate.conformance.bench.suite import Suite, load_suite
from tests.bridge import client, read_body
from tests.conformance.bench.samples import attempt

BOUND = 30

TASKS = """
tasks:
  - {name: first, input: good, checks: [{equals: good}]}
  - {name: second, input: good, depends_on: first, checks: [{equals: good}]}
  - {name: third, input: good, depends_on: second, checks: [{equals: good}]}
"""


class Scripted:
    """Server that runs one step per task, which repeats the input.

    It records the inputs. It awaits `before` ahead of each step, with the ASGI receive function of the request.
    """

    def __init__(self) -> None:
        self.inputs: dict[str, str] = {}
        self.active = 0
        self.peak = 0
        """Maximum number of concurrent steps."""
        self.usage: dict[str, Any] = {}
        self.before: Callable[[Any], Any] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = await read_body(receive)
        status, answer = await self.answer(scope["path"].split("/"), json.loads(body or b"{}"), receive)
        head = {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        await send(head)
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    async def answer(self, path: Sequence[str], body: dict[str, Any], receive: Any) -> tuple[int, Any]:
        if path[-1] == "tasks":
            task_id = str(uuid4())
            self.inputs[task_id] = body.get("input", "")
            return 200, {"task_id": task_id, "artifacts": []}
        if path[-1] == "artifacts":
            return 200, {"artifacts": [], "pagination": {}}
        self.active += 1
        self.peak = max(self.peak, self.active)
        try:
            if self.before is not None:
                await self.before(receive)
        finally:
            self.active -= 1
        about = {"usage": self.usage} if self.usage else {}
        return 200, {"output": self.inputs[path[-2]], "is_last": True, "additional_output": about}


def suite(folder: Path, text: str = TASKS) -> Suite:
    (folder / "tasks.yaml").write_text(text, encoding="utf-8")
    return load_suite(str(folder / "tasks.yaml"))


def many(folder: Path, number: int, input: str = "good") -> Suite:
    return suite(
        folder,
        "tasks:\n"
        + "".join(f"  - {{name: t{i}, input: {input}, checks: [{{equals: good}}]}}\n" for i in range(number)),
    )


async def play(
    tasks: Suite,
    server: Scripted,
    *,
    names: Sequence[str] = ("one",),
    budget: Budget = Budget(),  # noqa: B008
    prices: Prices = Prices({}),  # noqa: B008
    done: Sequence[Attempt] = (),
    reports: list[BenchProgress] | None = None,
    **settings: Any,
) -> tuple[str, list[Attempt]]:
    attempts: list[Attempt] = []
    async with asyncio.timeout(BOUND), client(server) as http, Matcher() as matcher:
        contenders = [Contender(name, AgentClient("http://127.0.0.1:8000", http)) for name in names]
        stopped = await run(
            tasks,
            contenders,
            Settings(**settings),
            prices,
            matcher=matcher,
            budget=budget,
            keep=attempts.append,
            tell=list[BenchProgress]().append if reports is None else reports.append,
            done=done,
        )
    return stopped, attempts


async def test_every_agent_attempts_every_task_the_requested_number_of_times(tmp_path: Path) -> None:
    stopped, attempts = await play(suite(tmp_path), Scripted(), names=("one", "other"), repetitions=2)
    assert stopped == ""
    assert sorted((each.agent, each.task, each.repetition) for each in attempts) == [
        (agent, task, number)
        for agent in ("one", "other")
        for task in ("first", "second", "third")
        for number in (0, 1)
    ]
    assert {each.outcome for each in attempts} == {"passed"}


def test_seed_determines_the_order_with_agents_side_by_side(tmp_path: Path) -> None:
    tasks = many(tmp_path, 8)
    server: Any = None
    contenders = [Contender("one", server), Contender("other", server)]

    def order(seed: int) -> list[tuple[str, str, int]]:
        return [unit.place for unit in schedule(tasks, contenders, Settings(seed=seed, repetitions=2))]

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == sorted(order(2))
    for one, other in zip(order(1)[::2], order(1)[1::2], strict=True):
        assert (one[0], other[0], one[1:]) == ("one", "other", other[1:])


async def test_seed_of_an_attempt_is_the_same_for_every_agent(tmp_path: Path) -> None:
    _, attempts = await play(many(tmp_path, 3), Scripted(), names=("one", "other"), repetitions=2, seed=7)
    seeds = {agent: {(each.task, each.repetition): each.seed for each in attempts if each.agent == agent} for agent in
             ("one", "other")}  # fmt: skip
    assert seeds["one"] == seeds["other"]
    assert len(set(seeds["one"].values())) == 6


async def test_concurrency_is_exactly_the_requested_number(tmp_path: Path) -> None:
    server, together = Scripted(), asyncio.Event()

    async def wait(_: Any) -> None:
        if server.active == 3:
            together.set()
        await together.wait()

    server.before = wait
    await play(many(tmp_path, 7), server, concurrency=3)
    assert server.peak == 3


async def test_dependents_of_a_failed_task_are_skipped(tmp_path: Path) -> None:
    server = Scripted()
    _, attempts = await play(suite(tmp_path, TASKS.replace("input: good", "input: bad", 1)), server)
    assert {each.task: each.outcome for each in attempts} == {
        "first": "failed",
        "second": "skipped",
        "third": "skipped",
    }
    assert {each.task: each.why for each in attempts if each.outcome == "skipped"} == {
        "second": "it depends on first, which was not passed",
        "third": "it depends on second, which was not passed",
    }
    assert list(server.inputs.values()) == ["bad"]


async def test_dependencies_can_be_ignored(tmp_path: Path) -> None:
    bad = suite(tmp_path, TASKS.replace("input: good", "input: bad", 1))
    _, attempts = await play(bad, Scripted(), ignore_dependencies=True)
    assert {each.task: each.outcome for each in attempts} == {"first": "failed", "second": "passed", "third": "passed"}


async def test_earlier_attempts_are_not_repeated_and_decide_dependencies(tmp_path: Path) -> None:
    server = Scripted()
    _, attempts = await play(suite(tmp_path), server, done=[attempt(task="first", outcome="failed")])
    assert [(each.task, each.outcome) for each in attempts] == [("second", "skipped"), ("third", "skipped")]
    assert server.inputs == {}


USAGE = {"input_tokens": 600_000, "output_tokens": 400_000}


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget(tokens=2_000_000), "the budget of 2e+06 tokens is used up: 3 attempts were not made"),
        (Budget(cost=5.0), "the budget of 5 is used up: 3 attempts were not made"),
        (Budget(tokens=5_000_000, cost=100), ""),
    ],
)
async def test_no_attempt_starts_after_the_budget_is_used_up(tmp_path: Path, budget: Budget, words: str) -> None:
    """Test attempts that use a million tokens each, for 2.60."""
    server = Scripted()
    server.usage = USAGE
    prices = Prices({"*": Price(input=1, output=5)})
    stopped, attempts = await play(many(tmp_path, 5), server, budget=budget, prices=prices, concurrency=1)
    assert stopped == words
    assert len(attempts) == (2 if words else 5)
    assert {each.cost for each in attempts} == {2.6}


async def test_usage_of_earlier_attempts_counts_toward_the_budget(tmp_path: Path) -> None:
    spent = attempt(task="t0", usage={"total_tokens": 100.0})
    stopped, attempts = await play(many(tmp_path, 3), Scripted(), budget=Budget(tokens=100), done=[spent])
    assert (stopped, attempts) == ("the budget of 100 tokens is used up: 2 attempts were not made", [])


def test_time_is_a_budget() -> None:
    assert Budget(seconds=2).reached_bound(1.9, []) is None
    assert Budget(seconds=2).reached_bound(2.0, []) == "the budget of 2 seconds is used up"
    assert Budget().reached_bound(1e9, [attempt(cost=1e9)]) is None


async def test_progress_reports_the_count_and_the_latest_attempt(tmp_path: Path) -> None:
    reports: list[BenchProgress] = []
    await play(many(tmp_path, 3), Scripted(), reports=reports, concurrency=1)
    assert [(each.done, each.total) for each in reports] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert reports[0].left is None and reports[0].latest is None
    assert all(each.latest is not None for each in reports[1:])
    assert (reports[-1].left, reports[-1].running) == (0, 0)


async def test_cancelled_run_keeps_only_finished_attempts(tmp_path: Path) -> None:
    server, stuck = Scripted(), asyncio.Event()

    async def hang_at_the_second(receive: Any) -> None:
        if len(server.inputs) == 2:
            stuck.set()
            while (await receive())["type"] != "http.disconnect":
                pass

    server.before = hang_at_the_second
    attempts: list[Attempt] = []
    async with asyncio.timeout(BOUND), client(server) as http, Matcher() as matcher:
        contenders = [Contender("one", AgentClient("http://127.0.0.1:8000", http))]
        bench = run(
            many(tmp_path, 3),
            contenders,
            Settings(concurrency=1),
            Prices({}),
            matcher=matcher,
            budget=Budget(),
            keep=attempts.append,
            tell=lambda _: None,
        )
        with pytest.raises(ExceptionGroup, match="unhandled errors"):
            async with asyncio.TaskGroup() as group:
                group.create_task(bench)
                await stuck.wait()
                raise KeyError  # which cancels what runs
    assert [each.outcome for each in attempts] == ["passed"]


class Asking(Scripted):
    """Server with four steps per task. The second step asks, and each step returns its input."""

    def __init__(self, *, marks: bool) -> None:
        super().__init__()
        self.marks = marks
        self.steps = 0

    async def answer(self, path: Sequence[str], body: dict[str, Any], receive: Any) -> tuple[int, Any]:
        if path[-1] != "steps":
            return await super().answer(path, body, receive)
        self.steps += 1
        about: dict[str, Any] = {"babelgate": {}} if self.marks else {}
        if self.marks and self.steps == 2:
            about["status"] = "input-required"
        output = f"{self.steps}: {body.get('input')}"
        return 200, {"output": output, "is_last": self.steps == 4, "additional_output": about}


@pytest.mark.parametrize(
    ("marks", "outputs"),
    [
        (True, ("1: None", "2: None", "3: Ann", "4: None")),
        (False, ("1: None", "2: Ann", "3: Bob", "4: None")),
    ],
)
async def test_replies_answer_marked_questions(tmp_path: Path, marks: bool, outputs: tuple[str, ...]) -> None:
    text = "tasks:\n  - {name: t, input: good, replies: [Ann, Bob], checks: [{contains: good}]}\n"
    _, (single,) = await play(suite(tmp_path, text), Asking(marks=marks))
    assert single.outputs == outputs
