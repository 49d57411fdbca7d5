"""File permissions: what the gateway stores belongs to the user that it runs as; files are 0600 and folders 0700,
whatever the umask."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PRIVATE_FILE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700


def make_folder(path: Path) -> None:
    """With those above it that are missing. One that is there stays as it is."""
    if path.is_dir():
        return
    for folder in reversed([each for each in (path, *path.parents) if not each.exists()]):
        folder.mkdir(_PRIVATE_FOLDER, exist_ok=True)


def make_private(paths: Iterable[Path]) -> None:
    """Take from others what earlier releases let them: read. What belongs to another user, or to a file system without
    permissions, stays as it is."""
    for path in paths:
        try:
            found = path.stat()
        except OSError:  # not there yet, and then it is made as it should be
            continue
        wanted = stat.S_IMODE(found.st_mode) & (_PRIVATE_FOLDER if stat.S_ISDIR(found.st_mode) else PRIVATE_FILE)
        if found.st_uid == os.geteuid() and wanted != stat.S_IMODE(found.st_mode):
            try:
                path.chmod(wanted)
            except OSError:
                continue
