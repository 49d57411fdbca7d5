"""Validation of the manifests and the Compose files with the schemas of Kubernetes and Compose, in which unknown
members are errors.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.test_deploy import DEPLOY, MANIFESTS
from tests.interop.peers import peer_python

COMPOSE: Final = sorted(DEPLOY.glob("compose*.yaml"))
VERSIONS: Final = ("1.30", "1.37")
"""The oldest version that docs/deployment.md supports, and the newest with a schema."""


def complaints(*arguments: str | Path) -> str:
    """Return the output of a validator, or an empty text if the files are valid."""
    command = [peer_python("manifests"), "-m", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def of_kubernetes(version: str, files: Sequence[Path]) -> str:
    return complaints("kubernetes_validate", "--strict", "--quiet", "-k", version, *files)


def of_compose(files: Sequence[Path]) -> str:
    return complaints("check_jsonschema", "--builtin-schema", "vendor.compose-spec", *files)


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_the_manifests(version: str) -> None:
    assert MANIFESTS
    assert not of_kubernetes(version, MANIFESTS)


def test_compose_accepts_its_files() -> None:
    assert COMPOSE
    assert not of_compose(COMPOSE)


def test_an_unknown_member_is_found(tmp_path: Path) -> None:
    manifest, compose = tmp_path / "manifest.yaml", tmp_path / "compose.yaml"
    manifest.write_text(MANIFESTS[0].read_text(encoding="utf-8").replace("  replicas:", "  replicate:"))
    compose.write_text(COMPOSE[0].read_text(encoding="utf-8").replace("  restart:", "  restarts:"))
    assert "replicate" in of_kubernetes(VERSIONS[-1], [manifest])
    assert "restarts" in of_compose([compose])


def test_the_docs_name_the_oldest_kubernetes() -> None:
    page = (DEPLOY.parent / "docs/deployment.md").read_text(encoding="utf-8")
    assert f"Kubernetes {VERSIONS[0]} or newer" in page
