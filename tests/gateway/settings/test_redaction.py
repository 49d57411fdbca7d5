"""Tests of redaction: no secret of the settings is shown, and none stays in other text."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from babelgate.gateway.settings.load import load
from babelgate.gateway.settings.redaction import HIDDEN, Scrubber, redact

SECRETS: Final = {
    "key": "plain-key-0123456789",
    "record": "record-key-0123456789",
    "bearer": "bearer-0123456789",
    "header": "header-0123456789",
    "option": "option-0123456789",
    "path": "path-0123456789abcdef",
    "query": "query-0123456789",
    "webhook": "webhook-0123456789",
    "database": "database-0123456789",
    "pooler": "pooler-0123456789",
    "jwks": "jwks-0123456789abcdef",
    "variable": "variable-0123456789",
    "file": "file-0123456789",
}
"""Secrets at every place of the settings that can hold one."""
DIGEST: Final = "sha256:" + "9c02" * 16


def planted() -> dict[str, Any]:
    return {
        "database": f"postgresql://babelgate:{SECRETS['database']}@127.0.0.1:9/agents",
        "pooler": f"postgresql://babelgate@127.0.0.1:9/agents?password={SECRETS['pooler']}",
        "webhook_secret": SECRETS["webhook"],
        "keys": {
            "alice": SECRETS["key"],
            "bob": [{"key": SECRETS["record"], "groups": ["dev"]}, {"hash": DIGEST}],
        },
        "issuers": {
            "corp": {
                "issuer": "https://login.example.com/realms/corp",
                "audience": ["https://agents.example.com"],
                "jwks": f"https://keys.example.com/{SECRETS['jwks']}?code={SECRETS['query']}",
            }
        },
        "agents": {
            "planner": {
                "url": f"https://planner.example.com/{SECRETS['path']}",
                "protocol": "acp",
                "headers": {"Authorization": f"Bearer {SECRETS['bearer']}", "X-Other": SECRETS["header"]},
                "options": {"steps": SECRETS["option"]},
                "description": "${PLANTED} ${file:FOLDER/planted}",
            }
        },
    }


def write_planted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a configuration file with all secrets, and return its path."""
    monkeypatch.setenv("PLANTED", SECRETS["variable"])
    file = folder / "babelgate.yaml"
    (folder / "planted").write_text(SECRETS["file"] + "\n", encoding="utf-8")
    file.write_text(yaml.safe_dump(planted()).replace("FOLDER", str(folder)), encoding="utf-8")
    return file


def test_redacted_settings_contain_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_planted(tmp_path, monkeypatch)
    settings = load(file)
    text = Scrubber.of(settings, file).clean(yaml.safe_dump(redact(settings)))
    assert [name for name, secret in SECRETS.items() if secret in text] == []
    assert DIGEST not in text
    assert "alice" not in text  # owner and key may have been swapped


def test_redacted_settings_contain_public_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    redacted = redact(load(write_planted(tmp_path, monkeypatch)))
    assert redacted["database"] == "postgresql://127.0.0.1:9/…"
    assert redacted["keys"]["entry 2"][0]["groups"] == ["dev"]
    assert redacted["issuers"]["corp"]["issuer"] == "https://login.example.com/realms/corp"
    assert redacted["issuers"]["corp"]["jwks"] == "https://keys.example.com/…"
    agent = redacted["agents"]["planner"]
    assert (agent["url"], agent["protocol"]) == ("https://planner.example.com/…", "acp")
    assert agent["headers"] == {"Authorization": HIDDEN, "X-Other": HIDDEN}
    assert redacted["limits"]["body"] == 64 * 2**20


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_of_settings_are_removed_from_text(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_planted(tmp_path, monkeypatch)
    scrubber = Scrubber.of(load(file), file, "another-secret")
    if name == "option":  # the options of a client are no credentials, and are only hidden in the settings
        return
    assert scrubber.clean(f"a {SECRETS[name]}, another-secret b") == f"a {HIDDEN}, {HIDDEN} b"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("key bg_SqP0Hi0vQ6bLY77ire6kSCKwlE-d7PwALrR_Gc7mRJUwcvOtw.", "key ***."),
        ("token eyJhbGciOiJub25lIn0.eyJhIjoxfQ.sig end", "token *** end"),
        ("Authorization: Bearer abcdefgh12", "Authorization: Bearer ***"),
        ("postgresql://user:pass@host/name?password=x&a=b", "postgresql://***@host/name?password=***&a=b"),
        ("secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "secret ***"),
        ("Bearer is a word, and eyJ too", "Bearer is a word, and eyJ too"),
    ],
)
def test_text_in_the_form_of_a_secret_is_removed(text: str, clean: str) -> None:
    assert Scrubber(("", "abc")).clean(text) == clean


def test_each_line_of_a_secret_file_is_removed(tmp_path: Path) -> None:
    secret, file = tmp_path / "secret.pem", tmp_path / "babelgate.yaml"
    secret.write_text("first-line-0123456789\nsecond-line-0123456789\n", encoding="utf-8")
    file.write_text(f'webhook_secret: "${{file:{secret}}}"\n', encoding="utf-8")
    text = Scrubber.of(load(file), file).clean("a first-line-0123456789 b\nsecond-line-0123456789")
    assert text == f"a {HIDDEN} b\n{HIDDEN}"
