"""Agents served by the official SDK of the AIEF Agent Protocol. It serves one agent, so the input of a task names it:
`echo: Hello` is the agent echo with the text Hello. Below `/<agent>` it is that agent alone, which says
no more than what it has to say."""

import asyncio
from contextvars import ContextVar
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agent_protocol import Agent, Artifact, Step, Task
from agent_protocol.agent import base_router
from agent_protocol.server import app
from serving import Gate, listen, serve

gate = Gate()
alone: ContextVar[str] = ContextVar("alone")
"""The agent that the request is for, by its path."""


def asked(task: Task) -> tuple[str, str]:
    if agent := alone.get(""):
        return agent, task.input or ""
    agent, _, text = (task.input or "").partition(": ")
    return agent, text


async def task_handler(task: Task) -> None:
    agent, text = asked(task)
    names = ("plan", "work", "review") if agent == "steps" else (agent,)
    for name in names:
        called = f"step {name}" if alone.get("") else name
        await Agent.db.create_step(task.task_id, called, input=text, is_last=agent != "ask" and name == names[-1])


async def step_handler(step: Step) -> Step:
    task = await Agent.db.get_task(step.task_id)
    agent, text = asked(task)
    if agent == "fail":
        raise RuntimeError(text)
    if agent == "slow":
        await gate.wait()
    if agent == "files":
        for given in list(task.artifacts):
            keep(task, step, given.file_name if alone.get("") else f"copy-of-{given.file_name}", read(task, given))
        keep(task, step, "report.txt", text.encode())
    name = step.name.removeprefix("step ")
    if name == "ask":
        await Agent.db.create_step(task.task_id, step.name.replace("ask", "greet"), is_last=True)
        step.output = "What is your name?"
    elif name == "greet":
        step.output = f"Hello, {step.input}."
    elif alone.get(""):
        step.output = {"echo": text, "slow": "first last"}.get(agent)
    else:
        step.output = f"{step.name}: {text}"
    return step


def read(task: Task, artifact: Artifact) -> bytes:
    return Path(Agent.get_artifact_path(task.task_id, artifact)).read_bytes()


def keep(task: Task, step: Step, name: str, content: bytes) -> None:
    # Not the SDK's `create_artifact(step_id=…)`, which puts it on the first step of the task.
    made = Artifact(artifact_id=f"{step.step_id}-{name}", file_name=name, agent_created=True, relative_path="out")
    path = Path(Agent.get_artifact_path(task.task_id, made))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    task.artifacts.append(made)
    step.artifacts.append(made)


async def each_alone(scope: Any, receive: Any, send: Any) -> None:
    path = scope.get("path", "")
    first, _, rest = path.removeprefix("/").partition("/")
    if scope["type"] == "http" and first != "ap":
        alone.set(first)
        scope = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}
    await app(scope, receive, send)


async def main() -> None:
    Agent.setup_agent(task_handler, step_handler)
    app.include_router(base_router)
    with TemporaryDirectory() as Agent.workspace:
        # uvicorn and not its own `Agent.start`: hypercorn is slow at each call.
        await serve(each_alone, listen(), gate)


if __name__ == "__main__":
    asyncio.run(main())
