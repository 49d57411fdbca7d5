"""Records of a benchmark: the header of a journal, each attempt, and the result.

The published JSON schema (`result.schema.json`) is generated from these models.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT = 1
"""Format version of journals and result files. Files of a newer version are refused."""

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
    """Description of an agent that took part in the benchmark."""

    name: str
    target: str
    """Agent as it was named on the command line, without secrets."""
    url: str
    """URL below which `/ap/v1` was called: that of the agent's server, or of the gateway in front of it."""
    fronted: bool
    """True if the bench put its own gateway in front of the agent."""
    because: str = ""
    """Protocol that was detected at the agent's server, and the response that shows it."""
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
    """Options with which the benchmark was started."""

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
    """Path or name of the suite, as on the command line."""
    suite_format: str = "babelgate"
    suite_hash: str
    description: str = ""
    notes: tuple[str, ...] = ()
    tasks: tuple[TaskAbout, ...]
    agents: tuple[AgentAbout, ...]
    settings: Settings = Settings()
    machine: Machine


class VerdictRecord(ResultRecord):
    """Result of one check in an attempt."""

    check: str
    passed: bool
    why: str = ""


class Attempt(ResultRecord):
    """One attempt of one agent at one task."""

    kind: Literal["attempt"] = "attempt"
    agent: str
    task: str
    repetition: int
    """Index of this attempt among the repeated attempts of the same agent at the same task, from 0."""
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
    """Paths of the files that the agent created or changed."""
    usage: dict[str, float] = {}
    """`input_tokens`, `output_tokens`, `total_tokens` and `cost`, as far as the agent reported them."""
    cost: float | None = None
    outputs: tuple[str, ...] = ()
    """Output of each step, cut to its first 4000 characters."""
    task_id: str = ""
    """Id of the task on the agent's server."""

    @property
    def has_passed(self) -> bool:
        """True if all checks of the task hold."""
        return self.outcome == "passed"

    @property
    def is_judged(self) -> bool:
        """True if the attempt counts in the success rate. False if a check was invalid (`broken`)."""
        return self.outcome != "broken"


class Interval(ResultRecord):
    """Confidence interval of a rate or of a difference of rates."""

    low: float
    high: float


class Times(ResultRecord):
    """Percentiles of the time of an attempt, and of the time to its first output, in seconds. None if no attempt was
    measured."""

    p50: float | None = None
    p95: float | None = None
    first_output_p50: float | None = None


class Figures(ResultRecord):
    """Totals of one agent over a set of attempts, for example all attempts at one task."""

    attempts: int
    passed: int
    rate: float | None
    """Success rate of the judged attempts. None if no attempt was judged."""
    interval: Interval | None = None
    """95 % confidence interval of `rate`, by Wilson's method."""
    outcomes: dict[str, int] = {}
    """Number of attempts, by outcome."""
    pass_k: dict[str, float] = {}
    """Estimated probability that k attempts at a task all pass, by k (pass^k): the mean over tasks."""
    steps: float | None = None
    """Mean number of steps of an attempt, without attempts that took no step."""
    artifacts: int = 0
    times: Times = Times()
    tokens: dict[str, float] = {}
    told_usage: int = 0
    """Number of attempts whose agent reported its usage."""
    cost: float | None = None


class AgentFigures(ResultRecord):
    """Totals of one agent: of all attempts, by category and by task."""

    agent: str
    all: Figures
    score: float | None = None
    """Mean of the success rates at all tasks, weighted by the weights of the tasks."""
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
    """Name of the statistical test: McNemar's exact test or the paired permutation test."""
    p: float | None
    """Two-sided p value of the test."""
    p_adjusted: float | None
    """p value adjusted for the number of comparisons, by Holm's method."""
    difference: float
    """Mean success rate of the first agent minus that of the second, over tasks."""
    interval: Interval | None = None
    """95 % confidence interval of `difference`, by bootstrap over tasks."""
    effect: float | None = None
    """Matched-pairs rank-biserial correlation of the success rates, from -1 to 1: positive if the first agent is
    better."""
    time_ratio: float | None = None
    """Time of the first agent divided by that of the second: median over tasks, from passed attempts only."""
    time_p: float | None = None
    """Two-sided p value of the Wilcoxon signed-rank test on `time_ratio`."""
    sentence: str
    """Comparison as a sentence for readers who do not know p values."""


class Regression(ResultRecord):
    """Change of one agent's success rate at one task, or at all tasks, since an earlier result."""

    agent: str
    task: str | None
    """Name of the task. None for all tasks together."""
    before: float
    now: float
    p: float | None
    verdict: Literal["regressed", "lower", "higher", "improved", "same"]
    """Direction of the change: `regressed` and `improved` are significant, while `lower` and `higher` may be random."""


class Baseline(ResultRecord):
    """Comparison of the whole result with an earlier one."""

    file: str
    started_at: str
    compared: int
    """Number of tasks that are the same in both results, so that they are compared."""
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
    """Reason why attempts are missing; empty if the result is complete."""
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
