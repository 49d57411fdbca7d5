"""`babelgate validate`: report the errors in a configuration file."""

import json
from pathlib import Path

import click

from babelgate.gateway.cli.errors import USAGE, CliError
from babelgate.gateway.settings.load import ConfigError, advise, check_files, load
from babelgate.gateway.settings.model import schema


def validate(file: Path) -> None:
    """Print a line for every doubtful setting. Raises CliError with a line for every mistake."""
    try:
        settings = load(file)
        check_files(file)
        doubts = advise(file)
    except ConfigError as error:
        raise CliError(*error.problems, code=USAGE) from None
    for line in doubts:
        click.echo(f"babelgate: warning: {line}", err=True)
    click.echo(f"{file}: valid; agents: {', '.join(settings.agents)}")


def show_schema() -> None:
    click.echo(json.dumps(schema(), indent=2))
