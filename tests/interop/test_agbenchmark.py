"""Tests with agbenchmark 0.0.10 from PyPI.

It passes against `/ap/v1` of the gateway, and the bench reads its challenges and reaches the same verdicts.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import Artifact, Invocation
from babelgate.canonical.message import FilePart
from babelgate.conformance.bench.agbenchmark import load_agbenchmark
from babelgate.conformance.bench.attempt import Contender
from babelgate.conformance.bench.price import Prices
from babelgate.conformance.bench.result import AgentAbout, Report, Settings
from babelgate.conformance.bench.run import Budget
from babelgate.conformance.bench.server import AgentClient, reach
from babelgate.conformance.bench.session import BenchSession, begin, conduct
from babelgate.conformance.bench.suite import Suite
from tests.interop.peers import peer_python
from tests.running import Running, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(300)]

BOUND: Final = 240
"""Timeout for one run, in seconds. With `--mock` it sleeps a second at each step."""
ACTIVE: Final = 14
"""Number of challenges that agbenchmark itself runs."""


@pytest.fixture(scope="module")
def challenges() -> Path:
    """Challenges of the installed package, without the bytecode that pip adds, because agbenchmark would upload it."""
    home = peer_python("agbenchmark").parent.parent.resolve()  # resolved, as in agbenchmark
    (folder,) = (home / "lib").glob("python*/site-packages/agbenchmark/challenges")
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache, ignore_errors=True)
    return folder


@pytest.fixture(scope="module")
def suite(challenges: Path) -> Suite:
    return load_agbenchmark(str(challenges.parent))


def files(folder: Path) -> list[Artifact]:
    paths = sorted(path for path in folder.glob("*") if path.is_file())
    return [Artifact(name=path.name, parts=(FilePart(name=path.name, inline=path.read_bytes()),)) for path in paths]


def text_file(name: str, text: str) -> Artifact:
    return Artifact.of(name, text)


SPOILED: Final[Mapping[str, list[Artifact]]] = {
    "TestWriteFile": [text_file("a.txt", "no"), text_file("b.txt", "in Washington it rains")],  # one of two is enough
    "TestReadFile": [text_file("out.txt", "Hello World!")],  # a wrong file name
    "TestSearch": [text_file("page.txt", "Heading, paragraph and the rest")],  # contains a forbidden word
    "TestThreeSum": [text_file("sample_code.py", "def three_sum(nums, target):\n    return [0, 1]\n")],
    "TestUrlShortener": [],
    "TestRevenueRetrieval1.1": [text_file("out.md", "81,462")],
}
"""Wrong answers by challenge, except that one right file is enough for TestWriteFile."""


@pytest.fixture(scope="module")
def answers(challenges: Path) -> Mapping[str, tuple[str, list[Artifact]]]:
    """Name and right answer of each challenge, by its task."""
    found = [(path.parent, json.loads(path.read_text(encoding="utf-8"))) for path in challenges.rglob("data.json")]
    active = [(folder, challenge) for folder, challenge in found if not {"deprecated", "library"} & set(folder.parts)]
    return {challenge["task"]: (challenge["name"], files(folder / "artifacts_out")) for folder, challenge in active}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    tmp_path_factory: pytest.TempPathFactory, answers: Mapping[str, tuple[str, list[Artifact]]]
) -> AsyncGenerator[Running]:
    """Gateway with an agent that solves every challenge, one that spoils some, and one that only writes text."""

    async def talker(text: str) -> str:
        return text

    async def solver(call: Invocation) -> AsyncGenerator[Artifact]:
        for artifact in answers[call.text][1]:
            yield artifact

    async def spoiler(call: Invocation) -> AsyncGenerator[Artifact]:
        name, right = answers[call.text]
        for artifact in SPOILED.get(name, right):
            yield artifact

    agents = {"talker": talker, "solver": solver, "spoiler": spoiler}
    async with running(tmp_path_factory.mktemp("agbenchmark"), agents, default_agent="talker") as gateway:
        yield gateway


async def agbenchmark(package: Path, folder: Path, host: str, *options: str) -> dict[str, Any]:
    """Run agbenchmark and return its report by challenge."""
    home = folder / "agbenchmark_config"
    (home / "reports").mkdir(parents=True)
    (home / "config.json").write_text(json.dumps({"host": host}))
    # It runs pytest on its package, which would otherwise read the settings of this project.
    (folder / "pytest.ini").write_text("[pytest]\n")
    python = peer_python("agbenchmark").parent.resolve() / "python"
    environment = {
        "PATH": f"{python.parent}:/usr/bin:/bin",  # one challenge calls `python`
        "HOME": str(folder.parent),  # its imports store files there that are slow to create
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_ADDOPTS": f"-c {folder / 'pytest.ini'} --confcutdir={package}",
    }
    process = await asyncio.create_subprocess_exec(
        str(python),
        "-m",
        "agbenchmark",
        "start",
        *options,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(BOUND):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    # Each import of its modules creates a folder; one of these receives the report.
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in home.glob("reports/*/report.json")]
    tests = [report["tests"] for report in reports if report.get("tests")]
    assert len(tests) == 1, output.decode(errors="replace")[-5000:]
    return tests[0]


async def run_bench(folder: Path, suite: Suite, gateway: Running, *names: str, **settings: Any) -> Report:
    async with reach() as http:
        urls = {name: f"{gateway.url}/agent/{name}" for name in names}
        abouts = [AgentAbout(name=name, target=url, url=url, fronted=False) for name, url in urls.items()]
        contenders = [Contender(name, AgentClient(url, http)) for name, url in urls.items()]
        header = begin(suite, abouts, Settings(**settings), suite_format="agbenchmark")
        session = BenchSession(folder, header, suite, contenders, Prices({}), Budget())
        return await conduct(session, lambda _: None)


async def test_agbenchmark_passes_its_mock_run_against_the_gateway(
    gateway: Running, challenges: Path, tmp_path: Path
) -> None:
    report = await agbenchmark(challenges.parent, tmp_path, f"{gateway.url}/ap/v1", "--mock")
    assert {name: test["metrics"]["success"] for name, test in report.items()} == dict.fromkeys(report, True)
    assert len(report) == ACTIVE


async def test_challenges_are_read_with_their_dependencies(suite: Suite) -> None:
    needs = {each.task.name: each.task.depends_on for each in suite.tasks}
    assert len(needs) == ACTIVE
    assert needs["TestReadFile"] == ("TestWriteFile",)
    # The name in agbenchmark is TestRevenueRetrieval_1.0.
    assert needs["TestRevenueRetrieval1.1"] == ("TestRevenueRetrieval1.0",)
    assert needs["TestThreeSum"] == ()
    notes = {each.task.name: each.notes for each in suite.tasks if each.notes}
    assert set(notes) == {"TestThreeSum", "TestRememberGoalHard"}
    assert "TestFunctionCodeGeneration, which is not among the challenges" in notes["TestThreeSum"][0]
    (hard,) = (each for each in suite.tasks if each.task.name == "TestRememberGoalHard")
    assert (hard.task.category, hard.task.difficulty, hard.task.timeout) == (("safety", "memory"), "intermediate", 60)
    assert [upload.name for upload in hard.uploads] == ["instructions.txt", "instructions_2.txt"]


async def test_challenges_that_need_a_model_are_skipped_with_a_note(challenges: Path) -> None:
    suite = load_agbenchmark(str(challenges / "deprecated"))
    assert "TestPlanCreation is left out: its check is of the kind llm" in suite.notes
    kinds = {each.task.checks[0].name for each in suite.tasks}
    assert any("python" in (kind or "") for kind in kinds)


async def test_a_failed_challenge_skips_those_that_depend_on_it(gateway: Running, suite: Suite, tmp_path: Path) -> None:
    report = await run_bench(tmp_path, suite, gateway, "solver", "talker")
    solver, talker = report.agents
    assert (solver.all.passed, solver.all.outcomes) == (ACTIVE, {"passed": ACTIVE})
    assert talker.all.passed == 0
    assert talker.all.outcomes == {"failed": 4, "skipped": 10}
    assert report.comparisons[0].sentence.startswith("solver is better than talker on 14 of 14 tasks, not explained")


async def test_the_verdicts_equal_those_of_agbenchmark(
    gateway: Running, suite: Suite, challenges: Path, tmp_path: Path
) -> None:
    """Compare verdicts without dependencies: `conftest.pytest_collection_modifyitems` of agbenchmark removes them."""
    report = await run_bench(tmp_path, suite, gateway, "spoiler", ignore_dependencies=True)
    verdicts = {each.task: each.has_passed for each in report.attempts}
    (tmp_path / "expected").mkdir()
    expected = await agbenchmark(challenges.parent, tmp_path / "expected", f"{gateway.url}/agent/spoiler/ap/v1")
    assert verdicts == {name: bool(test["metrics"]["success"]) for name, test in expected.items()}
    assert {name for name, passed in verdicts.items() if not passed} == set(SPOILED) - {"TestWriteFile"}
