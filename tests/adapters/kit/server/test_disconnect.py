"""Callers that disconnect while their request is accepted."""

import asyncio

import pytest

from babelgate.adapters.kit.server.disconnect import accept
from babelgate.canonical import Receipt, TaskState
from tests.gateway.hubs import PRINCIPAL, HubFactory, PausedWriter, Scripted, ends, guarded, registered, submit, within


async def test_accept_returns_the_result_of_the_submission(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent))
    receipt = await accept(guarded(hub), PRINCIPAL, submit(hub, "a"))
    (await agent.called()).end()
    assert (await ends(hub, receipt)).state is TaskState.COMPLETED


async def test_a_run_is_cancelled_if_its_caller_disconnects_during_submission(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Scripted()))
    accepted: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

    async def submitting() -> Receipt:
        accepted.set_result(await submit(hub, "a", "left alone"))
        return accepted.result()

    async with PausedWriter(hub) as held:
        caller = asyncio.ensure_future(accept(guarded(hub), PRINCIPAL, submitting()))
        await held.queued(caller)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
    assert (await ends(hub, await within(accepted))).state is TaskState.CANCELLED
