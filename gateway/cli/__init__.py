"""The command line: commands with their arguments and options. Each command is implemented in the module of its name.

Those modules are imported when their command runs: the web framework and the database take half a second to import, and
`--help` needs neither.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem
from rich_click import RichGroup, command_panel  # pyright: ignore[reportUnknownVariableType]

from babelgate.canonical.printable import one_line
from babelgate.gateway.cli import examples
from babelgate.gateway.cli.errors import FAILED, CliError
from babelgate.gateway.cli.tls_options import tls_options

__all__ = ("babelgate", "main")


C = TypeVar("C", bound=Callable[..., Any])

FILE: Final = Path("babelgate.yaml")
_Path: Final = click.Path(path_type=Path)

# Options of several commands.
_config: Final = click.option("--config", type=_Path, envvar="BABELGATE_CONFIG", help="Configuration file.")
_agents_config: Final = click.option(
    "--config", type=_Path, envvar="BABELGATE_CONFIG", help="Configuration file with agents that AGENT can name."
)
_database: Final = click.option(
    "--database", metavar="URL", help="URL of the database.  [default: sqlite:///babelgate.db]"
)


class _Line(click.ParamType[str]):
    """Type of an option that can be repeated. Its environment variable has one value per line."""

    name = "text"
    envvar_list_splitter = "\n"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value


def _header(text: str, *, name: str = "--header", envvar: str | None = None) -> Callable[[C], C]:
    """Return the declaration of the option `--header`, or of another option `name` for headers, with this help text."""
    variable = f"{name.removeprefix('--').replace('-', '_')}s"
    return click.option(name, variable, type=_Line(), multiple=True, envvar=envvar, metavar="'NAME: VALUE'", help=text)


_gateway_url: Final = click.option(
    "--url",
    envvar="BABELGATE_URL",
    default="http://127.0.0.1:8000",
    show_default=True,
    help="URL of the running gateway.",
)
_progress = click.option(
    "--progress",
    type=click.Choice(("auto", "json")),
    default="auto",
    show_default=True,
    help="Form of the progress on stderr: auto for people, json for one JSON object per line.",
)


class Protocol(click.ParamType[str]):
    """Type of an option whose value is the name of a protocol. The names, `adapters.UPSTREAMS`, are imported when they
    are needed."""

    name = "protocol"

    def __init__(self, *, is_served: bool = False) -> None:
        self._is_served = is_served
        """True if only protocols that this gateway serves for single agents are allowed."""

    @property
    def names(self) -> Sequence[str]:
        from babelgate.adapters import UPSTREAMS

        return [each.protocol for each in UPSTREAMS if not self._is_served or each.own_path is not None]

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.names:
            self.fail(f"{value!r} is not one of {', '.join(sorted(self.names))}.", param, ctx)
        return value

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(sorted(self.names))}]"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in self.names if name.startswith(incomplete)]


# The last panel is shown first.
@command_panel("Manage data", commands=["export", "import", "webhooks", "support-bundle"])
@command_panel("Test agents", commands=["check", "bench", "record", "replay"])
@command_panel("Call and watch agents", commands=["run", "acp", "console"])
@command_panel("Serve agents", commands=["serve", "add", "validate", "keys"])
@click.group(
    cls=RichGroup,
    epilog=examples.PROGRAM,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="babelgate", message="%(prog)s %(version)s")
def babelgate() -> None:
    """Put an AI agent behind this gateway once, and call it in every agent protocol.

    `babelgate serve` starts the gateway with your agents or with demo agents. It prints a call for each protocol.
    `babelgate COMMAND --help` explains a command, with examples.
    """


@babelgate.command(epilog=examples.SERVE)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@_config
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 selects a free port.  [default: 8000]"
)
@click.option(
    "--database",
    metavar="URL",
    help="URL of the database: sqlite:///FILE or postgresql://user@host/name.  [default: sqlite:///babelgate.db]",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Number of processes that serve the port together; best one per core. Needs PostgreSQL.  [default: 1]",
)
@click.option(
    "--allow-anonymous",
    is_flag=True,
    default=None,
    help="Listen on an address that other machines can reach although no API keys are configured.",
)
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    metavar="LEVEL",
    help="Lowest level of log lines on stderr: debug, info, warning or error.  [default: info]",
)
def serve(
    targets: Sequence[str],
    config: Path | None,
    host: str | None,
    port: int | None,
    database: str | None,
    workers: int | None,
    allow_anonymous: bool | None,
    log_level: str | None,
) -> None:
    """Serve agents in every protocol.

    A TARGET is the URL of an agent server, or module:name of an agent in Python. You can put a name of your choice
    before it: name=http://127.0.0.1:8333, name=module:name. URL#agent selects one agent of a server with several.

    Without a TARGET and without --config, the command serves ./babelgate.yaml. If there is no such file, it serves the
    demo agents. Every option can also be set by a key of the file or by a BABELGATE_… variable. An option overrides a
    variable, and a variable overrides the file.
    """
    from babelgate.gateway.cli.serve import serve as run_gateway

    option_values = {
        "host": host,
        "port": port,
        "database": database,
        "workers": workers,
        "allow_anonymous": allow_anonymous,
        "log_level": log_level,
    }
    if not targets:
        config = _settings_file(config)
    run_gateway(config, targets, {name: value for name, value in option_values.items() if value is not None})


@babelgate.command(epilog=examples.RUN)
@click.argument("name")
@click.argument("text")
@click.option(
    "--as",
    "protocol",
    type=Protocol(is_served=True),
    default="acp",
    show_default=True,
    help="Protocol of the call.",
)
@_gateway_url
@click.option("--key", envvar="BABELGATE_KEY", help="API key, if the gateway has keys.")
@tls_options
@click.option(
    "--whole", is_flag=True, help="Also show content that the protocol has no field for. Needs the Babelgate extension."
)
def run(name: str, text: str, protocol: str, url: str, key: str | None, whole: bool) -> None:
    """Call the agent NAME of a running gateway in a protocol of your choice.

    The command streams the agent's output to stdout, and asks its questions here. It exits with 1 if the agent fails.
    """
    from babelgate.gateway.cli.run import run as converse

    converse(name, text, protocol, url, key, whole=whole)


@babelgate.command(epilog=examples.ACP)
@click.argument("agent")
@_gateway_url
@click.option("--key", envvar="BABELGATE_KEY", help="API key, if the gateway has keys.")
@tls_options
@click.option(
    "--on-disconnect",
    type=click.Choice(("continue", "cancel")),
    default="continue",
    show_default=True,
    help="What happens to active runs when the editor ends.",
)
def acp(agent: str, url: str, key: str | None, on_disconnect: str) -> None:
    """Connect an editor to the agent AGENT of a running gateway.

    The editor starts this command and speaks the Agent Client Protocol (agentclientprotocol.com) with it, over stdin
    and stdout. The protocol of the same short name at /acp is another one: `babelgate run --as acp` speaks it.
    """
    from babelgate.gateway.cli.acp import run_pipe

    run_pipe(agent, url, key, on_disconnect)


@babelgate.command(epilog=examples.CONSOLE)
@_gateway_url
@tls_options
@click.option("--print", "is_printed", is_flag=True, help="Print the URL of the console, and open no browser.")
def console(url: str, is_printed: bool) -> None:
    """Open the console of a running gateway in a browser.

    The console shows agents, threads and runs, and calls agents. If the gateway has API keys, it asks for one.
    """
    from babelgate.gateway.cli.console import show_console

    show_console(url, opens=not is_printed)


@babelgate.command(epilog=examples.ADD)
@click.argument("target", metavar="[NAME=]URL[#AGENT]")
@click.option(
    "--config", type=_Path, envvar="BABELGATE_CONFIG", default=FILE, show_default=True, help="Configuration file."
)
@_header("Header to send with every request to the server.")
@tls_options
@click.option(
    "--protocol",
    type=Protocol(),
    help="Protocol of the server. By default it is detected.",
)
def add(target: str, config: Path, headers: Sequence[str], protocol: str | None) -> None:
    """Detect the protocol of the server at URL, and add its agents to the configuration file.

    A ${VARIABLE} in a header is written to the file unchanged. It is replaced by the environment variable whenever the
    file is read.
    """
    from babelgate.gateway.cli.add import add as put_in

    put_in(target, config, headers, protocol)


@babelgate.command(epilog=examples.VALIDATE)
@click.argument("file", type=_Path, required=False)
@_config
@click.option("--schema", is_flag=True, help="Print the JSON schema of the file, for editors, and exit.")
def validate(file: Path | None, config: Path | None, schema: bool) -> None:
    """Report the errors in a configuration file, one line each."""
    from babelgate.gateway.cli.validate import show_schema, validate_file

    if schema:
        show_schema()
    else:
        validate_file(file, config)


@babelgate.command(epilog=examples.CHECK)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option(
    "--across",
    is_flag=True,
    help="Compare the protocols at the URLs: run the same scenarios through each, instead of checking conformance.",
)
@click.option(
    "--command",
    default="",
    metavar="COMMAND",
    help="Check what COMMAND starts, over stdio: an agent of the Agent Client Protocol, or with --protocol mcp an MCP "
    "server. Replaces the URL.",
)
@click.option("--protocol", default="", metavar="NAME", help="Check only this protocol.")
@click.option("--version", "revision", default="", metavar="VERSION", help="Check only this version of --protocol.")
@click.option(
    "--only", multiple=True, metavar="GLOB", help="Check only these requirements or scenarios, as in 'stream.*'."
)
@click.option("--list", "is_list", is_flag=True, help="List the requirements and exit.")
@_header("Header to send with every request, such as an API key.", envvar="BABELGATE_HEADERS")
@_header(
    "Header to send as a second caller, such as another API key.",
    name="--other-header",
    envvar="BABELGATE_OTHER_HEADERS",
)
@tls_options
@click.option(
    "--triggers",
    metavar="FILE|PRESET",
    help="Inputs that make the agent show each behaviour: a file, or the preset demo or sdk.",
)
@click.option(
    "--trigger",
    "texts",
    multiple=True,
    metavar="BEHAVIOUR=TEXT",
    help="Input for one behaviour, as in long='Count'; can be repeated.",
)
@click.option(
    "--ask", metavar="TEXT", help="Input that makes the agent ask its caller; short for --trigger question=TEXT."
)
@click.option(
    "--never",
    multiple=True,
    metavar="BEHAVIOUR",
    help="Behaviour that the agent never shows, as in question; can be repeated.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 instead of 3 if a requirement was not shown.")
@click.option("--verbose", is_flag=True, help="List each requirement that was not shown or could not be tested.")
@click.option(
    "--timeout", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Seconds to wait for each answer."
)
@click.option(
    "--callback-host",
    default="127.0.0.1",
    show_default=True,
    help="Host name by which the agent reaches this machine, for push notifications.",
)
@click.option(
    "--baseline",
    type=_Path,
    metavar="FILE",
    help="File with known failures and their reasons. They do not fail the check.",
)
@click.option("--json", "json_path", type=_Path, metavar="FILE", help="Write the report as JSON.")
@click.option("--junit", type=_Path, metavar="FILE", help="Write the report as JUnit XML.")
@click.option("--ctrf", type=_Path, metavar="FILE", help="Write the report in the Common Test Report Format.")
@click.option("--markdown", type=_Path, metavar="FILE", help="Write the report as Markdown, for a pull request.")
@click.option("--html", type=_Path, metavar="FILE", help="Write the report as one page, with all messages.")
@click.option("--badge", type=_Path, metavar="FILE", help="Write a badge for shields.io.")
@_progress
def check(
    urls: Sequence[str],
    across: bool,
    command: str,
    protocol: str,
    revision: str,
    only: Sequence[str],
    is_list: bool,
    headers: Sequence[str],
    other_headers: Sequence[str],
    triggers: str | None,
    texts: Sequence[str],
    ask: str | None,
    never: Sequence[str],
    strict: bool,
    verbose: bool,
    timeout: float,
    callback_host: str,
    baseline: Path | None,
    json_path: Path | None,
    progress: Any,
    **reports: Path | None,
) -> int:
    """Test whether the agent at URL conforms to the protocols it speaks.

    The command detects the protocols of the agent. Its exit codes are:

    \b
    0  Conformant: every requirement that applies was shown and is met.
    1  Not conformant: a requirement is violated.
    2  No requirement could be checked.
    3  No violation found, but the agent did not show every requirement.

    With --across, the command runs the same scenarios through every protocol at the URLs and compares the results. It
    exits with 0 if all differences are declared losses.
    """
    from babelgate.conformance.examine import RequirementSelection
    from babelgate.gateway.cli.check import CheckOptions, compare, show_requirements
    from babelgate.gateway.cli.check import check as judge

    selection = RequirementSelection(protocol, revision, only)
    if is_list:
        show_requirements(selection)
        return 0
    urls = _agents_to_check(urls, command, across=across)
    written = {form: path for form, path in {**reports, "json": json_path}.items() if path is not None}
    trigger_texts = (*texts, f"question={ask}") if ask is not None else texts
    options = CheckOptions(
        selection,
        headers,
        other_headers,
        triggers,
        trigger_texts,
        never,
        strict,
        verbose,
        timeout,
        callback_host,
        baseline,
        written,
        progress,
    )
    return compare(urls, options) if across else judge(urls[0], options)


def _agents_to_check(urls: Sequence[str], command: str, *, across: bool) -> Sequence[str]:
    """Return the URLs of `babelgate check`, or the address of its `--command`. Raises UsageError unless there is one,
    or several with `--across`."""
    if command and (urls or across):
        raise click.UsageError("--command replaces the URL, and cannot be compared (--across)")
    if not urls and not command:
        raise click.UsageError("give the URL of an agent, --command, or --list")
    if len(urls) > 1 and not across:
        raise click.UsageError("give one URL, or --across to compare several")
    return (f"stdio:{command}",) if command else urls


@babelgate.command(epilog=examples.BENCH)
@click.argument("suite", required=False)
@click.argument("agents", nargs=-1, metavar="[AGENT]...")
@click.option(
    "--format",
    "suite_format",
    type=click.Choice(("babelgate", "agbenchmark")),
    default="babelgate",
    show_default=True,
    help="Format of SUITE: task files, or the folder of the package agbenchmark 0.0.10.",
)
@click.option("--repeat", "-n", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Attempts per task.")
@click.option(
    "--concurrency", type=click.IntRange(1, 1000), default=4, show_default=True, help="Attempts at the same time."
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Random seed for the order of attempts, and for tasks that use a seed.",
)
@click.option(
    "--task", "tasks", multiple=True, metavar="NAME", help="Run only these tasks, and the tasks that they depend on."
)
@click.option("--category", "categories", multiple=True, metavar="NAME", help="Run only tasks of these categories.")
@click.option("--ignore-dependencies", is_flag=True, help="Run a task even if a task that it depends on failed.")
@click.option(
    "--max-time",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Start no more attempts after SECONDS.",
)
@click.option(
    "--max-tokens",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Start no more attempts after N tokens in total.",
)
@click.option(
    "--max-cost",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Start no more attempts after a total cost of N.",
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="AGENT=IN/OUT",
    help="Prices per million input and output tokens. AGENT * means all agents.",
)
@click.option("--prices", "price_file", type=_Path, metavar="FILE", help="YAML file with the prices of agents.")
@_header("Header to send to the agents' servers, such as an API key.")
@tls_options
@_agents_config
@click.option("--out", type=_Path, metavar="FOLDER", help="Folder for all results.  [default: bench-SUITE-TIME]")
@click.option(
    "--resume", "resumed", type=_Path, metavar="FOLDER", help="Continue the interrupted bench in this folder."
)
@click.option("--baseline", type=_Path, metavar="FILE", help="Earlier result.json. Exit with 1 if a result is worse.")
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 1),
    metavar="SCORE",
    help="Exit with 1 if the score of an agent (0 to 1) is lower.",
)
@click.option("--html", type=_Path, metavar="FILE", help="Also write the report to FILE, as one HTML page.")
@_progress
@click.option("--list", "is_list", is_flag=True, help="List the tasks and exit.")
@click.option("--schema", type=click.Choice(("task", "result")), help="Print a JSON schema and exit.")
def bench(
    suite: str | None,
    agents: Sequence[str],
    repeat: int,
    concurrency: int,
    seed: int,
    ignore_dependencies: bool,
    max_time: float | None,
    max_tokens: float | None,
    max_cost: float | None,
    headers: Sequence[str],
    out: Path | None,
    resumed: Path | None,
    is_list: bool,
    schema: str | None,
    **other_options: Any,
) -> int:
    """Run the tasks of SUITE with every AGENT, and compare the results.

    SUITE is a file of tasks, a folder of such files, or a shipped suite: smoke, files.

    An AGENT is the URL of a server of any protocol, module:name of an agent in Python, or the name of a configured
    agent or demo agent. You can put a name of your choice before it: name=URL. Every agent is called through /ap/v1
    (Agent Protocol). An agent with another protocol runs behind a temporary gateway.

    The exit codes are:

    \b
    0    Success.
    1    A result is worse than the baseline, a score is too low, or a check is invalid.
    3    A budget was used up.
    130  Interrupted by Ctrl-C; --resume continues the bench.
    """
    from babelgate.conformance.bench.result import Settings
    from babelgate.conformance.bench.run import Budget
    from babelgate.gateway.cli.bench import BenchOptions, resume, show_schema, show_tasks
    from babelgate.gateway.cli.bench import bench as compare
    from babelgate.gateway.cli.target import read_header

    if schema is not None:
        show_schema(schema)
        return 0
    options = BenchOptions(
        settings=Settings(
            repetitions=repeat, concurrency=concurrency, seed=seed, ignore_dependencies=ignore_dependencies
        ),
        budget=Budget(max_time, max_tokens, max_cost),
        headers=dict(map(read_header, headers)),
        folder=out,
        **other_options,
    )
    if resumed is not None:
        if suite is not None:
            raise click.UsageError("--resume takes the suite and the agents from its folder: leave SUITE and AGENT out")
        return resume(resumed, options)
    if suite is None:
        raise click.UsageError("give a suite, such as smoke")
    if is_list:
        show_tasks(suite, options)
        return 0
    if not agents:
        raise click.UsageError("give an agent: a URL, module:name, or the name of a demo agent such as echo")
    return compare(suite, agents, options)


@babelgate.command(epilog=examples.RECORD)
@click.argument("agent")
@click.argument("text")
@click.option("--out", type=_Path, required=True, metavar="FILE", help="File to write the recording to.")
@click.option(
    "--file", "files", type=_Path, multiple=True, metavar="FILE", help="File to send with TEXT; can be repeated."
)
@click.option(
    "--answer",
    "answers",
    multiple=True,
    metavar="TEXT",
    help="Answer to the agent's next question; can be repeated.",
)
@click.option(
    "--as",
    "protocol",
    type=Protocol(is_served=True),
    help="Call the agent through a gateway, with a client of this protocol, and record what they send.",
)
@_header("Header to send to the agent's server, such as an API key.")
@tls_options
@_agents_config
def record(agent: str, text: str, out: Path, headers: Sequence[str], **other_options: Any) -> int:
    """Call AGENT with TEXT, and save the run to a file for `babelgate replay`.

    AGENT is the URL of a server of any protocol, module:name of an agent in Python, or the name of a configured or a
    demo agent. Each --answer answers one of its questions; further questions are asked here. The file contains each
    event of the agent with its time, the bytes of its files, and the messages on the wire without keys.
    """
    from babelgate.gateway.cli.record import RecordOptions
    from babelgate.gateway.cli.record import record as keep
    from babelgate.gateway.cli.target import read_header

    return keep(agent, text, out, RecordOptions(headers=dict(map(read_header, headers)), **other_options))


@babelgate.command(epilog=examples.REPLAY)
@click.argument("recording", type=_Path)
@click.option("--name", help="Name of the agent.  [default: the recorded name]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 selects a free port.",
)
@click.option(
    "--pace",
    type=click.Choice(("recorded", "full")),
    default="full",
    show_default=True,
    help="Speed: recorded keeps the recorded delays, full has no delays.",
)
def replay(recording: Path, name: str | None, port: int, pace: Any) -> None:
    """Serve RECORDING as an agent that repeats the recorded run.

    A recorded task is replayed as one task. Where the agent asked a question, it asks again. It accepts any answer, and
    continues as it did after the recorded one. The command stores nothing after it ends.
    """
    from babelgate.gateway.cli.record import replay as say_again

    say_again(recording, name, port, pace)


@babelgate.command("export", epilog=examples.EXPORT)
@click.option("--out", type=_Path, required=True, metavar="FILE", help="File to write the export to; - is stdout.")
@click.option(
    "--owner", "owners", multiple=True, metavar="NAME", help="Export only data of this owner; can be repeated."
)
@click.option("--thread", "threads", multiple=True, metavar="ID", help="Export only this thread; can be repeated.")
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME",
    help="Export only threads with a task for this agent; can be repeated.",
)
@click.option(
    "--metadata", multiple=True, metavar="KEY=VALUE", help="Export only threads with this metadata; can be repeated."
)
@click.option("--active", is_flag=True, help="Also export threads with an active or queued run.")
@_config
@_database
def export_threads(
    out: Path,
    owners: Sequence[str],
    threads: Sequence[str],
    agents: Sequence[str],
    metadata: Sequence[str],
    active: bool,
    config: Path | None,
    database: str | None,
) -> int:
    """Write threads, with their logs and files, to a file for `babelgate import`.

    A thread is exported if it matches all options that you give. If you repeat --owner, --thread or --agent, one of the
    values must match; every --metadata must match. Without --thread, --agent and --metadata, the export also contains
    the store items, assistants and crons of the owners.

    A running gateway may use the database meanwhile. The file contains all messages and the tokens of webhooks, so only
    you can read it.

    A thread with an active or queued run is left out, unless you give --active. The command exits with 1 if a thread
    was left out.
    """
    from babelgate.gateway.cli.transfer import export_threads as write

    return write(out, owners, threads, agents, metadata, active, _settings_file(config), database)


@babelgate.command("import", epilog=examples.IMPORT)
@click.argument("file", type=_Path)
@_config
@_database
def import_threads(file: Path, config: Path | None, database: str | None) -> int:
    """Load the threads of FILE, written by `babelgate export`, into a database; - is stdin.

    Each thread is imported completely or not at all. A thread that exists already stays unchanged. If its log differs
    from the log in the file, the command reports a conflict and exits with 1. You can repeat an interrupted import.

    Only one process at a time can use a SQLite database: stop its gateway first. Runs that were active or queued when
    the file was written are recovered by the next gateway as after a crash.
    """
    from babelgate.gateway.cli.transfer import import_threads as read

    return read(file, _settings_file(config), database)


@babelgate.command(epilog=examples.WEBHOOKS)
@click.option("--retry", "wanted", metavar="ID|all", help="Retry one failed webhook, those of a task, or all.")
@_config
@_database
def webhooks(wanted: str | None, config: Path | None, database: str | None) -> None:
    """List the webhooks with undelivered events, or retry failed ones.

    The list shows pending webhooks and those that were given up. A row has the task, the host of the URL, the number of
    failed attempts, the time of the next attempt, and the reason of the last failure. A running gateway may use the
    database meanwhile.

    With --retry, webhooks that were given up or wait for a retry continue where they stopped. Stop a single gateway
    first; it delivers when it starts again. The nodes of a cluster can keep running, and one of them delivers within
    seconds.
    """
    from babelgate.gateway.cli.webhooks import retry, show_webhooks

    if wanted is None:
        show_webhooks(_settings_file(config), database)
    else:
        retry(wanted, _settings_file(config), database)


@babelgate.command("support-bundle", epilog=examples.SUPPORT)
@click.option("--out", type=_Path, required=True, metavar="FILE", help="ZIP file to write; it must not exist.")
@_config
@_database
@click.option(
    "--log", type=_Path, metavar="FILE", help="File with the log of the gateway, to add its last 2,000 lines."
)
@click.option("--url", envvar="BABELGATE_URL", help="URL of the running gateway.  [default: host and port]")
@click.option("--key", envvar="BABELGATE_KEY", help="API key, to add the reasons to the health of the gateway.")
@tls_options
def support_bundle(
    out: Path, config: Path | None, database: str | None, log: Path | None, url: str | None, key: str | None
) -> None:
    """Collect diagnostics of a gateway in a ZIP file for those who help you.

    The file contains versions, settings, the schema and row counts of the database, and limits of the process. A
    running gateway adds its health and, if telemetry.metrics.listen is set, its metrics and stacks. The file contains
    no messages and no secrets. Names of agents and owners can be in it: read it before you send it.
    """
    from babelgate.gateway.cli.support_bundle import BundleOptions, write_bundle

    write_bundle(out, _settings_file(config), database, BundleOptions(log=log, url=url, key=key))


@babelgate.group(epilog=examples.KEYS)
def keys() -> None:
    """Make API keys."""


@keys.command("new", epilog=examples.KEYS)
@click.option("--owner", metavar="NAME", help="Owner of the key, to print a whole line for keys in babelgate.yaml.")
def new_key(owner: str | None) -> None:
    """Print a new API key, and its record for babelgate.yaml.

    The record contains the SHA-256 digest of the key, so the file is no secret. The key is not stored anywhere: keep
    it in a password manager, or give it to the caller.
    """
    from babelgate.gateway.cli.keys import new_key as make

    make(owner)


def _settings_file(config: Path | None) -> Path | None:
    return FILE if config is None and FILE.is_file() else config


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit. An error is one line on stderr. A traceback is only shown for a bug."""
    try:
        code = babelgate.main(arguments, prog_name="babelgate", standalone_mode=False)
    except CliError as error:
        for line in error.lines:
            click.echo(f"babelgate: {one_line(line)}", err=True)
        code = error.code
    except click.ClickException as error:
        click.echo(f"babelgate: {error.format_message()}", err=True)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except Exception as error:
        if not _is_of_a_plugin(error):
            raise
        click.echo(f"babelgate: {one_line(str(error))}", err=True)
        code = FAILED
    sys.exit(code)


def _is_of_a_plugin(error: Exception) -> bool:
    """Return True if an installed plugin with a protocol caused the error, so that no traceback is shown."""
    from babelgate.adapters.kit.plugins import PluginError

    return isinstance(error, PluginError)
