"""A state without messages begins a conversation again."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from babelgate.adapters.kit.server.empty_state import save_empty_state
from babelgate.canonical import Invocation, Message, Principal, RunInput, RunStatus, Scope, Submission
from tests.gateway.hubs import guarded
from tests.running import running

CALLER = Principal.of_owner("default")


def submission(text: str, thread_id: str | None = None, checkpoint: str | None = None) -> Submission:
    run_input = RunInput(messages=(Message.of(text, "user"),), checkpoint=checkpoint)
    return Submission(agent="held", input=run_input, thread_id=thread_id)


async def test_a_run_from_an_empty_state_has_no_history(tmp_path: Path) -> None:
    histories = list[int]()
    started = asyncio.Event()

    async def held(call: Invocation) -> AsyncGenerator[str]:
        histories.append(len(call.history))
        if call.text == "hold":
            started.set()
            await asyncio.Event().wait()
        yield "done"

    async with running(tmp_path, {"held": held}) as gateway, asyncio.timeout(30):
        hub = guarded(gateway.hub)
        first = await hub.submit(CALLER, submission("hold"))
        await started.wait()
        state = await save_empty_state(hub, CALLER, first.thread_id, [first.run_id])
        assert (await hub.reads.run(CALLER, first.run_id)).status is RunStatus.CANCELLED
        again = await hub.submit(CALLER, submission("again", first.thread_id, state))
        async for _ in hub.reads.follow(CALLER, Scope(first.thread_id, "run", again.run_id)):
            pass
    assert histories == [0, 0]
