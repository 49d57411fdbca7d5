"""Why a command does not do what it was asked."""

from typing import Final

__all__ = ("FAILED", "USAGE", "Refusal")

FAILED: Final = 1
USAGE: Final = 2
"""Exit codes: it was tried and failed; it was asked for in a way that cannot work."""


class Refusal(Exception):
    """Ends the command with one line on stderr each."""

    def __init__(self, *lines: str, code: int = FAILED) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
        self.code = code
