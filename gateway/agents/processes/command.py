"""Environment of the commands that the gateway starts, and the launcher that ends them with the gateway."""

import os
import sys
from collections.abc import Iterable
from typing import Final

from babelgate.gateway.agents.processes import launcher

_INHERITED: Final = frozenset(
    (
        "HOME",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TMPDIR",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_CTYPE",
    )
)
"""Environment variables of the gateway that a command receives. They have no secrets."""
_LAUNCHER: Final = (sys.executable, "-I", "-S", launcher.__file__)
"""Command in front of an agent's command, which then ends with the gateway. The options keep its start short."""


def environment(configured: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the environment of a command: the configured variables, and those of the gateway that have no secrets."""
    return {key: value for key, value in os.environ.items() if key in _INHERITED} | dict(configured)


def with_launcher(command: Iterable[str]) -> tuple[str, ...]:
    """Return a command as it is started, so that it ends with the gateway (Linux)."""
    return (*(_LAUNCHER if sys.platform == "linux" else ()), *command)
