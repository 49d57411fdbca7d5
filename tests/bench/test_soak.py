"""The report of `bench.soak` is whole, and no stream breaks."""

import re
import resource
import subprocess
import sys
from typing import Final

import pytest

from bench import soak

IDLE: Final = 30
LINES: Final = (
    rf"{IDLE} idle streams, 2 callers, \d+ s, load of the machine .*",
    r"streams of tokens: [1-9]\d* whole, \d+ started late",
    rf"idle streams: {IDLE} of {IDLE} still open",
    r"broken streams: 0",
    r"CPU: \d+ % of a core",
    r"memory, MiB: \d+ at the start, \d+ at the end, \d+ at most",
    r"memory of an idle stream, KiB: -?[\d.]+",
    r"descriptors: \d+ at the start, \d+ at the end, \d+ at most",
    r"/healthz, ms: p50 [\d.]+, p99 [\d.]+, p99.9 [\d.]+, longest [\d.]+ of [1-9]\d*",
    r"longest steps of the event loop, ms of CPU: .+",
    r"collector +runs +CPU ms +longest +freed",
    *(rf"generation {number} +\d+ +[\d.]+ +[\d.]+ +\d+" for number in range(3)),
    r"longest run of the collector since the start of the process: [\d.]+ ms",
)


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--upstream",)], ids=["agent in the gateway", "A2A upstream"])
def test_the_report_is_whole(more: tuple[str, ...]) -> None:
    numbers = ["--idle", f"{IDLE}", "--callers", "2", "--every", "0.5", "--minutes", "0.04"]
    command = [sys.executable, "-m", "bench.soak", *numbers, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(LINES)
    for line, pattern in zip(lines, LINES, strict=True):
        assert re.fullmatch(pattern, line), line


def test_a_low_limit_of_open_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def low_limit(_: int) -> tuple[int, int]:
        return 100, 1000

    monkeypatch.setattr(resource, "getrlimit", low_limit)
    with pytest.raises(SystemExit, match=r"the limit of open files is 1000, and 5200 streams need 10656: .*--idle"):
        soak.raise_open_files(5200)
