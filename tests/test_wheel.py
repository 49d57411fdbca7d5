"""A wheel built from the tree holds what the gateway needs and nothing else, and serves where there is no tree."""

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import httpx
import pytest

from tests.gateway.command import ROOT, babelgate, served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PACKAGES = ("canonical", "adapters", "gateway", "conformance")
DATA = (
    "gateway/babelgate.schema.json",
    "gateway/storage/migrations/script.py.mako",
    "conformance/bench/result.schema.json",
    "conformance/bench/task.schema.json",
    "conformance/report/page.css",
    "conformance/report/report.schema.json",
    *(
        str(path.relative_to(ROOT))
        for folder in ("requirements", "schemas", "presets", "bench/suites")
        for path in (ROOT / "conformance" / folder).glob("*.yaml")
    ),
    *(f"{package}/py.typed" for package in PACKAGES),
)


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools leaves its work in the tree, and puts into the next wheel what it finds there."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for package in (*PACKAGES, "tests", "docs"):
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, source)
    (made,) = folder.glob("babelgate-*.whl")
    return made


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a fresh environment. The dependencies come from this one, so that nothing is downloaded; the
    gateway itself does not, because an editable install is found by a .pth file, which counts only where it lies."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    found = subprocess.run(
        [python, "-c", "import gateway; print(gateway.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    assert Path(found.stdout.strip()).is_relative_to(site), "the installed one is what is tested"
    return folder / "bin" / "babelgate"


def test_the_wheel_holds_the_packages_and_their_data_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == set(PACKAGES)
    modules = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
    for path in DATA:
        assert path in names
    assert not [name for name in names if "__pycache__" in name]
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_wheel_serves_where_there_is_no_tree(program: Path, tmp_path: Path) -> None:
    with served(tmp_path, program=(str(program),), PYTHONPATH="") as gateway:
        run = {"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": "Hello"}]}]}
        answer = httpx.post(f"{gateway.url}/acp/runs", json=run, timeout=60).json()
        assert answer["output"][0]["parts"][0]["content"] == "Hello"
        done = babelgate(tmp_path, "run", "echo", "Hello", "--url", gateway.url, program=(str(program),), PYTHONPATH="")
        assert (done.returncode, done.stdout.strip()) == (0, "Hello"), done.stderr
        assert "Traceback" not in gateway.stop()
    assert (tmp_path / "babelgate.db").is_file()
    done = babelgate(tmp_path, "--version", program=(str(program),), PYTHONPATH="")
    assert done.stdout.startswith("babelgate ")


def test_the_installed_schema_is_the_one_that_is_printed(program: Path, tmp_path: Path) -> None:
    done = babelgate(tmp_path, "validate", "--schema", program=(str(program),), PYTHONPATH="")
    (site,) = (program.parent.parent / "lib").glob("python*/site-packages")
    assert done.stdout == (site / "gateway" / "babelgate.schema.json").read_text(encoding="utf-8")
