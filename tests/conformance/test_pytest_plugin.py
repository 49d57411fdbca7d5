"""Test of `pytest --babelgate-url URL` in a folder of a user."""

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.conformance.servers.a2a_1_0 import SERVER
from tests.gateway.command import ROOT
from tests.serving import serving

BOUND = 50


async def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    plugins = ("-p", "babelgate.conformance.pytest_plugin", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *plugins, *arguments]
    if not (folder / "test_own.py").exists():
        (folder / "test_own.py").write_text("def test_of_the_user(): pass\n")
    return await asyncio.to_thread(
        subprocess.run,
        [*command, "-q", "-rA", "-W", "ignore"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=False,
    )


def options(url: str, *more: str) -> tuple[str, ...]:
    common = ("--babelgate-protocol", "a2a", "--babelgate-version", "1.0", "--babelgate-header", "X-Api-Key: alice")
    return ("--babelgate-url", url + SERVER.path, *common, "--babelgate-only", "card.*", *more)


async def test_each_requirement_is_a_pytest_item(tmp_path: Path) -> None:
    async with serving(SERVER.make("two skills have one id")) as url:
        done = await run(tmp_path, *options(url))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "PASSED babelgate::a2a-1.0::card.well-known" in done.stdout
    assert "PASSED test_own.py::test_of_the_user" in done.stdout
    assert "FAILED babelgate::a2a-1.0::card.skill-ids" in done.stdout
    assert "Skill ids are unique in the card." in done.stdout
    assert "Give each skill a unique id." in done.stdout


async def test_baseline_failure_is_an_expected_failure(tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.yaml"
    baseline.write_text("a2a-1.0/card.skill-ids: two skills do the same here\n")
    async with serving(SERVER.make("two skills have one id")) as url:
        done = await run(tmp_path, *options(url, "--babelgate-baseline", str(baseline)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "XFAIL babelgate::a2a-1.0::card.skill-ids" in done.stdout


async def test_url_without_a_server_is_a_usage_error(tmp_path: Path) -> None:
    done = await run(tmp_path, "--babelgate-url", "http://127.0.0.1:9")
    assert done.returncode == 4
    assert "no server answers there" in done.stdout + done.stderr


async def test_report_of_a_former_import_shows_the_new_name(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text("from conformance.contract import check_agent\n")
    done = await run(tmp_path)
    assert "The package 'conformance' is now 'babelgate.conformance'" in done.stdout
