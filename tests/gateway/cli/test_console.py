"""`babelgate console`: it prints the URL of the console, opens it, and says why there is none."""

import asyncio
import webbrowser
from pathlib import Path

import pytest

from babelgate.gateway.cli import main
from babelgate.gateway.cli.banner import banner
from tests.running import running


async def call(*arguments: str) -> int:
    """Run the command in a thread, because the gateway is in this loop. Return its exit code."""

    def run() -> int:
        with pytest.raises(SystemExit) as caught:
            main(["console", *arguments])
        return int(caught.value.code or 0)

    return await asyncio.to_thread(run)


async def test_url_of_the_console_is_printed_and_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened, script = tmp_path / "opened", tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    script.chmod(0o700)
    webbrowser.register("of this test", None, webbrowser.GenericBrowser([str(script), "%s"]), preferred=True)
    async with running(tmp_path) as gateway:
        page = f"{gateway.url}/console/"
        assert await call("--url", gateway.url, "--print") == 0
        assert (capsys.readouterr().out, opened.exists()) == (f"{page}\n", False)
        assert await call("--url", f"{gateway.url.replace('//', '//user:password@')}/?key=secret") == 0
        assert (capsys.readouterr().out, opened.read_text()) == (f"{page}\n", f"{page}\n")


async def test_missing_console_is_an_error_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path, console=False) as gateway:
        assert await call("--url", gateway.url) == 1
        assert f"{gateway.url}/console/: status 404" in capsys.readouterr().err
    assert await call("--url", gateway.url) == 1
    assert f"no gateway answers at {gateway.url}" in capsys.readouterr().err
    for url in ("127.0.0.1:8000", "http://[::1"):
        assert await call("--url", url) == 2
        assert "babelgate: --url: " in capsys.readouterr().err


async def test_banner_names_the_console_first(tmp_path: Path) -> None:
    for is_on, row in ((True, f"  {'console':8}  http://a.example/console/"), (False, None)):
        async with running(tmp_path, console=is_on) as gateway:
            lines = list(banner(gateway.settings, "http://a.example", gateway.generations.current.hub.registry))
            text = [line.replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\x1b[36m", "") for line in lines]
        assert (text[2] == row) if row else not any("/console/" in line for line in text)
