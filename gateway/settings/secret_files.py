"""Settings whose values are in files, by `${file:…}` or a variable `BABELGATE_…_FILE`.

Docker, Kubernetes and systemd provide secrets as files."""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

_PREFIX: Final = "BABELGATE_"
_SUFFIX: Final = "_FILE"
_LARGEST: Final = 2**20
"""Maximum size of a secret file, in bytes. Chosen: a key set of an issuer has at most some KiB."""


class SecretFileError(Exception):
    """Error for a secret file that cannot be read. The message has its path and the reason, and never its content."""


def locate(name: str) -> Path:
    """Return the path of a secret file. Raises SecretFileError for an empty path, and for a relative one without that
    folder.

    A relative path starts from the folder `CREDENTIALS_DIRECTORY`, which systemd sets."""
    path = Path(name)
    if path.is_absolute():
        return path
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not name:
        raise SecretFileError("a path is expected, such as ${file:/run/secrets/name}")
    if not folder:
        raise SecretFileError(
            f"the file {name} has a relative path, which needs the variable CREDENTIALS_DIRECTORY of systemd: write an "
            "absolute path"
        )
    return Path(folder, path)


def read_secret(name: str) -> str:
    """Return the content of a secret file, without one newline at its end. Raises SecretFileError if the file cannot be
    read, is too large or is not UTF-8."""
    path = locate(name)
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its name is not valid"
        raise SecretFileError(f"the file {path} cannot be read: {reason}") from None
    if len(content) > _LARGEST:
        raise SecretFileError(f"the file {path} is larger than {_LARGEST} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise SecretFileError(f"the file {path} cannot be read: it is not UTF-8") from None
    return text.removesuffix("\n")


def file_variables(keys: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield all variables such as `BABELGATE_KEYS_FILE`: its name, the variable that the file sets (`BABELGATE_KEYS`),
    and its path.

    `keys` are the top-level keys of the settings."""
    for name, path in os.environ.items():
        upper = name.upper()
        if not (upper.startswith(_PREFIX) and upper.endswith(_SUFFIX)):
            continue
        target = upper.removesuffix(_SUFFIX)
        if target.removeprefix(_PREFIX).partition("__")[0].lower() in keys:
            yield name, target, path


def read_variables(keys: Collection[str]) -> Mapping[str, str]:
    """Return the contents of the files of all `file_variables`, by variable in lower case, such as `babelgate_keys`.

    Raises SecretFileError if a file cannot be read, or the variable that it sets is set directly, too."""
    values: dict[str, str] = {}
    for name, target, path in file_variables(keys):
        if any(each.upper() == target for each in os.environ):
            raise SecretFileError(f"{name}: {target} is set, too: set one of them")
        try:
            values[target.lower()] = read_secret(path)
        except SecretFileError as error:
            raise SecretFileError(f"{name}: {error}") from None
    return values
