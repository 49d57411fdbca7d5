"""The limit `limits.output` in every protocol: the run fails by the agent's fault, and its earlier output is kept."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from tests.pairs.house import CALLERS
from tests.running import running

LIMIT: Final = 10_000
FIRST: Final = "first " + "x" * 4000
V1: Final = {"A2A-Version": "1.0"}


async def talks(text: str) -> AsyncGenerator[str]:
    """Emit pieces, each of which is within the limits."""
    yield FIRST
    for _ in range(100):
        yield "y" * 500


async def test_a_run_over_the_output_limit_keeps_its_output(tmp_path: Path) -> None:
    async with running(tmp_path, {"talks": talks}, limits={"output": LIMIT}) as gateway:
        for caller_class in CALLERS:
            view = await caller_class(gateway.http, "talks").send("hi")
            assert view.state == "failed", caller_class.name
            assert f"The events of the run are larger than the limit of {LIMIT} bytes" in view.fault, caller_class.name
            task = await gateway.http.get(f"/a2a/talks/tasks/{view.task_id}", headers=V1)
            assert FIRST in task.text, caller_class.name
