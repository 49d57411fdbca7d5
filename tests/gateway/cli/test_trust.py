"""Tests of `--ca`, SSL_CERT_FILE and `--client-cert`: commands that call a gateway with a certificate of a private CA,
and one that requires client certificates."""

import json
import ssl
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.authority import Authority
from tests.gateway.command import BOUND, Served, babelgate, served

KEY = "bob-0123456789abcdef"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("trust"))


@pytest.fixture(scope="module")
def gateway(authority: Authority) -> Generator[Served]:
    folder = authority.path.parent
    pair = authority.issue("server", "127.0.0.1")
    settings = {
        "tls": {name: str(path) for name, path in pair._asdict().items()},
        "keys": {"bob": KEY},
        "access": [{"who": "*", "allow": "*"}],
    }
    (folder / "babelgate.yaml").write_text(yaml.safe_dump(settings))
    with served(folder) as running:
        yield running


@pytest.fixture(scope="module")
def strict(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """A gateway that requires client certificates, and no key."""
    folder = tmp_path_factory.mktemp("strict")
    files = {**authority.issue("strict", "127.0.0.1")._asdict(), "client_ca": authority.path}
    tls = {"client": "required", **{name: str(path) for name, path in files.items()}}
    access = [{"who": "user:mtls:client.example.com", "allow": "*"}]
    (folder / "babelgate.yaml").write_text(yaml.safe_dump({"tls": tls, "access": access}))
    with served(folder) as running:
        yield running


def presented(authority: Authority) -> list[str]:
    """Return the options with a client certificate."""
    pair = authority.issue("client", "client.example.com")
    return ["--ca", str(authority.path), "--client-cert", str(pair.cert), "--client-key", str(pair.key)]


def without_key(arguments: list[str]) -> list[str]:
    """Return the arguments of a command without the API key and its option."""
    return [each for each in arguments if KEY not in each and each not in ("--key", "--header")]


def commands(url: str) -> dict[str, list[str]]:
    """Return a call of each command that calls servers."""
    agent, header = f"{url}/agent/echo", ["--header", f"X-Api-Key: {KEY}"]
    return {
        "run": ["run", "echo", "Hi", "--url", url, "--key", KEY],
        "console": ["console", "--print", "--url", url],
        "add": ["add", f"echo={agent}", "--config", "added.yaml", *header],
        "check": ["check", f"{url}/acp", "--protocol", "acp", "--version", "0.2", "--only", "agents.list*", *header],
        "across": ["check", "--across", agent, "--only", "plain", *header],
        "bench": ["bench", "smoke", f"echo={agent}", "--task", "says-it-back", "--out", "results", *header],
        "record": ["record", f"echo={agent}", "Hi", "--out", "recording.json", *header],
        "support-bundle": ["support-bundle", "--out", "bundle.zip", "--url", url],
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", commands(""))
def test_each_command_trusts_the_file(tmp_path: Path, authority: Authority, gateway: Served, name: str) -> None:
    arguments = commands(gateway.url)[name]
    without = babelgate(tmp_path, *arguments)
    assert "readyz.json: " in without.stderr if name == "support-bundle" else without.returncode != 0
    for option in ("--ca", None):
        folder = tmp_path / str(option)
        folder.mkdir()
        if option is None:
            done = babelgate(folder, *arguments, SSL_CERT_FILE=str(authority.path))
        else:
            done = babelgate(folder, *arguments, option, str(authority.path))
        assert done.returncode in ((0, 3) if name == "check" else (0, 1) if name in ("across", "bench") else (0,)), done
        assert "no server answers" not in done.stderr and "CERTIFICATE" not in done.stderr
        assert "readyz.json" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in commands("") if name != "run"])
def test_each_command_presents_its_certificate(tmp_path: Path, authority: Authority, strict: Served, name: str) -> None:
    arguments = without_key(commands(strict.url)[name])
    done = babelgate(tmp_path, *arguments, *presented(authority))
    assert done.returncode in ((0, 3) if name == "check" else (0, 1) if name in ("across", "bench") else (0,)), done
    assert "readyz.json" not in done.stderr
    if name in ("check", "across", "bench"):
        assert "API key" not in done.stdout + done.stderr, "the gateway knows the caller by the certificate"


def test_run_presents_a_certificate_and_says_if_it_must(tmp_path: Path, authority: Authority, strict: Served) -> None:
    arguments, options = without_key(commands(strict.url)["run"]), presented(authority)
    assert babelgate(tmp_path, *arguments, *options).stdout.strip() == "Hi"
    whole = tmp_path / "whole.pem"
    whole.write_bytes(Path(options[3]).read_bytes() + Path(options[5]).read_bytes())
    assert babelgate(tmp_path, *arguments, *options[:2], "--client-cert", str(whole)).stdout.strip() == "Hi"
    without = babelgate(tmp_path, *arguments, *options[:2])
    words = f"tls: {strict.url} ends each connection: it may need a client certificate: give --client-cert"
    assert without.stderr == f"babelgate: {words}\n"
    other = authority.issue("other", "other.example.com")
    for wrong, reason in (
        (["--client-key", options[5]], "--client-key needs --client-cert"),
        (["--client-cert", "none"], "--client-cert none: it cannot be read: No such file or directory"),
        (["--client-cert", options[3]], f"--client-cert {options[3]}: its certificate and its key do not fit"),
        ([*options[2:4], "--client-key", str(other.key)], f"--client-cert {options[3]}: its certificate and its key"),
    ):
        done = babelgate(tmp_path, *arguments, *wrong)
        assert (done.returncode, done.stderr.startswith(f"babelgate: {reason}")) == (2, True), done.stderr


def test_run_names_the_reason_and_the_option(tmp_path: Path, gateway: Served) -> None:
    done = babelgate(tmp_path, *commands(gateway.url)["run"])
    words = f"tls: the certificate of {gateway.url} is not signed by a CA of this system: give --ca"
    assert done.stderr == f"babelgate: {words}\n"
    (tmp_path / "text").write_text("no certificate")
    for file, reason in (("none", "it cannot be read: No such file or directory"), ("text", "it has no certificate")):
        done = babelgate(tmp_path, *commands(gateway.url)["run"], "--ca", file)
        assert done.returncode == 2
        assert done.stderr.startswith(f"babelgate: --ca {file}: {reason}")


def test_the_support_bundle_finds_a_gateway_with_tls(tmp_path: Path, authority: Authority, gateway: Served) -> None:
    port = gateway.url.rpartition(":")[2]
    config = authority.path.parent / "babelgate.yaml"
    done = babelgate(tmp_path, "support-bundle", "--out", "b.zip", "--config", str(config), BABELGATE_PORT=port)
    assert "readyz.json" in done.stdout
    assert json.dumps(done.stderr).count("readyz.json") == 0


def test_a_job_of_the_console_trusts_its_gateway(authority: Authority, gateway: Served) -> None:
    job = {"kind": "check", "agents": ["echo"], "protocol": "aief", "options": {"only": ["aief-v1/step.execute"]}}
    trust = ssl.create_default_context(cafile=authority.path)
    headers = {"X-Api-Key": KEY}
    with (
        httpx.Client(base_url=f"{gateway.url}/console/api/v1", headers=headers, verify=trust, timeout=BOUND) as http,
        http.stream("GET", "/changes", params={"all": 1}) as changes,
    ):
        job_id = http.post("/jobs", json=job).json()["job"]
        for line in changes.iter_lines():
            if job_id in line and http.get(f"/jobs/{job_id}").json()["status"] not in ("queued", "running"):
                break
        found = http.get(f"/jobs/{job_id}").json()
    assert found["status"] == "done", str(found)
    assert (found["status"], found["summary"]["passed"], found["summary"]["failed"]) == ("done", 1, 0)
