"""Errors of the command line: the reason, and the exit code."""

import re
from typing import Final

FAILED: Final = 1
USAGE: Final = 2
"""Exit codes: the command failed; the command was used wrongly."""


_USERINFO: Final = re.compile(r"(?<=://)[^/\s]*@|(?<![^\s/])[^\s/@:]+:[^\s/@]+@")


class CliError(Exception):
    """Error that ends a command. Each line goes to stderr, without the user and the password of a URL."""

    def __init__(self, *lines: str, code: int = FAILED) -> None:
        lines = tuple(_USERINFO.sub("…@", line) for line in lines)
        super().__init__("\n".join(lines))
        self.lines = lines
        self.code = code
