"""Third-party modules of the console: copies of what npm publishes, and the record of their origin.

`python -m tests.vendor` writes them. Two things differ from the published files, because the page has neither an import
map nor source maps: imports between them are relative, and the line with the source map is missing.
"""

import json
import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from babelgate.gateway.console.pages import FOLDER
from tests.interop.peers import NPM, PeerMissing, peer_python

VENDOR: Final = FOLDER / "vendor"
RECORD: Final = VENDOR / "vendor.json"
LICENSES: Final = VENDOR / "licenses.txt"
_PEER: Final = "mcp-conformance"
"""Peer whose environment has npm."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a package on npm."""

    name: str
    """Name of the copy."""
    package: str
    version: str
    file: str
    """Path within the package."""
    license: str

    @property
    def spec(self) -> str:
        return f"{self.package}@{self.version}"


MODULES: Final = (
    Module("preact.js", "preact", "11.2.0", "dist/preact.mjs", "MIT"),
    Module("hooks.js", "preact", "11.2.0", "hooks/dist/hooks.mjs", "MIT"),
    Module("htm.js", "htm", "3.1.1", "dist/htm.mjs", "Apache-2.0"),
    Module("marked.js", "marked", "18.2.1", "lib/marked.esm.js", "MIT"),
)


def convert(published: bytes) -> bytes:
    """Return the copy of a published module."""
    text = re.sub(r"\n//# sourceMappingURL=.*\n?$", "\n", published.decode())
    return text.replace('from"preact"', 'from"./preact.js"').encode()


def describe(module: Module, published: bytes) -> dict[str, Any]:
    """Return the entry of a module in the record."""
    return {
        "name": module.name,
        "package": module.package,
        "version": module.version,
        "file": module.file,
        "license": module.license,
        "published_sha256": sha256(published).hexdigest(),
        "sha256": sha256(convert(published)).hexdigest(),
    }


def download(folder: Path) -> tuple[dict[str, bytes], str]:
    """Return the published modules by name, and the texts of their licenses. Raises PeerMissing if npm fails."""
    specs = sorted({module.spec for module in MODULES})
    command = [str(peer_python(_PEER)), "-c", NPM, "pack", "--json", "--loglevel", "error", *specs]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerMissing(f"npm did not deliver the modules of the console: {done.stderr.strip()[-200:]}")
    archives = {f"{each['name']}@{each['version']}": each["filename"] for each in json.loads(done.stdout)}
    texts = [f"{spec}\n\n{_extract(folder / archives[spec], 'LICENSE').decode().strip()}\n" for spec in specs]
    modules = {module.name: _extract(folder / archives[module.spec], module.file) for module in MODULES}
    return modules, "\n\n".join(texts)


def _extract(archive: Path, file: str) -> bytes:
    with tarfile.open(archive) as opened:
        content = opened.extractfile(f"package/{file}")
        assert content is not None, file
        return content.read()


def main() -> None:
    with TemporaryDirectory() as folder:
        published, licenses = download(Path(folder))
    for name, content in published.items():
        (VENDOR / name).write_bytes(convert(content))
    entries = [describe(module, published[module.name]) for module in MODULES]
    LICENSES.write_text(licenses)
    RECORD.write_text(json.dumps(entries, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
