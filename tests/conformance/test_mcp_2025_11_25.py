"""Mutation test of the judge of MCP 2025-11-25."""

from typing import Final

from tests.conformance.hasty import HastyLoop
from tests.conformance.mutation import violation_test
from tests.conformance.servers.mcp_2025_11_25 import SERVER

LOOPS: Final = {"hasty": HastyLoop}

test_violations_of_mcp_2025_11_25_are_caught = violation_test(SERVER)
