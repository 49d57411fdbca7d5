"""A suite: the tasks of one YAML file, of a folder of them, or of a shipped one, checked and with all their files read.

What an attempt needs is in memory from here on, so that one hash says what was asked.
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
"""Names of the suites that come along."""


class SuiteError(Exception):
    """Mistakes in task files, one line each: the file, the line, what is wrong and what to do."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that goes to the agent."""

    name: str
    folder: str | None
    data: bytes

    @property
    def path(self) -> str:
        return f"{(self.folder or '').rstrip('/')}/{self.name}".lstrip("/")


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task with the contents of its files."""

    task: Task
    where: str
    """`file:line`"""
    uploads: tuple[Upload, ...] = ()
    resources: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """What its checks name, by the path that they name it by."""
    notes: tuple[str, ...] = ()
    """What its reader could not carry over from a foreign format."""

    @property
    def hash(self) -> str:
        """Of everything that makes it this task; what reports call it apart, and how much it counts, does not."""
        told = self.task.model_dump(mode="json", exclude={"description", "category", "difficulty", "weight"})
        made = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
        for upload in self.uploads:
            made.update(f"\0{upload.path}\0{len(upload.data)}\0".encode() + upload.data)
        for name, data in sorted(self.resources.items()):
            made.update(f"\0{name}\0{len(data)}\0".encode() + data)
        return made.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    source: str
    """What it was asked for by."""
    tasks: tuple[LoadedTask, ...]
    description: str = ""
    notes: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        return hashlib.sha256("".join(sorted(asked.hash for asked in self.tasks)).encode()).hexdigest()[:16]

    def only(self, categories: Sequence[str], names: Sequence[str]) -> "Suite":
        """The tasks of these categories, or with these names, and those that they depend on. Raises SuiteError."""
        if not categories and not names:
            return self
        known = {asked.task.name: asked for asked in self.tasks}
        _refuse_unknown("--task", names, known)
        _refuse_unknown("--category", categories, {each for asked in self.tasks for each in asked.task.category})
        wanted = [
            asked.task.name
            for asked in self.tasks
            if asked.task.name in names or set(asked.task.category) & set(categories)
        ]
        kept: set[str] = set()
        while wanted:
            name = wanted.pop()
            if name not in kept:
                kept.add(name)
                wanted += known[name].task.depends_on
        tasks = tuple(asked for asked in self.tasks if asked.task.name in kept)
        return Suite(self.name, self.source, tasks, self.description, self.notes)


def _refuse_unknown(option: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise SuiteError(f"{option} {name}: the suite has none of that name; it has {', '.join(sorted(known))}")


def shipped_suite(name: str) -> Path:
    """The file of a shipped suite."""
    return _FOLDER / f"{name}.yaml"


def load_suite(source: str) -> Suite:
    """`source` = a file, a folder whose *.yaml are read in the order of their names, or the name of a shipped suite.
    Raises SuiteError."""
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
    tasks = [asked for file, document in read for asked in _read_tasks(file, document, root, problems)]
    problems += _graph_problems(tasks)
    if problems:
        raise SuiteError(*problems)
    name = path.resolve().name if path.is_dir() else read[0][0].suite or path.stem
    about = read[0][0].description if len(read) == 1 else ""
    return Suite(name, source, tuple(tasks), about)


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)


# One file


def _validate_suite(document: Document) -> SuiteFile:
    """Raises SuiteError."""
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
            continue  # told once, where it stands
        if each["type"] == "too_short" and (*map(str, loc), "0") in document.lines:
            continue  # there is one, and its own mistake is told
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


def _no_such_key(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key, known, 1)
    meant = f": did you mean {near[0]}?" if near else f"; there are {_names(known)}"
    return f"there is no such key{meant}"


def _keys(loc: Sequence[object]) -> Sequence[str]:
    """The keys that a place in a task file has."""
    model: Any = SuiteFile
    for step in loc:
        if isinstance(step, int) or not (isinstance(model, type) and issubclass(model, BaseModel)):
            continue
        found = model.model_fields.get(str(step))
        model = None if found is None else _model_in(found.annotation)
    return tuple(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else ()


def _model_in(annotation: Any) -> Any:
    """The first model in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model_in(each)) is not None), None)


# The files of its tasks


def _read_tasks(file: SuiteFile, document: Document, root: Path, problems: list[str]) -> Iterator[LoadedTask]:
    for index, task in enumerate(file.tasks):
        loc = ("tasks", str(index))
        files = _Files(document, root, loc, problems)
        uploads = [
            Upload(
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
    """The files that a check names, each with the key that does."""
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
    """Of one task; what is wrong with one goes to `problems`."""

    document: Document
    root: Path
    """Of the suite: a task reads nothing beyond it, because what it reads goes to agents."""
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
    """What a check would only find out when an agent has been paid for."""
    for index, check in enumerate(task.checks):
        wrong = mistake_in(check, resources)
        if wrong is not None:
            key, message = wrong
            problems.append(f"{document.where((*loc, 'checks', index, key))}: checks.{index}.{key}: {message}")


# Their graph


def _graph_problems(tasks: Sequence[LoadedTask]) -> Iterator[str]:
    known: dict[str, LoadedTask] = {}
    for asked in tasks:
        name = asked.task.name
        if name in known:
            yield f"{asked.where}: there is a task {name} at {known[name].where}: give one of them another name"
        known[name] = asked
    for asked in tasks:
        for need in asked.task.depends_on:
            if need not in known:
                near = difflib.get_close_matches(need, known, 1)
                hint = f": did you mean {near[0]}?" if near else ""
                yield f"{asked.where}: {asked.task.name} depends on {need}, and there is no such task{hint}"
    try:
        TopologicalSorter({name: asked.task.depends_on for name, asked in known.items()}).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        at = next(known[name].where for name in circle if name in known)
        yield f"{at}: these tasks depend on each other in a circle: {' → '.join(reversed(circle))}"
