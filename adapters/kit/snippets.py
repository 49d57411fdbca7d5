"""Parts of the snippets of all protocols: short programs to copy. They read the API key from the environment."""

import json
from typing import Final

from babelgate.adapters.kit.adapter import Snippet
from babelgate.canonical.value import JsonObject

KEY: Final = "BABELGATE_KEY"
"""Environment variable of the API key. Without keys, the gateway ignores its value."""


def curl(title: str, url: str, body: JsonObject, *headers: str, version: str) -> Snippet:
    """Return a command that posts a body. `headers` are further headers, as text."""
    lines = [f'"Authorization: Bearer ${KEY}"', "'Content-Type: application/json'", *(f"'{each}'" for each in headers)]
    text = " \\\n  ".join([f"curl -s {url}", *(f"-H {line}" for line in lines), f"-d '{json.dumps(body)}'"])
    return Snippet(version=version, language="shell", title=title, text=f"{text}\n")


def program(title: str, language: str, text: str, *, version: str, url: str, agent: str) -> Snippet:
    """Return a program. `URL`, `AGENT` and `KEY` in its text are replaced."""
    for name, value in (("URL", url), ("AGENT", agent), ("KEY", KEY)):
        text = text.replace(f"<{name}>", value)
    return Snippet(version=version, language=language, title=title, text=text)
