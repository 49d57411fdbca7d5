"""Install a lock into an environment with uv, which takes seconds where pip takes half a minute.

`python tests/install.py PYTHON --lock FILE` installs a lock, and with other arguments does what `pip install` does.
uv does not read the settings of pip, so this passes on where packages come from.
Where uv fails, pip installs.
"""

import functools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

OPTIONS: Final = (
    # The lock is complete. An older pip finds `fastapi[standard]` unpinned next to `fastapi==`.
    "--no-deps",
    "--require-hashes",
    # Building a package runs its code and uses its tools. These two have no wheel, and both are plain Python.
    *("--only-binary", ":all:", "--no-binary", "forbiddenfruit,jsonrpcserver"),
)
"""Options of `pip install` and `uv pip install` for a lock."""
_SETTINGS: Final = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "cert": ("SSL_CERT_FILE", " "),
}
"""Settings of pip, with the equivalent variables of uv and the separator of their values."""


class InstallError(Exception):
    """Error of both uv and pip, with the last line of pip's output."""


def install(python: Path | str, *arguments: str) -> None:
    """Run `pip install` with the arguments for the interpreter.

    Raises `InstallError`.
    """
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python), *arguments]
    if _run(uv, {**_settings(), **env}).returncode == 0:
        return
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--python", str(python), "install"]
    done = _run([*pip, "-qq", "--no-compile", "--retries", "1", *arguments], env)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise InstallError(lines[-1] if lines else "pip gave no reason")


def _run(command: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=env)


@functools.cache
def _settings() -> Mapping[str, str]:
    """Return the settings of pip as variables of uv."""
    listed = _run([sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"], os.environ).stdout
    # pip too accepts a package from any index that has the version.
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for line in listed.splitlines():
        # `global.find-links='/wheels\nhttps://…'`, or `:env:.find-links=…`, which comes first and takes precedence.
        name, _, value = line.partition("=")
        if entry := _SETTINGS.get(name.rpartition(".")[2]):
            variable, separator = entry
            found.setdefault(variable, separator.join(value.strip("'").replace("\\n", " ").split()))
    return found


def main() -> int:
    python, *arguments = sys.argv[1:]
    if arguments[0] == "--lock":
        arguments = [*OPTIONS, "-r", arguments[1]]
    try:
        install(python, *arguments)
    except InstallError as error:
        print(f"The packages could not be installed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
