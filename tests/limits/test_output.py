"""`limits.output` in every protocol: the run fails, in the agent's fault, and what it said by then is kept."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from tests.pairs.house import CALLERS
from tests.running import running

LIMIT: Final = 10_000
FIRST: Final = "first " + "x" * 4000
V1: Final = {"A2A-Version": "1.0"}


async def talks(text: str) -> AsyncGenerator[str]:
    """Says no single thing that is too large."""
    yield FIRST
    for _ in range(100):
        yield "y" * 500


async def test_a_run_that_says_too_much_fails_and_keeps_its_output(tmp_path: Path) -> None:
    async with running(tmp_path, {"talks": talks}, limits={"output": LIMIT}) as gateway:
        for made in CALLERS:
            seen = await made(gateway.http, "talks").send("hi")
            assert seen.state == "failed", made.name
            assert f"The agent said more in one run than the limit of {LIMIT} bytes" in seen.fault, made.name
            kept = await gateway.http.get(f"/a2a/talks/tasks/{seen.task_id}", headers=V1)
            assert FIRST in kept.text, made.name
