"""The documents say what is so: generated pages are current, and what CARRIES cites exists."""

import re

from adapters import ADAPTERS
from canonical import Feature
from docs.generate import ROOT, pages

HEADING = re.compile(r"^(docs/protocols/\w[\w-]*\.md), (.+)$")


def test_the_generated_pages_are_current(accept: bool) -> None:
    for path, text in pages().items():
        if accept:
            path.write_text(text, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is not current: run make docs"


def test_every_adapter_says_of_every_feature_what_becomes_of_it() -> None:
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


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_links_between_documents_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).resolve().exists(), f"{page.relative_to(ROOT)}: {target}"


def test_no_module_is_longer_than_one_can_hold_in_mind() -> None:
    for package in ("canonical", "adapters", "gateway", "conformance"):
        for module in (ROOT / package).rglob("*.py"):
            lines = len(module.read_text(encoding="utf-8").splitlines())
            assert lines <= 800, f"{module.relative_to(ROOT)} has {lines} lines"


def test_nothing_is_exported_in_disorder() -> None:
    for package in ("canonical", "adapters", "gateway", "conformance"):
        for module in (ROOT / package).rglob("*.py"):
            found = re.search(r"^__all__ = \(([^)]*)\)", module.read_text(encoding="utf-8"), re.MULTILINE)
            if found:
                names = re.findall(r'"(\w+)"', found.group(1))
                assert len(names) == len(set(names)), f"{module.relative_to(ROOT)}: {names}"
