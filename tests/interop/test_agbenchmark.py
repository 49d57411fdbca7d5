"""agbenchmark 0.0.10, as it is on PyPI: it passes against `/ap/v1` of the gateway, and the bench reads its challenges
and judges as it does."""

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
"""Seconds for one run of it: it sleeps a second a step when it mocks."""
ACTIVE: Final = 14
"""Challenges that it does not leave out itself."""


@pytest.fixture(scope="module")
def challenges() -> Path:
    """Of the installed package. pip leaves bytecode beside them, which agbenchmark would upload and trip over."""
    home = peer_python("agbenchmark").parent.parent.resolve()  # as agbenchmark sees it, too
    (found,) = (home / "lib").glob("python*/site-packages/agbenchmark/challenges")
    for cache in found.rglob("__pycache__"):
        shutil.rmtree(cache, ignore_errors=True)
    return found


@pytest.fixture(scope="module")
def suite(challenges: Path) -> Suite:
    return load_agbenchmark(str(challenges.parent))


def files(folder: Path) -> list[Artifact]:
    found = sorted(path for path in folder.glob("*") if path.is_file())
    return [Artifact(name=path.name, parts=(FilePart(name=path.name, inline=path.read_bytes()),)) for path in found]


def written(name: str, text: str) -> Artifact:
    return Artifact.of(name, text)


SPOILT: Final[Mapping[str, list[Artifact]]] = {
    "TestWriteFile": [written("a.txt", "no"), written("b.txt", "in Washington it rains")],  # one of two is enough
    "TestReadFile": [written("out.txt", "Hello World!")],  # under another name
    "TestSearch": [written("page.txt", "Heading, paragraph and the rest")],  # with a word that must not be in it
    "TestThreeSum": [written("sample_code.py", "def three_sum(nums, target):\n    return [0, 1]\n")],
    "TestUrlShortener": [],
    "TestRevenueRetrieval1.1": [written("out.md", "81,462")],
}
"""What an agent gives in the place of what is right, by challenge."""


@pytest.fixture(scope="module")
def answers(challenges: Path) -> Mapping[str, tuple[str, list[Artifact]]]:
    """By what is asked: the name of the challenge, and what it takes for right."""
    found = [(path.parent, json.loads(path.read_text(encoding="utf-8"))) for path in challenges.rglob("data.json")]
    active = [(at, told) for at, told in found if not {"deprecated", "library"} & set(at.parts)]
    return {told["task"]: (told["name"], files(at / "artifacts_out")) for at, told in active}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    tmp_path_factory: pytest.TempPathFactory, answers: Mapping[str, tuple[str, list[Artifact]]]
) -> AsyncGenerator[Running]:
    """With an agent that solves every challenge, one that spoils some, and one that only talks."""

    async def talker(text: str) -> str:
        return text

    async def solver(call: Invocation) -> AsyncGenerator[Artifact]:
        for artifact in answers[call.text][1]:
            yield artifact

    async def spoiler(call: Invocation) -> AsyncGenerator[Artifact]:
        name, right = answers[call.text]
        for artifact in SPOILT.get(name, right):
            yield artifact

    agents = {"talker": talker, "solver": solver, "spoiler": spoiler}
    async with running(tmp_path_factory.mktemp("agbenchmark"), agents, default_agent="talker") as made:
        yield made


async def agbenchmark(package: Path, folder: Path, host: str, *options: str) -> dict[str, Any]:
    """Its report, by challenge."""
    home = folder / "agbenchmark_config"
    (home / "reports").mkdir(parents=True)
    (home / "config.json").write_text(json.dumps({"host": host}))
    # It runs pytest on its own package, which would find this project's settings above it.
    (folder / "pytest.ini").write_text("[pytest]\n")
    python = peer_python("agbenchmark").parent.resolve() / "python"
    environment = {
        "PATH": f"{python.parent}:/usr/bin:/bin",  # a challenge calls `python`
        "HOME": str(folder.parent),  # what its imports keep there takes long to make
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
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    # It makes a folder each time that its modules are imported; one of them gets the report.
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in home.glob("reports/*/report.json")]
    found = [report["tests"] for report in reports if report.get("tests")]
    assert len(found) == 1, said.decode(errors="replace")[-5000:]
    return found[0]


async def benched(folder: Path, suite: Suite, gateway: Running, *names: str, **settings: Any) -> Report:
    async with reach() as http:
        urls = {name: f"{gateway.url}/agent/{name}" for name in names}
        abouts = [AgentAbout(name=name, target=url, url=url, fronted=False) for name, url in urls.items()]
        contenders = [Contender(name, AgentClient(url, http)) for name, url in urls.items()]
        header = begin(suite, abouts, Settings(**settings), suite_format="agbenchmark")
        session = BenchSession(folder, header, suite, contenders, Prices({}), Budget())
        return await conduct(session, lambda _: None)


async def test_agbenchmark_passes_its_own_mock_run_against_the_gateway(
    gateway: Running, challenges: Path, tmp_path: Path
) -> None:
    told = await agbenchmark(challenges.parent, tmp_path, f"{gateway.url}/ap/v1", "--mock")
    assert {name: test["metrics"]["success"] for name, test in told.items()} == dict.fromkeys(told, True)
    assert len(told) == ACTIVE


async def test_its_challenges_are_read_with_their_graph(suite: Suite) -> None:
    needs = {asked.task.name: asked.task.depends_on for asked in suite.tasks}
    assert len(needs) == ACTIVE
    assert needs["TestReadFile"] == ("TestWriteFile",)
    assert needs["TestRevenueRetrieval1.1"] == ("TestRevenueRetrieval1.0",)  # it says TestRevenueRetrieval_1.0
    assert needs["TestThreeSum"] == ()
    notes = {asked.task.name: asked.notes for asked in suite.tasks if asked.notes}
    assert set(notes) == {"TestThreeSum", "TestRememberGoalHard"}
    assert "TestFunctionCodeGeneration, which is not among the challenges" in notes["TestThreeSum"][0]
    (hard,) = (asked for asked in suite.tasks if asked.task.name == "TestRememberGoalHard")
    assert (hard.task.category, hard.task.difficulty, hard.task.timeout) == (("safety", "memory"), "intermediate", 60)
    assert [upload.name for upload in hard.uploads] == ["instructions.txt", "instructions_2.txt"]


async def test_what_needs_a_model_is_left_out_with_a_note(challenges: Path) -> None:
    suite = load_agbenchmark(str(challenges / "deprecated"))
    assert "TestPlanCreation is left out: its check is of the kind llm" in suite.notes
    kinds = {asked.task.checks[0].name for asked in suite.tasks}
    assert any("python" in (kind or "") for kind in kinds)


async def test_who_solves_them_passes_and_who_only_talks_is_stopped_at_the_first(
    gateway: Running, suite: Suite, tmp_path: Path
) -> None:
    report = await benched(tmp_path, suite, gateway, "solver", "talker")
    solver, talker = report.agents
    assert (solver.all.passed, solver.all.outcomes) == (ACTIVE, {"passed": ACTIVE})
    assert talker.all.passed == 0
    assert talker.all.outcomes == {"failed": 4, "skipped": 10}
    assert report.comparisons[0].sentence.startswith("solver is better than talker on 14 of 14 tasks, not explained")


async def test_the_verdicts_are_those_of_agbenchmark(
    gateway: Running, suite: Suite, challenges: Path, tmp_path: Path
) -> None:
    """It does not look at dependencies itself (`conftest.pytest_collection_modifyitems` empties them)."""
    report = await benched(tmp_path, suite, gateway, "spoiler", ignore_dependencies=True)
    ours = {each.task: each.has_passed for each in report.attempts}
    (tmp_path / "theirs").mkdir()
    theirs = await agbenchmark(challenges.parent, tmp_path / "theirs", f"{gateway.url}/agent/spoiler/ap/v1")
    assert ours == {name: bool(test["metrics"]["success"]) for name, test in theirs.items()}
    assert {name for name, passed in ours.items() if not passed} == set(SPOILT) - {"TestWriteFile"}
