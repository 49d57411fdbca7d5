"""Settings of signed cards: keys that sign, keys that verify, and what `babelgate validate` says about them."""

from pathlib import Path

import pytest

from babelgate.gateway.settings.load import ConfigError, advise, check_files, load
from babelgate.gateway.settings.redaction import redact
from tests.gateway.card_keys import make_pair
from tests.gateway.settings.problems import problem

AGENT = "agents: {far: {url: 'https://far.example', card: {%s}}}"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "babelgate.yaml"


def test_keys_are_files_below_the_working_directory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_pair(file.parent)
    file.write_text("signing: {keys: [key.pem]}\npublic_url: https://agents.example.com")
    settings = load(file)
    assert settings.signing.keys == (Path("key.pem"),)
    assert redact(settings)["signing"] == {"keys": ["key.pem"]}
    assert advise(file) == []
    monkeypatch.setenv("BABELGATE_SIGNING__KEYS", "key.pem,key.pem")
    assert load(file).signing.keys == (Path("key.pem"), Path("key.pem"))


def test_a_key_that_cannot_sign_is_a_mistake(file: Path) -> None:
    make_pair(file.parent)
    (file.parent / "other.pem").write_text("other")
    file.write_text("signing: {keys: [key.pem, other.pem, missing.pem]}")
    with pytest.raises(ConfigError) as raised:
        load(file)
    assert raised.value.problems == (
        f"{file}: signing.keys.1: the file is not PEM: expected -----BEGIN PRIVATE KEY-----",
        f"{file}: signing.keys.2: the file cannot be read: No such file or directory",
    )


def test_keys_without_a_public_url_give_advice(file: Path) -> None:
    make_pair(file.parent)
    file.write_text("signing: {keys: [key.pem]}")
    (line,) = advise(file)
    assert line.startswith(f"{file}: signing.keys: cards are not signed without public_url")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("signing: {keys: ['-----BEGIN PRIVATE KEY-----']}", "signing.keys.0: the path of a file is expected"),
        (AGENT % "verify: require", "agents.far.card: verify: require needs keys: files or URLs"),
        (AGENT % "verify: maybe", "agents.far.card.verify: allowed: 'off', 'audit' or 'require'"),
        (
            AGENT % "keys: ['http://far.example/jwks']",
            "agents.far.card.keys.0: an https:// URL, an http:// URL",
        ),
        (
            AGENT % "keys: ['{\"keys\": []}']",
            "agents.far.card.keys.0: the path of a file or a URL is expected, and",
        ),
        (AGENT % "keys: ['']", "agents.far.card.keys.0: the path of a file or a URL is expected"),
        (
            "agents: {far: {url: 'https://far.example', protocol: acp, card: {verify: audit, keys: [x]}}}",
            "agents.far: card.verify is for agents with a url whose protocol is a2a",
        ),
        (
            "agents: {far: {python: 'a:b', card: {verify: audit, keys: [x]}}}",
            "agents.far: card.verify is for agents with a url whose protocol is a2a",
        ),
    ],
)
def test_a_wrong_value_is_explained(file: Path, text: str, line: str) -> None:
    assert problem(file, text).startswith(line)


def test_off_may_be_written_without_quotes(file: Path) -> None:
    file.write_text(AGENT % "verify: off")
    assert not load(file).agents["far"].card.is_checked


def test_files_with_pinned_keys_are_checked_by_validate(file: Path) -> None:
    pair = make_pair(file.parent)
    pair.write_key_set()
    pair.write_public_pem()
    (file.parent / "empty.json").write_text('{"keys": []}')
    file.write_text(
        AGENT % "keys: [key.jwks.json, key.pub, empty.json, key.pem, missing.json, 'https://far.example/k']"
    )
    load(file)
    with pytest.raises(ConfigError) as raised:
        check_files(file)
    assert raised.value.problems == (
        f"{file}: agents.far.card.keys.2: the key set has no public key for signatures",
        f"{file}: agents.far.card.keys.3: the file has no public key in PEM that can be used",
        f"{file}: agents.far.card.keys.4: the file cannot be read: No such file or directory",
    )
