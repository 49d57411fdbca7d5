"""`babelgate bench`: run the same tasks with several agents through /ap/v1, and report the results."""

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
import httpx
from rich.console import Console

from babelgate.adapters.kit.client.agent_name import legal_name
from babelgate.conformance.bench.agbenchmark import load_agbenchmark
from babelgate.conformance.bench.attempt import Contender
from babelgate.conformance.bench.check import title_of
from babelgate.conformance.bench.journal import JournalError, read_journal, read_report, write_file
from babelgate.conformance.bench.price import Price, PriceError, Prices, parse_price, read_prices
from babelgate.conformance.bench.report.html import html
from babelgate.conformance.bench.report.terminal import terminal
from babelgate.conformance.bench.result import AgentAbout, Header, Report, Settings, result_schema
from babelgate.conformance.bench.run import Budget
from babelgate.conformance.bench.server import AgentClient, reach
from babelgate.conformance.bench.session import JOURNAL, BenchSession, begin, conduct, differences
from babelgate.conformance.bench.suite import Suite, SuiteError, load_suite
from babelgate.conformance.bench.task import task_schema
from babelgate.gateway.cli.embedded import Embedded, Served, embedded_gateway
from babelgate.gateway.cli.errors import FAILED, USAGE, CliError
from babelgate.gateway.cli.progress import ProgressForm, show_progress
from babelgate.gateway.cli.target import AgentTarget, configured_agents, read_agent

INCOMPLETE: Final = 3
"""Exit code if a budget was used up before all attempts were made."""
_SPARE: Final = 60.0
"""Seconds that the temporary gateway adds to the longest timeout of a task, so that the timeout of the task ends an
attempt. Chosen."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Options of `babelgate bench`."""

    suite_format: str = "babelgate"
    categories: Sequence[str] = ()
    tasks: Sequence[str] = ()
    settings: Settings = field(default_factory=Settings)
    budget: Budget = field(default_factory=Budget)
    prices: Sequence[str] = ()
    price_file: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    config: Path | None = None
    folder: Path | None = None
    baseline: Path | None = None
    fail_under: float | None = None
    html: Path | None = None
    """Path of an additional HTML report; None writes only the one in the folder."""
    progress: ProgressForm = "auto"


def bench(source: str, targets: Sequence[str], options: BenchOptions) -> int:
    """Run a suite of tasks with each target, and return the exit code.

    It is 0 after a success, 1 for a regression, a broken check or a score below `--fail-under`, and 3 if a budget ended
    the bench. Raises CliError for a wrong suite, target or option.
    """
    with _refusing():
        prices = _prices(options)
        suite = _suite(source, options.suite_format).only(options.categories, options.tasks)
        baseline = read_report(options.baseline) if options.baseline is not None else None
        configured = configured_agents(options.config)
        found = [read_agent(text, configured, options.headers) for text in targets]
        folder = options.folder or Path(f"bench-{suite.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}")
        if (folder / JOURNAL).exists():
            hint = f"continue it with --resume {folder}, or choose another --out"
            raise CliError(f"{folder} contains a bench already: {hint}", code=USAGE)
        settings = options.settings.model_copy(
            update={
                "prices": {name: price.model_dump() for name, price in prices.agents.items()},
                "currency": prices.currency,
            }
        )
        plan = _Plan(suite, found, folder, settings, prices, options.budget, baseline, options)
        return _run_and_report(plan, None)


def resume(folder: Path, options: BenchOptions) -> int:
    """Continue an interrupted bench, with the settings in the journal of its folder, and return the exit code. Raises
    CliError if there is no journal, or the suite or the agents have changed."""
    with _refusing():
        header, _ = read_journal(folder / JOURNAL)
        suite = _suite(header.source, header.suite_format).only((), [about.name for about in header.tasks])
        if changed := differences(header, suite):
            why = "; ".join(changed)
            raise CliError(f"{folder}: cannot resume, because the bench has changed: {why}", code=USAGE)
        configured = configured_agents(options.config)
        found = [
            replace(read_agent(each.target, configured, options.headers), name=each.name) for each in header.agents
        ]
        of = {name: Price.model_validate(price) for name, price in header.settings.prices.items()}
        prices = Prices(of, header.settings.currency)
        baseline = read_report(options.baseline) if options.baseline is not None else None
        plan = _Plan(suite, found, folder, header.settings, prices, options.budget, baseline, options)
        return _run_and_report(plan, header)


@dataclass(frozen=True, slots=True)
class _Plan:
    suite: Suite
    agents: Sequence[AgentTarget]
    folder: Path
    settings: Settings
    prices: Prices
    budget: Budget
    baseline: Report | None
    options: BenchOptions


class _refusing:
    """Context manager that converts errors in the user's suite, journal or price files into `CliError`."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, SuiteError):
            raise CliError(*error.problems, code=USAGE) from None
        if isinstance(error, JournalError | PriceError):
            raise CliError(str(error), code=USAGE) from None


def _suite(source: str, suite_format: str) -> Suite:
    return load_agbenchmark(source) if suite_format == "agbenchmark" else load_suite(source)


def _prices(options: BenchOptions) -> Prices:
    read = Prices({}) if options.price_file is None else read_prices(options.price_file)
    return replace(read, agents={**read.agents, **dict(map(parse_price, options.prices))})


def _run_and_report(plan: _Plan, header: Header | None) -> int:
    if plan.options.html is not None and not plan.options.html.absolute().parent.is_dir():
        raise CliError(f"--html {plan.options.html}: there is no such folder", code=USAGE)
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(f"--out {plan.folder}: the folder cannot be created: {error.strerror}", code=USAGE) from None
    try:
        report = asyncio.run(_run(plan, header))
    except KeyboardInterrupt:
        again = shlex.join(["babelgate", "bench", "--resume", str(plan.folder)])
        click.echo(
            f"\nbabelgate: interrupted. The finished attempts are in {plan.folder}; continue with: {again}", err=True
        )
        return 130
    _show(report, plan.folder)
    if plan.options.html is not None:
        _write_html(plan.options.html, report)
    return _code(report, plan)


def _write_html(path: Path, report: Report) -> None:
    try:
        write_file(path, html(report))
    except OSError as error:
        raise CliError(f"--html {path}: it cannot be written: {error.strerror}", code=USAGE) from None


def _show(report: Report, folder: Path) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:  # output to a file or a pipe has no limited width
        console.width = max(console.width, 120)
    for piece in terminal(report):
        console.print()
        console.print(piece)
    click.echo(f"\nThe full results are in {folder}: report.html, report.md, result.json, result.csv.", err=True)


def _code(report: Report, plan: _Plan) -> int:
    if report.baseline is not None and any(row.verdict == "regressed" for row in report.baseline.rows):
        return FAILED
    if any(each.outcome == "broken" for each in report.attempts):
        return FAILED
    bound = plan.options.fail_under
    if bound is not None and any(each.score is None or each.score < bound for each in report.agents):
        return FAILED
    return 0 if report.complete else INCOMPLETE


# The agents


async def _run(plan: _Plan, header: Header | None) -> Report:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(reach())
        direct = [each for each in plan.agents if await _is_direct(each, http)]
        fronted = [each for each in plan.agents if each not in direct]
        gateway = await stack.enter_async_context(_gateway(plan, fronted)) if fronted else None
        abouts = [about for each in plan.agents for about in await _abouts(each, gateway, http, direct=each in direct)]
        _distinct(abouts)
        headers = {each.text: each.headers for each in direct}
        contenders = [
            Contender(each.name, AgentClient(each.url, http, headers.get(each.target, {}))) for each in abouts
        ]
        if header is None:
            header = begin(plan.suite, abouts, plan.settings, suite_format=plan.options.suite_format)
        for note in header.notes:
            click.echo(note, err=True)
        session = BenchSession(
            plan.folder,
            header,
            plan.suite,
            contenders,
            plan.prices,
            plan.budget,
            plan.baseline,
            str(plan.options.baseline or ""),
            [secret for each in plan.agents for secret in each.secrets],
        )
        with show_progress(plan.options.progress) as tell:
            return await conduct(session, tell)


async def _is_direct(agent: AgentTarget, http: httpx.AsyncClient) -> bool:
    """Return True if the target is a server of Agent Protocol at /ap/v1, which the bench calls without a gateway."""
    url = agent.url
    if url is None or any(agent.entry.get(name) for name in ("agent", "protocol", "tls")):
        return False
    return await AgentClient(url, http, agent.headers).is_answering()


def _gateway(plan: _Plan, agents: Sequence[AgentTarget]) -> AbstractAsyncContextManager[Embedded]:
    longest = max(each.task.timeout for each in plan.suite.tasks)
    named = {each.name: dict(each.entry) for each in agents if each.name is not None}
    settings = {"agents": named, "limits": {"run": longest + _SPARE}}
    return embedded_gateway(settings, {each.url: each.headers for each in agents if each.name is None and each.url})


async def _abouts(
    agent: AgentTarget, gateway: Embedded | None, http: httpx.AsyncClient, *, direct: bool
) -> Sequence[AgentAbout]:
    """Return the descriptions of the agents of a target, with the URLs at which the bench calls them.

    If `direct`, the target's own server is called, otherwise the temporary `gateway`. Raises CliError for an agent that
    does not work.
    """
    if direct:
        url = (agent.url or "").rstrip("/")
        details = await AgentClient(url, http, agent.headers).about()
        name = agent.name or legal_name(urlsplit(url).netloc)
        about = AgentAbout(name=name, target=agent.text, url=url, fronted=False, because="AIEF /ap/v1, called as it is")
        return [about.model_copy(update={key: details[key] for key in ("version", "description") if key in details})]
    assert gateway is not None
    found = [each for each in gateway.agents if each.name == agent.name or (agent.name is None and _is_of(each, agent))]
    for each in found:
        if each.broken is not None:
            raise CliError(f"{agent.text}: {each.broken}", code=USAGE)
    return [
        AgentAbout(
            name=each.name,
            target=agent.text,
            url=f"{gateway.url}/agent/{each.name}",
            fronted=True,
            because=each.detection,
            version=each.version,
            description=each.description,
        )
        for each in found
    ]


def _is_of(served: Served, agent: AgentTarget) -> bool:
    return agent.url is not None and served.server == agent.url


def _distinct(abouts: Sequence[AgentAbout]) -> None:
    names: set[str] = set()
    for about in abouts:
        if about.name in names:
            hint = f"give one of them another name, as in {about.name}-2={about.target}"
            raise CliError(f"{about.target}: there is another agent {about.name}: {hint}", code=USAGE)
        names.add(about.name)


# Output without a bench


def show_schema(which: str) -> None:
    click.echo(json.dumps(task_schema() if which == "task" else result_schema(), indent=2))


def show_tasks(source: str, options: BenchOptions) -> None:
    """Print the tasks of a suite with their checks (`--list`). Raises CliError for an invalid suite."""
    with _refusing():
        suite = _suite(source, options.suite_format).only(options.categories, options.tasks)
    click.echo(f"{suite.name} ({suite.hash}): {len(suite.tasks)} tasks")
    width = max(len(each.task.name) for each in suite.tasks)
    for each in suite.tasks:
        task = each.task
        about = ", ".join(filter(None, (*task.category, task.difficulty)))
        needs = f"  after {', '.join(task.depends_on)}" if task.depends_on else ""
        click.echo(f"  {task.name:{width}}  {about}{needs}")
        for check in task.checks:
            click.echo(f"  {'':{width}}    {title_of(check)}")
