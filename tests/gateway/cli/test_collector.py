"""Runs the tests of the garbage collector's policy in a separate process."""

import subprocess
import sys
from pathlib import Path
from typing import Final

CASES: Final = Path(__file__).with_name("collector_cases.py")
BOUND: Final = 300.0
"""Maximum seconds of the tests, which take about ten."""


def test_policy_of_the_collector() -> None:
    # A process that has collected all tests has millions of objects, and each case visits them several times.
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(CASES))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
