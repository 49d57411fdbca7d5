"""Tests of values in files: `${file:…}` in the configuration, and variables that end with `_FILE`."""

import json
from pathlib import Path

import pytest

from babelgate.gateway.admin.configuration import redact_settings
from babelgate.gateway.console.configuration import list_settings
from babelgate.gateway.settings.load import ConfigError, list_files, load
from babelgate.gateway.settings.redaction import Scrubber, redact

SECRET = "s3cret-0123456789"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    return tmp_path / "babelgate.yaml"


def test_a_file_is_read_without_its_last_newline(config: Path) -> None:
    secret = config.parent / "secret"
    config.write_text(f"webhook_secret: ${{file:{secret}}}\nkeys: {{alice: 'x-${{file:{secret}}}-y'}}\n")
    settings = load(config)
    assert settings.webhook_secret is not None
    assert settings.webhook_secret.get_secret_value() == SECRET
    (key,) = settings.keys["alice"]
    assert key.key is not None
    assert key.key.get_secret_value() == f"x-{SECRET}-y"
    assert [*list_files(config)] == [config, secret, secret]


def test_a_relative_path_is_below_the_credentials_of_systemd(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("webhook_secret: ${file:secret}\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(config.parent))
    settings = load(config)
    assert settings.webhook_secret is not None
    assert settings.webhook_secret.get_secret_value() == SECRET
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    with pytest.raises(
        ConfigError, match="webhook_secret: the file secret has a relative path, which needs the variable"
    ):
        load(config)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("none", None, "cannot be read: No such file or directory"),
        (".", None, "cannot be read: Is a directory"),
        ("latin", b"gr\xfc\xdfe", "cannot be read: it is not UTF-8"),
        ("large", b"x" * (2**20 + 1), "is larger than 1048576 bytes"),
    ],
)
def test_an_unreadable_file_is_named_with_the_reason(
    config: Path, name: str, content: bytes | None, reason: str
) -> None:
    path = config.parent / name
    if content is not None:
        path.write_bytes(content)
    config.write_text(f"keys: {{alice: '${{file:{path}}}'}}\n")
    with pytest.raises(ConfigError) as error:
        load(config)
    assert str(error.value) == f"{config}: keys.alice: the file {path} {reason}"


def test_a_variable_can_name_a_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BABELGATE_WEBHOOK_SECRET_FILE", str(config.parent / "secret"))
    (config.parent / "run").write_text("90\n")
    monkeypatch.setenv("BABELGATE_LIMITS__RUN_FILE", str(config.parent / "run"))
    settings = load()
    assert settings.webhook_secret is not None
    assert (settings.webhook_secret.get_secret_value(), settings.limits.run) == (SECRET, 90)
    assert {*list_files(None)} == {config.parent / "secret", config.parent / "run"}


def test_a_variable_and_its_file_exclude_each_other(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BABELGATE_DATABASE_FILE", str(config.parent / "secret"))
    with pytest.raises(ConfigError) as error:
        load()
    assert str(error.value).startswith("BABELGATE_DATABASE_FILE: allowed: sqlite:///")
    assert SECRET not in str(error.value)
    monkeypatch.setenv("BABELGATE_DATABASE", "sqlite:///x.db")
    with pytest.raises(ConfigError, match="BABELGATE_DATABASE_FILE: BABELGATE_DATABASE is set, too: set one of them"):
        load()
    monkeypatch.delenv("BABELGATE_DATABASE")
    monkeypatch.setenv("BABELGATE_DATABASE_FILE", str(config.parent / "none"))
    with pytest.raises(ConfigError, match=r"BABELGATE_DATABASE_FILE: the file .*none cannot be read: No such file"):
        load()


def test_an_open_reference_is_refused_without_its_text(config: Path) -> None:
    config.write_text(f"webhook_secret: '${{file:{SECRET}'\n")
    with pytest.raises(ConfigError) as error:
        load(config)
    assert (
        str(error.value)
        == f"{config}: webhook_secret: a reference to a file ends with }}, as in ${{file:/run/secrets/name}}"
    )


PLACES = {
    "public_url": "https://${file:SECRET}.example.com",
    "cors": "https://${file:SECRET}.example.com",
    "hosts": ["a.example.com", "${file:SECRET}.example.com"],
    "agents": {"planner": {"url": "http://127.0.0.1:9", "description": "${file:SECRET}", "agent": "${file:SECRET}"}},
    "access": [{"who": "key:${file:SECRET}", "allow": "run"}],
    "artifacts": "s3://${file:SECRET}/x",
}
"""Settings that are public unless their value comes from a file."""


def test_no_dump_shows_what_comes_from_a_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(json.dumps(PLACES).replace("SECRET", str(config.parent / "secret")))
    monkeypatch.setenv("BABELGATE_NODE_FILE", str(config.parent / "secret"))
    settings = load(config)
    rows = list(list_settings(settings, {}))
    assert SECRET in str(settings)
    for dump in (redact(settings), redact_settings(settings), rows):
        text = json.dumps(dump)
        assert SECRET not in text
        assert "http://127.0.0.1:9" in text
    assert {"key": "node", "value": None, "from": "default", "where": None, "secret": True} in rows
    assert SECRET not in Scrubber.of(settings, None).clean(f"GET /{SECRET}")
