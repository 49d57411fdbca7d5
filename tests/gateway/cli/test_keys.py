"""Tests of `babelgate keys`: the form of a key, and its record."""

import re
import zlib
from base64 import urlsafe_b64decode
from pathlib import Path

import pytest
from click.testing import CliRunner

from babelgate.gateway.api_key import make_key
from babelgate.gateway.cli import babelgate
from babelgate.gateway.http.verifier import Verifier
from babelgate.gateway.settings.load import load
from tests.gateway.http.issuing import bearer


def test_a_key_has_a_prefix_and_a_checksum() -> None:
    key = make_key()
    match = re.fullmatch(r"bg_([\w-]{43})([\w-]{6})", key)
    assert match is not None
    assert urlsafe_b64decode(match[2] + "==") == zlib.crc32(match[1].encode()).to_bytes(4, "big")
    assert make_key() != key


@pytest.mark.parametrize("owner", ["ci", "Ada Lovelace", "yes", "a: b", "1", "-x", '"'])
async def test_the_printed_record_accepts_the_printed_key(owner: str, tmp_path: Path) -> None:
    key, record = CliRunner().invoke(babelgate, ["keys", "new", "--owner", owner]).stdout.splitlines()
    file = tmp_path / "babelgate.yaml"
    file.write_text(f"keys:\n  {record}\n")
    assert key not in record
    assert (await Verifier(load(file)).verify(bearer(key))).owner == owner


def test_a_key_without_an_owner_has_only_a_record() -> None:
    result = CliRunner().invoke(babelgate, ["keys", "new"])
    key, record = result.stdout.splitlines()
    assert re.fullmatch(r'\{hash: "sha256:[0-9a-f]{64}"\}', record)
    assert key.startswith("bg_")
    assert result.stderr == "API key, which is not stored:\nRecord for keys in babelgate.yaml:\n"
