from pathlib import Path

import pytest


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of a settings file, which does not exist yet."""
    return tmp_path / "babelgate.yaml"
