"""What agents of other frameworks sent: streams of the named producers, behind a scripted model."""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "recordings"


def recorded(name: str) -> list[Any]:
    """The replies of a recorded stream, without the envelope of JSON-RPC."""
    told: Any = json.loads((_FOLDER / f"{name}.json").read_text())
    return told["replies"]
