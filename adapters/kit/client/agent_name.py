"""Conversion of other servers' agent names into names that the gateway accepts
(`babelgate.canonical.agent.AGENT_NAME`)."""

import re
from collections.abc import Container
from typing import Final

_LENGTH: Final = 63
"""Maximum length of a name, in characters: that of `AGENT_NAME`."""


def legal_name(text: str) -> str:
    """Return a valid agent name that resembles `text`: lower case, with `-` for other characters. Return `agent` if no
    character is left."""
    return re.sub(r"[^-a-z0-9_.]+", "-", text.lower()).strip("-_.")[:_LENGTH].rstrip("-_.") or "agent"


def free_name(text: str, used_names: Container[str]) -> str:
    """Return a valid agent name that resembles `text` and is not in `used_names`. If necessary, it ends with a number,
    such as `weather-2`."""
    name = candidate = legal_name(text)
    number = 1
    while candidate in used_names:
        number += 1
        candidate = f"{name[: _LENGTH - 4].rstrip('-_.')}-{number}"
    return candidate
