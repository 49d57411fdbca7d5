"""Tests of `babelgate add`: it writes the agents of a server into the file, and leaves the rest unchanged."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from litestar import Litestar, Request, Response, get

from babelgate.gateway.cli import main
from babelgate.gateway.cli.add import insert_agents
from babelgate.gateway.cli.errors import CliError
from tests.serving import serving

ENTRY = {"weather": {"url": "http://127.0.0.1:1", "protocol": "acp"}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "agents:\n  weather: {url: 'http://127.0.0.1:1', protocol: acp}\n"),
        ("port: 1", "port: 1\nagents:\n  weather: {url: 'http://127.0.0.1:1', protocol: acp}\n"),
        (
            "# mine\nagents:\n    echo:  # loud\n        python: m:a\n\nport: 1  # one\n",
            "# mine\nagents:\n    echo:  # loud\n        python: m:a\n"
            "    weather: {url: 'http://127.0.0.1:1', protocol: acp}\n\nport: 1  # one\n",
        ),
        (
            "agents:\n  echo: {python: 'm:a'}",
            "agents:\n  echo: {python: 'm:a'}\n  weather: {url: 'http://127.0.0.1:1', protocol: acp}\n",
        ),
    ],
)
def test_new_agents_are_added_last_and_comments_stay(before: str, after: str) -> None:
    content = insert_agents(before, ENTRY)
    assert content == after
    read: dict[str, Any] = yaml.safe_load(content)
    assert read["agents"]["weather"] == ENTRY["weather"]


@pytest.mark.parametrize("before", ["agents: {a: {python: 'm:a'}}\n", "agents:\nport: 1\n", "agents: {}\n"])
def test_a_file_with_another_layout_is_refused(before: str) -> None:
    with pytest.raises(CliError):
        insert_agents(before, ENTRY)


@pytest.fixture
def add(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Function that runs the command, and returns its exit code, the content of the file, and its output."""
    path = tmp_path / "babelgate.yaml"

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["add", "--config", str(path), *arguments])
        code = left.value.code
        out, err = capsys.readouterr()
        return int(code or 0), path.read_text() if path.exists() else "", out + err

    return run


def server(*names: str) -> Litestar:
    @get("/agents")
    async def agents() -> Response[dict[str, Any]]:
        return Response({"agents": [{"name": name, "description": "Does it."} for name in names]})

    return Litestar([agents], openapi_config=None, logging_config=None)


async def test_all_agents_of_a_server_are_written(add: Any) -> None:
    async with serving(server("forecast", "Radar Man")) as url:
        code, text, output = await asyncio.to_thread(add, url)
        assert code == 0, output
        assert yaml.safe_load(text)["agents"] == {
            "forecast": {"url": url, "protocol": "acp", "agent": "forecast"},
            "radar-man": {"url": url, "protocol": "acp", "agent": "Radar Man"},
        }
        assert f"ACP at {url}: forecast, Radar Man" in output
        code, again, output = await asyncio.to_thread(add, url)
        assert (code, again) == (1, text)
        assert "has an agent forecast already" in output
        code, more, _ = await asyncio.to_thread(add, f"rain={url}#forecast")
        assert code == 0
        assert yaml.safe_load(more)["agents"]["rain"] == {"url": url, "protocol": "acp", "agent": "forecast"}
        for target, words in ((f"x={url}", "has several agents"), (f"{url}#nobody", "has no agent nobody")):
            code, same, output = await asyncio.to_thread(add, target)
            assert (code, same) == (1, more)
            assert words in output


async def test_a_secret_of_the_environment_is_used_but_not_written(
    add: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADD_TOKEN", "s3cret")
    sent_keys: list[str] = []

    @get("/agents")
    async def agents(request: Request[Any, Any, Any]) -> Response[dict[str, Any]]:
        sent_keys.append(request.headers.get("authorization", ""))
        return Response({"agents": [{"name": "a"}]})

    async with serving(Litestar([agents], openapi_config=None, logging_config=None)) as url:
        code, text, output = await asyncio.to_thread(add, url, "--header", "Authorization: Bearer ${ADD_TOKEN}")
    assert code == 0, output
    assert "Bearer s3cret" in sent_keys
    assert "s3cret" not in text + output
    assert "${ADD_TOKEN}" in text
    assert (tmp_path / "babelgate.yaml").stat().st_mode & 0o777 == 0o600  # other users write secrets into it
    code, _, output = await asyncio.to_thread(add, url, "--header", "X: ${ADD_NOTHING}")
    assert (code, "ADD_NOTHING is not set" in output) == (1, True)


def test_a_dead_url_reports_the_protocols_that_were_tried(add: Any) -> None:
    code, text, output = add("http://127.0.0.1:9")
    assert (code, text) == (1, "")
    for protocol in ("A2A", "ACP", "AIEF", "OpenAI"):
        assert f"{protocol}: " in output
    code, _, output = add("ftp://x")
    assert (code, "this is not a URL" in output) == (2, True)
