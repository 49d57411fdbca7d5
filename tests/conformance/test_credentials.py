"""User and password in the URL of an agent: requests use them, and no output shows them."""

import asyncio
import io
import json
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.conformance.across.report import FORMS as ACROSS_FORMS
from babelgate.conformance.report import FORMS
from babelgate.conformance.wire.credentials import credentials_header, hide_credentials, origin_of
from babelgate.conformance.wire.exchange import as_object
from babelgate.gateway.cli import main
from tests.conformance.bending import bending
from tests.gateway.command import bound_socket
from tests.gateway.forking import forked_embedded_gateways
from tests.running import running

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

USER: Final = "ada:byron"
PASSWORD: Final = "open sesame/4711@home"
TYPED: Final = "ada%3Abyron:open%20sesame%2F4711%40home@"
HEADER: Final = "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()
SECRETS: Final = (PASSWORD, TYPED, TYPED.rstrip("@").partition(":")[2], HEADER.partition(" ")[2], "sesame")


def as_it_is(protocol: str, path: str, value: Any) -> Any:
    return value


def echoes_the_header(protocol: str, path: str, value: Any) -> Any:
    """Put secrets into the status of a run. Reports quote the wrong status."""
    run = as_object(value)
    return value if run is None or "run_id" not in run else {**run, "status": f"{HEADER} is {PASSWORD}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    """Gateway that accepts only this user."""
    async with (
        running(tmp_path_factory.mktemp("gateway")) as gateway,
        bending(gateway.url, as_it_is, authorization=HEADER) as url,
    ):
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broken(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    async with (
        running(tmp_path_factory.mktemp("broken")) as gateway,
        bending(gateway.url, echoes_the_header, authorization=HEADER) as url,
    ):
        yield url


def with_credentials(url: str) -> str:
    return url.replace("://", f"://{TYPED}")


async def command(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run a command. Return its exit code and its terminal output."""

    def run() -> tuple[int, str]:
        output = io.StringIO()
        with chdir(folder), redirect_stdout(output), redirect_stderr(output), pytest.raises(SystemExit) as ended:
            main(arguments)
        return int(ended.value.code or 0), output.getvalue()

    with forked_embedded_gateways():
        return await asyncio.to_thread(run)


def check_hidden(text: str, where: object) -> None:
    for secret in SECRETS:
        assert secret not in text, (where, secret)


def check_files(folder: Path, least: int) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) >= least
    for path in files:
        check_hidden(path.read_text(encoding="utf-8"), path)


async def test_credentials_are_separated_from_a_url() -> None:
    assert credentials_header(with_credentials("https://host:8000/a?b#c")) == {"Authorization": HEADER}
    assert credentials_header("http://ada@host/") == {"Authorization": "Basic " + b64encode(b"ada:").decode()}
    assert credentials_header("http://host/@ada:b@c") == {}
    assert hide_credentials(with_credentials("https://host:8000/a?b#c")) == "https://host:8000/a?b#c"
    assert hide_credentials("echo=http://a:b@c@host/x@y and ftp://a:b@host") == "echo=http://host/x@y and ftp://host"
    assert hide_credentials("ada:byron@host") == "host"
    assert hide_credentials("http://host/a@b http://host?a@b") == "http://host/a@b http://host?a@b"
    assert origin_of("HTTP://ada:b@Host:1/a") == origin_of("http://host:1/b") != origin_of("http://host:2/a")


async def test_check_uses_the_password_and_does_not_show_it(server: str, tmp_path: Path) -> None:
    reports = [argument for form in FORMS for argument in (f"--{form}", str(tmp_path / form))]
    url = f"{with_credentials(server)}/acp"
    code, output = await command(tmp_path, "check", url, "--protocol", "acp", "--only", "agents.*", *reports)
    assert (code, f"at {server}/acp" in output) == (0, True), output
    check_hidden(output, "the terminal")
    check_files(tmp_path, len(FORMS))
    refused, _ = await command(tmp_path, "check", f"{server}/acp", "--protocol", "acp", "--only", "agents.*")
    assert refused != 0, "requests without the password are refused"


async def test_check_redacts_a_password_in_answers(broken: str, tmp_path: Path) -> None:
    reports = [argument for form in FORMS for argument in (f"--{form}", str(tmp_path / form))]
    url = f"{with_credentials(broken)}/acp"
    only = ("--protocol", "acp", "--only", "run.*", "--trigger", "plain=hi")
    code, output = await command(tmp_path, "check", url, *only, *reports)
    assert (code, "[redacted]" in output) == (1, True), output
    check_hidden(output, "the terminal")
    check_files(tmp_path, len(FORMS))


async def test_comparison_does_not_show_the_password(server: str, tmp_path: Path) -> None:
    reports = [argument for form in ACROSS_FORMS for argument in (f"--{form}", str(tmp_path / form))]
    url = with_credentials(server)
    code, output = await command(
        tmp_path, "check", "--across", url, "--triggers", "demo", "--only", "plain", "--only", "files", *reports
    )
    assert (code, f"at {server}" in output) == (0, True), output
    check_hidden(output, "the terminal")
    check_files(tmp_path, len(ACROSS_FORMS))


@pytest.mark.parametrize("name", ["plain=", ""])
async def test_bench_uses_the_password_and_does_not_show_it(server: str, tmp_path: Path, name: str) -> None:
    task = f"{{name: one, description: Says it, input: {PASSWORD}, checks: [{{equals: b}}]}}"
    (tmp_path / "tasks.yaml").write_text(f"tasks: [{task}]")
    for target in (f"{with_credentials(server)}/agent/echo", f"{with_credentials(server)}/acp/#echo"):
        folder = tmp_path / f"out{target.count('#')}"
        code, output = await command(tmp_path, "bench", "tasks.yaml", f"{name}{target}", "--out", str(folder))
        assert code == 0, output
        check_hidden(output, "the terminal")
        check_files(folder, 3)
        assert "[redacted]" in (folder / "result.json").read_text(encoding="utf-8"), "the agent answered"


@pytest.mark.parametrize("path", ["/acp#echo", "/a2a/echo"])
async def test_recording_uses_the_password_and_does_not_contain_it(server: str, tmp_path: Path, path: str) -> None:
    out = tmp_path / "out" / "run.json"
    out.parent.mkdir()
    arguments = ("record", f"{with_credentials(server)}{path}", f"mine is {PASSWORD}", "--out", str(out))
    code, output = await command(tmp_path, *arguments)
    assert code == 0, output
    check_hidden(output, "the terminal")
    check_files(out.parent, 1)
    recording = json.loads(out.read_text(encoding="utf-8"))
    assert json.dumps(recording["runs"]).count("mine is [redacted]") == 2
    assert "mine is [redacted]" in json.dumps(recording["wire"]), "requests and answers are redacted, not removed"


async def test_errors_do_not_show_the_password(tmp_path: Path) -> None:
    with bound_socket() as unused:
        url = f"http://{TYPED}127.0.0.1:{unused.getsockname()[1]}"
        for arguments in (
            ("check", url),
            ("check", url.replace("http", "ftp")),
            ("check", url.removeprefix("http://")),
            ("check", "--across", url),
            ("bench", "smoke", url, "--out", "out"),
            ("bench", "smoke", f"{url}#a b", "--out", "out"),
            ("record", url, "Hi", "--out", "run.json"),
            ("record", f"A B={url}", "Hi", "--out", "run.json"),
            ("serve", f"{url}#echo", "--port", "0"),
            ("add", url),
            ("add", url.removeprefix("http://")),
        ):
            code, output = await command(tmp_path, *arguments)
            assert code != 0, arguments
            check_hidden(output, arguments)
