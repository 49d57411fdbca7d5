"""Watchdog: an agent that blocks the event loop is logged with its name and the line of its code."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from langgraph.graph import MessagesState  # pyright: ignore[reportMissingTypeStubs]

from babelgate.gateway.agents.langgraph.agent import wrap_graph
from babelgate.gateway.http.connection import ConnectionTable
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.telemetry.process import Telemetry
from tests.bridge import client
from tests.gateway.graphs import builder
from tests.gateway.runs.test_run_reports import run
from tests.opened import opened

TEXT: Final = "blocks the event loop"


async def quick(text: str) -> str:
    return text


@contextmanager
def logged() -> Generator[threading.Event]:
    """Yield an event that is set when the watchdog logs something."""
    event, logger = threading.Event(), logging.getLogger("babelgate.agent")

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if TEXT in record.getMessage():
                event.set()

    handler = Handler()
    logger.addHandler(handler)
    try:
        yield event
    finally:
        logger.removeHandler(handler)


@asynccontextmanager
async def watched(folder: Path, **agents: object) -> AsyncGenerator[httpx.AsyncClient]:
    """Open a gateway with its telemetry."""
    telemetry = Telemetry(Settings(), None)
    async with (
        opened(folder, agents, observer=telemetry.observer) as gateway,
        telemetry.running(gateway.hub, ConnectionTable(Settings())),
        client(gateway.app) as http,
    ):
        yield http


def function(block: Callable[[], object]) -> object:
    async def blocking(text: str) -> str:
        block()
        return text

    return blocking


def generator(block: Callable[[], object]) -> object:
    async def blocking(text: str) -> AsyncGenerator[str]:
        yield text
        block()

    return blocking


def task(block: Callable[[], object]) -> object:
    async def blocking() -> None:
        block()

    async def waiting(text: str) -> str:
        await asyncio.gather(blocking(), quick(text))
        return text

    return waiting


def graph(block: Callable[[], object]) -> object:
    async def blocking(state: MessagesState) -> Any:
        block()
        return {"messages": [("ai", "done")]}

    _, agent = wrap_graph(builder(MessagesState, {"blocking": blocking}).compile(), "slow")
    return agent


@pytest.mark.parametrize("make", [function, generator, task, graph])
async def test_blocking_agent_is_logged_once_with_its_stack(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Callable[[], object]], object]
):
    with logged() as event:
        async with watched(tmp_path, slow=make(lambda: event.wait(30)), quick=quick) as http:
            await run(http, "quick")
            ended = await run(http, "slow")
            assert ended["status"] == "completed"
            assert event.is_set()
    (record,) = [each for each in caplog.records if TEXT in each.message]
    assert record.levelno == logging.WARNING
    assert "agent=slow" in record.message
    assert "in blocking" in (record.stack_info or "")
    assert "runners.py" not in (record.stack_info or "")


async def test_sync_functions_block_only_their_threads(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    with logged() as event:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def patient(text: str) -> str:
            loop.call_soon_threadsafe(begun.set)
            event.wait(30)
            return text

        async with watched(tmp_path, patient=patient, blocking=function(lambda: event.wait(30))) as http:
            waiting = asyncio.ensure_future(run(http, "patient"))
            await asyncio.wait_for(begun.wait(), 30)
            await run(http, "blocking")
            assert (await waiting)["status"] == "completed"
    assert ["agent=blocking" in each.message for each in caplog.records if TEXT in each.message] == [True]
