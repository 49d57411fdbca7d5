"""Reader for the challenge files of agbenchmark 0.0.10, whose results are judged by agbenchmark's own rules.

A challenge is a folder with `data.json`. Its folder `artifacts_in` has input files for the agent. The files in
`custom_python` are added to the agent's files before the check runs. Of the four kinds of checks (`ground.eval.type`),
`file`, `python` and `pytest` are supported. A challenge of the kind `llm` needs a model, and is left out with a note.
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
"""Folders below `challenges` that agbenchmark itself skips (`generate_test.challenge_should_be_ignored`). Their
challenges are read only if `source` is in such a folder."""
_STEPS: Final = 10_000
"""Maximum number of steps of a challenge. Chosen so high that it does not matter: agbenchmark limits only the time."""
_TIMEOUT: Final = 60
"""Timeout of a check, and of a challenge whose `cutoff` is 0, in seconds. agbenchmark has the same default
(`generate_test.create_single_test`)."""
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
"""Python source of a check that applies the rules of agbenchmark's `Challenge.get_artifacts_out` and
`Challenge.scoring`.

A file pattern that begins with a period is a suffix, such as `.txt`. The check passes if the content of one file has
all required words and no forbidden one. A program that prints `error` on stderr has failed.
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
    """Return a suite of all challenges below a folder: that of the package agbenchmark, its `challenges`, or any folder
    within. Raises SuiteError if the folder has no challenges, or one of them is invalid."""
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
    """Return the names of the challenges on which a challenge depends, and a note on each that does not exist.

    Some dependencies are written with an extra underscore (`TestRevenueRetrieval_1.0`), so only letters and digits are
    compared.
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
    """Yield the name and content of each file directly in the folder. Subfolders are not read, as in agbenchmark."""
    for path in sorted(folder.glob("*")):
        if path.is_file() and path.stat().st_size <= FILE_LIMIT:
            yield path.name, path.read_bytes()
