"""The examples work as their READMEs show: every command is run, and its output compared."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any, Final

import pytest
import yaml

from tests.docs.test_check import pattern
from tests.gateway.command import BOUND, ROOT, babelgate, bound_socket, served
from tests.interop.peers import REQUIREMENTS, peer_python

EXAMPLES: Final = ROOT / "examples"
GATEWAY: Final = re.compile(r"(?:http://)?(?:localhost|127\.0\.0\.1):8000")
AGENT_PORT: Final = "9000"
"""Port of an agent's own server, in the files of the examples."""
PEERS: Final = {"google-adk": "adk", "pydantic-ai": "fasta2a"}
"""Examples that need packages which the environment of the tests does not have, and the peer that has them."""
PAGES: Final = ("ui-copilotkit", "ui-use-chat")
"""Examples with a page, which `tests/browser/test_ui_examples.py` starts."""
SLOW: Final = {*PEERS, "check-in-ci"}
LINES: Final = 60
"""Maximum number of lines of a README: one screen."""
NAMES: Final = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a README, without the variables that it sets, with its input and the expected output."""

    text: str
    expected: str = ""
    stdin: str = ""

    @property
    def words(self) -> list[str]:
        return [word for word in shlex.split(self.text) if not re.match(r"[A-Z_]+=", word)]

    @property
    def variables(self) -> dict[str, str]:
        pairs = (word.partition("=") for word in shlex.split(self.text) if re.match(r"[A-Z_]+=", word))
        return {name: value for name, _, value in pairs}


def blocks(readme: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)


def background_commands(readme: str) -> list[Command]:
    """Return the commands that are started and left running."""
    lines = "".join(blocks(readme, "bash")).splitlines()
    return [Command(line) for line in lines if not line.startswith("pip install ")]


def installed_packages(readme: str) -> list[str]:
    lines = [line for block in blocks(readme, "bash") for line in block.splitlines()]
    words = [word for line in lines if line.startswith("pip install ") for word in shlex.split(line)[2:]]
    return [re.split(r"[\[<>=]", word)[0] for word in words]


def foreground_commands(readme: str) -> list[Command]:
    """Return the commands with their output. A line that begins with `> ` is what the user types."""
    commands: list[Command] = []
    for block in blocks(readme, "console"):
        text, _, conversation = block.removeprefix("$ ").partition("\n")
        expected = re.sub(r"^> .*\n", "> ", conversation, flags=re.MULTILINE)
        stdin = "".join(f"{answer}\n" for answer in re.findall(r"^> (.*)$", conversation, re.MULTILINE))
        commands.append(Command(text, expected, stdin))
    return commands


@contextmanager
def agent_server(folder: Path, python: Path, arguments: Sequence[str]) -> Generator[None]:
    """Start the agent's own server, and wait until it prints that Ctrl-C stops it."""
    process = subprocess.Popen(
        [python, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        lines: list[str] = []
        # The timeout of the test is the bound; the output is small enough to stay in the pipe afterwards.
        for line in process.stdout:
            lines.append(line)
            if re.search(r"ctrl[-+]c", line, re.IGNORECASE):
                break
        else:
            pytest.fail("".join(lines))
        yield
    finally:
        process.kill()
        process.communicate(timeout=BOUND)


def output_of(command: Command, folder: Path, url: str) -> str:
    if command.words[0] == "babelgate":
        text = GATEWAY.sub(url, command.text)
        arguments = Command(text).words[1:]
        done = babelgate(folder, *arguments, stdin=command.stdin, bound=120, BABELGATE_URL=url, **command.variables)
        # `run` asks on stderr; `bench` and `check` report their progress there.
        output = done.stderr + done.stdout if arguments[0] == "run" else done.stdout
    else:
        script = GATEWAY.sub(url, command.text)
        output = subprocess.run(
            ["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=BOUND, check=True
        ).stdout
    return output.replace(url, "http://127.0.0.1:8000") if url else output


def copied(example: str, folder: Path) -> Path:
    """Return a copy of the example in which the agent's own server has a free port."""
    copy = copytree(EXAMPLES / example, folder / example)
    with bound_socket() as free:
        port = str(free.getsockname()[1])
    for path in (*copy.glob("*.py"), *copy.glob("*.yaml")):
        path.write_text(path.read_text(encoding="utf-8").replace(AGENT_PORT, port), encoding="utf-8")
    return copy


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "example",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in NAMES if name not in PAGES],
)
def test_an_example_does_what_its_readme_shows(example: str, tmp_path: Path) -> None:
    folder = copied(example, tmp_path)
    readme = (folder / "README.md").read_text(encoding="utf-8")
    python = peer_python(PEERS[example]) if example in PEERS else Path(sys.executable)
    url = ""
    with ExitStack() as running:
        for command in background_commands(readme):
            program, *arguments = command.words
            if program == "python":
                running.enter_context(agent_server(folder, python, arguments))
            else:
                assert (program, arguments) == ("babelgate", ["serve"])
                url = running.enter_context(served(folder, **command.variables)).url
        commands = foreground_commands(readme)
        assert commands
        for command in commands:
            output = output_of(command, folder, url)
            assert re.fullmatch(pattern(command.expected.rstrip()), output.rstrip()), f"{command.text}\n{output}"


@pytest.mark.parametrize("example", NAMES)
def test_the_readme_of_an_example_fits_on_one_screen(example: str) -> None:
    readme = (EXAMPLES / example / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= LINES


@pytest.mark.parametrize(("example", "peer"), PEERS.items())
def test_the_tests_have_the_packages_that_an_example_installs(example: str, peer: str) -> None:
    lock = (REQUIREMENTS / f"{peer}.txt").read_text(encoding="utf-8")
    packages = installed_packages((EXAMPLES / example / "README.md").read_text(encoding="utf-8"))
    assert packages
    assert {name for name in packages if not re.search(rf"^{name}==", lock, re.MULTILINE)} == set()


@pytest.mark.parametrize("example", PAGES)
def test_the_tests_run_the_commands_and_packages_of_a_page(example: str) -> None:
    readme = (EXAMPLES / example / "README.md").read_text(encoding="utf-8")
    commands = [command.text for command in background_commands(readme)]
    assert commands == ["npm install", "babelgate serve", "npm start"]
    page = (ROOT / "docs" / "ui.md").read_text(encoding="utf-8")
    assert [command.text for command in background_commands(page)] == commands
    packages = json.loads((EXAMPLES / example / "package.json").read_text(encoding="utf-8"))
    peer = json.loads((REQUIREMENTS / example / "package.json").read_text(encoding="utf-8"))
    assert packages["dependencies"] | packages["devDependencies"] == peer["dependencies"]


@pytest.mark.parametrize(("page", "folder"), [("README.md", "examples/"), ("examples/README.md", "")])
def test_the_tables_name_every_example(page: str, folder: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert sorted(re.findall(rf"\]\({folder}([a-z-]+)/README\.md\)", text)) == NAMES


def test_the_workflow_runs_the_commands_of_its_readme() -> None:
    folder = EXAMPLES / "check-in-ci"
    readme = (folder / "README.md").read_text(encoding="utf-8")
    workflow: Any = yaml.safe_load((folder / ".github/workflows/check.yml").read_text(encoding="utf-8"))
    scripts = "\n".join(step.get("run", "") for step in workflow["jobs"]["check"]["steps"])
    for command in (*background_commands(readme), *foreground_commands(readme)):
        assert command.text in scripts
