"""Values that agents put into `extra` under protocol names: every protocol shows such runs, with any value."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.canonical import Event, TextPart
from babelgate.canonical.event import (
    Custom,
    MessageEnded,
    MessageStarted,
    PartAdded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.value import Extra
from tests.running import running

NAMES: Final = ("a2a", "acp", "aief", "agent-protocol", "langchain", "langgraph", "mcp", "openai", "a2a.draft")


@pytest.mark.parametrize("member", ["x", [], 3, None, {"messageId": {}, "metadata": "x", "branch": {}, "told": 1}])
async def test_a_run_with_any_value_in_extra_is_visible(tmp_path: Path, member: Any) -> None:
    extra: Extra = dict.fromkeys(NAMES, member)

    async def agent(_: str) -> AsyncGenerator[Event]:
        yield StepStarted(step_id="s", name="n", extra=extra)
        yield MessageStarted(message_id="m", extra=extra)
        yield PartAdded(part=TextPart(text="hi", extra=extra), extra=extra)
        yield MessageEnded(message_id="m", extra=extra)
        yield ToolStarted(call_id="c", name="t", extra=extra)
        yield ToolEnded(call_id="c", name="t", extra=extra)
        yield Custom(name="c", value=1, extra=extra)
        yield StepEnded(step_id="s", name="n", extra=extra)

    async with running(tmp_path, {"odd": agent}) as gateway:
        run = {"agent_name": "odd", "input": [{"role": "user", "parts": [{"content": "x"}]}], "mode": "sync"}
        answer = await gateway.http.post("/acp/runs", json=run)
        assert answer.status_code == 200, answer.text
        is_object = member is None or isinstance(member, dict)
        assert answer.json()["status"] == ("completed" if is_object else "failed")
        thread, task, run_id = (answer.headers[f"babelgate-{name}"] for name in ("thread", "task", "run"))
        for path in (
            f"/acp/runs/{task}",
            f"/acp/runs/{task}/events",
            f"/acp/session/{thread}",
            f"/a2a/odd/v1/tasks/{task}",
            f"/agent/odd/ap/v1/agent/tasks/{thread}/steps",
            f"/threads/{thread}/state",
            f"/threads/{thread}/history",
            f"/threads/{thread}/runs/{run_id}/stream",
            f"/v1/conversations/conv_{thread.replace('-', '')}/items",
        ):
            view = await gateway.http.get(path, headers={"Last-Event-ID": "-1"})
            assert view.status_code == 200, f"{path}: {view.text}"
