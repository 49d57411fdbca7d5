"""Records of a benchmark: the header of a journal, each attempt, and the result.

The published JSON schema (`result.schema.json`) is generated from these models.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT = 1
"""Version of the format of these files. Newer versions are refused."""

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
    name: str
    target: str
    """As it was given, without secrets."""
    url: str
    """What `/ap/v1` stood behind; of an agent behind the bench's own gateway, that gateway's."""
    fronted: bool
    """Whether the bench's own gateway stood before it."""
    because: str = ""
    """What its server was found to speak."""
    version: str = ""
    description: str = ""


class TaskAbout(ResultRecord):
    name: str
    hash: str
    category: tuple[str, ...] = ()
    difficulty: str = ""
    weight: float = 1.0
    depends_on: tuple[str, ...] = ()
    description: str = ""


class Machine(ResultRecord):
    system: str
    processor: str
    cpus: int
    memory: int | None = None
    """Bytes."""
    python: str
    babelgate: str
    isolation: str = ""
    """Who refuses sockets to Python checks: `kernel` or `hook`."""


class Settings(ResultRecord):
    repetitions: int = 1
    concurrency: int = 4
    seed: int = 0
    ignore_dependencies: bool = False
    prices: dict[str, Any] = {}
    currency: str = "USD"


class Header(ResultRecord):
    """The first line of a journal: what was asked of whom, with what, where."""

    kind: Literal["header"] = "header"
    format: int = FORMAT
    started_at: str
    """ISO 8601, UTC."""
    suite: str
    source: str
    """The suite as it was asked for."""
    suite_format: str = "babelgate"
    suite_hash: str
    description: str = ""
    notes: tuple[str, ...] = ()
    tasks: tuple[TaskAbout, ...]
    agents: tuple[AgentAbout, ...]
    settings: Settings = Settings()
    machine: Machine


class VerdictRecord(ResultRecord):
    check: str
    passed: bool
    why: str = ""


class Attempt(ResultRecord):
    """One agent at one task, once."""

    kind: Literal["attempt"] = "attempt"
    agent: str
    task: str
    repetition: int
    """From 0."""
    seed: int
    outcome: Outcome
    why: str = ""
    checks: tuple[VerdictRecord, ...] = ()
    started_at: str = ""
    seconds: float = 0.0
    """Of all its steps, uploads and downloads aside."""
    first_output: float | None = None
    """Seconds until a step came back with an output or a file."""
    step_seconds: tuple[float, ...] = ()
    artifacts: tuple[str, ...] = ()
    """Paths of the agent's files."""
    usage: dict[str, float] = {}
    """`input_tokens`, `output_tokens`, `total_tokens` and `cost`, those that the agent told."""
    cost: float | None = None
    outputs: tuple[str, ...] = ()
    """Of the steps, the beginning of each."""
    task_id: str = ""
    """At the agent."""

    @property
    def has_passed(self) -> bool:
        return self.outcome == "passed"

    @property
    def is_judged(self) -> bool:
        """True if the attempt says something about the agent."""
        return self.outcome != "broken"


class Interval(ResultRecord):
    low: float
    high: float


class Times(ResultRecord):
    """Seconds; None where there is nothing to measure."""

    p50: float | None = None
    p95: float | None = None
    first_output_p50: float | None = None


class Figures(ResultRecord):
    """Of an agent over some attempts."""

    attempts: int
    passed: int
    rate: float | None
    """Of the judged ones; None where there are none."""
    interval: Interval | None = None
    """Wilson's, 95 %."""
    outcomes: dict[str, int] = {}
    pass_k: dict[str, float] = {}
    """By k: how likely all of k attempts at a task pass."""
    steps: float | None = None
    """Mean of those that took any."""
    artifacts: int = 0
    times: Times = Times()
    tokens: dict[str, float] = {}
    told_usage: int = 0
    """Attempts that told what they used."""
    cost: float | None = None


class AgentFigures(ResultRecord):
    agent: str
    all: Figures
    score: float | None = None
    """The weighted mean of its success rates over tasks."""
    categories: dict[str, Figures] = {}
    tasks: dict[str, Figures] = {}


class Comparison(ResultRecord):
    """Of two agents, on the tasks that both were at."""

    first: str
    second: str
    tasks: int
    better: int
    """Tasks at which the first has the higher success rate."""
    worse: int
    test: str
    p: float | None
    """Two-sided."""
    p_adjusted: float | None
    """For the number of comparisons, by Holm's method."""
    difference: float
    """Of mean success rates."""
    interval: Interval | None = None
    """Of that difference: 95 %, by bootstrap over tasks."""
    effect: float | None = None
    """The matched-pairs rank-biserial correlation of the rates, from -1 to 1."""
    time_ratio: float | None = None
    """Median over tasks of the first's time by the second's, of passed attempts."""
    time_p: float | None = None
    sentence: str


class Regression(ResultRecord):
    agent: str
    task: str | None
    """None for all tasks together."""
    before: float
    now: float
    p: float | None
    verdict: Literal["regressed", "lower", "higher", "improved", "same"]
    """`lower` and `higher` may be chance."""


class Baseline(ResultRecord):
    file: str
    started_at: str
    compared: int
    """Tasks that were the same."""
    changed: tuple[str, ...] = ()
    """Tasks that are not what they were."""
    missing: tuple[str, ...] = ()
    """Tasks, and agents, of which the earlier file knows nothing."""
    rows: tuple[Regression, ...] = ()


class Report(ResultRecord):
    """The whole of a result file."""

    format: int = FORMAT
    kind: Literal["result"] = "result"
    header: Header
    complete: bool
    stopped: str = ""
    """Why it is not complete."""
    seconds: float
    """From the first attempt to the last."""
    agents: tuple[AgentFigures, ...]
    comparisons: tuple[Comparison, ...] = ()
    baseline: Baseline | None = None
    attempts: Annotated[tuple[Attempt, ...], Field(default_factory=tuple)]


def result_schema() -> dict[str, Any]:
    """Return the JSON schema of a result file."""
    schema = Report.model_json_schema(mode="serialization")
    schema["title"] = "A result of babelgate bench"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
