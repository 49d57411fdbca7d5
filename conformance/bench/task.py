"""Task file: the tasks of a benchmark, and the checks of their results.

The published JSON schema (`task.schema.json`) is generated from these models. The docstrings of their fields are what
users read in their editor.
"""

from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, model_validator

NAME: Final = r"^[A-Za-z0-9][-A-Za-z0-9_.]{0,99}$"
"""Pattern for the name of a suite or a task, which becomes part of file names and table rows."""
FILE_LIMIT: Final = 64 * 2**20
"""Maximum size of one file of a task, in bytes."""

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


def _word_to_list(value: object) -> object:
    """Accept a single word as a list of one word."""
    return [value] if isinstance(value, str) else value


Words = Annotated[
    tuple[str, ...],
    BeforeValidator(_word_to_list, json_schema_input_type=str | list[str]),
]


class TaskSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)


class InputFile(TaskSection):
    """A file that is uploaded before the first step."""

    path: str | None = None
    """Of the file, relative to the task file."""
    text: str | None = None
    """Its content, where it has no file of its own; UTF-8."""
    repeat: Annotated[int, Field(ge=1, le=10_000_000)] = 1
    """How often `text` stands in it, for large files."""
    name: str | None = None
    """What the agent sees it as; by default the name in `path`."""
    folder: str | None = None
    """Its `relative_path` at the agent, such as `data/`."""

    @model_validator(mode="after")
    def _one_source(self) -> "InputFile":
        if (self.path is None) == (self.text is None):
            raise ValueError("a file has either path: or text:")
        if self.text is not None and not self.name:
            raise ValueError("a file that is given as text needs a name:")
        if len((self.text or "").encode()) * self.repeat > FILE_LIMIT:
            raise ValueError(f"a file has at most {FILE_LIMIT // 2**20} MB")
        return self


class Reply(TaskSection):
    """What is said at a step after the first one."""

    input: str | None = None
    additional_input: dict[str, Any] = {}


def _reply(value: object) -> object:
    return {"input": value} if isinstance(value, str) else value


class Count(TaskSection):
    """How many."""

    at_least: Annotated[int, Field(ge=0)] | None = None
    at_most: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _check_bounds(self) -> "Count":
        if self.at_least is None and self.at_most is None:
            raise ValueError("a count has at_least:, at_most: or both")
        return self


_SUBJECTS: Final = ("output", "artifact", "error", "steps", "program", "python", "code")
_PREDICATES: Final = ("contains", "excludes", "equals", "equals_file", "regex", "json_schema", "json_equals")


class Check(TaskSection):
    """One thing that must be so. What it looks at is `output` (the default), `artifact`, `error` or the output of a
    `program`; what must hold of it are the rest, all of them. `steps`, `python` and `code` stand alone."""

    name: str | None = None
    """What reports call it."""

    output: Literal["last", "all"] | PositiveInt | None = None
    """The output of the last step, of all steps joined with line feeds, or of the step with this number, from 1."""
    artifact: str | None = None
    """A file of the agent, by its path or a pattern such as `*.csv`. One that fits is enough, unless `every`."""
    error: bool | None = None
    """The agent is to fail, and the rest is said of the message of its error. Without such a check an attempt that ends
    in an error has failed."""
    steps: Count | None = None
    """How many steps the agent took."""
    program: Annotated[Words, Field(min_length=1)] | None = None
    """A Python program in the folder of the agent's files, with its arguments, or `-m` and a module. It must end with
    exit code 0; the rest is said of what it printed."""
    python: str | None = None
    """A Python file, relative to the task file, with a function `check(run)`."""
    code: str | None = None
    """The same, written here."""

    contains: Words = ()
    """All of these texts are in it."""
    excludes: Words = ()
    """None of these is."""
    equals: str | None = None
    """It is this, white space at both ends aside."""
    equals_file: str | None = None
    """It is byte by byte this file, relative to the task file."""
    regex: str | None = None
    """This expression of Python's `re` is found in it; `^` and `$` match at every line."""
    json_schema: dict[str, Any] | bool | str | None = None
    """It is JSON, and valid against this schema (draft 2020-12), written here or in a file."""
    json_equals: Any = None
    """It is JSON, and this value."""

    ignore_case: bool = False
    """Of `contains`, `excludes`, `equals` and `regex`."""
    every: bool = False
    """Of all artifacts that fit, and not of one."""
    files: Words = ()
    """Files that are put beside the agent's before a `program`, `python` or `code` runs; the agent never sees them."""
    timeout: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Seconds that a `program`, `python` or `code` may take."""
    memory: Annotated[int, Field(ge=64, le=65_536)] = 1024
    """Megabytes that it may take."""

    @model_validator(mode="after")
    def _one_subject(self) -> "Check":
        subjects = [name for name in _SUBJECTS if getattr(self, name) is not None]
        if len(subjects) > 1:
            raise ValueError(f"a check looks at one thing: make {' and '.join(subjects)} checks of their own")
        subject = subjects[0] if subjects else "output"
        predicates = [name for name in _PREDICATES if name in self.model_fields_set]
        if subject in ("steps", "python", "code"):
            if predicates:
                raise ValueError(f"{subject} stands alone: make {predicates[0]} a check of its own")
        elif not predicates and subject in ("output", "artifact"):
            raise ValueError(f"say what must hold of the {subject}: one or more of {', '.join(_PREDICATES)}")
        if self.error is False:
            raise ValueError("error is only ever true: that an agent must not fail goes without saying")
        if self.files and subject not in ("program", "python", "code"):
            raise ValueError("files is for a program, python or code")
        return self

    @property
    def subject(self) -> str:
        return next((name for name in _SUBJECTS if getattr(self, name) is not None), "output")


class Defaults(TaskSection):
    """What holds for each task of a file that does not say otherwise."""

    category: Words = ()
    difficulty: str = ""
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    steps: PositiveInt = 20
    timeout: Seconds = 120.0
    seed: bool = False


class Task(TaskSection):
    """One thing that is asked of every agent."""

    name: Annotated[str, Field(pattern=NAME)]
    description: str = ""
    category: Words = ()
    """One or more; each has a row in the report."""
    difficulty: str = ""
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """How much it counts in the weighted score."""
    depends_on: Words = ()
    """Tasks that must have passed: otherwise this one is skipped, which counts as not passed."""
    input: str | None = None
    """What the task is created with."""
    additional_input: dict[str, Any] = {}
    files: tuple[InputFile, ...] = ()
    replies: tuple[Annotated[Reply, BeforeValidator(_reply, json_schema_input_type=str | Reply)], ...] = ()
    """Answers to the agent's questions, in order. A server that does not mark its questions gets one with each step
    after the first. All other steps are executed without an input."""
    steps: PositiveInt = 20
    """How many steps may be executed; an agent that is not done by then has failed."""
    timeout: Seconds = 120.0
    """Seconds for all of them."""
    seed: bool = False
    """The attempt's seed goes along as `additional_input.seed`."""
    checks: Annotated[tuple[Check, ...], Field(min_length=1)]
    """All must hold."""


class SuiteFile(TaskSection):
    """A file of tasks."""

    suite: Annotated[str, Field(pattern=NAME)] | None = None
    """The suite's name; by default that of the file."""
    description: str = ""
    defaults: Defaults = Defaults()
    tasks: Annotated[tuple[Task, ...], Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, content: Any) -> Any:
        """Apply the defaults of the file to each task that does not override them."""
        if not isinstance(content, dict):
            return content
        file = cast("dict[str, Any]", content)
        defaults, tasks = file.get("defaults"), file.get("tasks")
        if not isinstance(defaults, dict) or not isinstance(tasks, list):
            return file
        known_defaults = {
            key: value for key, value in cast("dict[str, Any]", defaults).items() if key in Defaults.model_fields
        }
        return {
            **file,
            "tasks": [
                {**known_defaults, **cast("dict[str, Any]", task)} if isinstance(task, dict) else task
                for task in cast("list[Any]", tasks)
            ],
        }


def task_schema() -> dict[str, Any]:
    """Return the JSON schema of a task file."""
    schema = SuiteFile.model_json_schema()
    schema["title"] = "A task file of babelgate bench"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
