"""The calls, examples and outputs of the README and the page on protocols are real; the README has short sentences."""

import json
import re
import shlex
import statistics
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.docs.test_check import pattern
from tests.gateway.command import BOUND, ROOT, Served, babelgate, served

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROTOCOLS = (ROOT / "docs" / "protocols" / "README.md").read_text(encoding="utf-8")
ORIGINS = re.compile(r"(?:http://)?(?:localhost|127\.0\.0\.1):8000")
AVERAGE_WORDS, MOST_WORDS = 15, 25


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def run(command: str, folder: Path, gateway: Served) -> str:
    """Return the output of a command of a page.

    The URL on the page is replaced by that of the gateway, and back in the output.
    """
    command = ORIGINS.sub(gateway.url, command)
    if command.startswith(".venv/bin/babelgate "):
        output = babelgate(folder, *shlex.split(command)[1:], bound=120).stdout
    else:
        output = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, timeout=BOUND, check=True, cwd=folder
        ).stdout
    return output.replace(gateway.url, "http://127.0.0.1:8000").strip()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    network = '{"allow": ["127.0.0.0/8"]}'
    with served(tmp_path_factory.mktemp("gateway"), BABELGATE_NETWORK=network) as running:
        yield running


def test_each_readme_call_succeeds(gateway: Served, tmp_path: Path) -> None:
    (calls,) = blocks(README, "bash")
    commands = [line for line in calls.splitlines() if line.startswith("curl ")]
    assert len(commands) == 11
    for command in commands:
        output = run(command, tmp_path, gateway)
        answer = output.rpartition("\ndata: ")[2]
        assert not {"error", "detail"} & {name for name, value in json.loads(answer).items() if value is not None}
        assert "Hello" in output, command


@pytest.mark.timeout(180)
def test_each_readme_output_matches_its_command(gateway: Served, tmp_path: Path) -> None:
    # The greeter is the reader's agent; a separate test serves it.
    examples = [example for example in blocks(README, "console") if "run greeter" not in example]
    assert len(examples) == 3
    for example in examples:
        command, _, expected = example.removeprefix("$ ").partition("\n")
        output = run(command, tmp_path, gateway)
        assert re.fullmatch(pattern(expected), output), f"{command}\n{output}"


def test_a_run_is_readable_in_another_protocol(gateway: Served, tmp_path: Path) -> None:
    (example,) = blocks(PROTOCOLS, "console")
    lines = example.splitlines()
    shown_id = re.findall(r"[0-9a-f-]{36}", example)[0]
    first_output = run(lines[0].removeprefix("$ "), tmp_path, gateway)
    assert re.fullmatch(pattern(lines[1].replace(shown_id, "…")), first_output)
    task_id = first_output.rpartition(" ")[2]
    output = run(lines[2].removeprefix("$ ").replace(shown_id, task_id), tmp_path, gateway)
    assert re.fullmatch(pattern(lines[3].replace(shown_id, task_id)), output), output


def test_the_agent_of_the_readme_asks_and_greets(tmp_path: Path) -> None:
    (source,) = blocks(README, "python")
    (tmp_path / "greeter.py").write_text(source, encoding="utf-8")
    (talk,) = [example for example in blocks(README, "console") if "run greeter" in example]
    command, question, answer, greeting = talk.splitlines()
    with served(tmp_path, "greeter=greeter:agent") as running:
        arguments = shlex.split(command)[2:]
        done = babelgate(tmp_path, *arguments, "--url", running.url, stdin=f"{answer.removeprefix('> ')}\n")
    assert (done.returncode, done.stdout.strip()) == (0, greeting), done.stderr
    assert done.stderr.startswith(f"{question}\n> ")


def sentences(page: str) -> list[str]:
    """Return the sentences of the running text, without code, tables, headings and generated lines."""
    text = re.sub(r"^```.*?^```$|^    .*?$|^#.*?$|^\|.*?$|<!-- (\w+).*?<!-- /\1 -->", "", page, flags=re.M | re.S)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)|`([^`]*)`", r"\1\2", text)
    paragraphs = re.split(r"\n\s*\n|\n- ", text)
    return [
        sentence
        for paragraph in paragraphs
        for sentence in re.split(r"(?<=[.!?:])\s+", " ".join(paragraph.split()))
        if sentence and " · " not in sentence
    ]


def test_the_sentences_of_the_readme_are_short() -> None:
    lengths = {sentence: len(sentence.split()) for sentence in sentences(README)}
    assert {sentence: count for sentence, count in lengths.items() if count > MOST_WORDS} == {}
    assert statistics.mean(lengths.values()) <= AVERAGE_WORDS
