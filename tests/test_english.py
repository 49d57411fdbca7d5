"""English of the code: the rules of names and prose that a machine can check."""

import ast
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.english import files, in_page, sources, violations

ROOT: Final = Path(__file__).parent.parent

SHARED_CLASSES: Final = {
    "Client": "`kit.upstream.Client`, once in each protocol",
    "Codec": "`Dialect` of A2A, once in each version",
    "EventReader": "reader of the stream of another server, once in each protocol (CONTRIBUTING.md)",
    "EventWriter": "writer of an outgoing stream, once in each protocol (CONTRIBUTING.md)",
    "HttpClient": "`kit.client.calls.Calls`, once in each protocol",
    "MessageReader": "the part of an `EventReader` that reads messages, in the protocols that have messages with ids",
    "RecordedWriter": "`EventWriter` that sends the record before its events, once in each protocol",
    "RestBinding": "`Binding` of the check of A2A, once in each version",
    "RunState": "state that the parts of one `EventReader` share, once in each protocol",
    "Server": "`Handlers` of a whole protocol, once in each protocol that has one class of them",
    "Settings": "those of the gateway, and those in the published schema of a benchmark's results",
    "Task": "the one of the model, and the one in the published schema of a benchmark's tasks",
    "Writer": "`kit.adapter.WebhookWriter`, once in each protocol",
}
"""Names of public classes that several modules share. The reason is the interface that all of them implement, or a
published schema."""


def test_public_class_names_are_unique() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for folder in ("canonical", "adapters", "gateway", "conformance", "bench"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = path.relative_to(ROOT)
            if not mirrors_protocol(place):
                for name in public_classes(path):
                    modules[name].append(str(place))
    shared = {name: places for name, places in modules.items() if len(places) > 1}
    assert {name: places for name, places in shared.items() if name not in SHARED_CLASSES} == {}
    assert sorted(SHARED_CLASSES.keys() - shared.keys()) == [], "exceptions that no name needs any more"


def mirrors_protocol(place: Path) -> bool:
    """Return True for wire models, whose classes have the names of the protocol's schema, and for the reference servers
    of the benchmarks, which have the names of their SDKs."""
    in_adapter = place.parts[0] == "adapters" and ("wire" in place.parts or place.name == "wire.py")
    return in_adapter or place.parts[:2] == ("bench", "reference")


def public_classes(path: Path) -> Iterator[str]:
    """Yield the public classes that a module defines."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


EXCEPTIONS: Final = {
    ("adapters/openai/wire/replies.py", "own"): "the key is in stored events",
}
"""Names that break a rule, by module. Each has a reason."""

SINCE: Final = "2026-11-28T12:00:00Z"
"""Time from which on commit subjects are short."""
SUBJECT: Final = 72
"""Maximum length of a commit subject, in characters."""


@pytest.mark.parametrize("folder", ["adapters", "bench", "canonical", "conformance", "docs", "gateway", "tests"])
def test_names_and_prose_follow_the_rules(folder: str) -> None:
    found = [each for path in sources([folder]) for each in violations(path)]
    assert [str(each) for each in found if (str(each.path), each.text) not in EXCEPTIONS] == []


def test_pages_follow_the_rules() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}: {rule}: {text}"
        for path in files(["*.md"])
        for line, rule, text in in_page(path.read_text(encoding="utf-8"))
    }
    assert sorted(found) == []


def test_commit_subjects_are_short() -> None:
    log = subprocess.run(
        ["git", "log", f"--since={SINCE}", "--format=%s"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if log.returncode:
        pytest.skip("not a git repository")
    assert [subject for subject in log.stdout.splitlines() if len(subject) > SUBJECT] == []
