"""Settings of gRPC, with and without the packages that it needs."""

import subprocess
import sys
from pathlib import Path

import pytest

from babelgate.gateway.settings import grpc
from babelgate.gateway.settings.load import ConfigError, load
from babelgate.gateway.settings.model import Settings

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "grpc":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocked())
import babelgate.gateway.cli.serve, babelgate.gateway.http.app
from babelgate.adapters import ADAPTERS, UPSTREAMS
from babelgate.adapters.a2a.agents.card import card
from babelgate.adapters.kit.server.caller import Authentication
from babelgate.adapters.kit.client.calls import open_http
from babelgate.canonical import AgentInfo

open_http()
assert "GRPC" not in str(card("merged", AgentInfo(name="echo"), "http://here", Authentication()))
assert not {"grpc", "babelgate.adapters.a2a.wire.protobuf"} & set(sys.modules)
"""


def find_nothing(name: str) -> None:
    """Find no module, as `find_spec` does for one that is not installed."""


def test_grpc_without_its_packages_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "babelgate.yaml"
    file.write_text("grpc: {listen: '127.0.0.1:50051'}\n", encoding="utf-8")
    assert load(file, {}).grpc.listen == "127.0.0.1:50051"
    monkeypatch.setattr(grpc, "find_spec", find_nothing)
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    assert "run pip install 'babelgate[grpc]'" in "\n".join(raised.value.problems)


def test_an_address_needs_a_listener(tmp_path: Path) -> None:
    file = tmp_path / "babelgate.yaml"
    file.write_text("grpc: {address: 'grpc.example.com:443'}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load(file, {})
    assert "address needs listen" in "\n".join(raised.value.problems)


def test_a_public_listener_needs_keys_as_http_does() -> None:
    assert Settings().is_local
    assert not Settings.model_validate({"grpc": {"listen": "0.0.0.0:50051"}}).is_local


def test_nothing_imports_grpc_unless_it_is_used() -> None:
    subprocess.run((sys.executable, "-c", BLOCKED), check=True, timeout=60)
