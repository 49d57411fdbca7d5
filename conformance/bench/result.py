"""Records of a benchmark: the header of a journal, each attempt, and the result.

The published JSON schema (`result.schema.json`) is generated from these models.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT = 1
"""Format version of these files. Newer versions are refused."""

Outcome = Literal["passed", "failed", "error", "timeout", "limit", "unreachable", "skipped", "broken"]
"""Outcome of an attempt.

- `error`: the agent reported that it failed.
- `limit`: the agent was not done after the maximum number of steps.
- `unreachable`: the server did not answer, or not as its protocol requires.
- `skipped`: a task that this one depends on was not passed.
- `broken`: a check is invalid, so the agent was not judged.
"""


class ResultRecord(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class AgentAbout(ResultRecord):
    """One agent of a benchmark."""

    name: str
    target: str
    """The agent as it was passed to the command, without secrets."""
    url: str
    """URL below which `/ap/v1` was called: that of the agent's server, or of the gateway in front of it."""
    fronted: bool
    """True if the bench put its own gateway in front of the agent."""
    because: str = ""
    """Protocol that was detected at the agent's server, with the evidence for it."""
    version: str = ""
    description: str = ""


class TaskAbout(ResultRecord):
    """Description of one benchmark task, as the report stores it: its identity, and the labels by which results
    are grouped."""

    name: str
    hash: str
    category: tuple[str, ...] = ()
    difficulty: str = ""
    weight: float = 1.0
    depends_on: tuple[str, ...] = ()
    description: str = ""


class Machine(ResultRecord):
    """Machine on which the bench ran."""

    system: str
    processor: str
    cpus: int
    memory: int | None = None
    """Size of the main memory, in bytes."""
    python: str
    babelgate: str
    isolation: str = ""
    """Mechanism that denies sockets to Python checks: `kernel` or `hook`."""


class Settings(ResultRecord):
    """Options of the benchmark."""

    repetitions: int = 1
    concurrency: int = 4
    seed: int = 0
    ignore_dependencies: bool = False
    prices: dict[str, Any] = {}
    currency: str = "USD"


class Header(ResultRecord):
    """First line of a journal: the suite, the agents, the settings and the machine."""

    kind: Literal["header"] = "header"
    format: int = FORMAT
    started_at: str
    """Start time (ISO 8601, UTC)."""
    suite: str
    source: str
    """The suite as it was passed to the command."""
    suite_format: str = "babelgate"
    suite_hash: str
    description: str = ""
    notes: tuple[str, ...] = ()
    tasks: tuple[TaskAbout, ...]
    agents: tuple[AgentAbout, ...]
    settings: Settings = Settings()
    machine: Machine


class VerdictRecord(ResultRecord):
    """Result of one check."""

    check: str
    passed: bool
    why: str = ""


class Attempt(ResultRecord):
    """One attempt of one agent at one task."""

    kind: Literal["attempt"] = "attempt"
    agent: str
    task: str
    repetition: int
    """Number of the attempt at the same task, from 0."""
    seed: int
    outcome: Outcome
    why: str = ""
    checks: tuple[VerdictRecord, ...] = ()
    started_at: str = ""
    seconds: float = 0.0
    """Time of all steps in seconds, without uploads and downloads."""
    first_output: float | None = None
    """Time until the first step that returned an output or a file, in seconds."""
    step_seconds: tuple[float, ...] = ()
    """Time of each step, in seconds."""
    artifacts: tuple[str, ...] = ()
    """Paths of the agent's files."""
    usage: dict[str, float] = {}
    """`input_tokens`, `output_tokens`, `total_tokens` and `cost`, as far as the agent reported them."""
    cost: float | None = None
    outputs: tuple[str, ...] = ()
    """Outputs of the steps, each cut after its beginning."""
    task_id: str = ""
    """Id of the task on the agent's server."""

    @property
    def has_passed(self) -> bool:
        """True if all checks hold."""
        return self.outcome == "passed"

    @property
    def is_judged(self) -> bool:
        """True if the attempt says something about the agent."""
        return self.outcome != "broken"


class Interval(ResultRecord):
    """Confidence interval."""

    low: float
    high: float


class Times(ResultRecord):
    """Percentiles of times, in seconds. None if no attempt was measured."""

    p50: float | None = None
    p95: float | None = None
    first_output_p50: float | None = None


class Figures(ResultRecord):
    """Totals of an agent over a set of attempts."""

    attempts: int
    passed: int
    rate: float | None
    """Success rate of the judged attempts. None if no attempt was judged."""
    interval: Interval | None = None
    """95 % interval of the rate, by Wilson's method."""
    outcomes: dict[str, int] = {}
    """Number of attempts, by outcome."""
    pass_k: dict[str, float] = {}
    """Probability that all of k attempts at a task pass, by k."""
    steps: float | None = None
    """Mean number of steps, of the attempts that took any."""
    artifacts: int = 0
    times: Times = Times()
    tokens: dict[str, float] = {}
    told_usage: int = 0
    """Number of attempts that reported their usage."""
    cost: float | None = None


class AgentFigures(ResultRecord):
    """Totals of one agent: of all attempts, by category and by task."""

    agent: str
    all: Figures
    score: float | None = None
    """Weighted mean of the success rates over tasks."""
    categories: dict[str, Figures] = {}
    tasks: dict[str, Figures] = {}


class Comparison(ResultRecord):
    """Comparison of two agents on the tasks at which both were judged."""

    first: str
    second: str
    tasks: int
    better: int
    """Number of tasks at which the first agent has the higher success rate."""
    worse: int
    test: str
    """Name of the statistical test."""
    p: float | None
    """Two-sided p value of the test."""
    p_adjusted: float | None
    """p value adjusted for the number of comparisons, by Holm's method."""
    difference: float
    """Difference of the mean success rates."""
    interval: Interval | None = None
    """95 % interval of the difference, by bootstrap over tasks."""
    effect: float | None = None
    """Matched-pairs rank-biserial correlation of the rates, from -1 to 1."""
    time_ratio: float | None = None
    """Time of the first agent divided by that of the second: median over tasks, from passed attempts only."""
    time_p: float | None = None
    """Two-sided p value of the time ratio."""
    sentence: str
    """The comparison in words."""


class Regression(ResultRecord):
    """Change of a success rate since an earlier result."""

    agent: str
    task: str | None
    """Name of the task. None for all tasks together."""
    before: float
    now: float
    p: float | None
    verdict: Literal["regressed", "lower", "higher", "improved", "same"]
    """`lower` and `higher` may be random."""


class Baseline(ResultRecord):
    """Comparison with an earlier result."""

    file: str
    started_at: str
    compared: int
    """Number of tasks that are unchanged."""
    changed: tuple[str, ...] = ()
    """Tasks that have changed, and so are not compared."""
    missing: tuple[str, ...] = ()
    """Tasks and agents that the earlier result does not contain."""
    rows: tuple[Regression, ...] = ()


class Report(ResultRecord):
    """Content of a result file."""

    format: int = FORMAT
    kind: Literal["result"] = "result"
    header: Header
    complete: bool
    stopped: str = ""
    """Reason if it is not complete."""
    seconds: float
    """Time from the start of the first attempt to the end of the last one, in seconds."""
    agents: tuple[AgentFigures, ...]
    comparisons: tuple[Comparison, ...] = ()
    baseline: Baseline | None = None
    attempts: Annotated[tuple[Attempt, ...], Field(default_factory=tuple)]


def result_schema() -> dict[str, Any]:
    """Return the JSON schema of a result file."""
    schema = Report.model_json_schema(mode="serialization")
    schema["title"] = "A result of babelgate bench"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
