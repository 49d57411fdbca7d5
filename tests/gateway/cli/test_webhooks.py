"""Tests of `babelgate webhooks`: it lists undelivered webhooks while a gateway runs, and retries failed ones."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from babelgate.gateway.storage.journal import Journal
from tests.empty import make_database
from tests.gateway.command import babelgate
from tests.gateway.hubs import OWNER, HubFactory
from tests.gateway.storage.test_webhook_rows import prepare
from tests.postgres import new_schema, url_of


async def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(babelgate, folder, "webhooks", *arguments, "--database", "sqlite:///hub.db")


async def test_the_list_shows_undelivered_webhooks_without_secrets(hubs: HubFactory) -> None:
    _, receipt = await prepare(hubs)
    done = await run(hubs.folder)
    assert (done.returncode, done.stderr) == (0, "")
    heading, *rows = done.stdout.splitlines()
    assert heading.split() == ["OWNER", "TASK", "WEBHOOK", "HOST", "FAILED", "STATE", "LAST", "REASON"]
    begin = f"{OWNER}  {receipt.task_id}"
    assert [" ".join(row.split()) for row in rows] == [
        " ".join(f"{begin} {rest}".split())
        for rest in (
            "given up h.example 8 of 8 given up at 1970-01-01T00:00:00Z status 500",
            "pending h.example - pending -",
            "waiting h.example 2 of 8 next try at 1970-01-01T00:00:00Z status 500",
        )
    ]
    assert "secret" not in done.stdout


async def test_failed_webhooks_are_retried_while_no_gateway_runs(hubs: HubFactory) -> None:
    hub, receipt = await prepare(hubs)
    refused = await run(hubs.folder, "--retry", "all")
    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1
    assert "stop the gateway, run this command, and start the gateway again" in refused.stderr
    await hubs.stop(hub)
    done = await run(hubs.folder, "--retry", "given up")
    assert (done.returncode, done.stdout) == (0, f"task {receipt.task_id}, webhook given up: will be tried again\n")
    assert "1 webhook to be tried again at the next start of the gateway" in done.stderr
    done = await run(hubs.folder, "--retry", "all")
    assert done.stdout == f"task {receipt.task_id}, webhook waiting: will be tried again\n"
    assert (await run(hubs.folder, "--retry", "all")).stdout == ""
    _, *rows = (await run(hubs.folder)).stdout.splitlines()
    begin = f"{OWNER} {receipt.task_id}"
    lines = [" ".join(row.split()) for row in rows]
    assert lines == [f"{begin} {name} h.example - pending -" for name in ("given up", "pending", "waiting")]


async def test_retry_is_refused_while_a_single_gateway_uses_postgresql(tmp_path: Path) -> None:
    with new_schema() as schema:
        journal = Journal(url_of(schema))
        await journal.open()
        command = ("webhooks", "--retry", "all", "--database", url_of(schema))
        refused = await asyncio.to_thread(babelgate, tmp_path, *command)
        await journal.close()
        done = await asyncio.to_thread(babelgate, tmp_path, *command)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
    assert "is used by a gateway: stop the gateway, run this command" in refused.stderr
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("wanted", ["pending", "unknown"])
async def test_a_webhook_that_has_not_failed_cannot_be_retried(hubs: HubFactory, wanted: str) -> None:
    hub, _ = await prepare(hubs)
    await hubs.stop(hub)
    done = await run(hubs.folder, "--retry", wanted)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"--retry {wanted}: no webhook that has failed has this id" in done.stderr


def test_an_empty_and_a_missing_database_have_no_webhooks(tmp_path: Path) -> None:
    missing = babelgate(tmp_path, "webhooks", "--retry", "all", "--database", "sqlite:///none.db")
    assert (missing.returncode, "there is no such database" in missing.stderr) == (1, True)
    assert not (tmp_path / "none.db").exists()
    make_database(tmp_path / "empty.db")
    for option in ([], ["--retry", "all"]):
        empty = babelgate(tmp_path, "webhooks", *option, "--database", "sqlite:///empty.db")
        assert (empty.returncode, empty.stdout, len(empty.stderr.splitlines())) == (0, "", 1)
