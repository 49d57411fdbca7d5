"""Tests of the stacks of a process: its threads and tasks, also while the event loop is blocked."""

import asyncio
import threading

import pytest

from babelgate.gateway.background import Tasks
from babelgate.gateway.telemetry.listener import is_from_this_machine
from babelgate.gateway.telemetry.stacks import read_limits, render_stacks


async def waiting_for_something(started: asyncio.Event) -> None:
    started.set()
    secret = "a-value-that-is-not-shown"
    await asyncio.Event().wait()
    del secret


async def test_tasks_and_threads_are_listed_with_their_lines() -> None:
    started = asyncio.Event()
    task = Tasks().spawn(waiting_for_something(started), "a task")
    await started.wait()
    text = (await asyncio.to_thread(render_stacks, asyncio.get_running_loop())).decode()
    task.cancel()
    assert "\nThread MainThread\n" in text
    assert "\nTask a task\n" in text
    assert " waiting_for_something\n" in text
    assert "test_stacks.py:" in text
    assert "a-value-that-is-not-shown" not in text
    assert "secret =" not in text


async def test_stacks_of_a_blocked_loop_name_the_blocking_function() -> None:
    loop, texts = asyncio.get_running_loop(), list[str]()

    def block_the_loop() -> None:
        thread = threading.Thread(target=lambda: texts.append(render_stacks(loop).decode()))
        thread.start()
        thread.join(30)

    block_the_loop()
    thread = texts[0].partition("\nThread MainThread\n")[2].partition("\n\n")[0]
    assert "block_the_loop" in thread


def test_limits_are_pairs() -> None:
    assert len(read_limits()["nofile"].split()) == 2


@pytest.mark.parametrize(
    ("address", "is_local"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False), ("fe80::1%eth0", False)],
)
def test_only_loopback_addresses_are_this_machine(address: str, is_local: bool) -> None:
    assert is_from_this_machine(address) is is_local
