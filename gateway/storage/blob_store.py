"""Choice of the store for the bytes of files: a folder of this machine, or an S3 bucket."""

from pathlib import Path

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.storage.blobs import Blobs, FolderBlobs


def open_blobs(artifacts: str | None, folder: Path, limit: int) -> Blobs:
    """Open the store that the setting `artifacts` names: `s3://bucket/prefix`, or None for `folder`.

    `limit` is the maximum size of one file in bytes. Raises invalid if the URL is wrong or the extra `babelgate[s3]` is
    not installed."""
    if artifacts is None:
        return FolderBlobs(folder, limit)
    try:
        from babelgate.gateway.storage.s3 import S3Blobs  # imports libraries of the extra babelgate[s3]
    except ImportError as error:
        text = f"artifacts: {artifacts}: it needs what babelgate[s3] installs ({error})"
        raise FaultError(FaultCode.INVALID, text) from None
    return S3Blobs.of_url(artifacts, limit)
