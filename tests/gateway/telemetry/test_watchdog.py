"""Watchdog: an agent that blocks the event loop is logged with its name and the line of its code."""

import logging
import threading
from pathlib import Path

import pytest

from babelgate.gateway.telemetry.watchdog import Watchdog
from tests.bridge import client
from tests.gateway.runs.test_run_reports import run
from tests.opened import opened


async def quick(text: str) -> str:
    return text


async def test_blocking_agent_is_logged_once_with_its_stack(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    logged, watchdog = threading.Event(), Watchdog()

    async def blocking(text: str) -> str:
        logged.wait(30)  # until the watchdog has logged it
        return text

    class Noted(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.set()

    handler = Noted()
    logging.getLogger("babelgate.agent").addHandler(handler)
    try:
        async with (
            opened(tmp_path, {"blocking": blocking, "quick": quick}, observer=watchdog) as gateway,
            client(gateway.app) as http,
        ):
            watchdog.start(gateway.hub.engine.find_run, lambda: bool(gateway.hub.engine.active))
            await run(http, "quick")
            await run(http, "blocking")
            assert logged.is_set()
    finally:
        watchdog.stop()
        logging.getLogger("babelgate.agent").removeHandler(handler)
    (record,) = [each for each in caplog.records if "blocks the event loop" in each.message]
    assert "agent=blocking" in record.message
    assert "in blocking" in (record.stack_info or "")
    assert "runners.py" not in (record.stack_info or "")
