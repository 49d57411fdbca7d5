"""Documents: generated pages are current, and headings that CARRIES cites exist."""

import ast
import re
from collections.abc import Iterator
from typing import Final, get_args

import pytest

from babelgate import canonical
from babelgate.adapters import ADAPTERS
from babelgate.canonical import Event, Feature
from docs.generate import ROOT, pages, with_extension

TERMS: Final = {
    "authentication": "gateway/http/middleware.py",
    "backpressure": "gateway/runs/pump.py",
    "cassette": "gateway/cli/wire.py",
    "circuit breaker": "gateway/agents/failover.py",
    "coalescing": "adapters/kit/server/passages.py",
    "cors": "gateway/http/middleware.py",
    "cursor pagination": "adapters/openai/server/page.py",
    "delta decoding": "adapters/kit/server/whole_states.py",
    "delta encoding": "canonical/difference.py",
    "dictionary compression": "gateway/storage/short_form.py",
    "differential testing": "conformance/across/__init__.py",
    "dns rebinding": "gateway/http/host.py",
    "event sourcing": "canonical/event.py",
    "failover": "gateway/agents/failover.py",
    "fan-out": "adapters/kit/server/fanout.py",
    "load balancing": "gateway/agents/failover.py",
    "pass-through": "adapters/a2a/read/mirror.py",
    "per-connection cache": "adapters/openai/server/socket_memory.py",
    "replay of paused generators": "canonical/replay.py",
    "sandbox": "conformance/bench/sandbox.py",
    "search index": "gateway/storage/thread_values.py",
    "server-sent events": "adapters/kit/server/sse.py",
    "ssrf": "gateway/outbound.py",
    "state machine": "canonical/state.py",
    "structural sharing": "adapters/kit/server/shared_lists.py",
    "ttl": "gateway/runs/expiry.py",
    "unit of work": "gateway/storage/transaction.py",
    "webhook delivery": "gateway/runs/webhooks.py",
}
"""Terms that readers search for, with the module that implements each."""

HEADING = re.compile(r"^(docs/protocols/\w[\w-]*\.md), (.+)$")


def test_the_generated_pages_are_current(accept: bool) -> None:
    for path, text in pages().items():
        if accept:
            path.write_text(text, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is not current: run make docs"


def test_every_adapter_declares_every_feature() -> None:
    for adapter in ADAPTERS:
        assert set(adapter.carries) == set(adapter.versions)
        for version, carries in adapter.carries.items():
            assert set(carries) == set(Feature), f"{adapter.name} {version}"
            for feature, carry in carries.items():
                assert carry.level == "full" or (carry.how and carry.source), f"{adapter.name} {version} {feature}"


def test_every_heading_that_a_loss_cites_exists() -> None:
    for adapter in ADAPTERS:
        for carries in adapter.carries.values():
            for carry in carries.values():
                cited = HEADING.match(carry.source)
                if cited is not None:
                    page = (ROOT / cited.group(1)).read_text(encoding="utf-8")
                    assert re.search(rf"^#+ {re.escape(cited.group(2))}$", page, re.MULTILINE), carry.source


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 170


def test_links_between_documents_exist() -> None:
    folders = (ROOT / "docs", ROOT / "examples")
    pages = (page for folder in folders for page in folder.rglob("*.md"))
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).resolve().exists(), f"{page.relative_to(ROOT)}: {target}"


@pytest.mark.parametrize("term", sorted(TERMS))
def test_a_modules_docstring_has_its_term(term: str) -> None:
    docstring = ast.get_docstring(ast.parse((ROOT / TERMS[term]).read_text(encoding="utf-8"))) or ""
    assert term in docstring.partition("\n\n")[0].lower()


def test_the_glossary_has_every_public_name_of_the_canonical_model() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    names = {*canonical.__all__, *canonical_types()}
    assert {name for name in names if f"`{name}`" not in glossary} == set()


def canonical_types() -> Iterator[str]:
    """Yield public classes, and names of types such as `Role = Literal[…]`."""
    for module in (ROOT / "canonical").glob("*.py"):
        tree = ast.parse(module.read_text(encoding="utf-8"))
        within = [node for each in tree.body if isinstance(each, ast.If) for node in each.body]
        for node in (*tree.body, *within):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name
            elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
                yield from (name for name in names if re.fullmatch(r"[A-Z]+[a-z]\w*", name))


def test_the_glossary_has_only_names_of_the_model() -> None:
    glossary = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([A-Z]+[a-z]\w*)`", glossary))
    # The port of adapters, which is not part of the canonical model.
    assert named - {"Upstream"} <= {*canonical.__all__, *canonical_types()}


def test_the_glossary_has_a_row_for_every_event() -> None:
    _, _, table = (ROOT / "docs/glossary.md").read_text(encoding="utf-8").partition("\n## Events\n")
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == {each.__name__ for each in get_args(Event)}


@pytest.mark.parametrize("adapter", ["a2a", "acp", "agent_client", "aief", "langchain", "mcp", "openai", "vercel_ui"])
def test_an_adapter_links_its_specification(adapter: str) -> None:
    folder = ROOT / "adapters" / adapter
    wire = [each.read_text(encoding="utf-8") for each in (*folder.glob("wire.py"), *folder.glob("wire/*.py"))]
    assert any(re.search(r'^SPEC: Final = "https://', each, re.MULTILINE) for each in wire)


def test_protocols_without_loss_are_not_listed_as_lossy() -> None:
    _, _, lost = with_extension().partition("Losses that remain with the extension:")
    assert "- AIEF:\n  - stream: " in lost
    assert "OpenAI responses" not in lost
