"""Tests of the settings of credentials: forms of API keys, issuers, and error texts."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.gateway.settings.credentials import is_trusted_url
from babelgate.gateway.settings.load import advise, load
from babelgate.gateway.settings.model import Settings
from tests.gateway.settings.problems import problem

HASH: Final = "sha256:" + hashlib.sha256(b"a-key").hexdigest()
ISSUER: Final = "issuer: https://login.example.com, audience: [https://agents.example.com]"


@pytest.mark.parametrize("form", ["a-key", f"{{hash: '{HASH}'}}", "{key: a-key}", f"[b-key, {{hash: '{HASH}'}}]"])
def test_every_form_of_a_key_has_its_digest(file: Path, form: str) -> None:
    file.write_text(f"keys: {{alice: {form}}}")
    assert load(file).keys["alice"][-1].digest.hex() == HASH.removeprefix("sha256:")


@pytest.mark.parametrize(
    ("expires", "moment"),
    [
        ("2027-03-01", datetime(2027, 3, 1, tzinfo=UTC)),
        ("2027-03-01T12:00:00Z", datetime(2027, 3, 1, 12, tzinfo=UTC)),
        ("2027-03-01T12:00:00+02:00", datetime(2027, 3, 1, 10, tzinfo=UTC)),
        ("'2027-03-01'", datetime(2027, 3, 1, tzinfo=UTC)),
    ],
)
def test_an_expiry_is_a_date_or_a_time(file: Path, expires: str, moment: datetime) -> None:
    file.write_text(f"keys: {{alice: {{key: a-key, expires: {expires}}}}}")
    assert load(file).keys["alice"][0].expires_at == moment.timestamp()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{a: x-key, b: {hash: 'sha256:12'}}", "keys, entry 2: a hash is sha256: and 64 hex digits"),
        ("{a: {groups: [dev]}}", "keys, entry 1: a record has either hash or key"),
        (f"{{a: {{key: k, hash: '{HASH}'}}}}", "keys, entry 1: a record has either hash or key"),
        ("{a: {hsah: x}}", "keys, entry 1: a record has no such member; there are key, hash, expires, groups, scopes"),
        ("{a: [x-key, {hash: x}]}", "keys, entry 1: item 2: a hash is sha256: and 64 hex digits"),
        ("{a: []}", "keys, entry 1: the list of keys is empty"),
        ("{a: 12}", "keys, entry 1: expected a key in quotes, a record with hash, or a list of these"),
        ("{a: {key: k, groups: 7}}", "keys, entry 1: groups: a valid tuple"),
        ("{a: {key: 'a b'}}", "keys: the key of entry 1 is not printable ASCII without spaces"),
        ("{a: [same, same]}", "keys: entry 1 has the same key twice"),
        (f"{{a: a-key, b: {{hash: '{HASH}'}}}}", "keys: entries 1 and 2 have the same key"),
    ],
)
def test_a_mistake_in_a_key_never_prints_the_key(file: Path, text: str, line: str) -> None:
    assert problem(file, f"keys: {text}") == line


def test_a_short_key_in_a_list_can_be_guessed(file: Path) -> None:
    file.write_text(f"keys: {{alice: [long-enough-to-be-a-key, {{key: short}}, {{hash: '{HASH}'}}]}}")
    [line] = advise(file)
    assert "the key of entry 1 has 5 characters and can be guessed" in line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "{corp: {issuer: https://login.example.com}}",
            "issuers.corp.audience: needed, as tokens for other services would be accepted without it",
        ),
        (
            "{corp: {issuer: https://login.example.com, audience: []}}",
            "issuers.corp.audience: needed, as tokens for other services would be accepted without it",
        ),
        (
            "{corp: {issuer: http://login.example.com, audience: [a]}}",
            "issuers.corp.issuer: an https:// URL, or an http:// URL of this machine",
        ),
        ("{corp: {issuer: login, audience: [a]}}", "issuers.corp.issuer: an http:// or https:// URL"),
        (
            f"{{corp: {{{ISSUER}, algorithms: [HS256]}}}}",
            "issuers.corp.algorithms.0: allowed: 'RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', "
            "'ES384', 'ES512' or 'EdDSA'",
        ),
        (
            f"{{corp: {{{ISSUER}, owner: '{{org_id'}}}}",
            "issuers.corp.owner: a text with names of claims in braces, such as {org_id}",
        ),
        (
            f"{{corp: {{{ISSUER}, jwks: http://login.example.com/keys}}}}",
            "issuers.corp.jwks: an https:// URL, an http:// URL of this machine, a file, or the key set itself",
        ),
        (
            f"{{corp: {{{ISSUER}, jwks: {{keys: []}}}}}}",
            "issuers.corp.jwks: a key set is {keys: [...]} with at least one public key",
        ),
        (f"{{corp: {{{ISSUER}, jwks: {{keys: [a]}}}}}}", "issuers.corp.jwks: key 1 has no kty"),
        (
            f"{{corp: {{{ISSUER}, jwks: {{keys: [{{kty: oct, k: c2VjcmV0}}]}}}}}}",
            "issuers.corp.jwks: key 1 is private or symmetric: keep only the public keys",
        ),
        (f"{{corp: {{{ISSUER}, jwks: '{{'}}}}", "issuers.corp.jwks: the text begins with { and is not JSON"),
        (f"{{a: {{{ISSUER}}}, b: {{{ISSUER}}}}}", "issuers: a and b have the same issuer"),
        (
            f"{{'a:b': {{{ISSUER}}}}}",
            "issuers, entry 1: the name of an issuer is 1 to 32 of a-z, 0-9, '-', '_' and '.', with a letter or digit "
            "at both ends",
        ),
    ],
)
def test_a_mistake_in_an_issuer_is_one_line(file: Path, text: str, line: str) -> None:
    assert problem(file, f"issuers: {text}") == line


@pytest.mark.parametrize("jwks", ['{"keys": [{"kty": "RSA"}]}', {"keys": [{"kty": "RSA"}]}])
def test_a_key_set_can_be_text_or_a_mapping(jwks: Any) -> None:
    issuer = {"issuer": "https://login.example.com", "audience": ["a"], "jwks": jwks}
    settings = Settings.model_validate({"issuers": {"corp": issuer}})
    assert settings.issuers["corp"].jwks == {"keys": [{"kty": "RSA"}]}


def test_an_issuer_keeps_its_final_slash() -> None:
    issuer = {"issuer": "https://tenant.auth0.com/", "audience": "a, b"}
    settings = Settings.model_validate({"issuers": {"corp": issuer}})
    assert settings.issuers["corp"].issuer == "https://tenant.auth0.com/"
    assert settings.issuers["corp"].discovery_url == "https://tenant.auth0.com/.well-known/openid-configuration"
    assert settings.issuers["corp"].audience == ("a", "b")


def test_keys_or_issuers_require_a_credential() -> None:
    issuer = {"issuer": "https://login.example.com", "audience": ["a"]}
    assert not Settings().has_credentials
    assert Settings.model_validate({"keys": {"a": "b"}}).has_credentials
    assert Settings.model_validate({"issuers": {"corp": issuer}}).has_credentials


@pytest.mark.parametrize(
    ("url", "is_trusted"),
    [
        ("https://login.example.com/a", True),
        ("http://127.0.0.1:8080", True),
        ("http://[::1]:8080", True),
        ("http://localhost", True),
        ("http://localhost.evil.example", False),
        ("http://10.0.0.1", False),
        ("https://", False),
        ("http://", False),
        ("https://[", False),
        ("https://a:99999", False),
        ("file:///etc/passwd", False),
    ],
)
def test_https_and_this_machine_are_trusted(url: str, is_trusted: bool) -> None:
    assert is_trusted_url(url) is is_trusted


def test_the_owner_of_a_key_is_no_caller(file: Path) -> None:
    keys, issuer = "keys: {x: x-key, 'corp:ada': a-key}", f"issuers: {{corp: {{{ISSUER}"
    assert problem(file, f"{keys}\n{issuer}}}}}") == (
        "keys, entry 2: owners that begin with corp: are callers of the issuer corp; take another name, or set "
        "issuers.corp.owner"
    )
    for text in (f"{keys}\n{issuer}, owner: '{{org_id}}'}}}}", keys, f"{keys.replace('corp:', 'corp')}\n{issuer}}}}}"):
        file.write_text(text)
        assert len(load(file).keys) == 2
