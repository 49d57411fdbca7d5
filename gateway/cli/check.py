"""`babelgate check`: test whether an agent conforms to the protocols it speaks."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from babelgate.conformance.across import report as across
from babelgate.conformance.across.play import NothingToCompare, play
from babelgate.conformance.across.report.text import lines as across_lines
from babelgate.conformance.across.verdict import judge as compare_record
from babelgate.conformance.baseline import BaselineError, read_baseline
from babelgate.conformance.examine import RequirementSelection, SelectionError, examine
from babelgate.conformance.probe import Opened, ProbeOptions
from babelgate.conformance.report import FORMS, render
from babelgate.conformance.report.text import MARKS, lines
from babelgate.conformance.requirement import RequirementSet
from babelgate.conformance.trigger import TriggerError, read_triggers
from babelgate.conformance.verdict import Outcome, Result
from babelgate.conformance.wire.credentials import hide_credentials
from babelgate.conformance.wire.http import Unanswered
from babelgate.gateway.cli.errors import USAGE, CliError
from babelgate.gateway.cli.progress import ProgressForm, write_step
from babelgate.gateway.cli.target import read_header
from babelgate.gateway.files import write_atomically

_STYLES = {"✓": "green", "✗": "red", "!": "yellow", "?": "yellow", "–": "dim", "⚠": "magenta"}


_EDITOR_SCHEMES: Final = ("ws://", "wss://", "stdio:")
"""Beginnings of addresses at which the Agent Client Protocol is spoken, unless --protocol names another."""
NOT_SHOWN: Final = 3
"""Exit code for the outcome `no violation found`."""


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Options of `babelgate check`."""

    selection: RequirementSelection = field(default_factory=RequirementSelection)
    headers: Sequence[str] = ()
    other_headers: Sequence[str] = ()
    triggers: str | None = None
    texts: Sequence[str] = ()
    """Inputs that make the agent show a behaviour, each as `behaviour=text`, such as `long=count to 100`."""
    never: Sequence[str] = ()
    """Names of the behaviours that the agent cannot show."""
    is_strict: bool = False
    """True to exit with 1 also for the outcome `no violation found`."""
    is_verbose: bool = False
    timeout: float = 10.0
    callback_host: str = "127.0.0.1"
    baseline: Path | None = None
    reports: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Paths of the reports to write, by format: `html`, for example."""
    progress: ProgressForm = "auto"


def check(url: str, options: CheckOptions) -> int:
    """Check the agent at a URL, write the reports, and return the exit code. Raises CliError for wrong usage, and if no
    requirement could be judged."""
    selection = options.selection
    if url.startswith(_EDITOR_SCHEMES):
        selection = replace(selection, protocol=selection.protocol or "agent-client")
    else:
        _check_url(url)
    try:
        probe_options = _probe_options(options)
        baseline = read_baseline(options.baseline) if options.baseline else None
        with _Steps() if options.progress == "json" else _Watching() as watching:
            report = asyncio.run(examine(url, selection, probe_options, baseline=baseline, observer=watching))
    except (SelectionError, TriggerError, BaselineError) as error:
        raise CliError(str(error), code=USAGE) from None
    except Unanswered as error:
        raise CliError(f"{hide_credentials(url)}: no server answers there: {error}", code=USAGE) from None
    if not report.sets:
        raise CliError(
            f"{report.url}: no protocol found that can be judged",
            *(f"  {name}: {why}" for name, why in report.refused.items()),
            "  to judge it by a protocol all the same, give --protocol and --version",
            code=USAGE,
        )
    assert options.reports.keys() <= FORMS.keys()
    _write({form: (path, render(report, form)) for form, path in options.reports.items()})
    _print(lines(report, is_verbose=options.is_verbose))
    if report.outcome is Outcome.NO_VIOLATION:
        return 1 if options.is_strict else NOT_SHOWN
    return 0 if report.is_conformant else 1


def compare(urls: Sequence[str], options: CheckOptions) -> int:
    """Compare the protocols of the agent at the URLs (`--across`), write the reports, and return the exit code. Raises
    CliError for wrong usage, and if nothing could be compared."""
    for url in urls:
        _check_url(url)
    if options.selection.protocol or options.selection.version:
        raise CliError("--across compares all protocols: leave out --protocol and --version", code=USAGE)
    unknown = sorted(options.reports.keys() - across.FORMS.keys())
    if unknown:
        raise CliError(f"--across can write {', '.join(across.FORMS)}, not {', '.join(unknown)}", code=USAGE)
    try:
        probe_options = _probe_options(options)
        baseline = read_baseline(options.baseline) if options.baseline else None
        console = Console(stderr=True)
        console.quiet = not console.is_terminal
        with console.status("looking for protocols") as status:

            def observe(done: int, total: int, scenario: str) -> None:
                if options.progress == "json":
                    write_step(done, total, scenario)
                else:
                    status.update(scenario)

            record = asyncio.run(play(urls, probe_options, only=options.selection.only, observe=observe))
    except (NothingToCompare, TriggerError, BaselineError) as error:
        raise CliError(str(error), code=USAGE) from None
    except Unanswered as error:
        raise CliError(
            f"{', '.join(map(hide_credentials, urls))}: no server answers there: {error}", code=USAGE
        ) from None
    verdict = compare_record(record, baseline)
    _write({form: (path, across.FORMS[form](verdict)) for form, path in options.reports.items()})
    _print(across_lines(verdict))
    return 0 if verdict.is_same else 1


def _check_url(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise CliError(f"{hide_credentials(url)}: this is not a URL; give http://… or https://…", code=USAGE)


def _probe_options(options: CheckOptions) -> ProbeOptions:
    """Return the options of the check as its probes take them: headers, inputs and timeouts. Raises TriggerError for
    wrong triggers, and CliError for a wrong header."""
    texts = dict(_text(each) for each in options.texts)
    return ProbeOptions(
        headers=dict(read_header(each) for each in options.headers),
        other_headers=dict(read_header(each) for each in options.other_headers),
        triggers=read_triggers(options.triggers).with_texts(texts).without(options.never),
        timeout=options.timeout,
        callback_host=options.callback_host,
    )


def show_requirements(selection: RequirementSelection) -> None:
    """Print the selected requirements (`--list`). Raises CliError if the selection matches nothing."""
    try:
        chosen = selection.sets()
    except SelectionError as error:
        raise CliError(str(error), code=USAGE) from None
    for each in chosen:
        wanted = [requirement for requirement in each.requirements if selection.is_wanted(requirement)]
        if not wanted:
            continue
        click.echo(f"{each.title}: {len(wanted)} requirements")
        for requirement in wanted:
            scope = f" [{requirement.capability}]" if requirement.capability else ""
            click.echo(f"  {requirement.id} ({requirement.level}, {requirement.section}){scope}")
            click.echo(f"      {requirement.text}")
            click.echo(f"      {requirement.source}")
            if requirement.reason:
                click.echo(f"      not tested: {requirement.reason}")


def _text(text: str) -> tuple[str, str]:
    behaviour, equals, value = text.partition("=")
    if not equals:
        raise CliError(f"--trigger {text}: give BEHAVIOUR=TEXT", code=USAGE)
    return behaviour.strip(), value


def _write(reports: Mapping[str, tuple[Path, str]]) -> None:
    for path, text in reports.values():
        try:
            write_atomically(path, text.encode())
        except OSError as error:
            raise CliError(f"{path}: {error.strerror}", code=USAGE) from None


def _print(text_lines: Iterable[str]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for line in text_lines:
        style = _STYLES.get(line.lstrip()[:1]) if line else None
        console.print(line, style=style, markup=False)


class _Watching:
    """Progress bar of a check on stderr. It is disabled if stderr is not a terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[last]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> "_Watching":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def start_set(self, chosen: RequirementSet, opened: Opened[Any], number: int) -> None:
        self._task = self._progress.add_task(chosen.title, total=number, last="")

    def add_result(self, result: Result) -> None:
        if self._task is not None:
            self._progress.update(self._task, advance=1, last=f"{MARKS[result.verdict]} {result.requirement.name}")


class _Steps:
    """Progress of a check as JSON lines, for programs: one step for each requirement. The total grows with each set of
    requirements."""

    def __init__(self) -> None:
        self._done = 0
        self._total = 0
        self._title = ""

    def __enter__(self) -> "_Steps":
        return self

    def __exit__(self, *_: object) -> None: ...

    def start_set(self, chosen: RequirementSet, opened: Opened[Any], number: int) -> None:
        self._title = chosen.title
        self._total += number
        write_step(self._done, self._total, chosen.title)

    def add_result(self, result: Result) -> None:
        self._done += 1
        write_step(self._done, self._total, f"{self._title}: {MARKS[result.verdict]} {result.requirement.name}")
