"""Tests of the check of certificates: `babelgate validate`, and the words for files that cannot be used."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from babelgate.gateway.settings.certificates import SOON, check_files, describe_end
from babelgate.gateway.settings.load import ConfigError, advise, list_files, load
from babelgate.gateway.settings.load import check_files as check
from babelgate.gateway.settings.tls import TlsSettings
from tests.authority import Authority, Pair


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def write(folder: Path, tls: dict[str, Any], **settings: Any) -> Path:
    file = folder / "babelgate.yaml"
    file.write_text(json.dumps({"tls": tls, **settings}, default=str))
    return file


def mistakes(file: Path) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as error:
        check(file)
    return tuple(each.removeprefix(f"{file}: ") for each in error.value.problems)


def encrypted(pair: Pair) -> Path:
    key: Any = load_pem_private_key(pair.key.read_bytes(), None)
    path = pair.key.with_name("encrypted.key")
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")))
    return path


def test_each_unusable_file_is_named_with_the_reason(tmp_path: Path, authority: Authority) -> None:
    good, other = authority.issue("good", "localhost"), authority.issue("other", "localhost")
    text = tmp_path / "text"
    text.write_text("no certificate")
    none = tmp_path / "none"
    mutual = {**good._asdict(), "client_ca": text, "client": "optional"}
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"cert": good.cert, "key": other.key}, "key", "the key does not belong to the certificate in "),
        ({"cert": none, "key": good.key}, "cert", "it cannot be read: No such file or directory"),
        ({"cert": text, "key": good.key}, "cert", "it has no certificate in PEM form"),
        ({"cert": good.cert, "key": text}, "key", "it has no private key in PEM form"),
        ({"cert": good.cert, "key": encrypted(good)}, "key", "the key has a passphrase: write it without one"),
        (mutual, "client_ca", "it has no certificate in PEM form"),
    ]
    for tls, key, reason in cases:
        words = f"tls.{key}: {tls[key]}: {reason}"
        (mistake,) = mistakes(write(tmp_path, tls))
        assert mistake.startswith(words)
        agent = {"planner": {"url": "https://127.0.0.1:9", "tls": {name: tls[name] for name in ("cert", "key")}}}
        if "client_ca" not in tls:
            (mistake,) = mistakes(write(tmp_path, good._asdict(), agents=agent))
            assert mistake.startswith(f"agents.planner.{words}")


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        ({"cert": "a"}, "tls.key: Field required"),
        ({"cert": "a", "key": "b", "client": "optional"}, "tls: client: optional needs client_ca"),
        ({"cert": "a", "key": "b", "client_ca": "c"}, "tls: client_ca needs client: optional, or client: required"),
        ({"cert": "a", "key": "b", "client_groups": {"ops": ["c"]}}, "tls: client_groups needs client: optional"),
        ({"cert": "a", "key": "b", "client": "maybe"}, "tls.client: allowed: 'none', 'optional' or 'required'"),
        ({"cert": "a", "key": "b", "ca": "c"}, "tls.ca: there is no such key; there are cert, key, client_ca, client"),
    ],
)
def test_inconsistent_settings_are_refused(tmp_path: Path, tls: dict[str, Any], words: str) -> None:
    (mistake,) = mistakes(write(tmp_path, tls))
    assert mistake.lower().startswith(words.lower())


def test_settings_of_agents_and_names_are_checked(tmp_path: Path, authority: Authority) -> None:
    pair = authority.issue("good", "localhost")
    tls = {**pair._asdict(), "client_ca": authority.path, "client": "optional"}
    issuer = {"issuer": "https://login.example.com", "audience": ["x"]}
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"agents": {"a": {"url": "http://127.0.0.1:9", "tls": {}}}},
            "tls is for agents whose URLs begin with https://",
        ),
        ({"agents": {"a": {"python": "m:f", "tls": {"ca": "x"}}}}, "tls is for agents with a url"),
        ({"agents": {"a": {"url": "https://a.example", "tls": {"cert": "x"}}}}, "cert and key belong together"),
        ({"issuers": {"mtls": issuer}}, "issuers: mtls is the name for client certificates"),
        ({"keys": {"mtls:alice": "alice-0123456789abcdef"}}, "keys, entry 1: owners that begin with mtls: are callers"),
    ]
    for settings, words in cases:
        (mistake,) = mistakes(write(tmp_path, tls, **settings))
        assert words in mistake


def test_an_expiring_certificate_is_advised(tmp_path: Path, authority: Authority) -> None:
    ends = ((30, None), (13.5, "in 13 days: renew it"), (1.5, "in 1 day: renew it"), (-1, "has expired on "))
    for days, words in ends:
        pair = authority.issue(f"ends-{days}", "localhost", days=days)
        file = write(tmp_path, pair._asdict())
        check(file)  # it is no mistake
        advice = advise(file)
        assert len(advice) == (words is not None)
        assert all(each.startswith(f"{file}: tls.cert: the certificate ") and str(words) in each for each in advice)
    assert describe_end(SOON + 1, 0) is None


def test_settings_with_other_files_are_not_equal(tmp_path: Path, authority: Authority) -> None:
    pair = authority.issue("server", "localhost")
    file = write(tmp_path, pair._asdict())
    first, second = load(file), load(file)
    assert first.tls == second.tls
    authority.issue("server", "localhost")
    assert load(file).tls != first.tls
    assert [*list_files(file)] == [file]  # files of certificates are watched by their settings
    end = check_files(TlsSettings(cert=pair.cert, key=pair.key))
    assert end is not None
    assert end == pytest.approx(time.time() + 30 * 86_400, abs=600)
