"""Files of the console: what the first load takes, what they import, and that copies are what was published."""

import gzip
import json
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Final

import pytest

from babelgate.gateway.console import pages

MOST_REQUESTS: Final = 45
MOST_COMPRESSED: Final = 60 * 1024
"""Maximum size of the first load, compressed, in bytes."""
MOST_SOURCE: Final = 160 * 1024
"""Maximum size of the modules of the first load that are written here, in bytes."""
MODULE_LINES: Final = 320
FOLDER: Final = pages.FOLDER.resolve()
VENDOR: Final = FOLDER / "vendor"
_STATIC: Final = re.compile(
    r"""^(?:import\s*|(?:import|export)\b[^'"`;()=]*?\bfrom\s*)['"]([^'"]+)['"]""", re.MULTILINE
)
"""Pattern of an import that the browser loads together with the importing module. Its group is the imported path."""
_LATE: Final = re.compile(r"""\bimport\(\s*['"`]([^'"`$]+)['"`]\s*\)""")
"""Pattern of an import that the browser loads only when it is executed (`import()`). Its group is the imported path."""
_COMMENT: Final = re.compile(r"/\*.*?\*/|(?<![:'\"`\w/\\])//[^\n]*", re.DOTALL)


def read_code(module: Path) -> str:
    """Return the code of a module without comments."""
    return _COMMENT.sub("", module.read_text(encoding="utf-8"))


def modules_here() -> Sequence[Path]:
    """Return the modules that are written here."""
    return sorted(path for path in FOLDER.rglob("*.js") if VENDOR not in path.parents)


def imports_of(module: Path, pattern: re.Pattern[str]) -> Iterable[Path]:
    code = module.read_text(encoding="utf-8") if VENDOR in module.parents else read_code(module)
    return [(module.parent / name).resolve() for name in pattern.findall(code)]


def first_load() -> set[Path]:
    """Return the files that the page loads before it shows anything."""
    page = FOLDER / "index.html"
    waiting = [FOLDER / name for name in re.findall(r'(?:href|src)="\./([^"]+)"', page.read_text())]
    loaded = {page}
    while waiting:
        path = waiting.pop()
        if path not in loaded:
            loaded.add(path)
            waiting += imports_of(path, _STATIC) if path.suffix == ".js" else ()
    return loaded


def test_first_load_is_small() -> None:
    loaded = first_load()
    assert {FOLDER / "main.js", VENDOR / "preact.js", VENDOR / "hooks.js"} <= loaded
    assert VENDOR / "marked.js" not in loaded
    source = sum(path.stat().st_size for path in loaded if VENDOR not in path.parents)
    compressed = sum(len(gzip.compress(path.read_bytes(), 9)) for path in loaded)
    assert len(loaded) <= MOST_REQUESTS, sorted(path.name for path in loaded)
    assert source <= MOST_SOURCE
    assert compressed <= MOST_COMPRESSED


def test_page_preloads_what_its_modules_import() -> None:
    page = next(file for path, file in pages.read_files().items() if not path).content.decode()
    references = re.findall(r'(?:href|src)="[0-9a-f]{16}/([^"]+)"', page)
    assert {FOLDER / name for name in references} == first_load() - {FOLDER / "index.html"}
    assert len(references) == len(set(references))


def test_every_import_is_a_file_of_the_console() -> None:
    for module in [*modules_here(), *VENDOR.glob("*.js")]:
        for name in (*_STATIC.findall(read_code(module)), *_LATE.findall(read_code(module))):
            assert name.startswith(("./", "../")), f"{module.name} imports {name}"
            assert (module.parent / name).is_file(), f"{module.name} imports {name}"


def test_modules_need_no_other_host_and_no_prefix() -> None:
    """Refuse URLs that a policy would block, or that a proxy with a path would break."""
    for path in modules_here():
        code = read_code(path)
        assert not re.search(r"""(?:fetch|URL|open|import)\(\s*['"`]/""", code), f"{path.name}: use a relative URL"
        assert not re.search(r"""(?:fetch|import)\(\s*['"`]https?:""", code), f"{path.name}: another host"
        assert not re.search(r"\b(?:eval|Function)\(|\binnerHTML\b|dangerouslySetInnerHTML|document\.write\b", code)
    styles = "".join(path.read_text() for path in FOLDER.rglob("*.css"))
    assert not re.search(r"@import|https?:|url\(\s*['\"]?/", styles)


@pytest.mark.parametrize("path", modules_here(), ids=lambda path: str(PurePosixPath(path).relative_to(FOLDER)))
def test_modules_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MODULE_LINES


def test_vendored_modules_match_vendor_json() -> None:
    record = json.loads((VENDOR / "vendor.json").read_text())
    assert {each["name"]: each["sha256"] for each in record} == {
        path.name: sha256(path.read_bytes()).hexdigest() for path in VENDOR.glob("*.js")
    }
    licenses = (VENDOR / "licenses.txt").read_text()
    for each in record:
        assert each["license"] in ("MIT", "Apache-2.0")
        assert f"{each['package']}@{each['version']}" in licenses
