"""Wheel and sdist: they contain exactly what the gateway needs, and the wheel works without a checkout."""

import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
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
    *(str(path.relative_to(ROOT)) for path in (ROOT / "gateway/console/static").rglob("*") if path.is_file()),
    "py.typed",
)


MOST_OF_THE_CONSOLE = 300_000
"""Maximum size of the console in the wheel, in bytes, compressed."""


def modules() -> set[str]:
    """Return the paths of all modules within the distribution."""
    package_modules = {str(path.relative_to(ROOT)) for path in (ROOT / "babelgate").glob("*.py")}
    return package_modules | {
        f"babelgate/{path.relative_to(ROOT)}" for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    }


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy of the tree: setuptools leaves files where it builds, and adds them to the next wheel."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for package in ("babelgate", *PACKAGES, "tests", "docs"):
        shutil.copytree(ROOT / package, source / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, source)
    (path,) = folder.glob("babelgate-*.whl")
    return path


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Command of a fresh environment.

    The dependencies come from this environment, so that nothing is downloaded. The gateway does not: an editable
    install is found through a .pth file, which counts only in its own folder.
    """
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    found = subprocess.run(
        [python, "-c", "import babelgate; print(babelgate.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    assert Path(found.stdout.strip()).is_relative_to(site), "the test must use the installed package"
    return folder / "bin" / "babelgate"


def test_the_wheel_has_the_packages_and_their_data_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        links = [info.filename for info in archive.infolist() if stat.S_ISLNK(info.external_attr >> 16)]
    assert links == []
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"babelgate"}
    assert {name for name in names if name.endswith(".py")} == modules()
    for path in DATA:
        assert f"babelgate/{path}" in names
    assert not [name for name in names if "__pycache__" in name]
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_console_adds_little_to_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        console = [each for each in archive.infolist() if each.filename.startswith("babelgate/gateway/console/")]
    assert 0 < sum(each.compress_size for each in console) <= MOST_OF_THE_CONSOLE


def test_the_sdist_holds_real_files(source: Path, tmp_path: Path) -> None:
    program = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, tmp_path], cwd=source, capture_output=True, check=True)
    (archive_path,) = tmp_path.glob("babelgate-*.tar.gz")
    with tarfile.open(archive_path) as archive:
        files = {entry.name.partition("/")[2] for entry in archive if entry.isfile()}
        assert not any(entry.issym() or entry.islnk() for entry in archive)
    assert modules() <= files
    assert {f"babelgate/{path}" for path in DATA} <= files


def test_the_wheel_serves_without_a_checkout(program: Path, tmp_path: Path) -> None:
    with served(tmp_path, program=(str(program),), PYTHONPATH="", PATH="") as gateway:
        assert f'  call      {program} run echo "Hello" --url {gateway.url}\n' in gateway.table
        run = {"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": "Hello"}]}]}
        answer = httpx.post(f"{gateway.url}/acp/runs", json=run, timeout=60).json()
        assert answer["output"][0]["parts"][0]["content"] == "Hello"
        done = babelgate(tmp_path, "run", "echo", "Hello", "--url", gateway.url, program=(str(program),), PYTHONPATH="")
        assert (done.returncode, done.stdout.strip()) == (0, "Hello"), done.stderr
        assert "Traceback" not in gateway.stop()
    assert (tmp_path / "babelgate.db").is_file()
    done = babelgate(tmp_path, "--version", program=(str(program),), PYTHONPATH="")
    assert done.stdout.startswith("babelgate ")


def test_the_installed_schema_equals_the_printed_one(program: Path, tmp_path: Path) -> None:
    done = babelgate(tmp_path, "validate", "--schema", program=(str(program),), PYTHONPATH="")
    (site,) = (program.parent.parent / "lib").glob("python*/site-packages")
    assert done.stdout == (site / "babelgate" / "gateway" / "babelgate.schema.json").read_text(encoding="utf-8")


def test_a_project_with_packages_of_the_same_names_is_served(program: Path, tmp_path: Path) -> None:
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / "gateway" / "greeting.py").write_text('GREETING = "Hello from your gateway"\n')
    (tmp_path / "adapters" / "hello.py").write_text(
        "from babelgate import Invocation\n"
        "from gateway.greeting import GREETING\n"
        "async def agent(call: Invocation) -> str:\n"
        '    return f"{GREETING}, {call.text}"\n'
    )
    agent = "hi=adapters.hello:agent"
    with served(tmp_path, agent, program=(str(program),), PYTHONPATH="") as gateway:
        done = babelgate(tmp_path, "run", "hi", "Ann", "--url", gateway.url, program=(str(program),), PYTHONPATH="")
    assert (done.returncode, done.stdout.strip()) == (0, "Hello from your gateway, Ann"), done.stderr


def test_agent_with_a_former_import_fails_with_the_new_name(program: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from canonical import Ask\n")
    done = babelgate(
        tmp_path, "record", "mine:agent", "Hi", "--out", "run.json", program=(str(program),), PYTHONPATH=""
    )
    assert done.returncode == 1
    assert "The package 'canonical' is now 'babelgate.canonical'" in done.stderr
