"""The weekly job tests every supported Python except the oldest one, on which each change is tested."""

import tomllib
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parent.parent
SUPPORTED: Final = "Programming Language :: Python :: "


def test_the_weekly_job_has_each_supported_python() -> None:
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    workflow: Any = yaml.safe_load((ROOT / ".github" / "workflows" / "pythons.yml").read_text(encoding="utf-8"))
    supported = [each.removeprefix(SUPPORTED) for each in project["classifiers"] if each.startswith(SUPPORTED)]
    oldest = project["requires-python"].removeprefix(">=")
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == [each for each in supported if each != oldest]
