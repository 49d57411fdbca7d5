"""Free space of the disks that hold the database and the files."""

from collections.abc import Iterable
from pathlib import Path
from shutil import disk_usage


def free_space(folders: Iterable[Path]) -> int | None:
    """Return the number of free bytes on the disk of these folders that has the fewest.

    Return None if none of the folders exists on this machine."""
    return min((disk_usage(folder).free for folder in folders if folder.is_dir()), default=None)
