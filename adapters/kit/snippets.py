"""Parts of the snippets of all protocols: short programs to copy. They read the API key from the environment."""

import json
from typing import Final

from babelgate.adapters.kit.adapter import Snippet
from babelgate.canonical.value import JsonObject

KEY: Final = "BABELGATE_KEY"
"""Name of the environment variable that holds the API key. A gateway without keys ignores its value."""


def curl(title: str, url: str, body: JsonObject, *headers: str, version: str) -> Snippet:
    """Return a snippet with a curl command that posts `body` to `url`. `headers` are further headers, such as
    `A2A-Version: 1.0`."""
    lines = [f'"Authorization: Bearer ${KEY}"', "'Content-Type: application/json'", *(f"'{each}'" for each in headers)]
    text = " \\\n  ".join([f"curl -s {url}", *(f"-H {line}" for line in lines), f"-d '{json.dumps(body)}'"])
    return Snippet(version=version, language="shell", title=title, text=f"{text}\n")


def program(title: str, language: str, text: str, *, version: str, url: str, agent: str) -> Snippet:
    """Return a snippet with a program. `URL`, `AGENT` and `KEY` in its text are replaced by `url`, `agent` and the name
    of the environment variable."""
    for name, value in (("URL", url), ("AGENT", agent), ("KEY", KEY)):
        text = text.replace(f"<{name}>", value)
    return Snippet(version=version, language=language, title=title, text=text)
