"""Sample headers and attempts of a bench."""

from collections.abc import Iterable, Sequence
from typing import Any

from babelgate.conformance.bench.result import (
    AgentAbout,
    Attempt,
    Header,
    Machine,
    Outcome,
    Settings,
    TaskAbout,
    VerdictRecord,
)

_OUTCOMES: dict[str, Outcome] = {"+": "passed", "-": "failed", "?": "broken", "s": "skipped", "t": "timeout"}


def header(agents: Sequence[str] = ("one",), tasks: Iterable[TaskAbout | str] = ("a",), **settings: Any) -> Header:
    return Header(
        started_at="2026-01-02T03:04:05+00:00",
        suite="made",
        source="made.yaml",
        suite_hash="0" * 16,
        tasks=tuple(TaskAbout(name=each, hash=f"h-{each}") if isinstance(each, str) else each for each in tasks),
        agents=tuple(AgentAbout(name=each, target=each, url=f"http://{each}.test", fronted=False) for each in agents),
        settings=Settings(**settings),
        machine=Machine(system="Linux", processor="x", cpus=2, python="3.11", babelgate="0"),
    )


def attempt(
    agent: str = "one", task: str = "a", outcome: Outcome = "passed", repetition: int = 0, **more: Any
) -> Attempt:
    """Return an attempt of one second with one step. `more` replaces these defaults."""
    defaults: dict[str, Any] = {
        "started_at": "2026-01-02T03:04:06.000+00:00",
        "seconds": 1.0,
        "step_seconds": (1.0,),
        "outputs": ("said",),
        "checks": (VerdictRecord(check="output is “said”", passed=outcome == "passed"),),
    }
    return Attempt(agent=agent, task=task, repetition=repetition, seed=1, outcome=outcome, **{**defaults, **more})


def attempts(agent: str, **marks: str) -> list[Attempt]:
    """Return attempts by task, with a mark for each: `attempts("one", a="+-")` passed task `a`, then failed it."""
    return [
        attempt(agent, task, _OUTCOMES[mark], number)
        for task, each in marks.items()
        for number, mark in enumerate(each)
    ]
