"""Agents whose outputs have schemas that take practically infinite time to check, by backtracking, recursion or
size."""

from collections.abc import AsyncIterator
from typing import Any, Final

from babelgate.canonical import AgentInfo, Event, Invocation
from babelgate.canonical.event import RunEnded

_STEPS: Final = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
_WORD: Final = "a" * 40 + "!"


class _Agent:
    def __init__(self, schema: dict[str, Any], output: Any) -> None:
        self.info = AgentInfo(name="x", schemas={"output": schema})
        self._output = output

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        yield RunEnded(output=self._output)


backtracking = _Agent({"properties": {"word": {"pattern": "^(a+)+$"}}}, {"word": _WORD})
loop = _Agent({"$ref": "#"}, {"word": _WORD})
steps = _Agent({"$defs": {**_STEPS, "d40": {"type": "object"}}, "$ref": "#/$defs/d0"}, {"word": _WORD})
large = _Agent({"anyOf": [{"required": [str(n)]} for n in range(100_000)]}, {"word": _WORD})
pairs = _Agent({"properties": {"list": {"uniqueItems": True}}}, {"list": [{"n": n} for n in range(20_000)]})
quoted = _Agent(
    {"properties": {"text": {"anyOf": [{"type": "integer"}] * 3000 + [{"type": "string"}]}}}, {"text": "x" * 4_000_000}
)

AGENTS: Final = ("backtracking", "loop", "steps", "large", "pairs", "quoted")
