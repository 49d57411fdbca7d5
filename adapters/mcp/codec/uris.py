"""URIs of what callers and agents have produced: `babelgate://…`, as resources of MCP."""

import re
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote, unquote

from babelgate.canonical import FilePart
from babelgate.canonical.value import JsonObject, is_uuid

OWN_SCHEME: Final = "babelgate://"
THREADS: Final = f"{OWN_SCHEME}threads/"
RUNS: Final = f"{OWN_SCHEME}runs/"
FILES: Final = f"{OWN_SCHEME}files/"

THREAD_TEMPLATE: Final = f"{THREADS}{{thread_id}}"
RUN_TEMPLATE: Final = f"{RUNS}{{run_id}}"
ARTIFACT_TEMPLATE: Final = f"{RUNS}{{run_id}}/artifacts/{{artifact_id}}"
FILE_TEMPLATE: Final = f"{FILES}{{sha256}}"

TEMPLATES: Final[tuple[JsonObject, ...]] = (
    {
        "uriTemplate": THREAD_TEMPLATE,
        "name": "thread",
        "description": "A conversation: its status, messages and runs.",
        "mimeType": "application/json",
    },
    {
        "uriTemplate": RUN_TEMPLATE,
        "name": "run",
        "description": "A run of an agent: its status, messages, output and artifacts.",
        "mimeType": "application/json",
    },
    {
        "uriTemplate": ARTIFACT_TEMPLATE,
        "name": "artifact",
        "description": "An artifact that a run has produced.",
    },
    {
        "uriTemplate": FILE_TEMPLATE,
        "name": "file",
        "description": "A file of a message or an artifact, by the SHA-256 of its bytes.",
    },
)
"""Templates of the gateway's own resources (SPEC/server/resources, Resource Templates)."""

_HASH: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Address:
    """Object that a `babelgate://` URI names."""

    kind: Literal["thread", "run", "artifact", "file"]
    id: str
    """Id of the thread, run or artifact, or the SHA-256 of the file."""
    run_id: str = ""
    """Id of the artifact's run; empty for any other object."""


def artifact_uri(run_id: str, artifact_id: str) -> str:
    """Return the URI of an artifact."""
    return f"{RUNS}{run_id}/artifacts/{quote(artifact_id, safe='')}"


def file_uri(part: FilePart) -> str:
    """Return the URI of a file: that of the stored bytes, or the URL of a file that is elsewhere. A file that is
    neither stored nor elsewhere has a URI of its name, `file:///<name>`."""
    if part.url is not None:
        return part.url
    return f"file:///{quote(part.name or 'file', safe='')}" if part.blob is None else f"{FILES}{part.blob}"


def parse_uri(uri: str) -> Address | None:
    """Return the object that a URI names, or None if the URI is not one of the gateway's own resources."""
    if uri.startswith(THREADS):
        thread_id = uri.removeprefix(THREADS)
        return Address("thread", thread_id) if is_uuid(thread_id) else None
    if uri.startswith(FILES):
        blob = uri.removeprefix(FILES)
        return Address("file", blob) if _HASH.fullmatch(blob) else None
    if not uri.startswith(RUNS):
        return None
    run_id, *rest = uri.removeprefix(RUNS).split("/")
    if not is_uuid(run_id):
        return None
    if not rest:
        return Address("run", run_id)
    if len(rest) == 2 and rest[0] == "artifacts" and rest[1]:
        return Address("artifact", unquote(rest[1]), run_id)
    return None


_VARIABLE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class UriTemplate:
    """URI template of simple variables, `{name}` (RFC 6570, level 1). A variable matches one path segment."""

    def __init__(self, template: str) -> None:
        self.template = template
        self.variables: tuple[str, ...] = tuple(_VARIABLE.findall(template))
        self._literals: list[str] = _VARIABLE.split(template)[::2]

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables in a URI, or None if the URI does not match the template."""
        first, *others = self._literals
        if not uri.startswith(first):
            return None
        rest, values = uri[len(first) :], dict[str, str]()
        for name, literal in zip(self.variables, others, strict=True):
            at = rest.find(literal) if literal else len(rest)
            value = rest[: max(at, 0)]
            if not value or any(each in "/?#" for each in value):
                return None
            values[name] = unquote(value)
            rest = rest[at + len(literal) :]
        return None if rest else values
