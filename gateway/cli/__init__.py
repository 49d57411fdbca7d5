"""The command line: what can be asked of it, in which words. What a command does is in the module of its name.

Those modules are imported when their command runs: the web framework and the database take half a second to import, and
`--help` needs neither.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from rich_click import RichGroup

from gateway.cli.refusal import Refusal

__all__ = ("babelgate", "main")


def _examples(*lines: str) -> str:
    """An empty line is what keeps two of them apart when help is laid out."""
    return "\n\n".join(("Examples:", *lines))


_EXAMPLES: Final = _examples(
    "babelgate serve                                # ./babelgate.yaml, or demos",
    "babelgate serve weather=http://127.0.0.1:8333  # an agent server, fronted",
    "babelgate serve mymodule:agent                 # an agent in Python",
    'babelgate run echo "Hello" --as a2a            # call a served agent',
    "babelgate add http://127.0.0.1:8333            # put its agents into babelgate.yaml",
    "babelgate validate babelgate.yaml              # find the mistakes in a file",
)
_SERVE: Final = _examples(
    "babelgate serve",
    "babelgate serve --config babelgate.yaml --port 9000",
    "babelgate serve weather=http://127.0.0.1:8333 planner=my_agents.plan:agent",
    "babelgate serve weather=http://127.0.0.1:8333#forecast",
    "babelgate serve http://127.0.0.1:8333          # all agents of that server",
    'BABELGATE_KEYS=\'{"alice": "secret"}\' babelgate serve --host 0.0.0.0',
)
_RUN: Final = _examples(
    'babelgate run echo "Hello"',
    'babelgate run ask "Hi" --as a2a',
    'babelgate run approve "Go" --url https://agents.example.com --key "$KEY"',
)
_ADD: Final = _examples(
    "babelgate add http://127.0.0.1:8333",
    "babelgate add weather=http://127.0.0.1:8333#forecast",
    "babelgate add planner=https://planner.example.com --header 'Authorization: Bearer ${PLANNER_TOKEN}'",
)
_VALIDATE: Final = _examples(
    "babelgate validate",
    "babelgate validate agents.yaml",
    "babelgate validate --schema > babelgate.schema.json",
)

FILE: Final = Path("babelgate.yaml")
_Path: Final = click.Path(path_type=Path)


@click.group(
    cls=RichGroup, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="babelgate", message="%(prog)s %(version)s")
def babelgate() -> None:
    """Put an AI agent behind one gateway, and every agent protocol can call it."""


@babelgate.command(epilog=_SERVE)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--config", type=_Path, envvar="BABELGATE_CONFIG", help="The configuration file.")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.  [default: 8000]")
@click.option("--database", metavar="URL", help="Where everything is kept.  [default: sqlite:///babelgate.db]")
@click.option(
    "--allow-anonymous",
    is_flag=True,
    default=None,
    help="Listen on an address that others can reach, though there are no API keys.",
)
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    metavar="LEVEL",
    help="What is written to stderr: debug, info, warning or error.  [default: info]",
)
def serve(
    targets: Sequence[str],
    config: Path | None,
    host: str | None,
    port: int | None,
    database: str | None,
    allow_anonymous: bool | None,
    log_level: str | None,
) -> None:
    """Serve agents on every protocol.

    A TARGET is the URL of an agent server or module:name of an agent in Python, with a name of your choice before it:
    name=http://127.0.0.1:8333, name=module:name. URL#agent picks one agent of a server that has several.

    Without targets and without --config, ./babelgate.yaml is served, and without that file the demo agents. Every
    option can also be a key of the file or a BABELGATE_… variable; the option goes first, then the variable.
    """
    from gateway.cli.serve import serve as run_gateway

    given = {
        "host": host,
        "port": port,
        "database": database,
        "allow_anonymous": allow_anonymous,
        "log_level": log_level,
    }
    if config is None and not targets and FILE.is_file():
        config = FILE
    run_gateway(config, targets, {name: value for name, value in given.items() if value is not None})


@babelgate.command(epilog=_RUN)
@click.argument("name")
@click.argument("text")
@click.option(
    "--as",
    "protocol",
    type=click.Choice(("acp", "a2a", "langgraph", "aief")),
    default="acp",
    show_default=True,
    help="Protocol.",
)
@click.option(
    "--url",
    envvar="BABELGATE_URL",
    default="http://127.0.0.1:8000",
    show_default=True,
    help="Of the running gateway.",
)
@click.option("--key", envvar="BABELGATE_KEY", help="API key, where the gateway has keys.")
def run(name: str, text: str, protocol: str, url: str, key: str | None) -> None:
    """Call the agent NAME of a running gateway, as a client of a protocol.

    What the agent says goes to stdout as it comes; its questions are asked here. The exit code is 1 if the agent fails.
    """
    from gateway.cli.run import run as converse

    converse(name, text, protocol, url, key)


@babelgate.command(epilog=_ADD)
@click.argument("target", metavar="[NAME=]URL[#AGENT]")
@click.option("--config", type=_Path, envvar="BABELGATE_CONFIG", default=FILE, show_default=True, help="The file.")
@click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Sent with every request to it.")
@click.option(
    "--protocol",
    type=click.Choice(("a2a", "acp", "agent-protocol", "aief", "langgraph", "openai")),
    help="What it speaks, instead of finding out.",
)
def add(target: str, config: Path, headers: Sequence[str], protocol: str | None) -> None:
    """Find out what the server at URL speaks, and put its agents into the configuration file.

    A ${VARIABLE} in a header is written as it stands, and filled in from the environment when the file is read.
    """
    from gateway.cli.add import add as put_in

    put_in(target, config, headers, protocol)


@babelgate.command(epilog=_VALIDATE)
@click.argument("file", type=_Path, default=FILE, required=False)
@click.option("--schema", is_flag=True, help="Print the JSON schema of the file, for editors, and do nothing else.")
def validate(file: Path, schema: bool) -> None:
    """Find the mistakes in a configuration file, one line each."""
    from gateway.cli.validate import show_schema
    from gateway.cli.validate import validate as check

    if schema:
        show_schema()
    else:
        check(file)


def main(arguments: Sequence[str] | None = None) -> None:
    """One line on stderr says what is wrong, and never a traceback for what a caller did."""
    try:
        code = babelgate.main(arguments, prog_name="babelgate", standalone_mode=False)
    except Refusal as error:
        for line in error.lines:
            click.echo(f"babelgate: {line}", err=True)
        code = error.code
    except click.ClickException as error:
        click.echo(f"babelgate: {error.format_message()}", err=True)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    sys.exit(code)
