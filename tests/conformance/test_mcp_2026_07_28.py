"""Mutation test of the judge of MCP 2026-07-28."""

from typing import Final

from tests.conformance.hasty import HastyLoop
from tests.conformance.mutation import violation_test
from tests.conformance.servers.mcp_2026_07_28 import SERVER

LOOPS: Final = {"hasty": HastyLoop}

test_violations_of_mcp_2026_07_28_are_caught = violation_test(SERVER)
