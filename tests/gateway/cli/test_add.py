"""`babelgate add`: what is found on a server goes into the file, and everything else stays as it is."""

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
def test_agents_are_put_below_the_others_and_comments_stay(before: str, after: str) -> None:
    made = insert_agents(before, ENTRY)
    assert made == after
    read: dict[str, Any] = yaml.safe_load(made)
    assert read["agents"]["weather"] == ENTRY["weather"]


@pytest.mark.parametrize("before", ["agents: {a: {python: 'm:a'}}\n", "agents:\nport: 1\n", "agents: {}\n"])
def test_a_file_that_is_laid_out_in_another_way_is_left_alone(before: str) -> None:
    with pytest.raises(CliError):
        insert_agents(before, ENTRY)


@pytest.fixture
def add(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Exit code, what is in the file, and what was said."""
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


async def test_a_servers_agents_are_found_and_written(add: Any) -> None:
    async with serving(server("forecast", "Radar Man")) as url:
        code, text, said = await asyncio.to_thread(add, url)
        assert code == 0, said
        assert yaml.safe_load(text)["agents"] == {
            "forecast": {"url": url, "protocol": "acp", "agent": "forecast"},
            "radar-man": {"url": url, "protocol": "acp", "agent": "Radar Man"},
        }
        assert f"ACP at {url}: forecast, Radar Man" in said
        code, again, said = await asyncio.to_thread(add, url)
        assert (code, again) == (1, text)
        assert "has an agent forecast already" in said
        code, more, _ = await asyncio.to_thread(add, f"rain={url}#forecast")
        assert code == 0
        assert yaml.safe_load(more)["agents"]["rain"] == {"url": url, "protocol": "acp", "agent": "forecast"}
        for target, words in ((f"x={url}", "has several agents"), (f"{url}#nobody", "has no agent nobody")):
            code, same, said = await asyncio.to_thread(add, target)
            assert (code, same) == (1, more)
            assert words in said


async def test_a_secret_of_the_environment_is_used_and_not_written(
    add: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADD_TOKEN", "s3cret")
    seen: list[str] = []

    @get("/agents")
    async def agents(request: Request[Any, Any, Any]) -> Response[dict[str, Any]]:
        seen.append(request.headers.get("authorization", ""))
        return Response({"agents": [{"name": "a"}]})

    async with serving(Litestar([agents], openapi_config=None, logging_config=None)) as url:
        code, text, said = await asyncio.to_thread(add, url, "--header", "Authorization: Bearer ${ADD_TOKEN}")
    assert code == 0, said
    assert "Bearer s3cret" in seen
    assert "s3cret" not in text + said
    assert "${ADD_TOKEN}" in text
    assert (tmp_path / "babelgate.yaml").stat().st_mode & 0o777 == 0o600  # others write theirs out
    code, _, said = await asyncio.to_thread(add, url, "--header", "X: ${ADD_NOTHING}")
    assert (code, "ADD_NOTHING is not set" in said) == (1, True)


def test_a_dead_url_lists_what_was_tried_and_writes_nothing(add: Any) -> None:
    code, text, said = add("http://127.0.0.1:9")
    assert (code, text) == (1, "")
    for protocol in ("A2A", "ACP", "AIEF", "OpenAI"):
        assert f"{protocol}: " in said
    code, _, said = add("ftp://x")
    assert (code, "this is not a URL" in said) == (2, True)
