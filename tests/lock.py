"""Update the locks: for users, and based on it for developers and the image, for uv, and for each foreign SDK.

Versions that still satisfy the requirements stay; `--upgrade` takes the newest.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PEERS = Path("tests/interop/requirements")


def compile_lock(source: str, output: str, *options: str) -> None:
    # Universal and with every file's hash: one lock for each Python from 3.11 on, on Linux and macOS. It names no
    # index, so each machine gets the same files from its own index.
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
    command += ["--python-version", "3.11", "--custom-compile-command", "make lock"]
    subprocess.run([*command, *sys.argv[1:], *options, source, "--output-file", output], cwd=ROOT, check=True)


def main() -> None:
    compile_lock("pyproject.toml", "requirements.lock", "--group", "build")
    compile_lock(
        "pyproject.toml", "requirements-dev.lock", "--group", "build", "--group", "dev", "-c", "requirements.lock"
    )
    compile_lock("--group=uv", "requirements-uv.lock")
    extras = ("--extra", "grpc", "--extra", "otel", "--extra", "postgres", "--extra", "s3")
    compile_lock("pyproject.toml", "deploy/requirements.lock", "--group", "build", *extras, "-c", "requirements.lock")
    for source in sorted((ROOT / PEERS).glob("*.in")):
        compile_lock(str(PEERS / source.name), str(PEERS / f"{source.stem}.txt"), "--no-annotate")


if __name__ == "__main__":
    main()
