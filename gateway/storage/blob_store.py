"""Choice of the store for the bytes of files: a folder, or S3."""

from pathlib import Path

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.storage.blobs import Blobs, FolderBlobs


def open_blobs(artifacts: str | None, folder: Path, limit: int) -> Blobs:
    """Open the store of the setting `artifacts`: `s3://bucket/prefix`, or None for the folder. Raises invalid."""
    if artifacts is None:
        return FolderBlobs(folder, limit)
    try:
        from babelgate.gateway.storage.s3 import S3Blobs  # imports libraries of the extra babelgate[s3]
    except ImportError as error:
        text = f"artifacts: {artifacts}: it needs what babelgate[s3] installs ({error})"
        raise FaultError(FaultCode.INVALID, text) from None
    return S3Blobs.of_url(artifacts, limit)
