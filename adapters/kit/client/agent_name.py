"""Names of agents (`babelgate.canonical.agent.AGENT_NAME`) from what other servers call them."""

import re
from collections.abc import Container
from typing import Final

_LENGTH: Final = 63


def legal_name(text: str) -> str:
    """A name that is like `text`."""
    return re.sub(r"[^-a-z0-9_.]+", "-", text.lower()).strip("-_.")[:_LENGTH].rstrip("-_.") or "agent"


def free_name(text: str, taken: Container[str]) -> str:
    """A name that is like `text` and that no other agent of the server has."""
    name = found = legal_name(text)
    number = 1
    while found in taken:
        number += 1
        found = f"{name[: _LENGTH - 4].rstrip('-_.')}-{number}"
    return found
