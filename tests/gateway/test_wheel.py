"""A wheel built from the tree is the whole product: it installs elsewhere and serves there."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from sysconfig import get_path

import httpx
import pytest

from tests.gateway.command import ROOT, babelgate, served

pytestmark = pytest.mark.timeout(180)


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # A copy, because the build leaves its traces in the tree.
    tree = folder / "tree"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "*.db*", "*.blobs")
    shutil.copytree(ROOT, tree, ignore=ignored)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, tree)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """`bin` of a new environment with the wheel. What the wheel depends on is lent by the environment of the tests; the
    .pth files of that one, the checkout's among them, do not count here."""
    environment = wheel.parent / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "--python", python)
    run(*pip, "install", "--no-deps", "--no-index", wheel)
    (site / "lent.pth").write_text(get_path("purelib") + "\n")
    return environment / "bin"


def test_the_wheel_holds_the_packages_and_the_files_they_need_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    packages = {name.partition("/")[0] for name in names}
    info = {package for package in packages if package.endswith(".dist-info")}
    assert packages - info == {"adapters", "canonical", "conformance", "gateway"}
    needed = ("env.py", "script.py.mako", "versions/0001_journal.py")
    assert {f"gateway/storage/migrations/{name}" for name in needed} <= set(names)
    assert "gateway/babelgate.schema.json" in names
    assert not any("__pycache__" in name or name.endswith(".pyc") for name in names)
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    modules = {str(path.relative_to(ROOT)) for package in packages - info for path in (ROOT / package).rglob("*.py")}
    assert modules == {name for name in names if name.endswith(".py")}


def test_the_installed_wheel_serves(installed: Path, tmp_path: Path) -> None:
    program = (str(installed / "babelgate"),)
    where = run(installed / "python", "-P", "-c", "import gateway.http.app; print(gateway.http.app.__file__)")
    assert where.startswith(str(installed.parent)), where
    with served(tmp_path, program=program, PYTHONPATH="") as running:
        body = {"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": "Hello"}]}]}
        answer = httpx.post(f"{running.url}/acp/runs", json=body, timeout=60).json()
        assert answer["output"][0]["parts"][0]["content"] == "Hello"
        assert "Traceback" not in running.stop()
    assert (tmp_path / "babelgate.db").exists()
    done = babelgate(tmp_path, "--version", program=program, PYTHONPATH="")
    assert done.stdout.startswith("babelgate ")
