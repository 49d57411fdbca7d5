"""The manifests and the Compose files are what Kubernetes and Compose take: by their schemas, in which no member is
unknown."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.test_deploy import DEPLOY, MANIFESTS
from tests.interop.peers import peer_python

COMPOSE: Final = sorted(DEPLOY.glob("compose*.yaml"))
VERSIONS: Final = ("1.30", "1.37")
"""The oldest of which docs/deployment.md says that it is enough, and the newest that has a schema."""


def complaints(*arguments: str | Path) -> str:
    """What a validator says; empty if it has nothing to say against it."""
    command = [peer_python("manifests"), "-m", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def of_kubernetes(version: str, files: Sequence[Path]) -> str:
    return complaints("kubernetes_validate", "--strict", "--quiet", "-k", version, *files)


def of_compose(files: Sequence[Path]) -> str:
    return complaints("check_jsonschema", "--builtin-schema", "vendor.compose-spec", *files)


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_the_manifests(version: str) -> None:
    assert MANIFESTS
    assert not of_kubernetes(version, MANIFESTS)


def test_compose_takes_its_files() -> None:
    assert COMPOSE
    assert not of_compose(COMPOSE)


def test_a_member_that_nobody_knows_is_found(tmp_path: Path) -> None:
    manifest, compose = tmp_path / "manifest.yaml", tmp_path / "compose.yaml"
    manifest.write_text(MANIFESTS[0].read_text(encoding="utf-8").replace("  replicas:", "  replicate:"))
    compose.write_text(COMPOSE[0].read_text(encoding="utf-8").replace("  restart:", "  restarts:"))
    assert "replicate" in of_kubernetes(VERSIONS[-1], [manifest])
    assert "restarts" in of_compose([compose])


def test_the_oldest_kubernetes_is_named_where_people_look() -> None:
    said = (DEPLOY.parent / "docs/deployment.md").read_text(encoding="utf-8")
    assert f"Kubernetes {VERSIONS[0]} or newer" in said
