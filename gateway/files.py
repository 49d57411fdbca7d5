"""Atomic writes of files that another process may read at any time."""

import shutil
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old content or the new one, even if this process is killed. Raises OSError
    if it cannot be written.

    A symbolic link, such as `/dev/stdout`, or a special file, such as a pipe, is written directly.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_bytes(content)
        return
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        if path.exists():
            shutil.copymode(path, part)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
