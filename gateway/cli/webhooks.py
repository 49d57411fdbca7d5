"""`babelgate webhooks`: list webhooks with undelivered events, and retry failed ones."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.printable import one_line
from babelgate.gateway.cli.database import connect_to_read, load_settings, reason_of
from babelgate.gateway.cli.errors import CliError
from babelgate.gateway.cli.log import set_up_logging
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.storage.database import DatabaseError
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.webhook_rows import ListedWebhook, list_webhooks, retry_webhooks

ALL: Final = "all"
_HEADINGS: Final = ("OWNER", "TASK", "WEBHOOK", "HOST", "FAILED", "STATE", "LAST REASON")


def show_webhooks(config: Path | None, database: str | None) -> None:
    """Print a table of the webhooks that are pending or were given up. Raises CliError if the database cannot be read.

    `config` and `database` select the database as in `load_settings`.
    """
    settings = load_settings(config, database)
    with connect_to_read(settings) as connection:
        try:
            with connection.begin():
                found = list_webhooks(connection)
        except DatabaseError as error:
            raise CliError(f"{settings.database_shown} cannot be read: {reason_of(error)}") from None
    if not found:
        click.echo(f"{settings.database_shown}: no webhook is pending or given up", err=True)
        return
    tries = len(settings.webhooks.retries) + 1
    rows = [_HEADINGS, *(_cells(each, tries) for each in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _cells(hook: ListedWebhook, tries: int) -> Sequence[str]:
    """Return the cells of a webhook's row in the table. `tries` is the maximum number of tries. Only the host of the
    URL is shown, because a URL may contain secrets."""
    cells = (
        hook.owner,
        hook.task_id,
        hook.webhook_id,
        urlsplit(hook.url).netloc.rpartition("@")[2],
        f"{hook.failures} of {max(tries, hook.failures)}" if hook.failures else "-",
        _state(hook),
        hook.reason or "-",
    )
    return tuple(map(one_line, cells))


def _state(hook: ListedWebhook) -> str:
    if hook.given_up_at is not None:
        return f"given up at {_format_time(hook.given_up_at)}"
    return "pending" if hook.next_try is None else f"next try at {_format_time(hook.next_try)}"


def _format_time(at: int) -> str:
    return datetime.fromtimestamp(at // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def retry(wanted: str, config: Path | None, database: str | None) -> None:
    """Make failed webhooks continue where their delivery stopped. Raises CliError if there is no failed webhook with
    this id, or if a gateway uses the database.

    `wanted` is the id of a webhook or a task, or `all` (`ALL`). `config` and `database` select the database as in
    `load_settings`.
    """
    settings = load_settings(config, database)
    set_up_logging("error")
    with connect_to_read(settings):
        pass
    begun = asyncio.run(_retry(settings, None if wanted == ALL else wanted))
    if not begun and wanted != ALL:
        raise CliError(
            f"--retry {wanted}: no webhook that has failed has this id, and no task with such a webhook. "
            "List them with: babelgate webhooks"
        )
    for task_id, webhook_id in begun:
        click.echo(one_line(f"task {task_id}, webhook {webhook_id}: will be tried again"))
    count = f"{len(begun)} webhook{'' if len(begun) == 1 else 's'}"
    when = (
        "at the next start of the gateway" if settings.database.startswith("sqlite:") else "by the next node that looks"
    )
    click.echo(f"{settings.database_shown}: {count} to be tried again{f' {when}' if begun else ''}", err=True)


async def _retry(settings: Settings, wanted: str | None) -> Sequence[tuple[str, str]]:
    # On PostgreSQL, connect like a node of a cluster: this works while a cluster runs, but not while a gateway has the
    # database alone.
    is_shared = not settings.database.startswith("sqlite:")
    journal = Journal(settings.database, power=settings.durability == "power", shared=is_shared)
    try:
        await journal.open()
    except FaultError as error:
        if error.fault.code is not FaultCode.CONFLICT:
            raise CliError(error.fault.message) from None
        raise CliError(
            f"{settings.database_shown} is used by a gateway: stop the gateway, run this command, and start the "
            "gateway again. Or let the webhook's owner register it again, which needs no stop"
        ) from None
    except (OSError, DatabaseError) as error:
        raise CliError(f"{settings.database_shown} cannot be opened: {reason_of(error)}") from None
    try:
        return await journal.write(retry_webhooks, wanted)
    except FaultError as error:
        raise CliError(f"{settings.database_shown}: {error.fault.message}") from None
    finally:
        await journal.close()
