"""Tests of the settings of TLS in a reload: what applies, and what needs a restart."""

from pathlib import Path

import pytest

from babelgate.gateway.settings.changes import find_changes, is_fixed, without_restart
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.settings.tls import AgentTls, TlsSettings
from tests.authority import Authority


def read(**tls: object) -> Settings:
    settings = Settings.model_validate({"tls": tls} if tls else {})
    if settings.tls is not None:
        settings.tls.note_files()
    return settings


def test_changed_files_and_modes_apply_without_a_restart(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server", "localhost")
    plain, before = read(), read(**pair._asdict())
    authority.issue("server", "localhost")
    renewed = read(**pair._asdict())
    mutual = read(**pair._asdict(), client_ca=authority.path, client="optional")
    cases: list[tuple[Settings, Settings, list[str]]] = [
        (before, before, []),
        (before, renewed, ["tls.cert", "tls.key"]),
        (renewed, mutual, ["tls.client_ca", "tls.client"]),
        (plain, before, ["tls"]),
        (before, plain, ["tls"]),
    ]
    for old, new, changes in cases:
        assert [*find_changes(old, new)] == changes
        assert [key for key in changes if is_fixed(key)] == [key for key in changes if key == "tls"]
        assert without_restart(old, new).tls == (old.tls if changes == ["tls"] else new.tls)


@pytest.mark.parametrize("kind", [TlsSettings, AgentTls])
def test_a_missing_file_is_like_an_empty_one(tmp_path: Path, kind: type[TlsSettings | AgentTls]) -> None:
    files = kind(cert=tmp_path / "none", key=tmp_path / "empty")
    (tmp_path / "empty").touch()
    files.note_files()
    assert files.digests["cert"] == files.digests["key"]
