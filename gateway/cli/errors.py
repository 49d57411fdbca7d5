"""Errors of the command line: their lines on stderr, and the exit codes."""

import re
from typing import Final

FAILED: Final = 1
USAGE: Final = 2
"""Exit code of a command that was used wrongly. `FAILED` is that of a command that failed."""


_USERINFO: Final = re.compile(r"(?<=://)[^/\s]*@|(?<![^\s/])[^\s/@:]+:[^\s/@]+@")


class CliError(Exception):
    """Error that ends a command. Each line is printed to stderr, without a user and password in URLs."""

    def __init__(self, *lines: str, code: int = FAILED) -> None:
        lines = tuple(_USERINFO.sub("…@", line) for line in lines)
        super().__init__("\n".join(lines))
        self.lines = lines
        self.code = code
