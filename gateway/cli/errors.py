"""Errors of the command line: why a command does not do what it was asked."""

import re
from typing import Final

FAILED: Final = 1
USAGE: Final = 2
"""Exit codes: it was tried and failed; it was asked for in a way that cannot work."""


_USERINFO: Final = re.compile(r"(?<=://)[^/\s]*@|(?<![^\s/])[^\s/@:]+:[^\s/@]+@")


class CliError(Exception):
    """Ends the command with one line on stderr each. The user and the password of a URL are in none of them."""

    def __init__(self, *lines: str, code: int = FAILED) -> None:
        lines = tuple(_USERINFO.sub("…@", line) for line in lines)
        super().__init__("\n".join(lines))
        self.lines = lines
        self.code = code
