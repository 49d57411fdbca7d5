"""File permissions of all that the gateway stores: 0600 for files and 0700 for folders, independent of the umask."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PRIVATE_FILE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents with permissions for the gateway's user only. Existing folders are
    unchanged."""
    if path.is_dir():
        return
    for folder in reversed([each for each in (path, *path.parents) if not each.exists()]):
        folder.mkdir(_PRIVATE_FOLDER, exist_ok=True)


def make_private(paths: Iterable[Path]) -> None:
    """Remove the permissions of other users from existing files and folders, which earlier releases created readable.

    Files of another user, and files on a file system without permissions, are not changed."""
    for path in paths:
        try:
            status = path.stat()
        except OSError:  # does not exist yet, and will be created with the right permissions
            continue
        mode = stat.S_IMODE(status.st_mode) & (_PRIVATE_FOLDER if stat.S_ISDIR(status.st_mode) else PRIVATE_FILE)
        if status.st_uid == os.geteuid() and mode != stat.S_IMODE(status.st_mode):
            try:
                path.chmod(mode)
            except OSError:
                continue
