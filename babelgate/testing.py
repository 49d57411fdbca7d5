"""Public API for tests of agents.

    from babelgate.testing import check_agent

    async def test_my_agent() -> None:
        await check_agent(MyAgent)

- `check_agent` raises `Broken` if an agent violates the contract of agents; docs/agents.md has an example.
- `Dialogue` plays one task with an agent and returns a `Transcript` of each turn.
- `Recorded` is an agent that repeats a recording, which `babelgate record` writes and `read_recording` reads.
"""

from babelgate.conformance.contract import Broken, Dialogue, Transcript, check_agent
from babelgate.gateway.agents.python.recording import Recorded, read_recording

__all__ = ("Broken", "Dialogue", "Recorded", "Transcript", "check_agent", "read_recording")
