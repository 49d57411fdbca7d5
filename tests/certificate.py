"""A self-signed certificate for servers on loopback."""

import subprocess
from pathlib import Path
from shutil import which

from tests.skip import missing


def self_signed(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the paths of a certificate and its key for a host of this name, in `folder`.

    Skips the test without openssl.
    """
    openssl = which("openssl")
    if openssl is None:
        missing("the openssl command, which makes a certificate")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-keyout", key, "-out", certificate, "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key
