"""Recorded streams of agents of other frameworks, which had a scripted model."""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "recordings"


def recorded(name: str) -> list[Any]:
    """Return the replies of a recorded stream, without the envelope of JSON-RPC."""
    recording: Any = json.loads((_FOLDER / f"{name}.json").read_text())
    return recording["replies"]
