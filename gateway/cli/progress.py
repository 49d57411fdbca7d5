"""Progress of a running bench on stderr: a bar on a terminal, a line for each attempt elsewhere, or one JSON object per
line for programs."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from babelgate.conformance.bench.report import words
from babelgate.conformance.bench.run import BenchProgress

ProgressForm = Literal["auto", "json"]
"""Form of the progress on stderr: `auto` for people, `json` for programs."""


def write_step(done: int, total: int, text: str) -> None:
    """Write the progress to stderr as a JSON line: `done` of `total` steps, and a text. `total` grows if the command
    finds more to do."""
    click.echo(json.dumps({"done": done, "total": total, "text": text[:200]}), err=True)


@contextmanager
def show_progress(form: ProgressForm = "auto") -> Generator[Callable[[BenchProgress], None]]:
    if form == "json":
        yield _write_attempt
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"))
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("bench", total=None, left="")

        def tell(progress: BenchProgress) -> None:
            latest = progress.latest
            label = "" if latest is None else f"{words.MARKS[latest.outcome]} {latest.agent} {latest.task}"
            bar.update(
                task,
                total=progress.total,
                completed=progress.done,
                description=f"{label:40.40}",
                left=_remaining_text(progress),
            )

        yield tell


def _write_attempt(progress: BenchProgress) -> None:
    latest = progress.latest
    text = "" if latest is None else f"{latest.agent} {latest.task} {latest.outcome}"
    write_step(progress.done, progress.total, text)


def _line(progress: BenchProgress) -> None:
    latest = progress.latest
    if latest is not None:
        why = "" if latest.has_passed else f": {latest.why}"
        line = f"{latest.agent} {latest.task} {latest.outcome}{why}"[:200]
        click.echo(f"{progress.done}/{progress.total} {line}  {_remaining_text(progress)}".rstrip(), err=True)


def _remaining_text(progress: BenchProgress) -> str:
    if progress.left is None or progress.done == progress.total:
        return ""
    return f"about {words.seconds(progress.left)} left"
