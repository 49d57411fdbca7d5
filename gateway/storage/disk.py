"""Free space of the disks that hold the database and the files."""

from collections.abc import Iterable
from pathlib import Path
from shutil import disk_usage


def free_space(folders: Iterable[Path]) -> int | None:
    """Return the free bytes of the fullest disk, or None if there are no folders on this machine."""
    return min((disk_usage(folder).free for folder in folders if folder.is_dir()), default=None)
