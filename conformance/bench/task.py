"""Task file: the tasks of a benchmark, and the checks of their results.

The published JSON schema (`task.schema.json`) is generated from these models, and editors show the docstrings of
their fields.
"""

from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, model_validator

NAME: Final = r"^[A-Za-z0-9][-A-Za-z0-9_.]{0,99}$"
"""Pattern for the name of a suite or a task, which becomes part of file names and table rows."""
FILE_LIMIT: Final = 64 * 2**20
"""Maximum size of a file that a task names or contains, in bytes. Chosen."""

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


def _word_to_list(value: object) -> object:
    """Return a text as a list of one text; return anything else unchanged."""
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
    """Path of the file, relative to the task file."""
    text: str | None = None
    """Content of the file, written in the task file instead of in a separate file (`path`). It is uploaded as UTF-8."""
    repeat: Annotated[int, Field(ge=1, le=10_000_000)] = 1
    """Number of times that `text` is repeated, for large files."""
    name: str | None = None
    """Name of the file for the agent. Default: the name in `path`."""
    folder: str | None = None
    """Folder of the file for the agent (`relative_path`), such as `data/`."""

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
    """Input of a step after the first one, usually the answer to a question."""

    input: str | None = None
    additional_input: dict[str, Any] = {}


def _reply(value: object) -> object:
    return {"input": value} if isinstance(value, str) else value


class Count(TaskSection):
    """Lower and upper bound of a number. At least one of them is required."""

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
    """One condition that the result of a task must meet.

    The subject is `output` (the default), `artifact`, `error` or `program`, and all predicates, such as `contains`,
    must hold for it. The subjects `steps`, `python` and `code` have no predicates.
    """

    name: str | None = None
    """Name of the check in reports. Default: a description of it."""

    output: Literal["last", "all"] | PositiveInt | None = None
    """Output of the last step, of all steps joined with line feeds, or of the step with this number, from 1."""
    artifact: str | None = None
    """File of the agent, by its path or a pattern such as `*.csv`. One matching file must satisfy the check or, with
    `every`, all of them."""
    error: bool | None = None
    """True if the agent must fail. The predicates then apply to its error message. Without such a check, an agent that
    fails does not pass the task."""
    steps: Count | None = None
    """Bounds on the number of steps that the agent took."""
    program: Annotated[Words, Field(min_length=1)] | None = None
    """Python program among the agent's files, with its arguments, or `-m` and a module. Its exit code must be 0. The
    predicates apply to its standard output."""
    python: str | None = None
    """Python file with a function `check(run)`, relative to the task file."""
    code: str | None = None
    """Python code with a function `check(run)`."""

    contains: Words = ()
    """Texts that the subject must contain, all of them."""
    excludes: Words = ()
    """Texts that the subject must not contain."""
    equals: str | None = None
    """Text that the subject must equal, without leading and trailing whitespace."""
    equals_file: str | None = None
    """File that the subject must equal byte for byte, relative to the task file."""
    regex: str | None = None
    """Regular expression of Python's `re` that must match in the subject. `^` and `$` match at every line."""
    json_schema: dict[str, Any] | bool | str | None = None
    """JSON schema (draft 2020-12), or its file, against which the subject must be valid."""
    json_equals: Any = None
    """JSON value that the subject must equal after parsing; 1 equals 1.0."""

    ignore_case: bool = False
    """True if `contains`, `excludes`, `equals` and `regex` ignore case."""
    every: bool = False
    """True if all matching artifacts must satisfy the check, and not only one."""
    files: Words = ()
    """Files added to the agent's files before a `program`, `python` or `code` runs. The agent never sees them."""
    timeout: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Maximum time of a `program`, `python` or `code`, in seconds."""
    memory: Annotated[int, Field(ge=64, le=65_536)] = 1024
    """Maximum memory of a `program`, `python` or `code`, in megabytes."""

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
        """Name of the field that is the subject of the check, such as `artifact`."""
        return next((name for name in _SUBJECTS if getattr(self, name) is not None), "output")


class Defaults(TaskSection):
    """Default values for all tasks of a task file."""

    category: Words = ()
    difficulty: str = ""
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    steps: PositiveInt = 20
    timeout: Seconds = 120.0
    seed: bool = False


class Task(TaskSection):
    """One task that every agent attempts."""

    name: Annotated[str, Field(pattern=NAME)]
    description: str = ""
    category: Words = ()
    """One or more categories, by which reports group the success rates."""
    difficulty: str = ""
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Weight of the task in an agent's score."""
    depends_on: Words = ()
    """Names of the tasks that the agent must pass first. Otherwise this task is skipped, which counts as not passed."""
    input: str | None = None
    """Text that the agent receives when the task is created."""
    additional_input: dict[str, Any] = {}
    files: tuple[InputFile, ...] = ()
    replies: tuple[Annotated[Reply, BeforeValidator(_reply, json_schema_input_type=str | Reply)], ...] = ()
    """Answers to the agent's questions, in order. If the server does not mark its questions, each step after the first
    has an answer as its input. All other steps have no input."""
    steps: PositiveInt = 20
    """Maximum number of steps. An agent that needs more does not pass."""
    timeout: Seconds = 120.0
    """Maximum time of all steps together, in seconds."""
    seed: bool = False
    """True if the agent receives the seed of the attempt, as `additional_input.seed`."""
    checks: Annotated[tuple[Check, ...], Field(min_length=1)]
    """Checks of the result. The attempt passes if all hold."""


class SuiteFile(TaskSection):
    """Content of a task file: several tasks, and their defaults."""

    suite: Annotated[str, Field(pattern=NAME)] | None = None
    """Name of the suite. Default: the name of the file."""
    description: str = ""
    defaults: Defaults = Defaults()
    tasks: Annotated[tuple[Task, ...], Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, content: Any) -> Any:
        """Return the content of a task file in which each task has the file's defaults for the keys that it does not
        set."""
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
