"""Detector of server internals, such as stack traces, in the responses of an agent."""

import re
from typing import Final

_TRACES: Final = (
    re.compile(r"Traceback \(most recent call last\)"),
    re.compile(r'File "[^"\n]+", line \d+'),
    re.compile(r"\bat [\w.$<>]+\([\w.]+\.(?:java|kt|scala|go|cs|js|ts):\d+"),
    re.compile(r"\n\s+at .+\(.+:\d+:\d+\)"),
    re.compile(r"goroutine \d+ \[running\]"),
    re.compile(r"root:[^:\n]*:0:0:"),
)
"""Patterns of stack traces (Python, Java, .NET, JavaScript, Go), and of lines of /etc/passwd."""


def find_leak(text: str) -> str:
    """Return the first part of the text that looks like a stack trace or a line of a system file, or an empty
    string."""
    for pattern in _TRACES:
        if found := pattern.search(text):
            return found.group(0)
    return ""
