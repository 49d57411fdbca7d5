"""Files that are written atomically."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from babelgate.gateway.files import write_atomically

FULL: Final = """
import resource, sys
from pathlib import Path
from babelgate.gateway.files import write_atomically
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    write_atomically(Path(sys.argv[1]), bytes(1000))
except OSError as error:
    print(error.strerror)
"""
"""Program that has no space for the file."""


def test_a_failed_write_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for before in (None, b"old"):
        if before is not None:
            write_atomically(path, before)
        program = [sys.executable, "-c", FULL, str(path)]
        done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == "File too large\n"
        assert [each.read_bytes() for each in tmp_path.iterdir()] == ([] if before is None else [before])


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Write to the standard output, which is a link."""
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    write_atomically(link, b"new")
    assert (real.read_bytes(), link.is_symlink()) == (b"new", True)


def test_permissions_of_a_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.touch(0o600)
    write_atomically(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
