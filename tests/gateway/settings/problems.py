"""Settings files of tests, and the problems that loading them reports."""

from pathlib import Path

import pytest

from babelgate.gateway.settings.load import ConfigError, load
from babelgate.gateway.settings.model import Settings


def written(file: Path, text: str) -> Settings:
    file.write_text(text, encoding="utf-8")
    return load(file)


def problems(file: Path, text: str) -> list[str]:
    """Return the problems of the text, without the name of the file, with which each must begin."""
    with pytest.raises(ConfigError) as caught:
        written(file, text)
    for problem in caught.value.problems:
        assert problem.startswith(str(file)), problem
        assert "\n" not in problem
    return [problem.removeprefix(str(file)).removeprefix(": ") for problem in caught.value.problems]


def problem(file: Path, text: str) -> str:
    """Return the only problem of the text."""
    [only] = problems(file, text)
    return only
