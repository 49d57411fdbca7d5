"""Reader for the challenge files of agbenchmark 0.0.10, which are judged by agbenchmark's own rules.

A challenge is a folder with `data.json`, with `artifacts_in` for the agent, and with `custom_python`, which is added to
its files when it is done. Of the four kinds of checks (`ground.eval.type`), `file`, `python` and `pytest` are
supported. `llm` needs a model, and is left out with a note.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from babelgate.conformance.bench.suite import LoadedTask, Suite, SuiteError, TaskUpload
from babelgate.conformance.bench.task import FILE_LIMIT, Check, Task

_IGNORED: Final = ("deprecated", "library")
"""Folders below `challenges` that agbenchmark itself leaves out (`generate_test.challenge_should_be_ignored`). They are
read if the path names them."""
_STEPS: Final = 10_000
"""Maximum number of steps. agbenchmark counts none: only time limits a challenge."""
_TIMEOUT: Final = 60
"""Timeout for a check, in seconds, and for a challenge whose `cutoff` is 0 (`generate_test.create_single_test`)."""
_MEMORY: Final = 2048

_CODE: Final = """
import glob, os, subprocess, sys

KIND, FILES, CONTAIN, EXCLUDE = {arguments}

def output_of(arguments):
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    if "error" in done.stderr or done.returncode != 0:
        last = done.stderr.strip().splitlines() or ["no reason given"]
        raise AssertionError(" ".join(arguments) + ": " + last[-1])
    return "Output: " + done.stdout + "\\n"

def contents():
    for pattern in FILES:
        for path in glob.glob("*" + pattern) if pattern.startswith(".") else [pattern]:
            if KIND == "python":
                yield output_of([path])
            else:
                with open(path, encoding="utf-8", errors="replace") as file:
                    yield file.read()
    if KIND == "pytest":
        yield output_of(["-m", "pytest"])

def check(run):
    found = list(contents())
    whys = [why(text) for text in found]
    if None in whys:
        return
    there = ", ".join(sorted(run.artifacts)) or "none"
    return whys[0] if whys else "there is no file " + " or ".join(FILES) + "; there are " + there

def why(text):
    missing = [word for word in CONTAIN if word not in text]
    wrong = [word for word in EXCLUDE if word in text]
    if missing:
        return repr(missing[0]) + " is not in " + repr(text[:200])
    return repr(wrong[0]) + " is in " + repr(text[:200]) if wrong else None
"""
"""Python check by the rules of `Challenge.get_artifacts_out` and `Challenge.scoring`.

A pattern that begins with a period is a suffix. One content that has all words is enough. A program that prints `error`
on stderr has failed.
"""


def _none_to_empty(value: object) -> object:
    return () if value is None else value


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Eval(_Part):
    type: str


class _Ground(_Part):
    should_contain: Annotated[tuple[str, ...], BeforeValidator(_none_to_empty)] = ()
    should_not_contain: Annotated[tuple[str, ...], BeforeValidator(_none_to_empty)] = ()
    files: tuple[str, ...]
    eval: _Eval


class _Info(_Part):
    difficulty: str = ""
    description: str = ""


class _Challenge(_Part):
    name: str
    category: tuple[str, ...]
    task: str
    dependencies: tuple[str, ...] = ()
    cutoff: float = Field(default=0, ge=0)
    ground: _Ground
    info: _Info = _Info()


@dataclass(frozen=True, slots=True)
class _Found:
    path: Path
    challenge: _Challenge


def load_agbenchmark(source: str) -> Suite:
    """Read the challenges below the package's folder, its `challenges`, or any folder below. Raises SuiteError."""
    root = Path(source)
    if not root.is_dir():
        raise SuiteError(f"{source}: there is no such folder: name that of the package agbenchmark, or its challenges")
    problems: list[str] = []
    notes: list[str] = []
    read: dict[str, _Found] = {}
    for path in sorted(root.rglob("data.json")):
        if any(part in _IGNORED for part in path.relative_to(root).parts):
            continue
        found = _read(path, problems)
        if found is None:
            continue
        name = found.challenge.name
        if found.challenge.ground.eval.type not in ("file", "python", "pytest"):
            notes.append(f"{name} is left out: its check is of the kind {found.challenge.ground.eval.type}")
        elif name in read:
            notes.append(f"{name} is read from {read[name].path}; {path} has the same name and is left out")
        else:
            read[name] = found
    if problems:
        raise SuiteError(*problems)
    if not read:
        raise SuiteError(f"{source}: there is no challenge of agbenchmark in it (data.json)")
    needs = {name: _needs(found.challenge, read) for name, found in read.items()}
    _refuse_circles(source, {name: needed for name, (needed, _) in needs.items()})
    tasks = [replace(_build_task(read[name], needed), notes=tuple(lost)) for name, (needed, lost) in needs.items()]
    return Suite("agbenchmark", source, tuple(tasks), "The challenges of agbenchmark 0.0.10.", tuple(notes))


def _read(path: Path, problems: list[str]) -> _Found | None:
    try:
        return _Found(path, _Challenge.model_validate(json.loads(path.read_bytes())))
    except ValidationError as error:
        each = error.errors(include_url=False, include_input=False)[0]
        problems.append(f"{path}: {'.'.join(map(str, each['loc']))}: {each['msg'].lower()}")
    except (OSError, ValueError) as error:
        problems.append(f"{path}: it cannot be read: {error}")
    return None


def _needs(challenge: _Challenge, challenges: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the challenges that a challenge depends on, and notes on those that do not exist.

    Some are written with an extra underscore (`TestRevenueRetrieval_1.0`), and others no longer exist.
    """
    by_letters = {_letters(name): name for name in challenges}
    needs: list[str] = []
    notes: list[str] = []
    for wanted in challenge.dependencies:
        name = wanted if wanted in challenges else by_letters.get(_letters(wanted))
        if name is None:
            notes.append(f"it depends on {wanted}, which is not among the challenges: it is tried all the same")
        else:
            needs.append(name)
    return needs, notes


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def _refuse_circles(source: str, needs: Mapping[str, Sequence[str]]) -> None:
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        path = " → ".join(reversed(circle))
        raise SuiteError(f"{source}: these challenges depend on each other in a circle: {path}") from None


def _build_task(found: _Found, needs: Sequence[str]) -> LoadedTask:
    challenge, ground = found.challenge, found.challenge.ground
    hidden = dict(_files(found.path.parent / "custom_python"))
    arguments = (ground.eval.type, ground.files, ground.should_contain, ground.should_not_contain)
    check = Check(
        name=f"{ground.eval.type} {', '.join(ground.files)}",
        code=_CODE.replace("{arguments}", repr(arguments)),
        files=tuple(hidden),
        timeout=_TIMEOUT,
        memory=_MEMORY,
    )
    task = Task(
        name=challenge.name,
        description=challenge.info.description,
        category=challenge.category,
        difficulty=challenge.info.difficulty,
        depends_on=tuple(needs),
        input=challenge.task,
        steps=_STEPS,
        timeout=challenge.cutoff or _TIMEOUT,
        checks=(check,),
    )
    uploads = tuple(TaskUpload(name, None, data) for name, data in _files(found.path.parent / "artifacts_in"))
    return LoadedTask(task, str(found.path), uploads, hidden)


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files directly in the folder, which is as deep as agbenchmark looks."""
    for path in sorted(folder.glob("*")):
        if path.is_file() and path.stat().st_size <= FILE_LIMIT:
            yield path.name, path.read_bytes()
