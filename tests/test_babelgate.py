"""The public API: its names, the examples that use it, and the error of an import under a former name."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

import babelgate
from babelgate import canonical, testing
from babelgate._renamed import FORMER, describe_import_error
from babelgate.canonical.event import AgentEvent

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"^\s*(?:from|import) ((?:babelgate|canonical|adapters|gateway|conformance)\b[\w.]*)", re.MULTILINE)


def test_each_public_name_is_a_name_of_the_model() -> None:
    assert [getattr(babelgate, name) for name in babelgate.__all__] == [
        getattr(canonical, name) for name in babelgate.__all__
    ]


def test_each_event_that_an_agent_may_yield_is_public() -> None:
    events = {event.__name__ for event in get_args(AgentEvent)} | {"RunStarted", "RunEnded"}
    assert events <= set(babelgate.__all__)


@pytest.mark.parametrize("names", [babelgate.__all__, testing.__all__], ids=["babelgate", "testing"])
def test_each_public_name_is_on_the_page_for_authors(names: tuple[str, ...]) -> None:
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    assert [name for name in names if not re.search(rf"`{name}\b|^from babelgate.*\b{name}\b", page, re.M)] == []


def test_examples_import_only_the_public_api() -> None:
    found = {
        (path.name, module)
        for path in PAGES
        for code in BLOCK.findall(path.read_text(encoding="utf-8"))
        for module in IMPORT.findall(code)
    }
    for_adapters = {(page, module) for page, module in found if module.startswith("babelgate.adapters.kit.")}
    assert {page for page, _ in for_adapters} == {"plugins.md"}
    assert {module for _, module in found - for_adapters} == {"babelgate", "babelgate.testing"}, found


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'babelgate' has no attribute 'Hub'"):
        babelgate.Hub  # noqa: B018 # pyright: ignore


def test_the_import_of_the_package_does_not_import_the_model() -> None:
    program = "import sys, babelgate; sys.exit('msgspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=30, check=False).returncode == 0


@pytest.mark.parametrize("name", sorted(FORMER))
def test_import_of_a_former_name_raises_with_the_new_name(name: str) -> None:
    """Import former names in a checkout, where Python finds the folder, and outside, where the package is absent."""
    for module in (name, f"{name}.any"):
        with pytest.raises(ModuleNotFoundError, match=rf"The package '{name}' is now 'babelgate\.{name}'") as raised:
            import_module(module)
        assert describe_import_error(raised.value).count("is now") == 1
    assert name not in sys.modules
    absent = ModuleNotFoundError(f"No module named '{name}'", name=name)
    assert f"is now 'babelgate.{name}'" in describe_import_error(absent)


def test_other_import_errors_get_no_hint() -> None:
    error = ModuleNotFoundError("No module named 'gateway.mine'", name="gateway.mine")
    assert describe_import_error(error) == "ModuleNotFoundError: No module named 'gateway.mine'"
