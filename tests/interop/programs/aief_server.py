"""Agents served by the official SDK of the AIEF Agent Protocol.

The SDK serves one agent, so the input of a task names the agent: `echo: Hello` is the agent `echo` with the text Hello.
Below `/<agent>` the input is only the text, and outputs have no names of steps.
"""

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
agent_in_path: ContextVar[str] = ContextVar("agent_in_path")
"""Agent that the path of the request names."""


def agent_and_text(task: Task) -> tuple[str, str]:
    if agent := agent_in_path.get(""):
        return agent, task.input or ""
    agent, _, text = (task.input or "").partition(": ")
    return agent, text


async def task_handler(task: Task) -> None:
    agent, text = agent_and_text(task)
    names = ("plan", "work", "review") if agent == "steps" else (agent,)
    for name in names:
        step_name = f"step {name}" if agent_in_path.get("") else name
        await Agent.db.create_step(task.task_id, step_name, input=text, is_last=agent != "ask" and name == names[-1])


async def step_handler(step: Step) -> Step:
    task = await Agent.db.get_task(step.task_id)
    agent, text = agent_and_text(task)
    if agent == "fail":
        raise RuntimeError(text)
    if agent == "slow":
        await gate.wait()
    if agent == "files":
        for artifact in list(task.artifacts):
            name = artifact.file_name if agent_in_path.get("") else f"copy-of-{artifact.file_name}"
            store(task, step, name, read(task, artifact))
        store(task, step, "report.txt", text.encode())
    name = step.name.removeprefix("step ")
    if name == "ask":
        await Agent.db.create_step(task.task_id, step.name.replace("ask", "greet"), is_last=True)
        step.output = "What is your name?"
    elif name == "greet":
        step.output = f"Hello, {step.input}."
    elif agent_in_path.get(""):
        step.output = {"echo": text, "slow": "first last"}.get(agent)
    else:
        step.output = f"{step.name}: {text}"
    return step


def read(task: Task, artifact: Artifact) -> bytes:
    return Path(Agent.get_artifact_path(task.task_id, artifact)).read_bytes()


def store(task: Task, step: Step, name: str, content: bytes) -> None:
    # The SDK's `create_artifact(step_id=…)` would add it to the first step of the task.
    artifact = Artifact(artifact_id=f"{step.step_id}-{name}", file_name=name, agent_created=True, relative_path="out")
    path = Path(Agent.get_artifact_path(task.task_id, artifact))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    task.artifacts.append(artifact)
    step.artifacts.append(artifact)


async def route_by_path(scope: Any, receive: Any, send: Any) -> None:
    path = scope.get("path", "")
    first, _, rest = path.removeprefix("/").partition("/")
    if scope["type"] == "http" and first != "ap":
        agent_in_path.set(first)
        scope = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}
    await app(scope, receive, send)


async def main() -> None:
    Agent.setup_agent(task_handler, step_handler)
    app.include_router(base_router)
    with TemporaryDirectory() as Agent.workspace:
        # uvicorn instead of the SDK's `Agent.start`, whose hypercorn is slow at each call.
        await serve(route_by_path, listen(), gate)


if __name__ == "__main__":
    asyncio.run(main())
