"""`babelgate validate`: report the errors in a configuration file."""

import json
from pathlib import Path

import click
from click.core import ParameterSource

from babelgate.gateway.cli.errors import USAGE, CliError
from babelgate.gateway.settings.load import FILE, ConfigError, advise, check_files, load
from babelgate.gateway.settings.model import schema


def validate_file(argument: Path | None, config: Path | None) -> None:
    """Check a configuration file, and print a warning for each doubtful setting. Raises CliError with a line for each
    mistake.

    The file is the `argument`, or that of the option `--config` or its environment variable, or ./babelgate.yaml.
    """
    source = click.get_current_context().get_parameter_source("config")
    if argument is not None and source is ParameterSource.COMMANDLINE:
        raise CliError("the file is given twice: give FILE or --config", code=USAGE)
    file = argument or config or FILE
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
