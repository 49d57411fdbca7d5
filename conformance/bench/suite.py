"""Suite of benchmark tasks: those of one YAML file, of a folder, or of a suite that is installed with the package.
Loading validates the tasks and reads all their files.

An attempt reads no more files, so one hash identifies everything that an agent receives.
"""

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from babelgate.conformance.bench.check import mistake_in
from babelgate.conformance.bench.document import Document, Unreadable, read_document
from babelgate.conformance.bench.task import FILE_LIMIT, Check, SuiteFile, Task

_FOLDER: Final = Path(__file__).parent / "suites"
SHIPPED: Final = tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))
"""Names of the suites that are installed with the package."""


class SuiteError(Exception):
    """Error for invalid task files. Each line of the message has the file, the line, what is wrong and what to do."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class TaskUpload:
    """File to upload for an agent before the first step of a task."""

    name: str
    folder: str | None
    data: bytes

    @property
    def path(self) -> str:
        return f"{(self.folder or '').rstrip('/')}/{self.name}".lstrip("/")


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """Task with the contents of the files that it names."""

    task: Task
    where: str
    """Place of the task in its task file, as `file:line`."""
    uploads: tuple[TaskUpload, ...] = ()
    resources: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Content of the files that the checks use, by the path in the task file."""
    notes: tuple[str, ...] = ()
    """Notes on parts of the task that could not be converted from another format, such as agbenchmark's."""

    @property
    def hash(self) -> str:
        """First 16 hexadecimal digits of a SHA-256 over everything that affects the result: the task without
        description, category, difficulty and weight, and its files."""
        definition = self.task.model_dump(mode="json", exclude={"description", "category", "difficulty", "weight"})
        digest = hashlib.sha256(json.dumps(definition, sort_keys=True).encode())
        for upload in self.uploads:
            digest.update(f"\0{upload.path}\0{len(upload.data)}\0".encode() + upload.data)
        for name, data in sorted(self.resources.items()):
            digest.update(f"\0{name}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    source: str
    """Path or name of the suite, as on the command line."""
    tasks: tuple[LoadedTask, ...]
    description: str = ""
    notes: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        return hashlib.sha256("".join(sorted(loaded.hash for loaded in self.tasks)).encode()).hexdigest()[:16]

    def only(self, categories: Sequence[str], names: Sequence[str]) -> "Suite":
        """Return a suite with the tasks that have one of the categories or names, and the tasks on which those depend.
        Without categories and names, return this suite. Raises SuiteError for an unknown category or name."""
        if not categories and not names:
            return self
        by_name = {loaded.task.name: loaded for loaded in self.tasks}
        _refuse_unknown("--task", names, by_name)
        _refuse_unknown("--category", categories, {each for loaded in self.tasks for each in loaded.task.category})
        wanted = [
            loaded.task.name
            for loaded in self.tasks
            if loaded.task.name in names or set(loaded.task.category) & set(categories)
        ]
        selected: set[str] = set()
        while wanted:
            name = wanted.pop()
            if name not in selected:
                selected.add(name)
                wanted += by_name[name].task.depends_on
        tasks = tuple(loaded for loaded in self.tasks if loaded.task.name in selected)
        return Suite(self.name, self.source, tasks, self.description, self.notes)


def _refuse_unknown(option: str, requested: Iterable[str], names: Iterable[str]) -> None:
    for name in requested:
        if name not in names:
            raise SuiteError(f"{option} {name}: the suite has none of that name; it has {', '.join(sorted(names))}")


def shipped_suite(name: str) -> Path:
    """Return the path of the YAML file of a suite that is installed with the package."""
    return _FOLDER / f"{name}.yaml"


def load_suite(source: str) -> Suite:
    """Load a suite from a file, a folder, or the name of a shipped suite. Raises SuiteError if there is no such suite,
    or a file is invalid.

    The YAML files of a folder are read in the order of their names.
    """
    path = Path(source)
    if not path.exists() and source in SHIPPED:
        path = shipped_suite(source)
    if path.is_dir():
        files = sorted(each for kind in ("*.yaml", "*.yml") for each in path.rglob(kind) if each.is_file())
        if not files:
            raise SuiteError(f"{path}: there is no task file in this folder: put one there, as in {path}/tasks.yaml")
    elif path.is_file():
        files = [path]
    else:
        raise SuiteError(f"{source}: there is no such file or folder, and no such suite; there are {_names(SHIPPED)}")
    root = path.resolve() if path.is_dir() else path.resolve().parent
    problems: list[str] = []
    read: list[tuple[SuiteFile, Document]] = []
    for file in files:
        try:
            document = read_document(file)
            read.append((_validate_suite(document), document))
        except Unreadable as error:
            problems.append(str(error))
        except SuiteError as error:
            problems += error.problems
    tasks = [loaded for file, document in read for loaded in _read_tasks(file, document, root, problems)]
    problems += _graph_problems(tasks)
    if problems:
        raise SuiteError(*problems)
    name = path.resolve().name if path.is_dir() else read[0][0].suite or path.stem
    about = read[0][0].description if len(read) == 1 else ""
    return Suite(name, source, tuple(tasks), about)


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)


# Validation of one file


def _validate_suite(document: Document) -> SuiteFile:
    """Return the content of a YAML file as a validated SuiteFile. Raises SuiteError with all mistakes of the file."""
    value = document.value
    if isinstance(value, dict) and "tasks" not in value and "checks" in value:
        raise SuiteError(f"{document.where(())}: a task stands below tasks:, as in tasks: [{{name: …, checks: […]}}]")
    if not isinstance(value, dict):
        raise SuiteError(f"{document.where(())}: a task file is a mapping with tasks: and, if you like, suite:")
    try:
        return SuiteFile.model_validate(value)
    except ValidationError as error:
        raise SuiteError(*dict.fromkeys(_mistakes(error, document))) from None


def _mistakes(error: ValidationError, document: Document) -> Iterator[str]:
    for each in error.errors(include_url=False, include_input=False):
        loc = [step for step in each["loc"] if not (isinstance(step, str) and ("[" in step or step[:1].isupper()))]
        loc = [step for step in loc if step not in ("str", "bool", "literal['last','all']", "constrained-int")]
        if loc[:1] == ["tasks"] and len(loc) > 2 and _of_defaults(loc, document):
            continue  # The mistake is reported once, at the defaults.
        if each["type"] == "too_short" and (*map(str, loc), "0") in document.lines:
            continue  # An item exists, and its own mistake is reported.
        message = each["msg"].removeprefix("Value error, ")
        match each["type"]:
            case "extra_forbidden":
                message = _no_such_key(str(loc[-1]), _keys(loc[:-1]))
            case "missing":
                message = "it is missing"
            case "string_pattern_mismatch":
                message = "a name is letters, digits, '-', '_' and '.', and begins with a letter or digit"
            case "too_short":
                message = "there must be at least one"
            case "model_type" | "dict_type":
                message = f"a mapping is expected, with {_names(_keys(loc)) or 'keys of your own'}"
            case _:
                message = message[:1].lower() + message[1:]
        dotted = ".".join(map(str, loc))
        yield f"{document.where(loc)}: {dotted + ': ' if dotted else ''}{message}"


def _of_defaults(loc: Sequence[object], document: Document) -> bool:
    return tuple(map(str, loc[:3])) not in document.lines and ("defaults", str(loc[2])) in document.lines


def _no_such_key(key: str, keys: Sequence[str]) -> str:
    near = difflib.get_close_matches(key, keys, 1)
    hint = f": did you mean {near[0]}?" if near else f"; there are {_names(keys)}"
    return f"there is no such key{hint}"


def _keys(loc: Sequence[object]) -> Sequence[str]:
    """Return the keys that the mapping at a path in a task file may have. The path `loc` consists of keys and indices,
    such as `("tasks", 0, "checks")`."""
    model: Any = SuiteFile
    for step in loc:
        if isinstance(step, int) or not (isinstance(model, type) and issubclass(model, BaseModel)):
            continue
        found = model.model_fields.get(str(step))
        model = None if found is None else _model_in(found.annotation)
    return tuple(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else ()


def _model_in(annotation: Any) -> Any:
    """Return the first Pydantic model in a type annotation, or None if it contains none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model_in(each)) is not None), None)


# Files of the tasks


def _read_tasks(file: SuiteFile, document: Document, root: Path, problems: list[str]) -> Iterator[LoadedTask]:
    for index, task in enumerate(file.tasks):
        loc = ("tasks", str(index))
        files = _Files(document, root, loc, problems)
        uploads = [
            TaskUpload(
                each.name or Path(each.path or "").name,
                each.folder,
                (each.text or "").encode() * each.repeat
                if each.path is None
                else files.read(each.path, "files", number, "path"),
            )
            for number, each in enumerate(task.files)
        ]
        resources: dict[str, bytes] = {}
        for number, check in enumerate(task.checks):
            for key, path in _named_files(check):
                resources[path] = files.read(path, "checks", number, key)
        _compile(task, resources, document, loc, problems)
        yield LoadedTask(task, document.where(loc), tuple(uploads), resources)


def _named_files(check: Check) -> Iterator[tuple[str, str]]:
    """Yield the key and the path of each file that a check names, such as `("python", "check.py")`."""
    if check.python is not None:
        yield "python", check.python
    if check.equals_file is not None:
        yield "equals_file", check.equals_file
    if isinstance(check.json_schema, str):
        yield "json_schema", check.json_schema
    for path in check.files:
        yield "files", path


@dataclass(frozen=True, slots=True)
class _Files:
    """Reader for the files that one task names. It adds errors to `problems` instead of raising them."""

    document: Document
    root: Path
    """Folder of the suite. A task may read no file outside of it, because the files are sent to agents."""
    loc: tuple[str, ...]
    problems: list[str]

    def read(self, path: str, *keys: object) -> bytes:
        full = (self.document.path.resolve().parent / path).resolve()
        where = self.document.where((*self.loc, *keys))
        if not full.is_relative_to(self.root):
            self.problems.append(f"{where}: {path} is outside of the suite: put a copy below {self.root}")
            return b""
        try:
            if full.stat().st_size > FILE_LIMIT:
                self.problems.append(f"{where}: {path} is larger than {FILE_LIMIT // 2**20} MB")
                return b""
            return full.read_bytes()
        except OSError as error:
            self.problems.append(f"{where}: {path} cannot be read: {error.strerror}; it is looked for at {full}")
            return b""


def _compile(
    task: Task, resources: Mapping[str, bytes], document: Document, loc: tuple[str, ...], problems: list[str]
) -> None:
    """Add the errors in the checks of a task, such as an invalid regular expression, to `problems`. Otherwise they
    would show only after an agent has been paid for."""
    for index, check in enumerate(task.checks):
        wrong = mistake_in(check, resources)
        if wrong is not None:
            key, message = wrong
            problems.append(f"{document.where((*loc, 'checks', index, key))}: checks.{index}.{key}: {message}")


# Dependencies between the tasks


def _graph_problems(tasks: Sequence[LoadedTask]) -> Iterator[str]:
    by_name: dict[str, LoadedTask] = {}
    for loaded in tasks:
        name = loaded.task.name
        if name in by_name:
            yield f"{loaded.where}: there is a task {name} at {by_name[name].where}: give one of them another name"
        by_name[name] = loaded
    for loaded in tasks:
        for need in loaded.task.depends_on:
            if need not in by_name:
                near = difflib.get_close_matches(need, by_name, 1)
                hint = f": did you mean {near[0]}?" if near else ""
                yield f"{loaded.where}: {loaded.task.name} depends on {need}, and there is no such task{hint}"
    try:
        TopologicalSorter({name: loaded.task.depends_on for name, loaded in by_name.items()}).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        at = next(by_name[name].where for name in circle if name in by_name)
        yield f"{at}: these tasks depend on each other in a circle: {' → '.join(reversed(circle))}"
