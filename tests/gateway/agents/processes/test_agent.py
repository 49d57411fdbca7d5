"""Tests of agents in Python that run in separate processes."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import pytest

from babelgate.canonical import Event, FaultCode, FaultError
from babelgate.conformance.contract import Dialogue, check_agent
from babelgate.conformance.contract.trial import STRANGE
from babelgate.gateway import demo
from babelgate.gateway.agents.processes import agent as module
from babelgate.gateway.agents.processes.agent import ProcessAgent
from babelgate.gateway.agents.processes.process import Unstartable
from tests.gateway.talk import agent, within
from tests.running import running

AGENTS: Final = "tests.gateway.agents.processes.agents"


@asynccontextmanager
async def process_agent(target: str, **options: Any) -> AsyncGenerator[ProcessAgent]:
    """Open an agent in a process, and end the process."""
    defaults: dict[str, Any] = {"replay": True, "patience": 60.0, "memory": None}
    found = ProcessAgent(target, "agent", **{**defaults, **options})
    await found.open()
    try:
        yield found
    finally:
        await found.aclose()


async def gone(pid: int) -> None:
    """Wait until a process has ended. It need not be a child of this one."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


@pytest.mark.parametrize("name", demo.__all__)
async def test_output_equals_that_of_the_same_agent_in_the_gateway(name: str) -> None:
    text = "0.01 s" if name == "slow" else "Hello, 2 worlds"
    async with process_agent(f"babelgate.gateway.demo:{name}") as remote:
        outputs: list[Any] = []
        for each in (remote, agent(getattr(demo, name))):
            dialogue = Dialogue(each)
            transcript = await dialogue.say(text)
            if transcript.questions:
                answers: list[Any] = [{"approved": True} for _ in transcript.questions]
                transcript = await dialogue.answer(*answers)
            fault = transcript.fault and (transcript.fault.code, transcript.fault.message)
            outputs.append((transcript.text, [type(event) for event in transcript.events], fault))
        assert outputs[0] == outputs[1]


async def test_agent_in_a_process_meets_the_contract() -> None:
    async with process_agent("babelgate.gateway.demo:ask") as remote:
        await check_agent(lambda: remote, answer="yes", strange=STRANGE)


@pytest.mark.parametrize(("way", "how"), [("exit", "ended with status 3"), ("kill", "was killed by SIGKILL")])
async def test_a_crash_fails_the_run_alone(way: str, how: str) -> None:
    async with process_agent(f"{AGENTS}:crash") as remote:
        failed = await Dialogue(remote).say(way)
        assert failed.fault is not None
        assert failed.fault.code is FaultCode.AGENT_FAILED
        assert failed.fault.message == f"The process of agent agent {how} during the run."
        assert failed.text == "begun "
        again = await Dialogue(remote).say("go")
        assert again.fault is None


async def test_a_paused_task_continues_in_the_next_process() -> None:
    async with process_agent(f"{AGENTS}:ask") as remote, process_agent(f"{AGENTS}:ask") as other:
        dialogue = Dialogue(remote)
        assert (await dialogue.say("hi")).text == "Who? "
        dialogue.agent = other  # it has not seen the question
        assert (await dialogue.answer("Ann")).text.startswith("Hello, Ann, from ")


async def test_a_process_that_blocks_is_killed_after_a_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PONG", 0.1)
    async with process_agent(f"{AGENTS}:block") as remote:
        pid = int((await Dialogue(remote).say("go")).text)
        events = cast("AsyncGenerator[Event]", remote.run(Dialogue(remote).call("block", "input")))
        async with aclosing(events):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(events), 0.05)
        await within(gone(pid))
        assert int((await within(Dialogue(remote).say("go"))).text) != pid


async def test_a_blocked_agent_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    agents = {
        "block": {"python": f"{AGENTS}:block", "process": True, "timeout": 0.2},
        "echo": {"python": "babelgate.gateway.demo:echo"},
    }
    async with running(tmp_path, configured=agents) as gateway:
        stuck = asyncio.ensure_future(gateway.http.post("/runs/wait", json={"assistant_id": "block", "input": "block"}))
        answer = await gateway.http.post("/runs/wait", json={"assistant_id": "echo", "input": "hi"})
        assert answer.status_code == 200
        response = await within(stuck)
        assert "0.2" in response.text, "the timeout of the agent ends its run"


async def test_an_agent_that_cannot_be_imported_is_reported() -> None:
    remote = ProcessAgent(
        "tests.gateway.agents.processes.agents:absent", "agent", replay=True, patience=60, memory=None
    )
    with pytest.raises(Unstartable, match="has no absent"):
        await remote.open()


async def test_the_end_of_the_gateway_ends_the_process(tmp_path: Path) -> None:
    agents = {"who": {"python": f"{AGENTS}:process_id", "process": True}}
    async with running(tmp_path, configured=agents) as gateway:
        response = await gateway.http.post(
            "/v1/chat/completions", json={"model": "who", "messages": [{"role": "user", "content": "?"}]}
        )
        pid = int(response.json()["choices"][0]["message"]["content"])
        assert pid != os.getpid()
    await within(gone(pid))


async def test_memory_is_limited() -> None:
    async with process_agent(f"{AGENTS}:allocate", memory=2**30) as remote:
        failed = await Dialogue(remote).say("hi")
        assert failed.fault is not None
        assert failed.fault.message.startswith("MemoryError")
        assert (await Dialogue(remote).say("")).text == "0"


async def test_a_fault_of_the_agent_keeps_its_code_and_details() -> None:
    async with process_agent(f"{AGENTS}:refuse") as remote:
        with pytest.raises(FaultError) as raised:
            async for _ in remote.run(Dialogue(remote).call("hi", "input")):
                pass
    assert (raised.value.fault.code, raised.value.fault.details) == (FaultCode.INVALID, {"field": "text"})
