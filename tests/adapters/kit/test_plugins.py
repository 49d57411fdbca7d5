"""Protocols of other packages, installed as a module with a `*.dist-info` folder."""

import sys
from pathlib import Path

import pytest

from babelgate.adapters import acp, openai
from babelgate.adapters.kit.plugins import ADAPTERS_GROUP, UPSTREAMS_GROUP, PluginError, with_adapters, with_upstreams
from tests.gateway.command import babelgate

GOOD = """
from dataclasses import replace
from babelgate.adapters import acp

adapter = replace(acp.adapter, name="{name}", prefixes=("/{name}",))
upstream = replace(acp.upstream, protocol="{name}")
"""


def install(folder: Path, name: str, source: str, *points: tuple[str, str]) -> None:
    """Install a package of one module. Module names differ between tests, because a module is imported only once."""
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    metadata = folder / f"{name}-1.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n", encoding="utf-8")
    entries = "".join(f"[{group}]\n{value.partition(':')[2]} = {value}\n" for group, value in points)
    (metadata / "entry_points.txt").write_text(entries, encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)  # pyright: ignore[reportUnknownMemberType]
    return tmp_path


def test_without_plug_ins_only_built_in_protocols_exist() -> None:
    assert with_adapters((acp.adapter,)) == (acp.adapter,)
    assert with_upstreams((acp.upstream, openai.upstream)) == (acp.upstream, openai.upstream)


def test_plug_ins_come_after_built_in_protocols(folder: Path) -> None:
    for name in ("plug_b", "plug_a"):
        points = (ADAPTERS_GROUP, f"{name}:adapter"), (UPSTREAMS_GROUP, f"{name}:upstream")
        install(folder, name, GOOD.format(name=name), *points)
    assert [each.name for each in with_adapters((acp.adapter,))] == ["acp", "plug_a", "plug_b"]
    assert [each.protocol for each in with_upstreams((openai.upstream,))] == ["openai", "plug_a", "plug_b"]


@pytest.mark.parametrize(
    ("name", "source", "why"),
    [
        ("plug_raises", "raise RuntimeError('not today')", "RuntimeError: not today"),
        ("plug_lacks", "", "AttributeError: module 'plug_lacks' has no attribute 'adapter'"),
        ("plug_other", "adapter = 7", "expected an Adapter, got int"),
        (
            "plug_former",
            "from adapters import acp",
            "ModuleNotFoundError: No module named 'adapters'. The package 'adapters' is now 'babelgate.adapters'; "
            "agents import from 'babelgate', as in: from babelgate import Ask. "
            "If you mean a package of your own, start in the folder that contains 'adapters'.",
        ),
        ("plug_name", "from babelgate.adapters.acp import adapter", "/acp, acp is already taken"),
        (
            "plug_prefix",
            "from dataclasses import replace\n"
            "from babelgate.adapters import acp\n"
            "adapter = replace(acp.adapter, name='x')",
            "/acp is already taken",
        ),
    ],
)
def test_an_invalid_plug_in_is_named_with_the_reason(folder: Path, name: str, source: str, why: str) -> None:
    install(folder, name, source, (ADAPTERS_GROUP, f"{name}:adapter"))
    with pytest.raises(PluginError) as raised:
        with_adapters((acp.adapter,))
    point = f"entry point babelgate.adapters: adapter = {name}:adapter"
    assert str(raised.value) == f"Plug-in {name} 1.5, {point}: {why}"


def test_an_upstream_with_an_existing_name_is_rejected(folder: Path) -> None:
    install(folder, "plug_up", "from babelgate.adapters.acp import upstream", (UPSTREAMS_GROUP, "plug_up:upstream"))
    with pytest.raises(PluginError, match="plug_up:upstream: acp is already taken"):
        with_upstreams((acp.upstream,))


def test_a_plug_in_can_be_imported_first(folder: Path) -> None:
    """Import a plug-in that imports `babelgate.adapters`, which must not need the plug-in at that time."""
    install(folder, "plug_first", GOOD.format(name="plug_first"), (ADAPTERS_GROUP, "plug_first:adapter"))
    program = "import plug_first; from babelgate import adapters; print([each.name for each in adapters.ADAPTERS])"
    result = babelgate(folder, "-c", program, program=(sys.executable,), PYTHONPATH=":".join(filter(None, sys.path)))
    assert result.stdout.endswith(", 'plug_first']\n"), result.stderr


@pytest.mark.parametrize("arguments", [("add", "http://127.0.0.1:1"), ("serve", "--port", "0")], ids="-".join)
def test_the_command_line_names_the_invalid_plug_in(folder: Path, arguments: tuple[str, ...]) -> None:
    install(folder, "plug_line", "raise RuntimeError('one\\ntwo')", (UPSTREAMS_GROUP, "plug_line:upstream"))
    result = babelgate(folder, *arguments, PYTHONPATH=":".join(filter(None, sys.path)))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("babelgate: Plug-in plug_line 1.5, entry point babelgate.upstreams: ")
    assert "RuntimeError: one" in result.stderr
    assert result.stderr.count("\n") == 1
